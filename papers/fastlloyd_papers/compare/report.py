"""The page, the tidy CSV and the curve of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastlloyd.report.plot import available
from fastlloyd_papers.compare.method import Method
from fastlloyd_papers.compare.table import Table
from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.engine.chart import Panel, line_panels
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import Summary, csv_table, markdown_table, summarise

NAME = "compare"
HEADER = ("data", "records", "features", "k", "method", "epsilon", "repeat", "loss", "over_kmeans")


def tidy(tables: Sequence[Table], cells: Sequence[Cell], values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return a row for each run; `over_kmeans` is its loss over that of the best of many starts of k-means."""
    known = {table.name: table for table in tables}
    best: dict[str, float] = {}
    for cell, value in zip(cells, values, strict=True):
        if cell["method"] == "kmeans" and value is not None:
            best[cell["name"]] = min(value, best.get(cell["name"], value))
    rows = []
    for cell, loss in zip(cells, values, strict=True):
        table, least = known[cell["name"]], best.get(cell["name"])
        ratio = None if least in (None, 0.0) else loss / least
        entry = (*table.points.shape, table.k, cell["method"], cell["epsilon"], cell["repeat"], loss, ratio)
        rows.append(dict(zip(HEADER, (table.name, *entry), strict=True)))
    return rows


def write_report(
    options: Options, tables: Sequence[Table], methods: Sequence[Method], rows: Sequence[dict[str, Any]],
    *, epsilons: Sequence[float], notes: Sequence[str],
) -> str:  # fmt: skip
    """Write page, CSV and picture, and give the page."""
    spread = {key: summarise([row["loss"] for row in found]) for key, found in _groups(rows).items()}
    parts = [
        "# Comparison",
        "Mean squared distance of a record to the nearest centre, features scaled to [-1, 1] by the bounds: means over "
        "the repeats with 95 % intervals (Student). Epsilon is the total of a run, delta = 1 / (N ln N). kmeans is the "
        "best of many starts without privacy.",
        "**The figures are computed from the records without noise**, and many runs add up: show them only to those "
        "who may see the records.",
    ]
    for table in tables:
        n, d = table.points.shape
        parts += [
            f"## {table.name}: {n:,} records, {d} features, k = {table.k}",
            _table(table, methods, spread, epsilons),
        ]
    parts += ["\n".join(f"- {note}" for note in notes)] if notes else []
    text = csv_table(HEADER, [[row[name] for name in HEADER] for row in rows])
    picture = line_panels([_panel(table, methods, spread) for table in tables], columns=1) if available() else None
    return write_files(options.output, NAME, parts, text, picture=picture, about="Loss against epsilon")


def _groups(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str, float | None], list[dict[str, Any]]]:
    found: dict[tuple[str, str, float | None], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["data"], row["method"], row["epsilon"]), []).append(row)
    return found


def _table(
    table: Table,
    methods: Sequence[Method],
    spread: dict[tuple[str, str, float | None], Summary],
    epsilons: Sequence[float],
) -> str:
    rows = []
    for method in methods:
        cells = [spread.get((table.name, method.name, epsilon if method.private else None)) for epsilon in epsilons]
        rows.append([method.name, *(_short(found) if found else "" for found in cells)])
    return markdown_table(["epsilon", *(f"{epsilon:g}" for epsilon in epsilons)], rows)


def _short(found: Summary) -> str:
    half = "" if found.half_width is None else f" ± {found.half_width:.2g}"
    return f"{found.mean:.3g}{half}"


def _panel(table: Table, methods: Sequence[Method], spread: dict[tuple[str, str, float | None], Summary]) -> Panel:
    lines, spreads, levels = {}, {}, {}
    for method in methods:
        own = {e: found for (name, who, e), found in spread.items() if (name, who) == (table.name, method.name)}
        if None in own:
            levels[method.name] = own[None].mean
        elif own:
            xs = sorted(e for e in own if e is not None)
            lines[method.name] = (xs, [own[x].mean for x in xs])
            spreads[method.name] = [own[x].half_width or 0.0 for x in xs]
    return Panel(
        x_label="epsilon", y_label="loss", lines=lines, spreads=spreads, levels=levels, title=table.name, log_x=False
    )
