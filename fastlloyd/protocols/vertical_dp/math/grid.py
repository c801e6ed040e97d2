"""The final k-means on the weighted grid, without building its points.

A grid cell is a combination of local centres, one per party, so its squared distance to a centre is a sum over the
parties of entries of small tables, and the mean of cells needs only how much weight each local centre has in each
cluster. Cells with the same local centres at the first parties share the sum over these: cells are paths of a tree, and
what is added up for a node serves all cells below it. Cells pass in blocks; memory does not depend on the number of
features.

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

from fastlloyd.errors import ConfigError, DataError, InternalError
from fastlloyd.protocols.vertical_dp.math.fit import GridCells
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


@dataclass(frozen=True, slots=True)
class Walk:
    """A block of cells as paths from party to party.

    Attributes
    ----------
    steps : per party, (parents, entries), int64 arrays, shape (nodes,)
        Of each node the one before it, None where each has one follower and they stand in the same order; and its local
        centre.
    cells : int64 array or None
        Last node of each cell; None where they stand in the same order.
    """

    steps: tuple[tuple[NDArray[np.int64] | None, NDArray[np.int64]], ...]
    cells: NDArray[np.int64] | None


def walks_of(places: NDArray[np.int64]) -> list[Walk]:
    """Return the cells as paths, block by block.

    Parameters
    ----------
    places : int64 array, shape (c, S)
        As of `GridCells`.
    """
    return [_walk(places[first : first + _BLOCK]) for first in range(0, len(places), _BLOCK)]


def _walk(places: NDArray[np.int64]) -> Walk:
    width, nodes = int(places.max()) + 1, 1
    steps: list[tuple[NDArray[np.int64] | None, NDArray[np.int64]]] = []
    path = np.zeros(len(places), dtype=np.int64)
    for own in places.T:
        path = path * width + own
        there = np.zeros(nodes * width, dtype=np.bool_)
        there[path] = True
        parents, entries = np.divmod(np.flatnonzero(there), width)
        steps.append((None if len(parents) == nodes else parents, entries))
        path, nodes = (np.cumsum(there) - 1)[path], len(parents)
    in_order = np.array_equal(path, np.arange(nodes))
    return Walk(tuple(steps), None if in_order else path)


def cluster_cells(
    cells: GridCells, local_centers: Sequence[Centers], k: int, *, seed: int, starts: int = 10, steps: int = 100
) -> GridResult:
    """Run weighted k-means on the grid.

    Parameters
    ----------
    cells : GridCells
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
    stream, walks = PublicStream(seed, domains.VERTICAL_KMEANS), walks_of(cells.places)
    results = (
        refine(cells, walks, local_centers, seed_centers(cells, walks, local_centers, k, stream=stream), steps)
        for _ in range(starts)
    )
    return min(results, key=lambda result: result.cost)


def _tables(local_centers: Sequence[Centers], centers: Sequence[Centers]) -> list[NDArray[np.float64]]:
    """Return squared distances of each party's local centres to its part of all centres, shape (k, k') each."""
    return [
        np.ascontiguousarray(((local[:, None, :] - center[None, :, :]) ** 2).sum(axis=2).T)
        for local, center in zip(local_centers, centers, strict=True)
    ]


def _distances(walk: Walk, tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return squared distances of all centres to the last nodes of a block, shape (k, nodes): party by party."""
    sums: NDArray[np.float64] | None = None
    for (parents, entries), table in zip(walk.steps, tables, strict=True):
        own = table.take(entries, axis=1)
        if sums is not None:
            own += sums if parents is None else sums.take(parents, axis=1)
        sums = own
    if sums is None:
        raise InternalError("a grid has at least one party")
    return sums


def seed_centers(
    cells: GridCells, walks: Sequence[Walk], local_centers: Sequence[Centers], k: int, *, stream: PublicStream
) -> list[Centers]:
    """Choose k cells by greedy k-means++; returns the centres party by party, shape (k, d_l) each.

    Parameters as for `cluster_cells`, and `walks_of` the cells, which may weigh nothing.
    """
    trials = 2 + int(math.log(k))
    chosen = [_draw(cells.weights, 1, stream)[0]]
    nearest = _to_cells(cells, walks, local_centers, chosen)[:, 0]
    while len(chosen) < k:
        candidates = _draw(cells.weights * nearest, trials, stream)
        distances = np.minimum(_to_cells(cells, walks, local_centers, candidates), nearest[:, None])
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


def _to_cells(
    cells: GridCells, walks: Sequence[Walk], local_centers: Sequence[Centers], chosen: Sequence[int]
) -> NDArray[np.float64]:
    """Return squared distances of all cells to some of them, shape (c, some)."""
    centers = [local[cells.places[chosen, party]] for party, local in enumerate(local_centers)]
    tables = _tables(local_centers, centers)
    result = np.empty((len(cells.weights), len(chosen)))
    for first, walk in enumerate(walks):
        apart = _distances(walk, tables)
        result[first * _BLOCK : (first + 1) * _BLOCK] = (apart if walk.cells is None else apart[:, walk.cells]).T
    return result


def refine(
    cells: GridCells, walks: Sequence[Walk], local_centers: Sequence[Centers], centers: Sequence[Centers], steps: int
) -> GridResult:
    """Run Lloyd's steps until the assignment repeats.

    Parameters
    ----------
    cells, walks, local_centers, steps
        As for `seed_centers` and `cluster_cells`.
    centers : sequence of float64 arrays, shape (k, d_l)
        Where to begin, party by party.
    """
    centers, k = list(centers), len(centers[0])
    columns = np.ascontiguousarray(cells.places.T)
    labels = np.full(len(cells.weights), -1)
    where = np.empty_like(labels)
    for step in range(steps + 1):
        new, cost = assign_cells(cells, walks, local_centers, centers)
        if step == steps or (new == labels).all():
            break
        labels = new
        weight = np.bincount(labels, cells.weights, k)
        full = weight > 0.0
        for party, local in enumerate(local_centers):
            np.multiply(labels, len(local), out=where)
            where += columns[party]
            shares = np.bincount(where, cells.weights, k * len(local)).reshape(k, len(local))
            moved = centers[party].copy()
            moved[full] = (shares[full] @ local) / weight[full, None]
            centers[party] = moved
    return GridResult(np.hstack(centers), np.bincount(new, cells.weights, k).astype(np.float64), cost)


def assign_cells(
    cells: GridCells, walks: Sequence[Walk], local_centers: Sequence[Centers], centers: Sequence[Centers]
) -> tuple[NDArray[np.int64], float]:
    """Return each cell's nearest centre, shape (c,), lowest index on ties, and the weighted cost.

    Parameters as for `refine`.
    """
    labels = np.empty(len(cells.weights), dtype=np.int64)
    cost, tables = 0.0, _tables(local_centers, centers)
    for first, walk in enumerate(walks):
        block = slice(first * _BLOCK, (first + 1) * _BLOCK)
        apart = _distances(walk, tables)
        least, nearest = apart[0].copy(), np.zeros(apart.shape[1], dtype=np.int32)
        for center, own in enumerate(apart[1:], 1):
            # A later number is a larger one: faster than an assignment where it is nearer.
            np.maximum(nearest, (own < least) * np.int32(center), out=nearest)
            np.minimum(least, own, out=least)
        if walk.cells is not None:
            least, nearest = least[walk.cells], nearest[walk.cells]
        labels[block] = nearest
        cost += float(cells.weights[block] @ least)
    return labels, cost
