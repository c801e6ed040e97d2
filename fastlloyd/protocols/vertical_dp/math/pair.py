r"""The grid weights of two parties by maximum likelihood over whole rows: ours, in place of inclusion and exclusion.

Inclusion and exclusion looks at one union per cell and finds a small number as the difference of two large ones, with
an error of (n + phantoms) / sqrt(M) for every cell, however small. A row says more. Write E_ab = -ln F(highest level
of cell (a, b)), nearly exponential with rate N_ab, the cell's users and phantoms. The sketches show

    X_a = min over b of E_ab,   Y_b = min over a of E_ab.

* If X_a = Y_b, the cell (a, b) itself has that value, as no two cells share one but by chance (below).
* An X_a that no Y equals is the value of one of the cells (a, b) with Y_b < X_a; the same for Y_b.
* Every cell has E_ab >= max(X_a, Y_b).

So the likelihood of a row is exp(-sum_ab N_ab max(X_a, Y_b)) times N_ab for each tie, times the sum of N_ab over the
cells that may have been it for each other value: its logarithm is concave in N, and that of a Poisson count of about
1.5 k' M events spread over (k')^2 cells. A value at the floor is censored: its cells have none smaller, no more.
N_ab = w_ab + n_p with w >= 0 is found by expectation and maximisation, under sum of w = n-hat. The standard error of
a cell falls to some sqrt((w + n_p) (n + (k')^2 n_p) / (k' M)), see `likelihood_error`.

Levels must be fine for this: unrelated X_a and Y_b share a level with a probability of about ln(1 + gamma) / 4.
Hence gamma is at most 2^-8; at 2^-11 a chance tie is met once in 8,000.

Rows depend on the sketches only through counts of patterns (which cells may have been it), so the cost of a step does
not depend on M. With more than two parties there are many small tables, whose steps cost little more than the calls
of numpy: so all pairs take their steps together, and each stops by itself. Post-processing of released sketches, at
the server.

Source: ours; expectation and maximisation for Poisson counts: Shepp and Vardi (1982). Ties of maxima for common
members: Broder (1997).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.protocols.vertical_dp.math.estimate import Table, check_sketches
from fastlloyd.protocols.vertical_dp.sketch.sketch import GRID_PHANTOMS, Levels, SketchShape

MAX_GAMMA = 2.0**-8

_STEPS = 2000
_TOLERANCE = 1e-6
_TOGETHER = 1 << 21
"""Numbers in the patterns of the pairs that take their steps together; of larger ones a call takes longer anyway."""


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Values of one cluster that no tie explains: which partners may have been it, and how often."""

    partners: NDArray[np.float64]
    counts: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What the sketches of one pair say: cells named by a tie, how long each was watched, and all other values.

    Attributes
    ----------
    ties, times : float64 arrays, shape (k', k')
    patterns : of each cluster of the first party, then of each of the second
    """

    ties: Table
    times: Table
    patterns: tuple[_Patterns, ...]


@dataclass(frozen=True, slots=True)
class _SameCount:
    """Patterns of clusters with the same count: one array of their matrices, multiplied by one call."""

    where: tuple[Any, ...]
    partners: NDArray[np.float64]
    counts: NDArray[np.float64]

    def events(self, rates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Share the values out over the partners, per unit of their rates; shape (..., k')."""
        own = rates[self.where]
        if self.partners.ndim == 2:
            return np.asarray((self.counts / (self.partners @ own)) @ self.partners)
        met = (self.partners @ own[..., None])[..., 0]
        return np.asarray(((self.counts / met)[:, None, :] @ self.partners)[:, 0])


def likelihood_table(sketches: Sequence[Levels], shape: SketchShape, total: float) -> Table:
    """Estimate the users in every grid cell of two parties; as `likelihood_tables` of one pair."""
    return likelihood_tables([sketches], shape, total)[0]


def likelihood_tables(pairs: Sequence[Sequence[Levels]], shape: SketchShape, total: float) -> list[Table]:
    """Estimate the users in every grid cell of each pair of parties.

    Parameters
    ----------
    pairs : per pair, two int64 arrays, shape (M, k')
    shape : SketchShape
        With phantoms of the grid and gamma at most 2^-8.
    total : float
        Paper: n-hat.

    Returns
    -------
    per pair, float64 array, shape (k', k')
        Non-negative, with sum `total`; zeros if `total` is not positive. The same bits as of that pair alone.

    Raises
    ------
    ConfigError
        The sketches are not of a pair, too coarse, or with the paper's phantoms.
    """
    if shape.parties != 2 or shape.scheme != GRID_PHANTOMS or shape.gamma > MAX_GAMMA:
        raise ConfigError(
            f"the likelihood of pairs needs sketches of two parties, phantoms = 'grid' and gamma <= 2^-8, got "
            f"{shape.parties} parties, {shape.scheme!r} and {shape.gamma:g}; take weights = 'basic' instead"
        )
    for sketches in pairs:
        check_sketches(sketches, shape)
    if total <= 0.0:
        return [np.zeros((shape.clusters, shape.clusters)) for _ in pairs]
    most = 2 * shape.clusters**2 * min(shape.rows, 2**shape.clusters)
    step = max(1, _TOGETHER // most)
    found: list[Table] = []
    for first in range(0, len(pairs), step):
        together = [_evidence(one, other, shape) for one, other in pairs[first : first + step]]
        found += _maximise(together, shape.phantoms, total)
    return found


def likelihood_error(total: float, weight: float, shape: SketchShape) -> float:
    """Return about the standard error of a cell of `weight` users, before non-negativity takes effect.

    Notes
    -----
    Every cell gives 1.5 k' M (w + n_p) / (n + (k')^2 n_p) events in all, of which a third names the cell outright. The
    factor between what all of them and what only the named ones would tell was measured.
    """
    size = total + shape.cells * shape.phantoms
    return math.sqrt((weight + shape.phantoms) * size / (shape.clusters * shape.rows))


def _evidence(first: Levels, second: Levels, shape: SketchShape) -> _Evidence:
    """Read the sketches of one pair."""
    above_first, above_second = first > shape.floor, second > shape.floor
    ties = np.zeros((shape.clusters, shape.clusters))
    tied_first, tied_second = np.zeros_like(above_first), np.zeros_like(above_second)
    for a in range(shape.clusters):
        equal = (second == first[:, a, None]) & above_second
        ties[a] = equal.sum(axis=0)
        tied_first[:, a] = equal.any(axis=1)
        tied_second |= equal
    lines = [_patterns(second > first[:, a, None], (above_first & ~tied_first)[:, a]) for a in range(shape.clusters)]
    columns = [
        _patterns(first > second[:, b, None], (above_second & ~tied_second)[:, b]) for b in range(shape.clusters)
    ]
    return _Evidence(ties, _times(first, second, shape), (*lines, *columns))


def _times(first: Levels, second: Levels, shape: SketchShape) -> Table:
    """Sum max(X_a, Y_b) over the rows: how long each cell was watched."""
    value = _values(shape)
    return np.array(
        [value[np.minimum(first[:, a, None], second) - shape.floor].sum(axis=0) for a in range(shape.clusters)]
    )


@lru_cache(maxsize=8)
def _values(shape: SketchShape) -> NDArray[np.float64]:
    """Return -ln F in the middle of each level from the floor to the top: the value that it stands for."""
    cumulative = shape.user_levels.cumulative()[shape.floor - 1 :]
    middle = 0.5 * (cumulative[1:] + cumulative[:-1])
    middle[0] = cumulative[1]
    return np.asarray(-np.log(np.minimum(middle, 1.0)))


def _patterns(candidates: NDArray[np.bool_], rows: NDArray[np.bool_]) -> _Patterns:
    """Count which partners may have been it, over the given rows."""
    seen = candidates[rows]
    packed = np.packbits(seen[seen.any(axis=1)], axis=1)
    unique, counts = np.unique(packed, axis=0, return_counts=True)
    partners = np.unpackbits(unique, axis=1, count=candidates.shape[1]).astype(np.float64)
    return _Patterns(partners, counts.astype(np.float64))


def _by_count(found: Sequence[_Evidence]) -> list[_SameCount]:
    """Put patterns of equal numbers together: more, filled up with nothing, would be added up in another order."""
    places: dict[int, list[tuple[int, int]]] = {}
    for pair, evidence in enumerate(found):
        for cluster, own in enumerate(evidence.patterns):
            places.setdefault(len(own.counts), []).append((pair, cluster))
    batches = []
    for members in places.values():
        patterns = [found[pair].patterns[cluster] for pair, cluster in members]
        if len(members) == 1:
            batches.append(_SameCount(members[0], patterns[0].partners, patterns[0].counts))
        else:
            where = tuple(np.array(members).T)
            partners = np.stack([own.partners for own in patterns])
            batches.append(_SameCount(where, partners, np.stack([own.counts for own in patterns])))
    return batches


def _maximise(found: Sequence[_Evidence], phantoms: int, total: float) -> list[Table]:
    """Raise the likelihood of each pair step by step until its weights converge."""
    ties, times = (np.stack([getattr(one, name) for one in found]) for name in ("ties", "times"))
    clusters = ties.shape[1]
    weights = np.full(ties.shape, total / clusters**2)
    result, left, batches = np.empty_like(weights), np.arange(len(found)), _by_count(found)
    for _ in range(_STEPS):
        rates = weights + phantoms
        # Of each cluster of the first party, then of each of the second: the rates of its cells, and their events.
        both = np.concatenate([rates, rates.transpose(0, 2, 1)], axis=1)
        events = np.empty_like(both)
        for own in batches:
            events[own.where] = own.events(both)
        shares = ties / rates
        shares += events[:, :clusters]
        shares += events[:, clusters:].transpose(0, 2, 1)
        shares *= weights
        new = _rescaled(shares, times, total)
        # Where nothing was ever seen, no weights are better than others.
        seen = shares.any(axis=(1, 2))
        moving = seen & (np.abs(new - weights).max(axis=(1, 2)) > _TOLERANCE * total)
        weights = np.where(seen[:, None, None], new, weights)
        if not moving.all():
            result[left[~moving]] = weights[~moving]
            left, weights, ties, times = left[moving], weights[moving], ties[moving], times[moving]
            if not len(left):
                break
            batches = _by_count([found[pair] for pair in left])
    result[left] = weights
    return list(result)


def _rescaled(events: NDArray[np.float64], times: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """Return events / (times + multiplier), each pair's multiplier such that their sum is `total`; 0 without events."""
    seen = events > 0.0
    whole = seen.all(axis=(1, 2))
    shift = np.zeros(len(events))
    shift[whole] = _multipliers(events[whole].reshape(-1, seen[0].size), times[whole].reshape(-1, seen[0].size), total)
    for pair in np.flatnonzero(~whole & seen.any(axis=(1, 2))):
        shift[pair] = _multipliers(events[pair][seen[pair]][None], times[pair][seen[pair]][None], total)[0]
    new = np.zeros_like(events)
    np.divide(events, times + shift[:, None, None], out=new, where=seen)
    return new


def _multipliers(some: Table, watched: Table, total: float) -> NDArray[np.float64]:
    """Find for each line the multiplier for which the sum of some / (watched + multiplier) is `total`; shape (lines,).

    Parameters
    ----------
    some, watched : float64 arrays, shape (lines, cells)
        Events, all positive, and how long each cell was watched.
    total : float
    """
    # No term may exceed the total, so this is not above the root; Newton's method on a convex falling sum stays there.
    shift: NDArray[np.float64] = (some / total - watched).max(axis=1)
    least = 1e-12 * watched.max(axis=1)
    moving = np.ones(len(shift), dtype=np.bool_)
    for _ in range(100):
        away = watched + shift[:, None]
        values = some / away
        step = (values.sum(axis=1) - total) / (values / away).sum(axis=1)
        shift = np.where(moving, shift + step, shift)
        moving &= step > least
        if not moving.any():
            break
    return shift
