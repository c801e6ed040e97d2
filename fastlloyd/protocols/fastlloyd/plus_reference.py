"""fastlloyd-plus on pooled data, without messages, record by record: what the parties are tested against.

What depends on records is written anew here, in Python integers and fractions. What the clients make of the noisy
answers is theirs (`rounds.post_process`): `tests/vectors/make_plus.py`, a program that imports nothing of the package,
checks that part, and the radius too.

Source: docs/fastlloyd-plus.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import quantise
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.plus_plan import square_limit
from fastlloyd.protocols.fastlloyd.rounds import Centers, first_centers, post_process

Row = list[int]


def plus_reference(
    points: NDArray[np.float64],
    plan: Plan,
    noise: Callable[[int], NDArray[np.int64]],
    start: NDArray[np.float64] | None = None,
) -> Centers:
    """Run the algorithm centrally; parameters as for `reference.reference`."""
    records: list[Row] = quantise(points, plan.fraction_bits).raw_coordinates.T.tolist()
    centers = first_centers(plan, start)
    for t in range(len(plan.rounds)):
        sums = [[0] * plan.d for _ in range(0 if plan.rounds[t].cells else plan.rounds[t].clusters)]
        counts = [0] * (plan.rounds[t].cells or plan.rounds[t].clusters)
        for record in records:
            enter(record, centers, plan, t, sums=sums, counts=counts)
        flat = [value for row in sums for value in row] + [count << plan.fraction_bits for count in counts]
        centers = post_process(np.array(flat, dtype=np.int64) + noise(t), centers, plan, t)
    return centers


def enter(record: Row, centers: Centers, plan: Plan, t: int, *, sums: list[Row], counts: list[int]) -> None:
    """Add one record to sums and counts of round t."""
    if plan.plus is not None and plan.rounds[t].cells:
        cell = 0
        for x in record:
            along = Fraction(x + 2**plan.fraction_bits, 2 * 2**plan.fraction_bits) * plan.plus.cells
            cell = cell * plan.plus.cells + min(math.floor(along), plan.plus.cells - 1)
        counts[cell] += 1
        return
    if plan.is_survey(t):
        counts[0] += 1
        limit, one = square_limit(plan.fraction_bits), 1 << 2 * plan.fraction_bits
        for h, x in enumerate(record):
            sums[0][h] += x
            if plan.k > 1:
                sums[1][h] += math.trunc(Fraction((2 * x * x - one) * limit, one))
        return
    grid: list[Row] = centers.grid.tolist()
    squared = [sum((x - c) ** 2 for x, c in zip(record, row, strict=True)) for row in grid]
    j = squared.index(min(squared))
    if centers.state is None or plan.plus is None:
        raise ValueError("this plan is not one of fastlloyd-plus")
    nominal = plan.rounds[t].radius or 0
    wanted = max(centers.state.spread * plan.plus.stage(t)[0].reach * 2.0**plan.fraction_bits, 1.0)
    multiple = min(max(1, math.floor(nominal / wanted + 0.5)), nominal)
    reach = nominal // multiple
    offset = [x - c for x, c in zip(record, grid[j], strict=True)]
    if squared[j] > reach * reach:
        if not plan.plus.shorten:
            return
        factor = reach / math.sqrt(squared[j])
        offset = [math.trunc(value * factor) for value in offset]
    counts[j] += 1
    for h, value in enumerate(offset):
        sums[j][h] += multiple * value
