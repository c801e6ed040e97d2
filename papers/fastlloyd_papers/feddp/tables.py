"""FedDP-KMeans, Tables 2 to 5: how the best runs divide the budget, and how many Lloyd steps they take.

As in the paper, many divisions of the budget are tried, and those runs are kept that no other run beats in both cost
and epsilon. Here the divisions are drawn at random around no favourite, each with its own total epsilon.

Source: FedDP-KMeans, App. H.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastlloyd.protocols.feddp.settings import PROPORTIONS
from fastlloyd.report.plot import available
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.chart import Bars, bar_chart
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import csv_table, markdown_table
from fastlloyd_papers.feddp.data import Source, file_source, is_there, mixture_source
from fastlloyd_papers.feddp.run import DELTA, Trial, Workbench

NAME = "feddp-tables2-5"
PARTS = ("eps1 (outer product)", "eps2 (weights)", "eps3G (sums)", "eps3L (counts)")
SHARES = ("outer_share", "weight_share", "sum_share", "count_share")
STEPS = (0, 1, 2)
_LEAST_SHARE, _LARGEST_SHARE = 0.05, 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One data set of the published tables.

    Attributes
    ----------
    title : str
    proportions, steps : tuple of float
        As published: Tables 2 and 3; Tables 4 and 5 (0, 1 and 2 Lloyd steps).
    level : {'record', 'client'}
    source : Source
        Where it is not there, only the published figures are shown.
    epsilons : pair of float
        Between which totals are drawn.
    """

    title: str
    proportions: tuple[float, float, float, float]
    steps: tuple[float, float, float]
    level: str
    source: Source
    epsilons: tuple[float, float] = (0.2, 2.0)


def _users(count: int) -> Source:
    return mixture_source("client", clients=count, points=50)


ROWS = (
    Row(
        title="Gaussian Mixture (100 clients)",
        proportions=(0.18, 0.23, 0.43, 0.17),
        steps=(0.61, 0.39, 0.0),
        level="record",
        source=mixture_source("record", clients=100, points=1000),
    ),
    Row(
        title="US Census (Not-for-profit)",
        proportions=(0.24, 0.17, 0.41, 0.18),
        steps=(0.8, 0.1, 0.1),
        level="record",
        source=file_source("census-nonprofit"),
    ),
    Row(
        title="US Census (Federal)",
        proportions=(0.15, 0.16, 0.52, 0.17),
        steps=(0.91, 0.09, 0.0),
        level="record",
        source=file_source("census-federal"),
    ),
    Row(
        title="US Census (Self-Employed)",
        proportions=(0.20, 0.23, 0.47, 0.10),
        steps=(0.92, 0.08, 0.0),
        level="record",
        source=file_source("census-self"),
    ),
    Row(
        title="Gaussian Mixture (1000 clients)",
        proportions=(0.38, 0.09, 0.42, 0.10),
        steps=(0.86, 0.11, 0.04),
        level="client",
        source=_users(1000),
        epsilons=(0.5, 4.0),
    ),
    Row(
        title="Gaussian Mixture (2000 clients)",
        proportions=(0.43, 0.10, 0.36, 0.11),
        steps=(0.8, 0.17, 0.03),
        level="client",
        source=_users(2000),
        epsilons=(0.5, 4.0),
    ),
    Row(
        title="Gaussian Mixture (5000 clients)",
        proportions=(0.43, 0.09, 0.37, 0.11),
        steps=(0.81, 0.1, 0.1),
        level="client",
        source=_users(5000),
        epsilons=(0.5, 4.0),
    ),
    Row(
        title="Stack Overflow (facebook, hibernate)",
        proportions=(0.29, 0.15, 0.42, 0.15),
        steps=(1.0, 0.0, 0.0),
        level="client",
        source=file_source("stackoverflow-facebook-hibernate"),
        epsilons=(0.5, 4.0),
    ),
    Row(
        title="Stack Overflow (github, pdf)",
        proportions=(0.37, 0.12, 0.40, 0.10),
        steps=(1.0, 0.0, 0.0),
        level="client",
        source=file_source("stackoverflow-github-pdf"),
        epsilons=(0.5, 4.0),
    ),
    Row(
        title="Stack Overflow (machine-learning, math)",
        proportions=(0.29, 0.14, 0.45, 0.13),
        steps=(0.94, 0.06, 0.0),
        level="client",
        source=file_source("stackoverflow-machine-learning-math"),
        epsilons=(0.5, 4.0),
    ),
    Row(
        title="Stack Overflow (plotting, cookies)",
        proportions=(0.33, 0.11, 0.47, 0.09),
        steps=(0.96, 0.04, 0.0),
        level="client",
        source=file_source("stackoverflow-plotting-cookies"),
        epsilons=(0.5, 4.0),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Which rows are measured, by title, and how many trials each gets."""

    titles: tuple[str, ...]
    trials: int


QUICK = Size(titles=("Gaussian Mixture (100 clients)", "Gaussian Mixture (1000 clients)"), trials=60)
FULL = Size(titles=tuple(row.title for row in ROWS), trials=120)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    size = QUICK if options.quick else FULL
    missing = {row.title: is_there(row.source, options.data_dir) for row in ROWS if row.title in size.titles}
    measured = [row for row in ROWS if missing.get(row.title) == ""]
    cells = [cell for row in measured for cell in list_cells(row, size.trials)]
    machine = describe_machine()
    store = open_cells(options, NAME)
    bench = Workbench(options.data_dir)
    sources = {row.title: row.source for row in measured}
    values = measure_cells(
        cells, lambda cell: measure(bench, sources[cell["name"]], cell), store, progress=options.progress
    )
    fronts = {row.title: pareto(cells, values, row.title) for row in measured}
    text = write_report(fronts, list(zip(cells, values, strict=True)), options, size, machine, missing=missing)
    store.remove()
    return text


def list_cells(row: Row, trials: int) -> list[Cell]:
    """Draw the trials of one row: totals spread evenly in logarithms, proportions log-uniform, steps in turn."""
    random = np.random.default_rng([20, *map(ord, row.title)])  # which settings are tried: public
    low, high = (math.log(epsilon) for epsilon in row.epsilons)
    totals = np.exp(random.permutation(np.linspace(low, high, trials)))
    shares = np.exp(random.uniform(math.log(_LEAST_SHARE), math.log(_LARGEST_SHARE), (trials, len(SHARES))))
    shares /= shares.sum(axis=1, keepdims=True)
    return [
        {
            "name": row.title,
            "run": 0,
            "epsilon": round(float(totals[i]), 4),
            "rounds": STEPS[i % len(STEPS)],
            "shares": [round(float(share), 4) for share in shares[i]],
        }
        for i in range(trials)
    ]


def measure(bench: Workbench, source: Source, cell: Cell) -> dict[str, Any]:
    """Run one trial."""
    problem = bench.problem(source, cell["run"])
    settings = dict(zip(SHARES, cell["shares"], strict=True))
    trial = Trial(start="feddp", epsilon=cell["epsilon"], rounds=cell["rounds"], run=cell["run"], settings=settings)
    _, epsilon, result = bench.private(problem, trial)
    return {"cost": problem.cost(result.centers.exact), "epsilon": epsilon}


def pareto(cells: Sequence[Cell], values: Sequence[Any], title: str) -> list[Cell]:
    """Return the trials of one row that no other one beats in both cost and epsilon."""
    pairs = [(cell, value) for cell, value in zip(cells, values, strict=True) if cell["name"] == title]
    front, least = [], math.inf
    for cell, value in sorted(pairs, key=lambda pair: (pair[1]["epsilon"], pair[1]["cost"])):
        if value["cost"] < least:
            least = value["cost"]
            front.append(cell)
    return front


def mean_shares(front: Sequence[Cell]) -> list[float]:
    """Return the mean proportions of the budget over a front."""
    found: list[float] = np.mean([np.array(cell["shares"]) / sum(cell["shares"]) for cell in front], axis=0).tolist()
    return found


def step_fractions(front: Sequence[Cell]) -> list[float]:
    """Return the fraction of a front with 0, 1 and 2 Lloyd steps."""
    return [sum(cell["rounds"] == count for cell in front) / len(front) for count in STEPS]


def write_report(
    fronts: dict[str, list[Cell]],
    pairs: Sequence[tuple[Cell, Any]],
    options: Options,
    size: Size,
    machine: str,
    *,
    missing: Mapping[str, str],
) -> str:
    """Write the Markdown, CSV and PNG files, and give the Markdown."""
    parts = [
        f"# FedDP-KMeans, Tables 2 to 5{' (quick)' if options.quick else ''}",
        f"{machine}. {size.trials} random divisions of the budget for each data set (each part log-uniform from "
        f"{_LEAST_SHARE:g} to {_LARGEST_SHARE:g} before all are scaled to 1), 0, 1 or 2 Lloyd steps, total epsilon "
        f"spread over a range, delta {DELTA:g}, one run each. Ours: mean over the runs that no other run beats in both "
        "cost and epsilon. The paper's runs have too little noise on the outer product at record level (its code takes "
        "Delta for Delta^2), so eps1 is cheaper there. Rows without ours: data that are not shipped.",
    ]
    for number, level in ((2, "record"), (3, "client")):
        parts += [f"## Table {number}: parts of the budget", shares_table(fronts, level)]
    for number, level in ((4, "record"), (5, "client")):
        parts += [f"## Table {number}: fraction of runs by Lloyd steps", steps_table(fronts, level)]
    notes = [f"- {title} is left out: {why}." for title, why in missing.items() if why]
    parts += ["\n".join(notes)] if notes else []
    picture = chart(fronts) if available() and fronts else None
    return write_files(
        options.output, NAME, parts, trials_csv(fronts, pairs), picture=picture, about="Parts of the budget"
    )


def shares_table(fronts: dict[str, list[Cell]], level: str) -> str:
    """Write published and own proportions of one level; the defaults last."""
    rows = []
    for row in (row for row in ROWS if row.level == level):
        front = fronts.get(row.title)
        cells = _beside(row.proportions, mean_shares(front) if front else None)
        rows.append([row.title, *cells, str(len(front)) if front else ""])
    rows.append(["default", *(f"{share:.2f}" for share in PROPORTIONS[level]), ""])
    return markdown_table(["data", *(f"{part}, published / ours" for part in PARTS), "runs on our front"], rows)


def steps_table(fronts: dict[str, list[Cell]], level: str) -> str:
    """Write published and own fractions of runs by Lloyd steps."""
    rows = []
    for row in (row for row in ROWS if row.level == level):
        front = fronts.get(row.title)
        rows.append([row.title, *_beside(row.steps, step_fractions(front) if front else None)])
    words = ("no step", "1 step", "2 steps")
    return markdown_table(["data", *(f"{word}, published / ours" for word in words)], rows)


def _beside(published: Sequence[float], ours: Sequence[float] | None) -> list[str]:
    """Write published figures, and ours beside them where there are any."""
    if ours is None:
        return [f"{figure:.2f}" for figure in published]
    return [f"{figure:.2f} / {own:.2f}" for figure, own in zip(published, ours, strict=True)]


def trials_csv(fronts: dict[str, list[Cell]], pairs: Sequence[tuple[Cell, Any]]) -> str:
    """Write every trial."""
    header = ["data", "epsilon", "T", *SHARES, "cost", "on_front"]
    lines = [
        [
            cell["name"],
            value["epsilon"],
            cell["rounds"],
            *cell["shares"],
            value["cost"],
            int(cell in fronts[cell["name"]]),
        ]
        for cell, value in pairs
    ]
    return csv_table(header, lines)


def chart(fronts: dict[str, list[Cell]]) -> bytes:
    """Draw published and own parts of the budget beside each other."""
    rows = [row for row in ROWS if row.title in fronts]
    places = [f"{row.title}\n{part.split()[0]}" for row in rows for part in PARTS]
    published = [share for row in rows for share in row.proportions]
    ours = [share for row in rows for share in mean_shares(fronts[row.title])]
    return bar_chart(
        places,
        [Bars(label="published", heights=published), Bars(label="ours", heights=ours)],
        y_label="part of the budget",
    )
