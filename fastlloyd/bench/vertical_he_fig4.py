"""Vertical HE Figure 4: seconds of ten iterations against the number of columns; one party has one, the other the rest.

Source: Vertical HE, §5.3, Figure 4 (n = 100,000, k = 5, regWAN500; about 150 to 250 s there, read off its axes).
"""

from __future__ import annotations

from typing import Any

from fastlloyd.bench.cells import Cell
from fastlloyd.bench.machine import cores
from fastlloyd.bench.registry import Options
from fastlloyd.bench.vertical_he_common import Sheet
from fastlloyd.bench.vertical_he_paper import NETWORKS, network_seconds
from fastlloyd.bench.vertical_he_run import Case, run_case, synthetic
from fastlloyd.report.chart import Panel

NAME = "vertical-he-fig4"
CLUSTERS = 5
ROUNDS = 10


def run(options: Options) -> str:
    """Measure all widths, write Markdown, CSV and PNG, and give the Markdown."""
    sheet = Sheet(name=NAME, title="Vertical HE, Figure 4: time against columns", options=options)
    n = 10_000 if options.quick else 100_000
    widths = (2, 4, 6) if options.quick else tuple(range(2, 11))
    cells: list[Cell] = [{"name": f"{d} columns", "d": d, "n": n} for d in widths]
    values = sheet.measure(cells, _measure)
    rows: list[list[object]] = []
    for cell, value in zip(cells, values, strict=True):
        total = value["setup_bytes"] + ROUNDS * value["round_bytes"]
        compute = value["setup_seconds"] + ROUNDS * value["round_seconds"]
        network = network_seconds(NETWORKS["regWAN500"], total, ROUNDS)
        rows.append([cell["d"], n, value["scheme"], compute, compute + network, total / 1e6])
    lines = {"ours": ([float(c["d"]) for c in cells], [float(str(row[4])) for row in rows])}
    panel = Panel(x_label="columns", y_label="seconds, ten iterations", lines=lines, log_x=False, log_y=False)
    sheet.chart([panel])
    header = ("columns", "n", "scheme", "seconds computing", "seconds on regWAN500", "MB")
    notes = ["The party with one column holds the key, so the linear scheme applies: the rest is never encrypted."]
    return sheet.write(header, rows, notes)


def _measure(cell: Cell) -> Any:
    points, _ = synthetic(cell["n"], CLUSTERS, cell["d"])
    value = run_case(Case(k=CLUSTERS, widths=(1, cell["d"] - 1), rounds=ROUNDS), points, cores())
    del value["centers"]
    return value
