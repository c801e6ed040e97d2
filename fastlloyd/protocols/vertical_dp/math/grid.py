"""The final k-means on the weighted grid, without building its points.

A grid cell is a combination of local centres, one per party, so its squared distance to a centre is a sum over the
parties of entries of small tables, and the mean of cells needs only how much weight each local centre has in each
cluster. Cells pass in blocks; memory does not depend on the number of features.

The start is greedy k-means++ from the public seed; the best of several starts counts.

Post-processing of releases, at the server.

Source: Vertical DP, Algorithm 1 line 4; Arthur and Vassilvitskii (2007).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, DataError
from fastlloyd.protocols.vertical_dp.math.fit import Cells
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

Centers = NDArray[np.float64]

_BLOCK = 1 << 14
_WORD = 2.0**-32


@dataclass(frozen=True, slots=True)
class GridResult:
    """What the final k-means gives.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
        Features in the order of the parties.
    weights : float64 array, shape (k,)
        Estimated users per centre.
    cost : float
        Weighted sum of squared distances between grid cells and their centres.
    """

    centers: Centers
    weights: NDArray[np.float64]
    cost: float


def cluster_cells(
    cells: Cells, local_centers: Sequence[Centers], k: int, *, seed: int, starts: int = 10, steps: int = 100
) -> GridResult:
    """Run weighted k-means on the grid.

    Parameters
    ----------
    cells : Cells
    local_centers : sequence of float64 arrays, shape (k', d_l)
        Released centres of each party, in the order of `cells.places`.
    k : int
    seed : int
        The public seed.
    starts : int
    steps : int
        Most steps of Lloyd from each start.

    Returns
    -------
    GridResult

    Raises
    ------
    ConfigError
        k or the number of starts is not positive.
    DataError
        Cells and local centres do not fit, or no cell has weight.

    Notes
    -----
    With fewer cells than k, centres repeat.
    """
    if k < 1 or starts < 1 or steps < 1:
        raise ConfigError(f"expected positive k, starts and steps, got {k}, {starts} and {steps}")
    if cells.places.shape[1] != len(local_centers) or not len(cells.weights):
        raise DataError(
            f"expected weighted cells of {len(local_centers)} parties, got {cells.places.shape[1]} parties and "
            f"{len(cells.weights)} cells; check the sketches and the estimated number of users"
        )
    stream = PublicStream(seed, domains.VERTICAL_KMEANS)
    results = (
        refine(cells, local_centers, seed_centers(cells, local_centers, k, stream), steps) for _ in range(starts)
    )
    return min(results, key=lambda result: result.cost)


def _distances(
    places: NDArray[np.int64], local_centers: Sequence[Centers], centers: Sequence[Centers]
) -> NDArray[np.float64]:
    """Return squared distances of some cells to all centres, shape (c, k), from the parties' tables."""
    result = np.zeros((len(places), len(centers[0])))
    for party, (local, center) in enumerate(zip(local_centers, centers, strict=True)):
        table = ((local[:, None, :] - center[None, :, :]) ** 2).sum(axis=2)
        result += table[places[:, party]]
    return result


def seed_centers(cells: Cells, local_centers: Sequence[Centers], k: int, stream: PublicStream) -> list[Centers]:
    """Choose k cells by greedy k-means++; returns the centres party by party, shape (k, d_l) each.

    Parameters as for `cluster_cells`; cells may weigh nothing.
    """
    trials = 2 + int(math.log(k))
    chosen = [_draw(cells.weights, 1, stream)[0]]
    nearest = _to_cells(cells, local_centers, chosen)[:, 0]
    while len(chosen) < k:
        candidates = _draw(cells.weights * nearest, trials, stream)
        distances = np.minimum(_to_cells(cells, local_centers, candidates), nearest[:, None])
        best = int((cells.weights @ distances).argmin())
        chosen.append(candidates[best])
        nearest = distances[:, best]
    return [local[cells.places[chosen, party]] for party, local in enumerate(local_centers)]


def _draw(weights: NDArray[np.float64], count: int, stream: PublicStream) -> list[int]:
    """Draw cells in proportion to their weights; the heaviest where all weights are 0."""
    bounds = np.cumsum(weights)
    if bounds[-1] <= 0.0:
        return [0] * count
    words = stream.uint32(2 * count).astype(np.float64).reshape(count, 2)
    at = (words[:, 0] + words[:, 1] * _WORD) * _WORD * bounds[-1]
    places = np.minimum(np.searchsorted(bounds, at, side="right"), len(weights) - 1)
    return [int(place) for place in places]


def _to_cells(cells: Cells, local_centers: Sequence[Centers], chosen: Sequence[int]) -> NDArray[np.float64]:
    """Return squared distances of all cells to some of them, shape (c, some)."""
    centers = [local[cells.places[chosen, party]] for party, local in enumerate(local_centers)]
    return _distances(cells.places, local_centers, centers)


def refine(cells: Cells, local_centers: Sequence[Centers], centers: Sequence[Centers], steps: int) -> GridResult:
    """Run Lloyd's steps until the assignment repeats.

    Parameters
    ----------
    cells, local_centers, steps
        As for `cluster_cells`; cells may weigh nothing.
    centers : sequence of float64 arrays, shape (k, d_l)
        Where to begin, party by party.
    """
    centers, k = list(centers), len(centers[0])
    labels = np.full(len(cells.weights), -1)
    for step in range(steps + 1):
        new, cost = assign_cells(cells, local_centers, centers)
        if step == steps or (new == labels).all():
            break
        labels = new
        weight = np.bincount(labels, cells.weights, k)
        full = weight > 0.0
        for party, local in enumerate(local_centers):
            where = labels * len(local) + cells.places[:, party]
            shares = np.bincount(where, cells.weights, k * len(local)).reshape(k, len(local))
            moved = centers[party].copy()
            moved[full] = (shares[full] @ local) / weight[full, None]
            centers[party] = moved
    return GridResult(np.hstack(centers), np.bincount(new, cells.weights, k).astype(np.float64), cost)


def assign_cells(
    cells: Cells, local_centers: Sequence[Centers], centers: Sequence[Centers]
) -> tuple[NDArray[np.int64], float]:
    """Return each cell's nearest centre, shape (c,), lowest index on ties, and the weighted cost.

    Parameters as for `refine`.
    """
    labels = np.empty(len(cells.weights), dtype=np.int64)
    cost = 0.0
    for first in range(0, len(labels), _BLOCK):
        block = slice(first, first + _BLOCK)
        distances = _distances(cells.places[block], local_centers, centers)
        labels[block] = distances.argmin(axis=1)
        cost += float(cells.weights[block] @ distances.min(axis=1))
    return labels, cost
