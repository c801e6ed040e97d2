"""Vertical HE Table 3 (b): seconds and megabytes of ten iterations, one column at each of two parties, ten networks.

Source: Vertical HE, §5.3, Table 3.
"""

from __future__ import annotations

from typing import Any

from fastlloyd.bench.cells import Cell
from fastlloyd.bench.machine import cores
from fastlloyd.bench.registry import Options
from fastlloyd.bench.vertical_he_common import Sheet
from fastlloyd.bench.vertical_he_paper import (
    CLUSTERS,
    MACHINE,
    NETWORKS,
    SIZES,
    network_seconds,
    published,
    published_megabytes,
)
from fastlloyd.bench.vertical_he_run import Case, run_case, synthetic
from fastlloyd.report.chart import Panel

NAME = "vertical-he-table3"
ROUNDS = 10


def run(options: Options) -> str:
    """Measure all sizes, write Markdown, CSV and PNG, and give the Markdown."""
    sheet = Sheet(name=NAME, title="Vertical HE, Table 3: ten iterations", options=options)
    sizes = SIZES[:2] if options.quick else SIZES
    cells: list[Cell] = [{"name": f"n {n}, k {k}", "n": n, "k": k} for n in sizes for k in CLUSTERS]
    values = sheet.measure(cells, _measure)
    rows: list[list[object]] = []
    for network, shape in NETWORKS.items():
        for cell, value in zip(cells, values, strict=True):
            total = value["setup_bytes"] + ROUNDS * value["round_bytes"]
            compute = value["setup_seconds"] + ROUNDS * value["round_seconds"]
            seconds = compute + network_seconds(shape, total, ROUNDS)
            paper = published(network, cell["n"], cell["k"])
            rows.append(
                [
                    network,
                    cell["n"],
                    cell["k"],
                    seconds,
                    paper,
                    paper / seconds,
                    total / 1e6,
                    published_megabytes(cell["n"], cell["k"]),
                ]
            )
    header = ("network", "n", "k", "seconds", "paper, s", "times faster", "MB", "paper, MB")
    notes = [f"The paper's figures are from {MACHINE}. Times over networks are computed, not shaped."]
    sheet.chart(_panels(cells, values))
    return sheet.write(header, rows, notes)


def _measure(cell: Cell) -> Any:
    points, _ = synthetic(cell["n"], cell["k"], 2)
    value = run_case(Case(k=cell["k"], widths=(1, 1), rounds=ROUNDS), points, cores())
    del value["centers"]
    return value


def _panels(cells: list[Cell], values: list[Any]) -> list[Panel]:
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for cell, value in zip(cells, values, strict=True):
        for label, seconds in (
            (f"k = {cell['k']}", value["setup_seconds"] + ROUNDS * value["round_seconds"]),
            (f"k = {cell['k']}, paper", published("LAN10000", cell["n"], cell["k"])),
        ):
            xs, ys = lines.setdefault(label, ([], []))
            xs.append(float(cell["n"]))
            ys.append(seconds)
    return [Panel(x_label="records", y_label="seconds, ten iterations", lines=lines)]
