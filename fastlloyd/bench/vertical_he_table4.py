"""Vertical HE Table 4: loss and accuracy at epsilon = 1, delta = 1 / n, beside plain k-means and the published figures.

S1 and a synthetic set are made or found; HAR, Taxi, Bank and Loan are used where `--data-dir` holds them as
har.csv.gz, taxi.csv.gz, bank.csv.gz and loan.csv.gz.

Source: Vertical HE, §5.4, Table 4.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from fastlloyd.bench.cells import Cell
from fastlloyd.bench.machine import cores
from fastlloyd.bench.registry import Options
from fastlloyd.bench.vertical_he_common import Sheet, load_points, split_widths, try_points
from fastlloyd.bench.vertical_he_paper import CLUSTERS_OF, UTILITY, Utility
from fastlloyd.bench.vertical_he_run import Case, plain_lloyd, plan_case, run_case
from fastlloyd.kmeans.matching import accuracy
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.vertical_he.rounds import first_centers

NAME = "vertical-he-table4"
PLAIN_ROUNDS = 100


def run(options: Options) -> str:
    """Measure the sets that are there, write Markdown and CSV, and give the Markdown."""
    sheet = Sheet(name=NAME, title="Vertical HE, Table 4: utility at epsilon 1", options=options)
    repeats, notes = (2 if options.quick else 5), []
    cells: list[Cell] = []
    for name, lines in UTILITY.items():
        found = try_points(name, options)
        if isinstance(found, str):
            notes.append(found)
            continue
        cells += [
            {"name": name, "parties": line.parties, "seed": seed}
            for line in lines[: 1 if options.quick else None]
            for seed in range(repeats)
        ]
    values = sheet.measure(cells, lambda cell: _measure(cell, options))
    rows = []
    for name, lines in UTILITY.items():
        for line in lines:
            here = [
                value
                for cell, value in zip(cells, values, strict=True)
                if cell["name"] == name and cell["parties"] == line.parties
            ]
            if here:
                rows.append(_row(name, line, here))
    header = (
        "data set",
        "parties",
        "scheme",
        "rounds",
        "plain loss",
        "loss",
        "paper's plain",
        "paper's loss",
        "accuracy",
        "paper's accuracy",
        "seconds",
    )
    notes.append(
        f"Means of {repeats} runs from different sphere packings; plain k-means starts from the same. Data scaled to "
        "[0, 1]. The paper's noise is one party's, and its sensitivities are smaller than what holds: see "
        "docs/vertical-he-privacy.md."
    )
    return sheet.write(header, rows, notes)


def _row(name: str, line: Utility, here: list[Any]) -> list[object]:
    def mean(key: str) -> float | None:
        values = [value[key] for value in here if value[key] is not None]
        return statistics.fmean(values) if values else None

    return [
        name,
        line.parties,
        here[0]["scheme"],
        here[0]["rounds"],
        mean("plain_loss"),
        mean("loss"),
        line.plain_loss,
        line.loss,
        mean("accuracy"),
        line.accuracy,
        mean("seconds"),
    ]


def _measure(cell: Cell, options: Options) -> Any:
    points, labels = load_points(cell["name"], options)
    widths = split_widths(points.shape[1], cell["parties"])
    case = Case(k=CLUSTERS_OF[cell["name"]], widths=widths, rounds=None, seed=cell["seed"])
    value = run_case(case, points, cores())
    start = first_centers(plan_case(case, len(points)))
    plain = plain_lloyd(points, start, PLAIN_ROUNDS)
    found, _ = nearest(points, np.array(value["centers"]))
    return {
        "scheme": value["scheme"],
        "rounds": value["rounds"],
        "loss": value["loss"],
        "plain_loss": nearest(points, plain)[1] / 4.0,
        "accuracy": None if labels is None else accuracy(found, labels),
        "seconds": value["setup_seconds"] + value["rounds"] * value["round_seconds"],
    }
