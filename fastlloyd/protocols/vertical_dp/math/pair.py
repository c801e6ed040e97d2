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
not depend on M. Post-processing of released sketches, at the server.

Source: ours; expectation and maximisation for Poisson counts: Shepp and Vardi (1982). Ties of maxima for common
members: Broder (1997).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.sketch.sketch import GRID_PHANTOMS, Levels, SketchShape
from fastlloyd.protocols.vertical_dp.math.estimate import Table, check_sketches

MAX_GAMMA = 2.0**-8

_STEPS = 2000
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Values of one cluster that no tie explains: which partners may have been it, and how often."""

    partners: NDArray[np.float64]
    counts: NDArray[np.float64]


def likelihood_table(sketches: Sequence[Levels], shape: SketchShape, total: float) -> Table:
    """Estimate the users in every grid cell of two parties.

    Parameters
    ----------
    sketches : two int64 arrays, shape (M, k')
    shape : SketchShape
        With phantoms of the grid and gamma at most 2^-8.
    total : float
        Paper: n-hat.

    Returns
    -------
    float64 array, shape (k', k')
        Non-negative, with sum `total`; zeros if `total` is not positive.

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
    check_sketches(sketches, shape)
    if total <= 0.0:
        return np.zeros((shape.clusters, shape.clusters))
    first, second = sketches
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
    return _maximise(ties, (lines, columns), _times(first, second, shape), shape.phantoms, total)


def likelihood_error(total: float, weight: float, shape: SketchShape) -> float:
    """Return about the standard error of a cell of `weight` users, before non-negativity takes effect.

    Notes
    -----
    Every cell gives 1.5 k' M (w + n_p) / (n + (k')^2 n_p) events in all, of which a third names the cell outright. The
    factor between what all of them and what only the named ones would tell was measured.
    """
    size = total + shape.cells * shape.phantoms
    return math.sqrt((weight + shape.phantoms) * size / (shape.clusters * shape.rows))


def _times(first: Levels, second: Levels, shape: SketchShape) -> Table:
    """Sum max(X_a, Y_b) over the rows: how long each cell was watched."""
    cumulative = shape.user_levels.cumulative()[shape.floor - 1 :]
    middle = 0.5 * (cumulative[1:] + cumulative[:-1])
    middle[0] = cumulative[1]
    value = -np.log(np.minimum(middle, 1.0))
    return np.array(
        [value[np.minimum(first[:, a, None], second) - shape.floor].sum(axis=0) for a in range(shape.clusters)]
    )


def _patterns(candidates: NDArray[np.bool_], rows: NDArray[np.bool_]) -> _Patterns:
    """Count which partners may have been it, over the given rows."""
    seen = candidates[rows]
    packed = np.packbits(seen[seen.any(axis=1)], axis=1)
    unique, counts = np.unique(packed, axis=0, return_counts=True)
    partners = np.unpackbits(unique, axis=1, count=candidates.shape[1]).astype(np.float64)
    return _Patterns(partners, counts.astype(np.float64))


def _maximise(
    ties: Table, patterns: tuple[Sequence[_Patterns], Sequence[_Patterns]], times: Table, phantoms: int, total: float
) -> Table:
    """Raise the likelihood step by step until the weights stand still."""
    lines, columns = patterns
    weights = np.full(ties.shape, total / ties.size)
    for _ in range(_STEPS):
        rates = weights + phantoms
        shares = ties / rates
        for a, line in enumerate(lines):
            shares[a] += (line.counts / (line.partners @ rates[a])) @ line.partners
        for b, column in enumerate(columns):
            shares[:, b] += (column.counts / (column.partners @ rates[:, b])) @ column.partners
        events = weights * shares
        if not events.any():
            break
        new = np.zeros_like(weights)
        np.divide(events, times + _multiplier(events, times, total), out=new, where=events > 0.0)
        moved, weights = float(np.abs(new - weights).max()), new
        if moved <= _TOLERANCE * total:
            break
    return weights


def _multiplier(events: Table, times: Table, total: float) -> float:
    """Find the multiplier for which the sum of events / (times + multiplier) is `total`."""
    seen = events > 0.0
    some, watched = events[seen], times[seen]
    # No term may exceed the total, so this is not above the root; Newton's method on a convex falling sum stays there.
    shift = float((some / total - watched).max())
    for _ in range(100):
        values = some / (watched + shift)
        step = (float(values.sum()) - total) / float((values / (watched + shift)).sum())
        shift += step
        if step <= 1e-12 * float(watched.max()):
            break
    return shift
