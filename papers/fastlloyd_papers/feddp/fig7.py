"""FedDP-KMeans, Figure 7: the curve whose elbow chooses k.

Source: FedDP-KMeans, App. H.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastlloyd.protocols.feddp.math.stage import CLEAR, margin
from fastlloyd.report.plot import available
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.chart import Panel, line_panels
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import csv_table, markdown_table
from fastlloyd_papers.feddp.data import mixture_source
from fastlloyd_papers.feddp.run import DELTA, Trial, Workbench

NAME = "feddp-fig7"
K_MAX = 20
SOURCE = mixture_source("record", clients=100, points=1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Budgets (None: no noise at all) and repetitions."""

    epsilons: tuple[float | None, ...]
    runs: int


QUICK = Size(epsilons=(0.5, 1.0, 2.0, None), runs=2)
FULL = Size(epsilons=(0.25, 0.5, 1.0, 2.0, 4.0, None), runs=10)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    size = QUICK if options.quick else FULL
    cells = list_cells(size)
    machine = describe_machine()
    store = open_cells(options, NAME)
    bench = Workbench(options.data_dir)
    values = measure_cells(
        cells, partial(measure, bench), store, progress=options.progress, together=("run",), jobs=options.jobs
    )
    pairs = list(zip(cells, values, strict=True))
    title = f"# FedDP-KMeans, Figure 7: choosing k by the elbow{' (quick)' if options.quick else ''}"
    parts = [title, conditions(machine, size), markdown_table(*elbow_table(pairs, size))]
    picture = chart(pairs, size) if available() else None
    text = write_files(
        options.output, NAME, parts, curves_csv(pairs), picture=picture, about="Cost against the number of clusters"
    )
    store.remove()
    return text


def list_cells(size: Size) -> list[Cell]:
    """List what is measured."""
    return [
        {"name": SOURCE.label, "run": run, "epsilon": epsilon} for run in range(size.runs) for epsilon in size.epsilons
    ]


def measure(bench: Workbench, cell: Cell) -> dict[str, Any]:
    """Run with k' = 20; give the curve in original units, the k chosen, and what the run cost in the end."""
    problem = bench.problem(SOURCE, cell["run"])
    noise = cell["epsilon"] is not None
    trial = Trial(start="feddp", epsilon=cell["epsilon"] or 1.0, rounds=0, run=cell["run"], choose_k=K_MAX, noise=noise)
    _, epsilon, result = bench.private(problem, trial)
    curve = [float(cost) * problem.half_width**2 / len(problem.points) for cost in result.costs]
    centers = result.centers.exact
    return {
        "curve": curve,
        "k": len(centers),
        "clear": margin(curve) >= CLEAR,
        "cost": problem.cost(centers),
        "epsilon": epsilon if noise else None,
    }


def conditions(machine: str, size: Size) -> str:
    """Say how the figures came about."""
    return (
        f"{machine}. {SOURCE.title}, delta {DELTA:g}, {size.runs} runs. Steps 1 and 2 run with k' = {K_MAX}; then the "
        "server clusters its weighted, projected points for k = 1, 2, ..., which spends no privacy, and takes the k at "
        "which the curve, in logarithms, lies deepest below the line between its ends, if it lies deeper there than at "
        f"any other by {CLEAR:g}; else it merges the 20 clusters, and the run warns. Epsilon is the run's total. "
        "Published: the elbow is at k = 10, the true number; the paper reads it off the plot, and does not say at "
        "which epsilon. A third of the server's points are uniform ones, and in 20 dimensions, 10 of which separate no "
        "clusters, they lie nearest to many records: where 11 are chosen, also without noise, the eleventh cluster is "
        "theirs."
    )


def elbow_table(pairs: Sequence[tuple[Cell, Any]], size: Size) -> tuple[list[str], list[list[str]]]:
    """Return for each epsilon the k chosen in each run and the cost of the result."""
    rows = []
    for epsilon in size.epsilons:
        values = [value for cell, value in pairs if cell["epsilon"] == epsilon]
        right = sum(value["k"] == SOURCE.k for value in values)
        chosen = ", ".join(str(value["k"]) for value in values)
        warned = sum(not value["clear"] for value in values)
        mean = sum(value["cost"] for value in values) / len(values)
        rows.append([_word(epsilon), chosen, f"{right} of {len(values)}", f"{warned} of {len(values)}", f"{mean:.2f}"])
    return ["epsilon", "k chosen", "right (10)", "warned", "cost per record in the end"], rows


def curves_csv(pairs: Sequence[tuple[Cell, Any]]) -> str:
    """Write all curves."""
    lines = [
        [cell["epsilon"], cell["run"], k, cost, value["k"]]
        for cell, value in pairs
        for k, cost in enumerate(value["curve"], start=1)
    ]
    return csv_table(["epsilon", "run", "k", "cost_per_record", "k_chosen"], lines)


def chart(pairs: Sequence[tuple[Cell, Any]], size: Size) -> bytes:
    """Draw the first run's curve for each epsilon."""
    ks = list(range(1, K_MAX + 1))
    lines = {
        f"{_word(cell['epsilon'])} (k = {value['k']})": (ks, value["curve"])
        for cell, value in pairs
        if cell["run"] == 0
    }
    panel = Panel(
        x_label="number of clusters",
        y_label="cost per record, projected",
        lines=lines,
        title=SOURCE.title,
        log_x=False,
        log_y=False,
    )
    return line_panels([panel], columns=1)


def _word(epsilon: float | None) -> str:
    return "no noise" if epsilon is None else f"{epsilon:g}"
