"""Merge the two clusters whose merge costs least, and split another that gains more, if there is one.

Merging clusters of n_i and n_j records whose centres are D apart adds n_i n_j / (n_i + n_j) D^2 to the cost. That can
be computed from released values. The gain of a split cannot, so it is estimated from below: a share of a cluster's
records times its distance from the nearest centre, but at most a share of the remaining spread within clusters. Merging
an empty cluster costs nothing, so it is moved at once.

Post-processing of released values, the same at all parties: basic operations in a fixed order, directions from a public
stream.

Source: docs/fastlloyd-plus.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.merging import gather, merge_to
from fastlloyd.kmeans.update import total, truncate
from fastlloyd.kmeans.weighted import ordered_distances
from fastlloyd.randomness.prg import PublicStream

Floats = NDArray[np.float64]

# Tuned on synthetic sets, see docs/fastlloyd-plus.md.
_NEAR_GAIN, _WITHIN_GAIN = 0.1, 0.5
_WITHIN_FLOOR = 0.3  # least spread within clusters, over the spread of all times k^(-2/d)
_APART = 0.35  # the two halves of a split, from their middle, over the distance of the nearest centre
_MOVES = 0.2  # swaps in a round, over k
_MOST_MOVES = 32
_MOST_CLUSTERS = 1024
_DRAW = 1 << 20
LEAST_COUNT = 1e-9
"""Least count of a merged cluster: otherwise the place of an empty one would be undefined."""


@dataclass(slots=True)
class Clusters:
    """Centres, shape (k, d), counts, shape (k,), and their variances; changed in place by one swap after the other.

    `variance` is that of each coordinate of a centre: shape (k,) where it is the same for all, or (k, d).
    """

    centers: Floats
    counts: Floats
    count_variance: Floats
    variance: Floats


def swap(found: Clusters, *, deviation: Floats, cell: float, least: float, stream: PublicStream) -> Clusters:
    """Swap while it seems to pay.

    Parameters
    ----------
    found : Clusters
        Not modified.
    deviation : float64 array, shape (d,)
        Standard deviation of each feature over all records.
    cell : float
        k^(-1/d).
    least : float
        Least gain of a split over the loss of a merge.
    stream : PublicStream
        Says where the halves of a split go; the same at all parties, and another one in each round.
    """
    found = Clusters(found.centers.copy(), found.counts.copy(), found.count_variance.copy(), found.variance.copy())
    k, d = found.centers.shape
    if not 2 < k <= _MOST_CLUSTERS:
        return found
    for _ in range(min(max(1, int(_MOVES * k)), _MOST_MOVES)):
        choice = _choose(found, deviation, cell * cell, least)
        if choice is None:
            break
        direction = stream.integers(-_DRAW, _DRAW, d) * deviation
        _move(found, *choice, direction=direction)
    return found


def narrow(found: Clusters, k: int) -> Clusters:
    """Merge clusters, always the two that add least to the cost, until k are left.

    Parameters
    ----------
    found : Clusters
        At least k, `variance` of shape (m,); not modified. A count below `LEAST_COUNT` is taken as that.
    k : int

    Notes
    -----
    The centre of those that are merged is their mean, weighed with their counts.
    """
    held = np.maximum(found.counts, LEAST_COUNT)
    groups = merge_to(found.centers, held, k)
    counts = gather(held, groups)
    part = np.empty_like(held)
    for group, whole in zip(groups, counts.tolist(), strict=True):
        part[list(group)] = held[list(group)] / whole
    return Clusters(
        truncate(gather(part[:, None] * found.centers, groups)),
        counts,
        gather(found.count_variance, groups),
        gather(part * part * found.variance, groups),
    )


def _choose(found: Clusters, deviation: Floats, area: float, least: float) -> tuple[int, int, int, float] | None:
    """Return the cluster that stays, the one that is given up, the one to split, and its nearest centre's distance."""
    held = np.maximum(found.counts, 0.0)
    apart = ordered_distances(found.centers, found.centers)
    pair = held[:, None] * held[None, :] / np.maximum(held[:, None] + held[None, :], 1e-9)
    np.fill_diagonal(apart, np.inf)
    loss = np.where(np.isfinite(apart), pair * np.where(np.isfinite(apart), apart, 0.0), np.inf)
    stays, leaves = divmod(int(loss.argmin()), len(held))
    if held[leaves] > held[stays]:
        stays, leaves = leaves, stays
    nearest = apart.min(axis=1)
    gain = held * np.minimum(_NEAR_GAIN * nearest, _WITHIN_GAIN * _within(found.centers, held, deviation, area))
    gain[leaves] = -1.0
    split = int(gain.argmax())
    # An empty cluster may as well go beside the one that it would have been merged into.
    if (split == stays and loss[stays, leaves] > 0.0) or least * loss[stays, leaves] >= gain[split]:
        return None
    return stays, leaves, split, math.sqrt(nearest[split])


def _move(found: Clusters, stays: int, leaves: int, split: int, distance: float, *, direction: Floats) -> None:
    """Merge one cluster into another and put its centre beside that of a third."""
    centers, counts = found.centers, found.counts
    own, other = max(counts[stays], 0.0), max(counts[leaves], 0.0)
    if own + other > 0.0:
        centers[stays] = (own * centers[stays] + other * centers[leaves]) / (own + other)
    counts[stays] = own + other
    found.count_variance[stays] += found.count_variance[leaves]
    length = math.sqrt(max(total(direction * direction), 1e-12))
    away = _APART * distance
    offset, middle = direction * (away / length), centers[split].copy()
    centers[split], centers[leaves] = truncate(middle + offset), truncate(middle - offset)
    counts[split] = counts[leaves] = 0.5 * counts[split]
    for values, more in (
        # Products, not powers: pow of another C library may round otherwise, and all clients must agree.
        (found.count_variance, 0.25 * counts[split] * counts[split]),
        (found.variance, away * away / len(direction)),
    ):
        values[split] = values[leaves] = values[split] + more


def _within(centers: Floats, held: Floats, deviation: Floats, area: float) -> float:
    """Return the spread within clusters per record: that of all records less that between clusters."""
    weights = (held / max(total(held), 1e-9))[:, None]
    away = centers - np.cumsum(weights * centers, axis=0)[-1]
    spread = total(deviation * deviation)
    return max(spread - total(weights * away * away), _WITHIN_FLOOR * area * spread)
