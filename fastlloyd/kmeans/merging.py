"""The number of clusters that noisy centres and sizes show: merge them one by one, until a merge becomes expensive.

With too many clusters, k-means cuts true ones into pieces. Ward's merging joins pieces first, because that adds little
to the cost; the first merge of two true clusters costs several times as much as the one before it. So
the number of clusters is where the cost of a merge over that of the merge before it is largest.

It works on released values only, with basic IEEE operations in a fixed order, so that all parties compute the same
bits.

Source: Ward, "Hierarchical grouping to optimize an objective function" (1963); the rule and its constants were chosen
on generated mixtures, see docs/fastlloyd-plus.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.weighted import ordered_distances

Floats = NDArray[np.float64]

MOST = 1024
"""More clusters than this are not merged: the time is cubic in their number."""
LEAST = 3
"""With fewer clusters there is nothing to choose from."""
CLEAR = 4.5
"""A number of clusters is clear if the next merge costs this many times the last one; see docs/fastlloyd-plus.md."""

# Clusters smaller than this times the noise on a size are left out: they are mostly noise.
_LEAST_SIZE = 0.5
# Merges that cost less than this part of all merges together count as that: centres that are equal.
_NOTHING = 2.0**-40


@dataclass(frozen=True, slots=True)
class Merging:
    """The merged clusters, and the reason for their number.

    Attributes
    ----------
    groups : tuple of tuple of int
        The original clusters in each remaining one, ascending; clusters that are mostly noise are in none.
    costs : float64 array, shape (k,)
        Cost of 1, 2, ... clusters: sum of squared distances, beyond what the clusters given leave.
    step : float
        Cost of the next merge over that of the last one made; 0 where there was nothing to choose from.
    """

    groups: tuple[tuple[int, ...], ...]
    costs: Floats
    step: float


def merge(centers: Floats, noisy_counts: Floats, *, count_noise: float) -> Merging:
    """Merge clusters down to the number that the data seem to have.

    Parameters
    ----------
    centers : float64 array, shape (k, d)
        Released.
    noisy_counts : float64 array, shape (k,)
        Released.
    count_noise : float
        Standard deviation of the noise on a count.

    Returns
    -------
    Merging
        At least 2 groups, and fewer than there are clusters that are more than noise; if only one or two clusters are,
        all of them.

    Notes
    -----
    Privacy: post-processing of releases.
    """
    live = _live(noisy_counts, count_noise)
    pairs, steps = _merge_all(centers[live], np.maximum(noisy_counts[live], 1.0))
    costs = np.zeros(len(centers))
    # The merge from j + 1 clusters to j is the one at place live - 1 - j.
    for j in range(len(live) - 1, 0, -1):
        costs[j - 1] = costs[j] + steps[len(live) - 1 - j]
    chosen, step = _choose(steps, float(costs[0]))
    return Merging(_groups(live.tolist(), pairs[: len(live) - chosen]), costs, step)


def merge_each(
    centers: Floats, noisy_counts: Floats, numbers: Sequence[int], *, count_noise: float
) -> list[tuple[tuple[int, ...], ...] | None]:
    """Merge clusters to each of several numbers, as `merge` does on its way; None where there are not enough clusters.

    Parameters
    ----------
    centers : float64 array, shape (k, d)
    noisy_counts : float64 array, shape (k,)
    numbers : sequence of int
        1 or more.
    count_noise : float

    Notes
    -----
    Privacy: post-processing of releases.
    """
    live = _live(noisy_counts, count_noise)
    pairs = _merge_all(centers[live], np.maximum(noisy_counts[live], 1.0))[0]
    places, most = live.tolist(), len(live)
    return [None if k > most else _groups(places, pairs[: most - k]) for k in numbers]


def merge_to(centers: Floats, counts: Floats, k: int) -> tuple[tuple[int, ...], ...]:
    """Merge clusters until k are left.

    Parameters
    ----------
    centers : float64 array, shape (m, d)
    counts : float64 array, shape (m,)
        Above zero.
    k : int
        From 1 to m.

    Returns
    -------
    tuple of tuple of int
        The original clusters in each remaining one, ascending; in the order of the first.
    """
    return _groups(list(range(len(counts))), _merge_all(centers, counts)[0][: len(counts) - k])


def gather(values: NDArray[np.float64], groups: tuple[tuple[int, ...], ...]) -> NDArray[np.float64]:
    """Add up the rows of `values`, shape (k,) or (k, d), group by group, in order."""
    return np.stack([np.cumsum(values[list(group)], axis=0)[-1] for group in groups])


def _live(noisy_counts: Floats, count_noise: float) -> NDArray[np.int64]:
    """Return the clusters that are more than noise, at least one."""
    live = np.flatnonzero(noisy_counts > max(_LEAST_SIZE * count_noise, 1.0))
    return live if live.size else np.array([noisy_counts.argmax()])


def _groups(places: list[int], pairs: list[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Return the groups of these merges; each merge is a pair of the index that stays and the one that leaves."""
    groups = [[place] for place in places]
    for stays, leaves in pairs:
        groups[stays] += groups[leaves]
        groups[leaves] = []
    return tuple(tuple(sorted(group)) for group in groups if group)


def _choose(steps: list[float], whole: float) -> tuple[int, float]:
    """Return the number of remaining clusters, and the cost of the next merge over that of the last one."""
    count = len(steps) + 1
    if count < LEAST:
        return count, 0.0
    if whole <= 0.0:
        return 1, 0.0
    rising = [max(step, _NOTHING * whole) for step in steps]
    # After merge i there are count - 1 - i clusters, and merge i + 1 would be the next.
    ratios = [after / before for before, after in pairwise(rising)]
    # The last of the largest: on ties the fewest clusters.
    best = max(range(len(ratios)), key=lambda i: (ratios[i], i))
    return count - 1 - best, ratios[best]


def _merge_all(centers: Floats, counts: Floats) -> tuple[list[tuple[int, int]], list[float]]:
    """Merge until one is left; return the indices that stay and leave in each merge, and its cost."""
    centers, counts, k = centers.copy(), counts.copy(), len(counts)
    cost = np.full((k, k), np.inf)
    for place in range(k):
        cost[place] = _costs_of(place, centers, counts)
    np.fill_diagonal(cost, np.inf)
    pairs, steps = [], []
    for _ in range(k - 1):
        one, other = divmod(int(cost.argmin()), k)
        stays, leaves = min(one, other), max(one, other)
        pairs.append((stays, leaves))
        steps.append(float(cost[stays, leaves]))
        both = counts[stays] + counts[leaves]
        centers[stays] = (counts[stays] * centers[stays] + counts[leaves] * centers[leaves]) / both
        counts[stays] = both
        cost[leaves] = cost[:, leaves] = np.inf
        fresh = np.where(np.isinf(cost[stays]), np.inf, _costs_of(stays, centers, counts))
        cost[stays] = cost[:, stays] = fresh
    return pairs, steps


def _costs_of(place: int, centers: Floats, counts: Floats) -> Floats:
    """Return the costs of merging one cluster with each other: n m / (n + m) times the squared distance."""
    squared = ordered_distances(centers, centers[place : place + 1])[:, 0]
    found: Floats = counts * (counts[place] / (counts + counts[place])) * squared
    return found
