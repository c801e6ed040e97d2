"""Vertical DP, Lemma 5: what the floor alpha_min changes in mean and variance of a level, by the size of the set.

With alpha-hat the highest level of users and phantoms, and alpha = max(alpha-hat, alpha_min) what is reported, the
lemma says that E[alpha] / E[alpha-hat] and Var[alpha] / Var[alpha-hat] go to 1 as the set grows, epsilon' being fixed.
Measured on the hashes that parties use, and computed from the exact distributions (`sketch/level.py` there).

Source: Vertical DP, §4.4, Lemma 5; Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_dp.sketch.level import PHANTOM_BITS, phantoms_for
from fastlloyd.protocols.vertical_dp.sketch.sketch import Levels, SketchShape, cell_blocks, raw_maxima
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells, stream_of
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import csv_table, markdown_table, summarise

NAME = "vertical-dp-lemma5"
SIZES = (0, 10, 100, 1_000, 10_000, 30_000)
# By the paper's formula, with M = 4096 and delta = 1e-5, of epsilon_2 = 8.7 and 0.87.
ROW_EPSILONS = (0.01, 0.001)
GAMMAS = (2.0**-11, 1.0)
ROWS = 16_384
HEADER = (
    "users", "gamma", "row_epsilon", "phantoms", "repeats", "mean_ratio", "mean_half_width", "exact_mean_ratio",
    "variance_ratio", "variance_half_width", "exact_variance_ratio",
)  # fmt: skip
_QUICK, _FULL = 3, 10


def run(options: Options) -> str:
    """Measure, write Markdown and CSV, and give the Markdown."""
    repeats = _QUICK if options.quick else _FULL
    cells: list[Cell] = [
        {"name": f"{size:,} users", "size": size, "run": run} for run in range(repeats) for size in SIZES
    ]
    machine = describe_machine()
    store = open_cells(options, NAME)
    values = measure_cells(cells, measure, store, progress=options.progress, jobs=options.jobs)
    lines = table_lines(list(zip(cells, values, strict=True)))
    parts = [
        f"# Vertical DP, Lemma 5: the floor of a level{' (quick)' if options.quick else ''}",
        f"{machine}. The hashes of the protocol under fresh keys, one set, {ROWS:,} rows in each of {repeats} "
        "repetitions; 95 % intervals of the mean of the repetitions. n_p phantoms as Algorithm 2 has them, from "
        "epsilon'. Exact: from the distributions of the levels, in integers.",
        "Published: both ratios go to 1 if the set is large enough, epsilon' being fixed.",
        markdown_table(*shown(lines)),
        words(lines),
    ]
    text = write_files(options.output, NAME, parts, csv_table(HEADER, lines))
    store.remove()
    return text


def measure(cell: Cell) -> list[list[float]]:
    """Draw the levels of one set; for each gamma and epsilon' the two ratios."""
    key = stream_of(cell).bytes(32)
    users = raw_maxima(np.zeros(cell["size"], dtype=np.int64), 1, ROWS, key)
    phantoms = np.concatenate(list(cell_blocks(key, ROWS, 1)))
    return [list(ratios(users, phantoms, shape)) for shape in shapes()]


def shapes() -> list[SketchShape]:
    """Return the cases, in the order of the table."""
    return [
        SketchShape(rows=ROWS, clusters=1, gamma=gamma, phantoms=phantoms_for(epsilon))
        for gamma in GAMMAS
        for epsilon in ROW_EPSILONS
    ]


def ratios(users: NDArray[np.uint32], phantoms: NDArray[np.uint64], shape: SketchShape) -> tuple[float, float]:
    """Return mean and variance of the reported levels over those of the levels without a floor."""
    free: Levels = np.maximum(shape.user_levels.levels(users), shape.phantom_levels.levels(phantoms))
    kept = np.maximum(free, shape.floor)
    return float(kept.mean() / free.mean()), float(kept.var() / free.var())


def exact_ratios(size: int, shape: SketchShape) -> tuple[float, float]:
    """Return the same two of the distributions themselves."""
    phantoms = np.array([total / (1 << PHANTOM_BITS) for total in shape.phantom_levels.totals])
    below = shape.user_levels.cumulative() ** size * phantoms
    levels = np.arange(len(below), dtype=np.float64)
    masses = np.diff(below, prepend=0.0)
    kept = np.maximum(levels, shape.floor)
    means, squares = zip(*((masses @ x, masses @ (x * x)) for x in (kept, levels)), strict=True)
    variances = [square - mean * mean for mean, square in zip(means, squares, strict=True)]
    return float(means[0] / means[1]), float(variances[0] / variances[1])


def table_lines(pairs: Sequence[tuple[Cell, Any]]) -> list[list[object]]:
    """Sum up the repetitions: one line for each case and size."""
    lines: list[list[object]] = []
    for place, shape in enumerate(shapes()):
        for size in SIZES:
            found = [value[place] for cell, value in pairs if cell["size"] == size]
            mean, variance = (summarise([one[which] for one in found]) for which in (0, 1))
            exact = exact_ratios(size, shape)
            epsilon = ROW_EPSILONS[place % len(ROW_EPSILONS)]
            lines.append(
                [
                    size, shape.gamma, epsilon, shape.phantoms, len(found), mean.mean, mean.half_width, exact[0],
                    variance.mean, variance.half_width, exact[1],
                ]
            )  # fmt: skip
    return lines


def shown(lines: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[str]]]:
    """Write the lines for people."""
    header = ["gamma", "epsilon'", "n_p", "users", "E ratio", "exact", "Var ratio", "exact"]
    rows = [
        [
            f"{gamma:g}", f"{epsilon:g}", f"{phantoms:,}", f"{size:,}", f"{mean:.6f} ± {mean_half:.6f}", f"{exact:.6f}",
            f"{variance:.4f} ± {variance_half:.4f}", f"{exact_variance:.4f}",
        ]
        for size, gamma, epsilon, phantoms, _, mean, mean_half, exact, variance, variance_half, exact_variance in lines
    ]  # fmt: skip
    return header, rows


def words(lines: Sequence[Sequence[Any]]) -> str:
    """Say what follows."""
    large = [line for line in lines if line[0] == SIZES[-1]]
    worst = max(max(abs(line[7] - 1.0), abs(line[10] - 1.0)) for line in large)
    empty = [line[10] for line in lines if line[0] == 0]
    equal = [exact_ratios(shape.phantoms, shape)[1] for shape in shapes()]
    return (
        f"- At {SIZES[-1]:,} users no exact ratio is farther than {worst:.1g} from 1. What decides is the size beside "
        f"n_p: an empty set keeps {min(empty):.2f} to {max(empty):.2f} of the variance, a set of n_p users "
        f"{min(equal):.2f} to {max(equal):.2f}."
    )
