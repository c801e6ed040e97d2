"""What weighing gives vertical-he on real sets: NICV beside that of centres that are sums over counts, as in the paper.

Runs are in clear, by the plan that the parties would make. scikit-learn's k-means without privacy stands beside.

Source: docs/vertical-he.md, "Weighing".
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import auto_public, scale
from fastlloyd.data.public.named import dataset_bounds, load_named
from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.vertical_he.parameters import PublicParameters
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.version import __version__
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import csv_table, markdown_table, summarise
from fastlloyd_papers.vertical_he.clear import run_in_clear

NAME = "vertical-he-weighing"
EPSILONS = (0.1, 0.5, 1.0)
DIAGNOSES, _DIAGNOSES_COLUMNS = "diagnoses", 10
WEIGHED, DIVIDED = "weighed", "divided"
_RUNS, _QUICK_RUNS, _STARTS = 20, 5, 50

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Split:
    """A set, its number of clusters, and the columns of each owner."""

    name: str
    k: int
    widths: tuple[int, ...]

    @property
    def columns(self) -> str:
        """The columns as text."""
        return " + ".join(map(str, self.widths))


SPLITS = (
    Split(DIAGNOSES, 2, (5, 5)),
    Split(DIAGNOSES, 2, (9, 1)),
    Split(DIAGNOSES, 2, (2, 2, 2, 2, 2)),
    Split("breast", 2, (5, 4)),
    Split("iris", 3, (2, 2)),
    Split("iris", 3, (3, 1)),
    Split("wine", 3, (7, 6)),
    Split("lsun", 3, (1, 1)),
    Split("house", 3, (2, 1)),
    Split("s1", 15, (1, 1)),
    Split("yeast", 10, (4, 4)),
    Split("adult", 3, (3, 3)),
    Split("letter", 5, (8, 8)),
)
HEADER = (
    "set", "records", "k", "columns", "scheme", "steps", "epsilon", "runs", "divided_rounds", "divided_nicv",
    "divided_half_width", "weighed_rounds", "weighed_nicv", "weighed_half_width", "kmeans_nicv",
)  # fmt: skip


def run(options: Options) -> str:
    """Measure the sets that are there, write Markdown and CSV, and give the Markdown."""
    runs, notes, splits = _QUICK_RUNS if options.quick else _RUNS, [], []
    for split in SPLITS:
        try:
            load_points(split.name, options.data_dir)
            splits.append(split)
        except ConfigError as error:
            notes.append(f"- {split.name} is left out: {error}.")
    cells: list[Cell] = [
        {"name": f"{split.name}, {split.columns}, {epsilon:g}", "set": split.name, "k": split.k,
         "widths": list(split.widths), "epsilon": epsilon, "runs": runs}
        for split in splits for epsilon in EPSILONS
    ]  # fmt: skip
    machine = describe_machine()
    store = open_cells(options, NAME)
    work = partial(measure, data_dir=options.data_dir)
    values = measure_cells(cells, work, store, progress=options.progress, together=("set",), jobs=options.jobs)
    lines = [_line(cell, value) for cell, value in zip(cells, values, strict=True)]
    parts = [
        f"# Vertical HE: what weighing gives{' (quick)' if options.quick else ''}",
        f"{machine}, fastlloyd {__version__}. NICV with columns scaled to [-1, 1] by their least and largest "
        f"values: means of {runs} runs and half of their 95 % intervals. Default delta, 1 / (100 n). *divided*: "
        "`vertical-he.shrink=false`, sum over count, as in the paper. *weighed*: the default. Each run has its own "
        "start and noise; scheme, rounds and noise are those of the plan that the parties would make. Labels and noise "
        "are drawn in clear, by the scheme's own soft rule: the encryption's errors alone are left out. k-means: the "
        f"best of {_STARTS} starts of scikit-learn's. *{DIAGNOSES}*: those of breasts that scikit-learn brings, its "
        f"first {_DIAGNOSES_COLUMNS} columns.",
        markdown_table(*_shown(lines)),
        _means(lines),
        *(["\n".join(dict.fromkeys(notes))] if notes else []),
    ]
    text = write_files(options.output, NAME, parts, csv_table(HEADER, lines))
    store.remove()
    return text


@cache
def load_points(name: str, data_dir: str | None) -> Array:
    """Return a set's points, shape (n, d), scaled to [-1, 1]; the diagnoses need scikit-learn.

    Raises
    ------
    ConfigError
        The set is not there.
    """
    if name == DIAGNOSES:
        from sklearn.datasets import load_breast_cancer

        values = load_breast_cancer().data[:, :_DIAGNOSES_COLUMNS]
        return scale(values, auto_public(values, tuple(f"x{h + 1}" for h in range(_DIAGNOSES_COLUMNS))))
    data = load_named(name, data_dir)
    return scale(data.values, dataset_bounds(data, "auto-public"))


@cache
def optimum(name: str, k: int, data_dir: str | None) -> float:
    """Return the least NICV of many starts of k-means without privacy."""
    from sklearn.cluster import KMeans

    points = load_points(name, data_dir)
    return float(KMeans(k, n_init=_STARTS, random_state=0).fit(points).inertia_) / len(points)


def measure(cell: Cell, *, data_dir: str | None) -> dict[str, Any]:
    """Run a set at one epsilon, weighed and not: NICV of all runs, what was planned, and k-means' NICV."""
    points = load_points(cell["set"], data_dir)
    plans = {way: plan_of(cell, len(points), shrink=way == WEIGHED) for way in (DIVIDED, WEIGHED)}
    weighed = plans[WEIGHED]
    return {
        "n": len(points),
        "scheme": weighed.scheme,
        "steps": bool(weighed.stepping),
        "best": optimum(cell["set"], cell["k"], data_dir),
        **{way: {"rounds": plan.rounds, "nicv": nicv(plan, points, cell)} for way, plan in plans.items()},
    }


def plan_of(cell: Mapping[str, Any], n: int, *, shrink: bool) -> Plan:
    """Make the plan; more than two owners have a server without data."""
    widths = cell["widths"]
    public = PublicParameters(
        parties=len(widths) + (len(widths) > 2),
        k=cell["k"],
        n_total=n,
        epsilon=cell["epsilon"],
        delta=None,
        rounds=None,
        seed=0,
        settings={"shrink": shrink},
    )
    return make_plan(public, [[f"x{i}_{h}" for h in range(width)] for i, width in enumerate(widths)])


def nicv(plan: Plan, points: Array, cell: Mapping[str, Any]) -> list[float]:
    """Return the NICV of each run; run r has the public seed r."""
    name, found = zlib.crc32(cell["name"].encode()), []
    for r in range(cell["runs"]):
        state = run_in_clear(dataclasses.replace(plan, seed=r), points, np.random.default_rng([name, r]))
        found.append(nearest(points, state.centers)[1])
    return found


def _line(cell: Cell, value: Any) -> list[Any]:
    """Write a line of the CSV."""
    columns, found = Split(cell["set"], cell["k"], tuple(cell["widths"])).columns, [cell["runs"]]
    for way in (DIVIDED, WEIGHED):
        summary = summarise(value[way]["nicv"])
        found += [value[way]["rounds"], summary.mean, summary.half_width]
    steps = "yes" if value["steps"] else "no"
    return [cell["set"], value["n"], cell["k"], columns, value["scheme"], steps, cell["epsilon"], *found, value["best"]]


def _shown(lines: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[str]]]:
    """Write the lines for people: one for each set and split, by the scheme at the largest epsilon."""
    header = ["set, records", "k", "columns", "scheme"]
    header += [f"epsilon {epsilon:g}: {way}" for epsilon in EPSILONS for way in (DIVIDED, WEIGHED)]
    rows = []
    for start in range(0, len(lines), len(EPSILONS)):
        here = [dict(zip(HEADER, line, strict=True)) for line in lines[start : start + len(EPSILONS)]]
        last = here[-1]
        scheme = last["scheme"] + (", steps" if last["steps"] == "yes" else "")
        found = [
            f"{one[f'{way}_nicv']:#.3g} ± {one[f'{way}_half_width']:.1g}" for one in here for way in (DIVIDED, WEIGHED)
        ]
        name = f"{last['set']}, {last['records']:,}"
        rows.append([name, str(last["k"]), last["columns"], scheme, *found, f"{last['kmeans_nicv']:#.3g}"])
    return [*header, "k-means"], rows


def _means(lines: Sequence[Sequence[Any]]) -> str:
    """Say the geometric means over all lines of the table."""
    found = []
    for epsilon in EPSILONS:
        here = [dict(zip(HEADER, line, strict=True)) for line in lines]
        here = [one for one in here if one["epsilon"] == epsilon]
        before, after = (
            math.exp(statistics.fmean(math.log(one[f"{way}_nicv"] / one["kmeans_nicv"]) for one in here))
            for way in (DIVIDED, WEIGHED)
        )
        found.append(f"{before:.2f} divided and {after:.2f} weighed at epsilon {epsilon:g}")
    return f"Geometric mean of NICV over that of k-means: {', '.join(found)}."
