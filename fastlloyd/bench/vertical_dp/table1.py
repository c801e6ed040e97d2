"""Vertical DP, Table 1: bytes from each party, and time of the server's estimate; also the time to make a sketch.

Source: Vertical DP, §6.2 "Communication/computation cost".
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastlloyd.bench.engine.cells import Cell, CellStore, measure_cells
from fastlloyd.bench.engine.chart import Bars, bar_chart
from fastlloyd.bench.engine.machine import describe_machine, load
from fastlloyd.bench.engine.registry import Options
from fastlloyd.bench.engine.tables import csv_table, markdown_table
from fastlloyd.bench.vertical_dp.baselines import ldp_agg_cells, ldp_supports
from fastlloyd.bench.vertical_dp.data import MIXTURE, even
from fastlloyd.bench.vertical_dp.plan import IND_LAP, LDP_PAIRS, MENDED_PAIRS, OURS_FIVE, PAPER_PAIRS, PLAIN
from fastlloyd.bench.vertical_dp.run import (
    SKETCH,
    Method,
    Workbench,
    grid_cells,
    local_clusters,
    make_sketches,
    plan_of,
)
from fastlloyd.privacy.sketch.sketch import SketchShape, make_sketch
from fastlloyd.protocols.vertical_dp.client import synopsis_format
from fastlloyd.protocols.vertical_dp.plan import Plan
from fastlloyd.protocols.vertical_dp.server import weigh
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.files import write_atomic
from fastlloyd.report.plot import available
from fastlloyd.version import __version__

NAME = "vertical-dp-table1"
EPSILON = 1.0
CLUSTERS = (5, 8)
PARTIES = (2, 4)
SKETCH_USERS = 100_000


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: a method, M, and the published bytes and seconds, by k' (seconds: S = 2, S = 4)."""

    method: Method
    rows: int | None
    published: Mapping[int, tuple[str, float, float]]


ROWS = (
    Row(replace(OURS_FIVE, name="vertical-dp"), 4096, {}),
    Row(replace(OURS_FIVE, name="vertical-dp"), 2048, {}),
    Row(MENDED_PAIRS, 4096, {}),
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
    cells = list_cells()
    machine = describe_machine()
    context = {"bench": NAME, "machine": machine, "software": f"fastlloyd {__version__}", "repeats": repeats}
    store = CellStore(options.output / f"{NAME}.partial.json", context)
    bench = Workbench(options.data_dir)
    before = load()
    values = measure_cells(cells, lambda cell: measure(bench, cell, repeats), store, progress=options.progress)
    pairs = list(zip(cells, values, strict=True))
    parts = [
        f"# Vertical DP, Table 1: bytes and time{' (quick)' if options.quick else ''}",
        conditions(machine, before, repeats),
        markdown_table(*cost_table(pairs)),
        markdown_table(*sketch_table(pairs)),
    ]
    if available():
        write_atomic(options.output / f"{NAME}.png", chart(pairs))
        parts.append(f"![Seconds of the server's estimate]({NAME}.png)")
    text = "\n\n".join(parts) + "\n"
    write_atomic(options.output / f"{NAME}.csv", table_csv(pairs))
    write_atomic(options.output / f"{NAME}.md", text)
    store.remove()
    return text


def list_cells() -> list[Cell]:
    """List what is measured."""
    table: list[Cell] = [
        {"name": f"S = {parties}", "parties": parties, "clusters": clusters, "row": number}
        for clusters in CLUSTERS
        for parties in PARTIES
        for number in range(len(ROWS))
    ]
    sketches: list[Cell] = [{"name": "sketch", "clusters": clusters, "users": SKETCH_USERS} for clusters in CLUSTERS]
    return table + sketches


def measure(bench: Workbench, cell: Cell, repeats: int) -> dict[str, Any]:
    """Measure one cell: bytes of the largest message, seconds of each repetition."""
    if "users" in cell:
        return {"seconds": sketch_seconds(cell["users"], cell["clusters"], repeats), "bytes": None}
    row = ROWS[cell["row"]]
    settings = {**row.method.settings, **({} if row.rows is None else {"rows": row.rows})}
    method = replace(row.method, local_clusters=cell["clusters"], settings=settings)
    problem = bench.problem(even(MIXTURE, cell["parties"]), 0)
    plan, secret = plan_of(problem, method, EPSILON, 0), SecretRandom()
    labels = [found.raw_labels for found in local_clusters(problem, method, plan, EPSILON, secret)]
    if method.weights == SKETCH:
        sketches = make_sketches(labels, plan, secret)
        seconds = _timed(lambda: weigh(sketches, float(problem.n), plan), repeats)
    elif method.weights == LDP_PAIRS.weights:
        supports = [ldp_supports(own, plan.local_clusters, EPSILON / (2 * plan.clients), secret) for own in labels]
        seconds = _timed(lambda: ldp_agg_cells(supports, pairs=True, steps=plan.steps, seed=0), repeats)
    else:
        seconds = _timed(lambda: grid_cells(labels, method, plan, EPSILON, secret), repeats)
    return {"seconds": seconds, "bytes": message_bytes(method, plan, problem.n)}


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


def sketch_seconds(users: int, clusters: int, repeats: int) -> list[float]:
    """Time one party's sketch with M = 4096."""
    labels = np.arange(users, dtype=np.int64) % clusters
    shape = SketchShape(rows=4096, clusters=clusters, phantoms=100)
    key = SecretRandom().bytes(32)
    return _timed(lambda: make_sketch(labels, 0, key, shape), min(repeats, 3))


def _timed(work: Any, repeats: int) -> list[float]:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def conditions(machine: str, before: float, repeats: int) -> str:
    """Say how the figures came about."""
    return (
        f"{machine}; {before:.1f} processes wanted a core when it began. Mixed Gaussian, 20,000 users, 8 columns, "
        f"epsilon {EPSILON:g}; median of {repeats} repetitions in one process, slowest in brackets. Seconds: the "
        "server's estimate of the grid weights alone. Bytes: of the largest message; with four parties 'vertical-dp' "
        "has three sketches, one for each pair. Published: the paper's Table 1, measured on a machine that it does not "
        "name."
    )


def cost_table(pairs: Sequence[tuple[Cell, Any]]) -> tuple[list[str], list[list[str]]]:
    """Write bytes and seconds beside the published ones."""
    header = ["method", "k'"]
    header += [f"{what}, S = {parties}" for what in ("kB", "s") for parties in PARTIES]
    header += ["published", "published s, S = 2", "published s, S = 4"]
    rows = []
    for clusters in CLUSTERS:
        for number, row in enumerate(ROWS):
            found = [_value(pairs, clusters, number, parties) for parties in PARTIES]
            told = row.published.get(clusters)
            shown = ["", "", ""] if told is None else [told[0], f"{told[1]:.2f}", f"{told[2]:.2f}"]
            rows.append(
                [
                    _label(row),
                    str(clusters),
                    *(f"{value['bytes'] / 1000:.2f}" for value in found),
                    *(_seconds(value["seconds"]) for value in found),
                    *shown,
                ]
            )
    return header, rows


def sketch_table(pairs: Sequence[tuple[Cell, Any]]) -> tuple[list[str], list[list[str]]]:
    """Write how long a party makes one sketch."""
    rows = [
        [f"{cell['users']:,}", str(cell["clusters"]), _seconds(value["seconds"])]
        for cell, value in pairs
        if "users" in cell
    ]
    return ["users of one sketch, M = 4096", "k'", "s"], rows


def table_csv(pairs: Sequence[tuple[Cell, Any]]) -> str:
    """Write every repetition."""
    lines: list[list[object]] = []
    for cell, value in pairs:
        label = "sketch of one party" if "users" in cell else _label(ROWS[cell["row"]])
        base = [label, cell["clusters"], cell.get("parties"), value["bytes"]]
        lines += [[*base, number, seconds] for number, seconds in enumerate(value["seconds"])]
    return csv_table(["method", "local_clusters", "parties", "bytes", "repetition", "seconds"], lines)


def chart(pairs: Sequence[tuple[Cell, Any]]) -> bytes:
    """Draw the seconds of the server's estimate beside the published ones, four parties."""
    series = []
    for clusters in CLUSTERS:
        found = [statistics.median(_value(pairs, clusters, i, 4)["seconds"]) for i in range(len(ROWS))]
        told = [row.published[clusters][2] if clusters in row.published else None for row in ROWS]
        series += [
            Bars(label=f"k' = {clusters}", heights=found),
            Bars(label=f"published, k' = {clusters}", heights=told),
        ]
    return bar_chart([_label(row) for row in ROWS], series, y_label="seconds, S = 4")


def _value(pairs: Sequence[tuple[Cell, Any]], clusters: int, row: int, parties: int) -> Any:
    wanted = {"clusters": clusters, "row": row, "parties": parties}
    return next(value for cell, value in pairs if all(cell.get(key) == wish for key, wish in wanted.items()))


def _label(row: Row) -> str:
    return row.method.name if row.rows is None else f"{row.method.name} (M = {row.rows})"


def _seconds(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.4f} ({max(seconds):.4f})"
