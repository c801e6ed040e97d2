"""SecFC's assignments from pooled records, in exact integers and whole blocks at a time.

Lloyd's iterations compare exact scores crosswise, where the parties compare two centres at a time. So the labels are
those of the protocol, and a table of accuracies needs no shares. Scores in float64 decide first; where the best two are
closer than their rounding may be, exact integers do. Tests compare it with the line by line reference and with the
parties.

Source: SecFC, Alg. 1, §5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.math.attempt import coins, first_seed, random_labels
from fastlloyd.protocols.secfc.math.tournament import FilledClusters
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd_papers.secfc.wide import LIMB_BITS, Wide

# Sums of coordinates are cut here, so that products with coordinates and their sums stay below 2^53 in float64.
_LOW_BITS = 15

Labels = NDArray[np.int64]


def run_pooled(points: NDArray[np.int64], plan: Plan) -> list[Labels]:
    """Run the algorithm on pooled records; return what the start of least inertia came to, as `run_course` does."""
    courses = [run_course(points, plan, number) for number in range(plan.starts)]
    kept = [history for history, end in zip(courses, copied_at(courses, plan), strict=True) if end is None]
    return kept[least_inertia(points, [history[-1] for history in kept], plan)]


def copied_at(courses: list[list[Labels]], plan: Plan) -> list[int | None]:
    """Return for each start the round in which it reaches clusters that a start had before, and ends; None if never.

    Starts of one pass advance together, so those of a round meet by number.
    """
    ends: list[int | None] = [None] * len(courses)
    met: set[bytes] = set()
    for numbers in plan.passes:
        for t in range(plan.start_rounds, max(len(courses[number]) for number in numbers)):
            for number in numbers:
                course = courses[number]
                ended = ends[number] is not None or t >= len(course)
                if ended or (t > plan.start_rounds and (course[t] == course[t - 1]).all()):
                    continue
                _, first, where = np.unique(course[t], return_index=True, return_inverse=True)
                clusters = np.where(course[t] < plan.k, first[where], -1).tobytes()
                ends[number] = t if clusters in met else None
                met.add(clusters)
    return ends


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
    columns = np.ascontiguousarray(points.T, dtype=np.float64)
    if plan.start == "separated":
        history = _separated(points, columns, plan, number)
    else:
        history = [random_labels(plan, len(points), number)]
    # Row h is the sum of cluster h, the last that of points in none. Sums of at most m coordinates are far below 2^53,
    # so a product with zeros and ones is exact.
    ones = np.eye(plan.k + 1)
    sums = (columns @ ones[history[-1]]).T
    # No coordinate of x or c is above A, so rounding c, products and sums changes a score by at most 3 (d + 3) d A^2 u
    # in all, u = eps / 2, in whatever order they are added; the difference of two by twice that, 3 (d + 3) d A^2 eps.
    # Twice as much counts as doubt.
    d, largest = len(columns), float(np.abs(points).max(initial=0))
    doubt = 6.0 * (d + 3) * d * largest**2 * float(np.finfo(np.float64).eps)
    for _ in range(plan.iterations):
        old, new = history[-1], _assign(points, columns, FilledClusters.of(history[-1], plan.k), sums, doubt)
        history.append(new)
        moved = np.flatnonzero(new != old)
        if not len(moved):
            break
        sums = sums + (ones[new[moved]] - ones[old[moved]]).T @ points[moved]
    return history


def least_inertia(points: NDArray[np.int64], assignments: list[Labels], plan: Plan) -> int:
    """Return which assignment wins: the largest sum of |mu|^2 floor(W / S), the first among equals."""
    totals = []
    for labels in assignments:
        clusters = FilledClusters.of(labels, plan.k)
        weights = (1 << plan.weight_bits) // clusters.sizes
        norms = [sum(int(value) ** 2 for value in row) for row in _sums(points, labels, clusters)]
        totals.append(sum(int(weight) * norm for weight, norm in zip(weights, norms, strict=True)))
    return totals.index(max(totals))


def _separated(points: NDArray[np.int64], columns: NDArray[np.float64], plan: Plan, number: int) -> list[Labels]:
    """Return each point's nearest seed after each seed, and the groups."""
    squares = (points**2).sum(axis=1)
    seeds = [_distances(columns, squares, first_seed(plan, len(points), number))]
    nearest = np.zeros(len(points), dtype=np.int64)
    near, history = seeds[0], [nearest]
    for h, coin in enumerate(coins(plan, number), start=1):
        sums = np.cumsum(near)
        reached = coin * int(sums[-1]) >> plan.coin_bits
        chosen = min(int(np.searchsorted(sums, reached, side="right")), len(points) - 1)
        seeds.append(_distances(columns, squares, chosen))
        nearest = np.where(seeds[-1] < near, h, nearest)
        near = np.minimum(seeds[-1], near)
        history.append(nearest)
    apart = np.all([(far >= 9 * near) | (nearest == h) for h, far in enumerate(seeds)], axis=0)
    return [*history, np.where(apart, nearest, plan.k)]


def _distances(columns: NDArray[np.float64], squares: NDArray[np.int64], chosen: int) -> NDArray[np.int64]:
    """Return the squared distances of all points from one, shape (m,).

    No sum of products is above |x| |y|, on a rotated grid too at most d (2^16 + 1)^2: exact in float64.
    """
    products = (columns[:, chosen] @ columns).astype(np.int64)
    squared: NDArray[np.int64] = squares + squares[chosen] - 2 * products
    return squared


def _assign(
    points: NDArray[np.int64],
    columns: NDArray[np.float64],
    clusters: FilledClusters,
    sums: NDArray[np.float64],
    doubt: float,
) -> Labels:
    """Return the nearest of the centres, the first among equals.

    `columns` are the points once more, `sums` those of all clusters; scores that differ by `doubt` may be equal.
    """
    used = sums[clusters.used]
    centers = used / clusters.sizes[:, None]
    scores = (centers**2).sum(axis=1)[:, None] - 2.0 * (centers @ columns)
    places = scores.argmin(axis=0)
    close = np.flatnonzero((scores <= scores.min(axis=0) + doubt).sum(axis=0) > 1)
    if close.size:
        exact = _scores(points[close], used.astype(np.int64), clusters)
        places[close] = closest(exact, clusters.sizes**2)
    labels: Labels = clusters.used[places]
    return labels


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


def _scores(points: NDArray[np.int64], sums: NDArray[np.int64], clusters: FilledClusters) -> Wide:
    """Return exact scores |mu|^2 - 2 |S| mu.x, shape (c, points)."""
    high, low = sums >> _LOW_BITS, sums & ((1 << _LOW_BITS) - 1)
    norms = _wide([sum(int(value) ** 2 for value in row) for row in sums])
    x = points.T.astype(np.float64)
    products = ((high.astype(np.float64) @ x).astype(np.int64) << _LOW_BITS) + (low.astype(np.float64) @ x).astype(
        np.int64
    )
    return Wide.of(-products).times(2 * clusters.sizes[:, None]).plus(norms)


def _sums(points: NDArray[np.int64], labels: Labels, clusters: FilledClusters) -> NDArray[np.int64]:
    """Return the sums of the clusters in use, shape (c, d)."""
    return np.stack([points[labels == h].sum(axis=0) for h in clusters.used])


def _wide(integers: list[int]) -> Wide:
    """Hold non-negative integers, shape (c, 1)."""
    count = max(integers).bit_length() // LIMB_BITS + 1
    mask = (1 << LIMB_BITS) - 1
    limbs = [[[value >> LIMB_BITS * i & mask] for value in integers] for i in range(count)]
    return Wide(np.array(limbs, dtype=np.int64))
