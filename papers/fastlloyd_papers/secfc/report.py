"""Tables of SecFC with the published accuracies beside ours: Markdown, CSV, PNG."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastlloyd.report.files import write_atomic
from fastlloyd.report.plot import available
from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.engine.chart import Bars, bar_chart
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.tables import csv_table, markdown_table, welch_half_width
from fastlloyd_papers.secfc.design import LLOYD, METHODS, PROTOCOL, SECFC, SEPARATION, Column, Figure, Table
from fastlloyd_papers.secfc.separation import LEAST

PAPER_RUNS = 10
AGREES, HIGHER, LOWER = "the same within the interval", "ours higher", "ours lower"
_ROUNDED = 0.05
_SEPARATION = (
    "## The separation that k-FED assumes\n\n"
    "Its local step finds clusters of records A for which |mu_r - mu_s| >= c (Delta_r + Delta_s), Delta_r = "
    "min(sqrt(k) |A - C|, |A - C|_F) / sqrt(n_r), C the means (Awasthi and Sheffet; k' for k at a client), with a "
    "large constant c. Here is the largest c that the true clusters have, the least over the draws. "
    f"Below {LEAST:g} the proof cannot even tell the centres of the start apart (FedDP-KMeans, Appendix E.2, Fact 19), "
    "so the assumption does not hold; above, it holds for constants up to c. What k-FED's own theorem asks besides of "
    "clusters that share no client is not judged here."
)

Pairs = Sequence[tuple[Cell, Any]]


def write_report(table: Table, pairs: Pairs, output: Path, *, notes: Sequence[str], machine: str, quick: bool) -> str:
    """Write the Markdown, CSV and PNG files, and give the Markdown.

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """
    there = {cell["name"] for cell, _ in pairs}
    columns = [column for column in table.columns if column.source.label in there]
    parts = [f"# {table.title}{' (quick)' if quick else ''}", conditions(pairs, machine), table.note]
    if columns:
        header = ["data", *(f"{method}, {who}" for method in METHODS for who in ("published", "ours"))]
        header.append("SecFC, ours, one start")
        parts += [markdown_table(header, [_line(column, pairs) for column in columns]), findings(columns, pairs)]
        parts += [_SEPARATION, separation_table(columns, pairs)]
        if available():
            write_atomic(output / f"{table.name}.png", chart(columns, pairs))
            parts.append(f"![Accuracy, published and measured]({table.name}.png)")
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes))
    return write_files(output, table.name, parts, runs_csv(pairs))


def conditions(pairs: Pairs, machine: str) -> str:
    """Say how the figures came about."""
    runs, draws = (len({cell[key] for cell, _ in pairs}) for key in ("run", "draw"))
    starts = max((value["starts"] for cell, value in pairs if cell["method"] == SECFC), default=0)
    return (
        f"{machine}. Accuracy in per cent (best matching of clusters and true labels), mean and standard deviation of "
        f"{runs} run(s), each from another public seed; records are drawn anew, or dealt out anew, for every "
        f"{runs // max(draws, 1)} of them. The paper has 10 runs and does not say what its second figure is. SecFC and "
        "Lloyd see nothing of k' but the order of the records: their runs go through the k' in turn, and stand in the "
        "column of each, as in the paper. SecFC: "
        f"{starts} separated starts from k-means++ seeds, of which the one with the least inertia wins, exact integers "
        "on a grid of 2^-16; the labels are those of the parties, without their shares and without the secret rotation "
        "before the rounding. Lloyd: scikit-learn in floating point, from the start that won, on the records before "
        "rounding. One start: SecFC with `secfc.starts=1`. k-FED: clients know k' and cluster as its authors do "
        "(Awasthi and Sheffet: spectral projection, records three times nearer to a centre than to all others, Lloyd), "
        "the best of three clusterings of the projected records."
    )


def accuracies(column: Column, pairs: Pairs, method: str) -> list[float]:
    """Return a method's accuracies in one column, in per cent, run by run."""
    measured, key = (SECFC, "lloyd") if method == LLOYD else (method, "accuracy")
    return [100.0 * value[key] for _, value in _cells(column, pairs, measured)]


def summary(values: Sequence[float]) -> Figure:
    """Return mean and standard deviation."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def one_start(column: Column, pairs: Pairs) -> list[float]:
    """Return the accuracies of SecFC's first starts in one column, in per cent, run by run."""
    return [100.0 * value["one"] for _, value in _cells(column, pairs, SECFC)]


def findings(columns: Sequence[Column], pairs: Pairs) -> str:
    """Say in words where ours and the published figures agree, and what was checked."""
    lines = [
        "Ours less published, by the 95 % interval of the difference of the means (Welch; the published second figure "
        f"taken as the standard deviation of {PAPER_RUNS} runs):\n"
    ]
    for method in METHODS:
        sides = {c.title: compare(accuracies(c, pairs, method), c.published[method]) for c in columns}
        lines.append(f"- {method}: {_agreement(sides)}.")
    sides = {c.title: compare(one_start(c, pairs), c.published[SECFC]) for c in columns}
    lines.append(f"- {SECFC}, one start: {_agreement(sides)}.")
    compared = [value for cell, value in pairs if cell["method"] == SECFC]
    for key, words in (("differ_rounded", "the rounded records"), ("differ", "the records before rounding")):
        same = sum(value[key] == 0 for value in compared)
        most = max(value[key] for value in compared)
        lines.append(
            f"- SecFC and floating-point Lloyd on {words} give the same labels in {same} of {len(compared)} runs; at "
            f"most {most:,} labels differ in one."
        )
    emptied = sum(value["empty"] > 0 for value in compared)
    apart = sum(value["differ_rounded"] > 0 and value["empty"] == 0 for value in compared)
    lines.append(
        f"- A cluster lost all its records in {emptied} run(s): SecFC leaves it empty, scikit-learn puts its centre "
        f"elsewhere. Runs on the rounded records that differ for another reason: {apart}."
    )
    for cell, value in pairs:
        if cell["method"] == PROTOCOL:
            lines.append(
                f"- {cell['name']}, k' = {cell['local']}: the parties themselves, in memory, {value['rounds']} rounds: "
                f"{value['differ']} of {value['records']:,} labels differ from those of the table."
            )
    return "\n".join(lines)


def separation_table(columns: Sequence[Column], pairs: Pairs) -> str:
    """Show how far apart the true clusters lie, over all records and at the worst client, and whether that will do."""
    lines = []
    for column in columns:
        found = [value for _, value in _cells(column, pairs, SEPARATION)]
        alone = [value["apart_locally"] for value in found if value["apart_locally"] is not None]
        pooled, own = min(value["apart"] for value in found), min(alone, default=None)
        few = column.local <= math.sqrt(column.source.k)
        lines.append([column.title, "yes" if few else "no", *(text for c in (pooled, own) for text in _apart(c))])
    header = ["data", "k' at most sqrt(k)", "c, all records", "holds", "c, a client's own", "holds"]
    return markdown_table(header, lines)


def _apart(c: float | None) -> tuple[str, str]:
    """Write a separation, and whether it will do."""
    if c is None:
        return "one cluster each", "nothing to tell apart"
    return f"{c:.1f}", f"for c up to {c:.1f}" if c >= LEAST else "no"


def runs_csv(pairs: Pairs) -> str:
    """Write every run."""
    fields = ("accuracy", "one", "lloyd", "differ", "differ_rounded", "cost", "iterations", "apart", "apart_locally")
    lines = [
        [*(cell[key] for key in ("name", "local", "method", "draw", "run")), *(value.get(name) for name in fields)]
        for cell, value in pairs
    ]
    return csv_table(["data", "local_k", "method", "draw", "run", *fields], lines)


def chart(columns: Sequence[Column], pairs: Pairs) -> bytes:
    """Draw published and own accuracies, column by column."""
    series = []
    for method in METHODS:
        published = [column.published[method] for column in columns]
        own = [summary(accuracies(column, pairs, method)) for column in columns]
        for who, figures in (("paper", published), ("ours", own)):
            # Short, for six of them stand in one line.
            label, heights = f"{method.split()[-1]}, {who}", [mean for mean, _ in figures]
            series.append(Bars(label=label, heights=heights, errors=[spread for _, spread in figures]))
    return bar_chart([column.title for column in columns], series, y_label="accuracy, per cent")


def _cells(column: Column, pairs: Pairs, method: str) -> list[tuple[Cell, Any]]:
    wanted: dict[str, object] = {"name": column.source.label, "method": method}
    if method != SECFC:  # whose runs are those of all k'
        wanted["local"] = column.local
    return [(cell, value) for cell, value in pairs if all(cell[key] == wish for key, wish in wanted.items())]


def _line(column: Column, pairs: Pairs) -> list[str]:
    cells = []
    for method in METHODS:
        cells += [_text(column.published[method]), _text(summary(accuracies(column, pairs, method)))]
    return [column.title, *cells, _text(summary(one_start(column, pairs)))]


def compare(values: Sequence[float], published: Figure) -> str:
    """Say on which side of the published mean ours lies: `AGREES` where the 95 % interval of the difference holds 0.

    Parameters
    ----------
    values : sequence of float
        Accuracies in per cent, run by run.
    published : Figure
        Its second figure is taken as the standard deviation of the paper's ten runs; the paper does not say what it is.

    Notes
    -----
    Welch's interval, wider by half the last digit that the paper prints. Runs of one draw share their records, which
    the interval does not count: it is rather too narrow.
    """
    mean, deviation = summary(values)
    difference = mean - published[0]
    half_width = welch_half_width((deviation, len(values)), (published[1], PAPER_RUNS)) + _ROUNDED
    return AGREES if abs(difference) <= half_width else HIGHER if difference > 0 else LOWER


def _agreement(sides: Mapping[str, str]) -> str:
    """Say in which columns the interval holds 0, and on which side ours is elsewhere."""
    found = {side: [title for title, own in sides.items() if own == side] for side in (AGREES, HIGHER, LOWER)}
    return "; ".join(f"{side} ({'; '.join(titles)})" for side, titles in found.items() if titles)


def _text(figure: Figure) -> str:
    return f"{figure[0]:.1f} ± {figure[1]:.1f}"
