"""Vertical DP, Table 1: bytes from each party, and time of the server's estimate; also the time to make a sketch.

Source: Vertical DP, §6.2 "Communication/computation cost".
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastlloyd.protocols.vertical_dp.messages import synopsis_format
from fastlloyd.protocols.vertical_dp.plan import Plan
from fastlloyd.protocols.vertical_dp.server import weigh
from fastlloyd.protocols.vertical_dp.sketch.sketch import SketchShape, make_sketch
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.plot import available
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.chart import Bars, bar_chart
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.quiet import COLUMNS, entries, marked, words
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import csv_table, markdown_table
from fastlloyd_papers.vertical_dp.baselines import ldp_agg_cells, ldp_supports
from fastlloyd_papers.vertical_dp.data import MIXTURE, even
from fastlloyd_papers.vertical_dp.design import (
    CORRECTED_PAIRS,
    IND_LAP,
    LDP_PAIRS,
    OURS_FIVE,
    PAPER_PAIRS,
    PLAIN,
    whose,
)
from fastlloyd_papers.vertical_dp.run import (
    SKETCH,
    Method,
    Workbench,
    grid_cells,
    local_clusters,
    make_sketches,
    plan_of,
)

NAME = "vertical-dp-table1"
EPSILON = 1.0
CLUSTERS = (5, 8)
PARTIES = (2, 4)
SKETCH_USERS = 100_000
_SKETCH_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: a method, M, and the published bytes and seconds, by k' (seconds: S = 2, S = 4)."""

    method: Method
    rows: int | None
    published: Mapping[int, tuple[str, float, float]]


ROWS = (
    Row(replace(OURS_FIVE, name="vertical-dp"), 4096, {}),
    Row(replace(OURS_FIVE, name="vertical-dp"), 2048, {}),
    Row(CORRECTED_PAIRS, 4096, {}),
    Row(
        replace(PAPER_PAIRS, name="2PEst as published"),
        4096,
        {5: ("164 kB", 7.47, 39.08), 8: ("260 kB", 11.95, 101.14)},
    ),
    Row(
        replace(PAPER_PAIRS, name="2PEst as published"), 2048, {5: ("82 kB", 4.75, 35.40), 8: ("131 kB", 11.68, 98.91)}
    ),
    Row(IND_LAP, None, {5: ("0.19 kB", 0.61, 1.32), 8: ("0.28 kB", 0.64, 3.83)}),
    Row(LDP_PAIRS, None, {5: ("160 kB", 5.46, 38.48), 8: ("160 kB", 12.13, 100.63)}),
    Row(PLAIN, None, {5: ("160 kB", 0.15, 1.12), 8: ("160 kB", 0.19, 3.26)}),
)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    repeats = 3 if options.quick else 7
    cells = list_cells(repeats)
    machine = describe_machine()
    store = open_cells(options, NAME)
    arms = Arms(options.data_dir)
    values = measure_cells(cells, arms.measure, store, progress=options.progress, watch=options.watch)
    pairs = list(zip(cells, values, strict=True))
    parts = [
        f"# Vertical DP, Table 1: bytes and time{' (quick)' if options.quick else ''}",
        conditions(machine, words(values), repeats),
        markdown_table(*cost_table(pairs)),
        markdown_table(*sketch_table(pairs)),
    ]
    picture = chart(pairs) if available() else None
    text = write_files(
        options.output, NAME, parts, table_csv(pairs), picture=picture, about="Seconds of the server's estimate"
    )
    store.remove()
    return text


def list_cells(repeats: int) -> list[Cell]:
    """List what is measured, repetition by repetition, so that all methods take turns."""
    table: list[dict[str, Any]] = [
        {"name": f"S = {parties}", "parties": parties, "clusters": clusters, "row": number}
        for clusters in CLUSTERS
        for parties in PARTIES
        for number in range(len(ROWS))
    ]
    sketches = [{"name": "sketch", "clusters": clusters, "users": SKETCH_USERS} for clusters in CLUSTERS]
    return [
        {**arm, "run": run} for run in range(repeats) for arm in (table + sketches if run < _SKETCH_REPEATS else table)
    ]


class Arms:
    """Makes what each method works on once, and times it anew for each repetition.

    Parameters
    ----------
    data_dir : str or None
    """

    def __init__(self, data_dir: str | None) -> None:
        self._bench = Workbench(data_dir)
        self._made: dict[tuple[tuple[str, Any], ...], Arm] = {}

    def measure(self, cell: Cell) -> dict[str, Any]:
        """Measure one cell: bytes of the largest message, seconds."""
        key = tuple(sorted((name, value) for name, value in cell.items() if name != "run"))
        if key not in self._made:
            self._made[key] = sketch_arm(cell) if "users" in cell else make_arm(self._bench, cell)
        arm = self._made[key]
        start = time.perf_counter()
        arm.work()
        return {"seconds": time.perf_counter() - start, "bytes": arm.bytes}


@dataclass(frozen=True, slots=True)
class Arm:
    """What is timed, and the bytes of its largest message."""

    work: Callable[[], object]
    bytes: int | None


def make_arm(bench: Workbench, cell: Cell) -> Arm:
    """Make the input of the server's estimate for one method."""
    row = ROWS[cell["row"]]
    settings = {**row.method.settings, **({} if row.rows is None else {"rows": row.rows})}
    method = replace(row.method, local_clusters=cell["clusters"], settings=settings)
    problem = bench.problem(even(MIXTURE, cell["parties"]), 0)
    plan, secret = plan_of(problem, method, EPSILON, 0), SecretRandom()
    labels = [found.raw_labels for found in local_clusters(problem, method, plan, EPSILON, secret)]
    size = message_bytes(method, plan, problem.n)
    if method.weights == SKETCH:
        sketches = make_sketches(labels, plan, secret)
        return Arm(lambda: weigh(sketches, float(problem.n), plan), size)
    if method.weights == LDP_PAIRS.weights:
        supports = [ldp_supports(own, plan.local_clusters, EPSILON / (2 * plan.clients), secret) for own in labels]
        return Arm(lambda: ldp_agg_cells(supports, pairs=True, steps=plan.steps, seed=0), size)
    return Arm(lambda: grid_cells(labels, method, plan, EPSILON, secret), size)


def message_bytes(method: Method, plan: Plan, n: int) -> int:
    """Return the bytes of the largest message of a party: centres of 4 bytes a number, and what tells the weights.

    Notes
    -----
    vertical-dp: as sent. Not sent by the product, so counted: IND-LAP, 4 bytes for each cluster; reports and plain
    labels, one byte for each user.
    """
    if method.weights == SKETCH:
        return max(synopsis_format(plan, place).fixed_bytes for place in range(plan.clients))
    centers = 4 * plan.local_clusters * max(map(len, plan.names))
    return centers + (4 * plan.local_clusters + 8 if method.weights == IND_LAP.weights else n)


def sketch_arm(cell: Cell) -> Arm:
    """Make the input of one party's sketch with M = 4096."""
    clusters = cell["clusters"]
    labels = np.arange(cell["users"], dtype=np.int64) % clusters
    shape = SketchShape(rows=4096, clusters=clusters, phantoms=100)
    key = SecretRandom().bytes(32)
    return Arm(lambda: make_sketch(labels, 0, key, shape), None)


def conditions(machine: str, watched: str, repeats: int) -> str:
    """Say how the figures came about."""
    return (
        f"{machine}. {watched} Mixed Gaussian, 20,000 users, 8 columns, epsilon {EPSILON:g}; median of {repeats} "
        "repetitions in one process, all methods in turn, slowest in brackets. Seconds: the "
        "server's estimate of the grid weights alone. Bytes: of the largest message; with four parties 'vertical-dp' "
        "has three sketches, one for each pair. Published: the paper's Table 1, measured on a machine that it does not "
        "name."
    )


def cost_table(pairs: Sequence[tuple[Cell, Any]]) -> tuple[list[str], list[list[str]]]:
    """Write bytes and seconds beside the published ones."""
    header = ["method", "whose", "k'"]
    header += [f"here: {what}, S = {parties}" for what in ("kB", "s") for parties in PARTIES]
    header += ["paper: kB", "paper: s, S = 2", "paper: s, S = 4"]
    rows = []
    for clusters in CLUSTERS:
        for number, row in enumerate(ROWS):
            found = [_values(pairs, clusters=clusters, row=number, parties=parties) for parties in PARTIES]
            told = row.published.get(clusters)
            shown = ["", "", ""] if told is None else [told[0], f"{told[1]:.2f}", f"{told[2]:.2f}"]
            rows.append(
                [
                    _label(row),
                    whose(row.method)[0],
                    str(clusters),
                    *(f"{values[0]['bytes'] / 1000:.2f}" for values in found),
                    *map(_seconds, found),
                    *shown,
                ]
            )
    return header, rows


def sketch_table(pairs: Sequence[tuple[Cell, Any]]) -> tuple[list[str], list[list[str]]]:
    """Write how long a party makes one sketch."""
    rows = [
        [f"{SKETCH_USERS:,}", str(clusters), _seconds(_values(pairs, clusters=clusters, users=SKETCH_USERS))]
        for clusters in CLUSTERS
    ]
    return ["users of one sketch, M = 4096", "k'", "s"], rows


def table_csv(pairs: Sequence[tuple[Cell, Any]]) -> str:
    """Write every repetition."""
    lines: list[list[object]] = []
    for cell, value in pairs:
        label = "sketch of one party" if "users" in cell else _label(ROWS[cell["row"]])
        own = [label, cell["clusters"], cell.get("parties"), value["bytes"], cell["run"], value["seconds"]]
        lines.append([*own, *entries([value])])
    return csv_table(["method", "local_clusters", "parties", "bytes", "repetition", "seconds", *COLUMNS], lines)


def chart(pairs: Sequence[tuple[Cell, Any]]) -> bytes:
    """Draw the seconds of the server's estimate beside the published ones, four parties."""
    series = []
    for clusters in CLUSTERS:
        found = [_median(_values(pairs, clusters=clusters, row=i, parties=4)) for i in range(len(ROWS))]
        told = [row.published[clusters][2] if clusters in row.published else None for row in ROWS]
        series += [
            Bars(label=f"k' = {clusters}", heights=found),
            Bars(label=f"published, k' = {clusters}", heights=told),
        ]
    return bar_chart([_label(row) for row in ROWS], series, y_label="seconds, S = 4")


def _values(pairs: Sequence[tuple[Cell, Any]], **wanted: Any) -> list[Any]:
    """Return all repetitions of one arm."""
    return [value for cell, value in pairs if all(cell.get(key) == wish for key, wish in wanted.items())]


def _label(row: Row) -> str:
    return row.method.name if row.rows is None else f"{row.method.name} (M = {row.rows})"


def _median(values: Sequence[Any]) -> float:
    return statistics.median(float(value["seconds"]) for value in values)


def _seconds(values: Sequence[Any]) -> str:
    """Write median and slowest."""
    return marked(f"{_median(values):.4f} ({max(value['seconds'] for value in values):.4f})", values)
