"""Vertical HE Figure 5: loss and accuracy on S1 against epsilon, delta = 1 / n, beside vertical-dp and plain k-means.

Source: Vertical HE, §5.4, Figure 5 (curves alone; its Table 4 gives epsilon 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.engine.chart import Panel
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import summarise
from fastlloyd_papers.vertical_he.common import IN_MEMORY, Sheet, tables
from fastlloyd_papers.vertical_he.data import load_points
from fastlloyd_papers.vertical_he.paper import CLUSTERS_OF, UTILITY
from fastlloyd_papers.vertical_he.run import Case
from fastlloyd_papers.vertical_he.utility import mean, measure_private

NAME = "vertical-he-fig5"
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
_PAPER = UTILITY["s1"][0]


def run(options: Options) -> str:
    """Measure all epsilons, write Markdown, CSV and PNG, and give the Markdown.

    Raises
    ------
    ConfigError
        S1 is not there.
    """
    sheet = Sheet(name=NAME, title="Vertical HE, Figure 5: S1 against epsilon", options=options)
    repeats, epsilons = (3, EPSILONS[1::2]) if options.quick else (40, EPSILONS)
    load_points("s1", options.data_dir)
    cells: list[Cell] = [
        {"name": f"epsilon {epsilon:g}", "epsilon": epsilon, "seed": seed}
        for epsilon in epsilons
        for seed in range(repeats)
    ]
    values = sheet.measure(cells, lambda cell: _measure(cell, options, sheet.workers))
    groups = {
        epsilon: [value for cell, value in zip(cells, values, strict=True) if cell["epsilon"] == epsilon]
        for epsilon in epsilons
    }
    header = (
        "epsilon", "runs", "rounds", "loss: ours", "± 95 %", "least", "largest", "vertical-dp", "plain",
        "paper", "paper's vertical DP",
        "accuracy: ours", "accuracy: ± 95 %", "accuracy: vertical-dp", "accuracy: plain", "accuracy: paper",
        "accuracy: paper's vertical DP",
    )  # fmt: skip
    table, csv = tables(header, [_row(epsilon, here) for epsilon, here in groups.items()])
    sheet.chart([_panel(groups, "loss"), _panel(groups, "accuracy")])
    notes = [
        IN_MEMORY,
        f"Means of {repeats} runs with 95 % intervals of ours (Student), from different sphere packings for each "
        "epsilon; plain k-means from the same ones, at most 100 rounds. Data scaled to [0, 1]. Where rounds differ "
        "between epsilons the protocol chose fewer.",
        f"The paper publishes curves; its Table 4 has epsilon 1, and plain k-means: loss {_PAPER.plain_loss}, accuracy "
        f"{_PAPER.plain_accuracy}. Its text: the loss settles at about 0.004.",
    ]
    return sheet.write([table], notes, {"": csv})


def _row(epsilon: float, here: Sequence[Any]) -> list[object]:
    loss, accuracy = (summarise([value[what] for value in here]) for what in ("loss", "accuracy"))
    at_one = epsilon == 1.0
    return [
        epsilon, len(here), here[0]["rounds"], loss.mean, loss.half_width, loss.least, loss.largest,
        mean(here, "dp_loss"),
        mean(here, "plain_loss"), _PAPER.loss if at_one else None, _PAPER.dp_loss if at_one else None,
        accuracy.mean, accuracy.half_width, mean(here, "dp_accuracy"), mean(here, "plain_accuracy"),
        _PAPER.accuracy if at_one else None, _PAPER.dp_accuracy if at_one else None,
    ]  # fmt: skip


def _panel(groups: dict[float, list[Any]], what: str) -> Panel:
    """Draw one quantity against epsilon."""
    lines = {}
    for label, key in (("ours", what), ("vertical-dp", f"dp_{what}"), ("plain", f"plain_{what}")):
        points = [(epsilon, mean(here, key)) for epsilon, here in groups.items()]
        known = [(x, y) for x, y in points if y is not None]
        lines[label] = ([x for x, _ in known], [y for _, y in known])
    theirs = (_PAPER.loss, _PAPER.dp_loss) if what == "loss" else (_PAPER.accuracy, _PAPER.dp_accuracy)
    for label, value in zip(("paper", "paper's vertical DP"), theirs, strict=True):
        if value is not None:
            lines[label] = ([1.0], [value])
    return Panel(x_label="epsilon", y_label=what, lines=lines, log_x=False, log_y=what == "loss")


def _measure(cell: Cell, options: Options, workers: int) -> Any:
    points, classes = load_points("s1", options.data_dir)
    case = Case(k=CLUSTERS_OF["s1"], widths=(1, 1), rounds=None, epsilon=cell["epsilon"], seed=cell["seed"])
    return measure_private(points, classes, case, workers)
