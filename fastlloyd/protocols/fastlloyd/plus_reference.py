"""Reference of the updates of fastlloyd-plus: the sums of all clients' records in a round, record by record.

In Python integers and fractions; it calls nothing of `plus.py`, `plus_grid.py` or `rounds.py`.

The rest of a round, from the noisy answer to the next centres, is written anew in `tests/vectors/make_plus.py`, with
these updates once more, and imports nothing of the package: `tests/vectors/test_vectors.py` runs the parties against
it.

Source: docs/fastlloyd-plus.md.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.reference import on_grid
from fastlloyd.protocols.fastlloyd.plan import Plan

Row = list[int]


def plus_update(
    points: NDArray[np.float64], plan: Plan, t: int, *, centers: NDArray[np.int64], spread: float
) -> NDArray[np.int64]:
    """Return the exact sums and counts of round t, int64, shape (plan.elements(t),), counts on the grid as well.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        All records, scaled domain.
    plan : Plan
    t : int
    centers : int64 array, shape (k, d)
        Those before the round, on the grid of 2^-q.
    spread : float
        What the clients hold the root of all features' variances to be.
    """
    records: list[Row] = on_grid(points, plan.fraction_bits).tolist()
    sums: list[Row] = []
    if plan.plus is not None and plan.rounds[t].cells:
        counts = _histogram(records, plan.plus.cells, plan)
    elif plan.is_survey(t):
        sums, counts = _survey(records, plan)
    else:
        sums, counts = _steps(records, centers.tolist(), spread, plan, t)
    return np.array([value for row in sums for value in row] + [count << plan.fraction_bits for count in counts])


def _histogram(records: list[Row], cells: int, plan: Plan) -> Row:
    """Count the records of each of cells^d cells, those of the last feature side by side."""
    counts = [0] * cells**plan.d
    for record in records:
        cell = 0
        for x in record:
            along = Fraction(x + 2**plan.fraction_bits, 2 * 2**plan.fraction_bits) * cells
            cell = cell * cells + min(math.floor(along), cells - 1)
        counts[cell] += 1
    return counts


def _survey(records: list[Row], plan: Plan) -> tuple[list[Row], Row]:
    """Add up the records x in row 0 and w (2 x^2 - 1) in row 1, w = 0.7 on the grid; count them in place 0."""
    clusters, one = plan.rounds[0].clusters, 4**plan.fraction_bits
    sums, counts = [[0] * plan.d for _ in range(clusters)], [0] * clusters
    for record in records:
        counts[0] += 1
        for h, x in enumerate(record):
            sums[0][h] += x
            if plan.k > 1:
                sums[1][h] += math.trunc(Fraction((2 * x * x - one) * (2**plan.fraction_bits * 7 // 10), one))
    return sums, counts


def _steps(records: list[Row], centers: list[Row], spread: float, plan: Plan, t: int) -> tuple[list[Row], Row]:
    """Add up the vectors from the nearest centres, shortened to r or left out, times m; count those that enter."""
    if plan.plus is None:
        raise ValueError("this plan is not one of fastlloyd-plus")
    nominal = plan.rounds[t].radius or 0
    target = max(spread * plan.plus.stage(t)[0].reach * 2.0**plan.fraction_bits, 1.0)
    multiple = min(max(1, math.floor(nominal / target + 0.5)), nominal)
    reach = nominal // multiple
    sums, counts = [[0] * plan.d for _ in centers], [0] * len(centers)
    for record in records:
        squared = [sum((x - c) ** 2 for x, c in zip(record, row, strict=True)) for row in centers]
        j = squared.index(min(squared))
        offset = [x - c for x, c in zip(record, centers[j], strict=True)]
        if squared[j] > reach * reach:
            if not plan.plus.shorten:
                continue
            factor = reach / math.sqrt(squared[j])
            offset = [math.trunc(value * factor) for value in offset]
        counts[j] += 1
        for h, value in enumerate(offset):
            sums[j][h] += multiple * value
    return sums, counts
