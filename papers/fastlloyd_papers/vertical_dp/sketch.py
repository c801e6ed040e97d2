"""How exact the sketches of vertical DP are: one set, the cells of a grid, and what phantoms cost.

Source: Vertical DP, Theorem 6, §5.2; docs/vertical-dp-privacy.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.vertical_dp.math.estimate import (
    Table,
    basic_error,
    cluster_sizes,
    nearest_table,
    raw_basic_table,
    relative_error,
)
from fastlloyd.protocols.vertical_dp.math.fit import GridCells, cells_of
from fastlloyd.protocols.vertical_dp.math.grid import cluster_cells
from fastlloyd.protocols.vertical_dp.math.local import GRID, LocalClusters
from fastlloyd.protocols.vertical_dp.math.pair import likelihood_error, likelihood_table
from fastlloyd.protocols.vertical_dp.server import plain_cells
from fastlloyd.protocols.vertical_dp.sketch.sketch import SketchShape, make_sketch
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.plot import available
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells, stream_of
from fastlloyd_papers.engine.chart import Panel, line_panels
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import csv_table, markdown_table
from fastlloyd_papers.vertical_dp.data import MIXTURE, K, Problem, even, load_problem
from fastlloyd_papers.vertical_dp.design import PLAIN
from fastlloyd_papers.vertical_dp.phantoms import solve_phantoms
from fastlloyd_papers.vertical_dp.run import Labels, local_clusters, plan_of, weight_error

NAME = "vertical-dp-sketch"
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
SIZE_ROWS = 256
_ERRORS = ("unions", "unions_formula", "whole", "whole_formula")
EPSILONS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class Effort:
    """How often sets of each size are estimated, and grids."""

    sets: tuple[int, ...]
    grids: int


QUICK = Effort(sets=(400, 400, 200, 40, 10), grids=6)
FULL = Effort(sets=(2000, 2000, 1000, 200, 40), grids=60)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    effort = QUICK if options.quick else FULL
    cells = list_cells(effort)
    machine = describe_machine()
    store = open_cells(options, NAME)
    problem = load_problem(even(MIXTURE, 2), None, 0)
    values = measure_cells(cells, lambda cell: measure(problem, cell), store, progress=options.progress)
    pairs = list(zip(cells, values, strict=True))
    parts = [
        f"# Vertical DP: what the sketches tell{' (quick)' if options.quick else ''}",
        conditions(machine, effort),
        "## One set",
        markdown_table(*set_table(pairs)),
        "## The grid of two parties, and the price of phantoms",
        markdown_table(*grid_table(pairs)),
        *grid_words(pairs),
    ]
    picture = chart(pairs) if available() else None
    text = write_files(options.output, NAME, parts, table_csv(pairs), picture=picture, about="Errors against epsilon")
    store.remove()
    return text


def list_cells(effort: Effort) -> list[Cell]:
    """List what is measured."""
    sets: list[Cell] = [
        {"name": f"{size:,} users", "size": size, "repeats": count}
        for size, count in zip(SIZES, effort.sets, strict=True)
    ]
    grids: list[Cell] = [
        {"name": f"epsilon {epsilon:g}", "epsilon": epsilon, "run": run}
        for run in range(effort.grids)
        for epsilon in EPSILONS
    ]
    return sets + grids


def measure(problem: Problem, cell: Cell) -> dict[str, Any]:
    """Measure one cell."""
    if "size" in cell:
        return measure_sets(cell["size"], cell["repeats"], stream_of(cell))
    return measure_grid(problem, cell["epsilon"], stream_of(cell))


def measure_sets(size: int, repeats: int, secret: SecretRandom) -> dict[str, Any]:
    """Estimate a set several times with new keys; mean and spread in stated standard errors."""
    shape = SketchShape(rows=SIZE_ROWS, clusters=1, phantoms=50)
    labels = np.zeros(size, dtype=np.int64)
    behind = size + shape.phantoms
    stated = behind * relative_error(behind, shape)
    found = [float(cluster_sizes(make_sketch(labels, 0, secret.bytes(32), shape), shape)[0]) for _ in range(repeats)]
    scores = [(estimate - size) / stated for estimate in found]
    return {
        "stated": stated,
        "mean": statistics.fmean(found),
        "bias": statistics.fmean(scores),
        "spread": math.sqrt(statistics.fmean(score * score for score in scores)),
    }


def measure_grid(problem: Problem, epsilon: float, secret: SecretRandom) -> dict[str, Any]:
    """Estimate the grid of two parties with local clusters of plain k-means; errors, derived ones, and the loss."""
    plan = plan_of(problem, PLAIN, 1.0, 0)
    local = local_clusters(problem, PLAIN, plan, 1.0, secret)
    labels = [found.raw_labels for found in local]
    phantoms = _phantoms(plan.rows, epsilon, 1.0 / problem.n)
    shape = SketchShape(rows=plan.rows, clusters=K, phantoms=phantoms)
    key, total = secret.bytes(32), float(problem.n)
    sketches = [make_sketch(own, place, key, shape) for place, own in enumerate(labels)]
    unions, whole = raw_basic_table(sketches, shape, total), likelihood_table(sketches, shape, total)
    truth = _truth(labels)
    return {
        "phantoms": phantoms,
        "unions": _rms(unions - truth),
        "unions_formula": _rms(np.array([basic_error(total, weight, shape) for weight in truth.ravel()])),
        "whole": _rms(whole - truth),
        "whole_formula": _rms(np.array([likelihood_error(total, weight, shape) for weight in truth.ravel()])),
        **_outcomes(problem, local, {"unions": nearest_table(unions, total), "whole": whole, "exact": truth}),
    }


@lru_cache(maxsize=32)
def _phantoms(rows: int, epsilon: float, delta: float) -> int:
    return solve_phantoms(SketchShape(rows=rows, clusters=K, phantoms=1), 1, epsilon, delta)


def _outcomes(problem: Problem, local: Sequence[LocalClusters], tables: dict[str, Table]) -> dict[str, float]:
    """Return L1 error of the final weights and loss of the final centres for each table."""
    truth = plain_cells([found.raw_labels for found in local])
    found: dict[str, float] = {}
    for name, table in tables.items():
        cells: GridCells = cells_of(table)
        centers = cluster_cells(cells, [own.noisy_centers / GRID for own in local], K, seed=0).centers
        found[f"{name}_l1"] = weight_error(cells, truth, K, problem.n)
        found[f"{name}_loss"] = nearest(problem.points, centers)[1]
    return found


def _truth(labels: Sequence[Labels]) -> Table:
    return np.bincount(labels[0] * K + labels[1], minlength=K * K).astype(np.float64).reshape(K, K)


def _rms(values: Table) -> float:
    return float(np.sqrt(np.mean(values**2)))


def conditions(machine: str, effort: Effort) -> str:
    """Say how the figures came about."""
    return (
        f"{machine}. Real sketches with fresh keys. One set: M = {SIZE_ROWS} rows, 50 phantoms, {effort.sets[0]} to "
        f"{effort.sets[-1]} repetitions. Grid: mixed Gaussian, 20,000 users, two parties, k' = 5 clusters of plain "
        f"k-means, M = 4096, mean of {effort.grids} repetition(s); epsilon is what the sketches alone may spend at "
        "delta = 1/n. Errors per cell: root mean square over the 25 cells and all repetitions, in users, before the "
        "weights are made non-negative for unions; in brackets what theory says: Theorem 6 with the corrected "
        "number of phantoms, and `likelihood_error`. L1: sum of the errors of the final weights over n.\n\n"
        "Whose parts these are: sketches and rows are the paper's; phantoms, composition and the estimate of a set by "
        "maximum likelihood are ours. Unions: the paper's BasicEst on them, which with two parties is 2PEst. Whole "
        "rows: our likelihood of both parties' rows together."
    )


def set_table(pairs: Sequence[tuple[Cell, Any]]) -> tuple[list[str], list[list[str]]]:
    """Write how the estimates of one set lie."""
    header = [
        "users", "repetitions", "mean estimate", "stated standard error", "mean error / stated",
        "may be, by chance (3 standard errors)", "spread / stated",
    ]  # fmt: skip
    rows = [
        [
            f"{cell['size']:,}",
            str(cell["repeats"]),
            f"{value['mean']:,.1f}",
            f"{value['stated']:,.1f}",
            f"{value['bias']:+.3f}",
            f"{3 / math.sqrt(cell['repeats']):.3f}",
            f"{value['spread']:.3f}",
        ]
        for cell, value in pairs
        if "size" in cell
    ]
    return header, rows


def grid_table(pairs: Sequence[tuple[Cell, Any]]) -> tuple[list[str], list[list[str]]]:
    """Write errors, formulas and losses for each epsilon."""
    header = [
        "epsilon", "n_p per cell", "per cell, unions", "per cell, whole rows", "L1 unions", "L1 whole rows",
        "loss unions", "loss whole rows", "loss exact weights",
    ]  # fmt: skip
    rows = []
    for epsilon in EPSILONS:
        mean = _means(pairs, epsilon)
        rows.append(
            [
                f"{epsilon:g}",
                f"{mean['phantoms']:.0f}",
                f"{mean['unions']:.0f} ({mean['unions_formula']:.0f})",
                f"{mean['whole']:.0f} ({mean['whole_formula']:.0f})",
                f"{mean['unions_l1']:.3f}",
                f"{mean['whole_l1']:.3f}",
                f"{mean['unions_loss']:.4f}",
                f"{mean['whole_loss']:.4f}",
                f"{mean['exact_loss']:.4f}",
            ]
        )
    return header, rows


def grid_words(pairs: Sequence[tuple[Cell, Any]]) -> list[str]:
    """Say how far measured errors are from Theorem 6."""
    ratios = [_means(pairs, epsilon) for epsilon in EPSILONS]
    found = [mean["unions"] / mean["unions_formula"] for mean in ratios]
    return [
        f"- Unions: measured error between {min(found):.2f} and {max(found):.2f} of Theorem 6 with the corrected "
        "number of phantoms. The 25 unions of one run overlap, so their errors go together, and the ratio varies "
        "with the run."
    ]


def table_csv(pairs: Sequence[tuple[Cell, Any]]) -> str:
    """Write every measured cell."""
    names = sorted({name for _, value in pairs for name in value})
    lines: list[list[object]] = [
        [cell.get("size"), cell.get("epsilon"), cell.get("run"), *(value.get(name) for name in names)]
        for cell, value in pairs
    ]
    return csv_table(["users", "epsilon", "run", *names], lines)


def chart(pairs: Sequence[tuple[Cell, Any]]) -> bytes:
    """Draw the errors per cell, and the loss, against epsilon."""
    means = [_means(pairs, epsilon) for epsilon in EPSILONS]
    errors = {
        "unions": "unions",
        "unions, Theorem 6": "unions_formula",
        "whole rows": "whole",
        "whole rows, formula": "whole_formula",
    }
    losses = {"unions": "unions_loss", "whole rows": "whole_loss", "exact weights": "exact_loss"}
    panels = [
        Panel(
            x_label="epsilon of the sketches",
            y_label=label,
            lines={name: (EPSILONS, [mean[key] for mean in means]) for name, key in named.items()},
            log_y=False,
        )
        for label, named in (("error per cell (users)", errors), ("loss", losses))
    ]
    return line_panels(panels, columns=2)


def _means(pairs: Sequence[tuple[Cell, Any]], epsilon: float) -> dict[str, float]:
    """Return means over the repetitions, of errors per cell root mean squares."""
    values = [value for cell, value in pairs if cell.get("epsilon") == epsilon]
    means = {name: statistics.fmean(value[name] for value in values) for name in values[0]}
    pooled = {name: math.sqrt(statistics.fmean(value[name] ** 2 for value in values)) for name in _ERRORS}
    return means | pooled
