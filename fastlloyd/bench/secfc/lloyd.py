"""SecFC's assignments from pooled records, in exact integers and whole blocks at a time.

Lloyd's iterations compare exact scores crosswise, where the parties compare two centres at a time. So the labels are
those of the protocol, and a table of accuracies needs no shares. Tests compare it with the line by line reference and
with the parties.

Source: SecFC, Alg. 1, §5.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastlloyd.field.wide import LIMB_BITS, Wide
from fastlloyd.protocols.secfc.math.clusters import Clusters
from fastlloyd.protocols.secfc.math.start import coins, first_seed, random_labels
from fastlloyd.protocols.secfc.messages import blocks
from fastlloyd.protocols.secfc.plan import Plan

# Sums of coordinates are cut here, so that products with coordinates and their sums stay below 2^53 in float64.
_LOW_BITS = 15

Labels = NDArray[np.int64]


def run_pooled(points: NDArray[np.int64], plan: Plan) -> list[Labels]:
    """Run the algorithm on pooled records; return what the start of least inertia came to, as `run_course` does."""
    courses = [run_course(points, plan, number) for number in range(plan.starts)]
    return courses[least_inertia(points, [history[-1] for history in courses], plan)]


def run_course(points: NDArray[np.int64], plan: Plan, number: int) -> list[Labels]:
    """Run one start on pooled records.

    Parameters
    ----------
    points : int64 array, shape (m, d)
        On the grid of 2^-q, in the order of the run.
    plan : Plan
    number : int
        Of the start, from 0.

    Returns
    -------
    list of int64 array, shape (m,)
        The first assignment and that of each round; k for a point in no cluster.
    """
    if plan.start == "separated":
        history = _separated(points, plan, number)
    else:
        history = [random_labels(plan, len(points), number)]
    for _ in range(plan.iterations):
        clusters = Clusters.of(history[-1], plan.k)
        values = _scores(points, history[-1], clusters)
        places = np.concatenate([closest(block, clusters.sizes**2) for block in values])
        history.append(clusters.used[places])
        if (history[-1] == history[-2]).all():
            break
    return history


def least_inertia(points: NDArray[np.int64], assignments: list[Labels], plan: Plan) -> int:
    """Return which assignment wins: the largest sum of |mu|^2 floor(W / S), the first among equals."""
    totals = []
    for labels in assignments:
        clusters = Clusters.of(labels, plan.k)
        weights = (1 << plan.weight_bits) // clusters.sizes
        norms = [sum(int(value) ** 2 for value in row) for row in _sums(points, labels, clusters)]
        totals.append(sum(int(weight) * norm for weight, norm in zip(weights, norms, strict=True)))
    return totals.index(max(totals))


def _separated(points: NDArray[np.int64], plan: Plan, number: int) -> list[Labels]:
    """Return each point's nearest seed after each seed, and the groups."""
    columns = [_distances(points, first_seed(plan, len(points), number))]
    nearest = np.zeros(len(points), dtype=np.int64)
    near, history = columns[0], [nearest]
    for h, coin in enumerate(coins(plan, number), start=1):
        sums = np.cumsum(near)
        reached = coin * int(sums[-1]) >> plan.coin_bits
        chosen = min(int(np.searchsorted(sums, reached, side="right")), len(points) - 1)
        columns.append(_distances(points, chosen))
        nearest = np.where(columns[-1] < near, h, nearest)
        near = np.minimum(columns[-1], near)
        history.append(nearest)
    apart = np.all([(column >= 9 * near) | (nearest == h) for h, column in enumerate(columns)], axis=0)
    return [*history, np.where(apart, nearest, plan.k)]


def _distances(points: NDArray[np.int64], chosen: int) -> NDArray[np.int64]:
    """Return the squared distances of all points from one, shape (m,)."""
    return np.asarray(((points - points[chosen]) ** 2).sum(axis=1))


def closest(values: Wide, weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of the least value over its weight for each point, the first among equals.

    Parameters
    ----------
    values : Wide, shape (c, m)
    weights : int64 array, shape (c,)
        Positive.

    Returns
    -------
    int64 array, shape (m,)
    """
    best = values[0]
    place = np.zeros(best.shape, dtype=np.int64)
    for h in range(1, len(weights)):
        nearer = values[h].times(weights[place]).less(best.times(weights[h]))
        best = best.replace(nearer, values[h])
        place[nearer] = h
    return place


def _scores(points: NDArray[np.int64], labels: Labels, clusters: Clusters) -> Iterator[Wide]:
    """Return exact scores |mu|^2 - 2 |S| mu.x, block by block, shape (c, points)."""
    sums = _sums(points, labels, clusters)
    high, low = sums >> _LOW_BITS, sums & ((1 << _LOW_BITS) - 1)
    norms = _wide([sum(int(value) ** 2 for value in row) for row in sums])
    twice = 2 * clusters.sizes[:, None]
    for rows in blocks(len(points)):
        x = points[rows].T.astype(np.float64)
        products = ((high.astype(np.float64) @ x).astype(np.int64) << _LOW_BITS) + (low.astype(np.float64) @ x).astype(
            np.int64
        )
        yield Wide.of(-products).times(twice).plus(norms)


def _sums(points: NDArray[np.int64], labels: Labels, clusters: Clusters) -> NDArray[np.int64]:
    """Return the sums of the clusters in use, shape (c, d)."""
    return np.stack([points[labels == h].sum(axis=0) for h in clusters.used])


def _wide(integers: list[int]) -> Wide:
    """Hold non-negative integers, shape (c, 1)."""
    count = max(integers).bit_length() // LIMB_BITS + 1
    mask = (1 << LIMB_BITS) - 1
    limbs = [[[value >> LIMB_BITS * i & mask] for value in integers] for i in range(count)]
    return Wide(np.array(limbs, dtype=np.int64))
