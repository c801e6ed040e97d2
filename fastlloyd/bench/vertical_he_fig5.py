"""Vertical HE Figure 5: loss and accuracy on S1 against epsilon, delta = 1 / n.

Source: Vertical HE, §5.4, Figure 5 (published only as curves; its text gives 0.00566 and 90.75 % at epsilon 1).
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from fastlloyd.bench.cells import Cell
from fastlloyd.bench.machine import cores
from fastlloyd.bench.registry import Options
from fastlloyd.bench.vertical_he_common import Sheet, load_points
from fastlloyd.bench.vertical_he_paper import CLUSTERS_OF, UTILITY
from fastlloyd.bench.vertical_he_run import Case, run_case
from fastlloyd.kmeans.matching import accuracy
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.report.chart import Panel

NAME = "vertical-he-fig5"
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0)


def run(options: Options) -> str:
    """Measure all epsilons, write Markdown, CSV and PNG, and give the Markdown.

    Raises
    ------
    ConfigError
        S1 is not there.
    """
    sheet = Sheet(name=NAME, title="Vertical HE, Figure 5: S1 against epsilon", options=options)
    repeats = 2 if options.quick else 10
    epsilons = EPSILONS[1::2] if options.quick else EPSILONS
    load_points("s1", options)
    cells: list[Cell] = [
        {"name": f"epsilon {epsilon}", "epsilon": epsilon, "seed": seed}
        for epsilon in epsilons
        for seed in range(repeats)
    ]
    values = sheet.measure(cells, lambda cell: _measure(cell, options))
    rows: list[list[object]] = []
    for epsilon in epsilons:
        here = [value for cell, value in zip(cells, values, strict=True) if cell["epsilon"] == epsilon]
        losses, shares = [v["loss"] for v in here], [v["accuracy"] for v in here if v["accuracy"] is not None]
        mean = statistics.fmean(shares) if shares else None
        rows.append([epsilon, here[0]["rounds"], statistics.fmean(losses), min(losses), max(losses), mean])
    published = UTILITY["s1"][0]
    lines = {"ours": ([float(e) for e in epsilons], [float(str(row[2])) for row in rows])}
    levels = {"plain, paper": published.plain_loss, "paper, epsilon 1": published.loss}
    panel = Panel(x_label="epsilon", y_label="loss", lines=lines, levels=levels, log_x=False)
    sheet.chart([panel])
    notes = [
        f"{repeats} runs from different sphere packings for each epsilon. The paper at epsilon 1: loss "
        f"{published.loss}, accuracy {published.accuracy}; plain {published.plain_loss} and {published.plain_accuracy}."
    ]
    header = ("epsilon", "rounds", "loss, mean", "least", "largest", "accuracy, mean")
    return sheet.write(header, rows, notes)


def _measure(cell: Cell, options: Options) -> Any:
    points, labels = load_points("s1", options)
    case = Case(k=CLUSTERS_OF["s1"], widths=(1, 1), rounds=None, epsilon=cell["epsilon"], seed=cell["seed"])
    value = run_case(case, points, cores())
    found, _ = nearest(points, np.array(value["centers"]))
    share = None if labels is None else accuracy(found, labels)
    return {"loss": value["loss"], "rounds": value["rounds"], "accuracy": share}
