"""Vertical HE Table 4: loss and accuracy at epsilon = 1, delta = 1 / n, beside plain k-means and vertical-dp.

A second table leaves the DP noise out and compares with plain k-means from the same start after as many rounds.

Source: Vertical HE, §5.4, Table 4.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.report.plot import available
from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.engine.chart import Bars, bar_chart
from fastlloyd_papers.engine.quiet import COLUMNS, entries
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import csv_table, markdown_table
from fastlloyd_papers.vertical_he.common import IN_MEMORY, Sheet, shown, tables
from fastlloyd_papers.vertical_he.data import GIVEN, Missing, describe_given, load_points, split_widths, try_points
from fastlloyd_papers.vertical_he.paper import CLUSTERS_OF, UTILITY, Utility
from fastlloyd_papers.vertical_he.run import Case, plan_case
from fastlloyd_papers.vertical_he.utility import mean, measure_private, measure_quiet

NAME = "vertical-he-table4"
PRIVATE, QUIET = "private", "quiet"
# Records from which a run by the pairwise circuit takes minutes.
_MANY = 10_000
# Sets that the paper does not have: clusters and numbers of parties.
FURTHER = {"g2_2_30": (2, (2,)), "g2_4_30": (2, (2, 4)), "house": (3, (2,))}
# Clusters and columns at the two parties.
QUIET_SETS = {
    "s1": (15, ((1, 1),)),
    "iris": (3, ((2, 2), (3, 1))),
    "g2_4_30": (2, ((2, 2), (3, 1))),
    "synth-8000-5-4": (5, ((2, 2), (3, 1))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the first table; the paper's figures where it has some.

    Attributes
    ----------
    name : str
        Of the data set.
    k, parties : int
    paper : Utility or None
    slow : bool
        A run takes minutes: it is made once.
    """

    name: str
    k: int
    parties: int
    paper: Utility | None = None
    slow: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from others."""
        return self.name, self.parties


LINES = (
    *(Line(name=n, k=CLUSTERS_OF[n], parties=u.parties, paper=u) for n, found in UTILITY.items() for u in found),
    *(Line(name=name, k=k, parties=parties) for name, (k, many) in FURTHER.items() for parties in many),
)


def run(options: Options) -> str:
    """Measure the sets that are there, write Markdown, CSV and PNG, and give the Markdown."""
    sheet = Sheet(name=NAME, title="Vertical HE, Table 4: loss and accuracy", options=options)
    repeats, starts = (2, 2) if options.quick else (5, 5)
    lines, notes = usable(LINES, options)
    quiet, more = usable([Line(name=name, k=k, parties=2) for name, (k, _) in QUIET_SETS.items()], options)
    notes += [note for note in more if note not in notes]
    notes += [
        f"{describe_given(name, options.data_dir)}." for name in GIVEN if any(line.name == name for line in lines)
    ]
    cells: list[Cell] = [
        {"kind": PRIVATE, "name": line.name, "k": line.k, "parties": line.parties, "columns": "", "seed": seed}
        for line in lines
        for seed in range(1 if line.slow else repeats)
    ]
    cells += [
        {"kind": QUIET, "name": line.name, "k": line.k, "columns": "+".join(map(str, widths)), "seed": seed}
        for line in quiet
        for widths in QUIET_SETS[line.name][1]
        for seed in range(starts)
    ]
    values = sheet.measure(cells, lambda cell: _measure(cell, options, sheet.workers))
    pairs = list(zip(cells, values, strict=True))
    private, private_csv = private_table(lines, pairs)
    noiseless, noiseless_csv = quiet_table(pairs)
    _draw(sheet, lines, pairs)
    parts = ["## Epsilon = 1, delta = 1 / n: means of so many runs", private]
    parts += [f"## Without DP noise, ten rounds, {starts} starts", noiseless]
    return sheet.write(parts, [*notes, *_NOTES], {"": private_csv, "-without-noise": noiseless_csv})


_NOTES = (
    IN_MEMORY,
    "Data scaled to [0, 1]. Runs start from different sphere packings; plain k-means, at most 100 rounds, from the "
    "same ones. Seconds: set-up and all rounds; the paper's are for ten.",
    "The paper's noise is one party's, and its sensitivities are smaller than what holds: docs/vertical-he-privacy.md. "
    "The paper's vertical DP is what it measured of Li, Wang and Li.",
    "vertical-dp runs at the same epsilon and delta, one release instead of rounds, its own choice of local clusters; "
    "its k-means tries ten starts, the others have one each.",
    "Without DP noise only what protects the key is added. The soft assignment may lead to another local optimum than "
    "plain k-means from the same start, a better or a worse one. With few records "
    "the noise that protects the key counts, most of all in the pairwise circuit.",
)


def usable(lines: Sequence[Line], options: Options) -> tuple[list[Line], list[str]]:
    """Leave out sets that are not there and runs that the protocol refuses, with a note each."""
    found, notes, missing = [], [], set()
    for line in lines:
        if line.name in missing:
            continue
        loaded = try_points(line.name, options.data_dir)
        if isinstance(loaded, Missing):
            missing.add(line.name)
            notes.append(f"{loaded.reason}.")
            continue
        points, _ = loaded
        try:
            plan = plan_case(
                Case(k=line.k, widths=split_widths(points.shape[1], line.parties), rounds=None), len(points)
            )
        except (ConfigError, RangeError) as error:
            notes.append(f"{line.name} with {line.parties} parties is left out: {error}.")
        else:
            found.append(replace(line, slow=plan.scheme == "pairwise" and len(points) > _MANY))
    return found, notes


def private_table(lines: Sequence[Line], pairs: Sequence[tuple[Cell, Any]]) -> tuple[str, str]:
    """Write losses and accuracies at epsilon 1."""
    header = (
        "data set", "k", "parties", "scheme", "rounds", "runs", "loss: plain", "ours", "least", "largest",
        "vertical-dp", "paper's plain", "paper", "paper's vertical DP", "accuracy: plain", "accuracy: ours",
        "accuracy: vertical-dp", "accuracy: paper's plain", "accuracy: paper",
        "accuracy: paper's vertical DP", "seconds", "paper, s", *COLUMNS,
    )  # fmt: skip
    rows: list[list[object]] = []
    for line in lines:
        here = values_of(pairs, line)
        losses, paper = [value["loss"] for value in here], line.paper
        published = [None] * 7 if paper is None else [
            paper.plain_loss, paper.loss, paper.dp_loss, paper.plain_accuracy, paper.accuracy, paper.dp_accuracy,
            paper.seconds,
        ]  # fmt: skip
        rows.append([
            line.name, line.k, line.parties, here[0]["scheme"], here[0]["rounds"], len(here), mean(here, "plain_loss"),
            mean(here, "loss"), min(losses), max(losses), mean(here, "dp_loss"), *published[:3],
            *(mean(here, key) for key in ("plain_accuracy", "accuracy", "dp_accuracy")), *published[3:6],
            mean(here, "seconds"), published[6], *entries(here),
        ])  # fmt: skip
    return tables(header, rows)


def quiet_table(pairs: Sequence[tuple[Cell, Any]]) -> tuple[str, str]:
    """Write losses without DP noise over plain k-means' from the same start; the CSV has every start."""
    header = (
        "data set", "k", "columns", "scheme", "rounds", "plain loss, mean", "ours / plain, median", "least", "largest",
        "starts within 1 %",
    )  # fmt: skip
    groups: dict[tuple[str, int, str], list[Any]] = {}
    every: list[list[object]] = []
    for cell, value in pairs:
        if cell["kind"] == QUIET:
            groups.setdefault((cell["name"], cell["k"], cell["columns"]), []).append(value)
            own = [cell[key] for key in ("name", "k", "columns", "seed")]
            every.append([*own, value["scheme"], value["rounds"], value["plain_loss"], value["loss"]])
    rows = []
    for (name, k, columns), here in groups.items():
        ratios = [value["loss"] / value["plain_loss"] for value in here]
        close = sum(ratio <= 1.01 for ratio in ratios)
        rows.append([
            name, str(k), columns, here[0]["scheme"], str(here[0]["rounds"]), shown(mean(here, "plain_loss")),
            *(f"{ratio:.4f}" for ratio in (statistics.median(ratios), min(ratios), max(ratios))),
            f"{close} of {len(here)}",
        ])  # fmt: skip
    names = ("data_set", "k", "columns", "start", "scheme", "rounds", "plain_loss", "loss")
    return markdown_table(header, rows), csv_table(names, every)


def values_of(pairs: Sequence[tuple[Cell, Any]], line: Line) -> list[Any]:
    """Return what was measured for one line of the first table."""
    return [value for cell, value in pairs if cell["kind"] == PRIVATE and (cell["name"], cell["parties"]) == line.key]


def _measure(cell: Cell, options: Options, workers: int) -> Any:
    points, classes = load_points(cell["name"], options.data_dir)
    if cell["kind"] == QUIET:
        widths = tuple(int(part) for part in cell["columns"].split("+"))
        case = Case(k=cell["k"], widths=widths, rounds=10, noise="flooding", seed=cell["seed"])
        return measure_quiet(points, case, workers)
    widths = split_widths(points.shape[1], cell["parties"])
    return measure_private(points, classes, Case(k=cell["k"], widths=widths, rounds=None, seed=cell["seed"]), workers)


def _draw(sheet: Sheet, lines: Sequence[Line], pairs: Sequence[tuple[Cell, Any]]) -> None:
    """Draw losses over plain k-means' losses; the paper's over its own plain ones."""
    if not available() or not lines:
        return
    over: dict[str, list[float | None]] = {"ours": [], "vertical-dp": [], "paper": [], "paper's vertical DP": []}
    for line in lines:
        here, paper = values_of(pairs, line), line.paper
        plain = mean(here, "plain_loss") or 1.0
        over["ours"].append((mean(here, "loss") or 0.0) / plain)
        over["vertical-dp"].append((mean(here, "dp_loss") or 0.0) / plain)
        over["paper"].append(None if paper is None else paper.loss / paper.plain_loss)
        over["paper's vertical DP"].append(
            None if paper is None or paper.dp_loss is None else paper.dp_loss / paper.plain_loss
        )
    places = [f"{line.name}, {line.parties}" for line in lines]
    bars = [Bars(label=label, heights=heights) for label, heights in over.items()]
    sheet.picture(bar_chart(places, bars, y_label="loss / plain loss"))
