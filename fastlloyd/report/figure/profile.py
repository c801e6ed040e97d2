"""Profiles: a panel for each cluster, a line for each feature, with axis and numbers.

Source: docs/report.md, "report.html".
"""

from __future__ import annotations

import numpy as np

from fastlloyd.report.figure.drawing import (
    LINE,
    NARROW,
    Disc,
    Drawing,
    Mark,
    Stroke,
    Writing,
    beside,
    moved,
    text_width,
)
from fastlloyd.report.figure.heat import cell_number, name_words
from fastlloyd.report.figure.released import Centres

MOST_PANELS, MOST_FEATURES = 20, 24
_STEP = 12.0
_PAD = 5.0


def drawn_features(released: Centres) -> list[int]:
    """Return the features of the profiles: those whose centres are farthest apart on their lines, at most 24."""
    spread = (released.values.max(axis=0) - released.values.min(axis=0)) / released.span
    return sorted(np.argsort(-spread, kind="stable")[:MOST_FEATURES].tolist())


def panels(released: Centres) -> list[Drawing]:
    """Return the profile of each cluster: where each feature of its centre lies between its ends."""
    columns = drawn_features(released)
    numbers = [[cell_number(released, row, column) for column in columns] for row in range(len(released.values))]
    left = max(text_width(released.labels[column]) for column in columns) + 2.0 * _PAD
    right = NARROW - _PAD - max(text_width(text) for row in numbers for text in row)
    return [_panel(released, row, columns, numbers[row], (left, right)) for row in range(len(numbers))]


def profiles(released: Centres) -> Drawing:
    """Return the profiles as one figure, two panels beside each other."""
    drawn = []
    for heading, panel in zip(released.headings, panels(released), strict=True):
        head = Writing(0.0, 9.0, heading, style="strong")
        marks = (head, *moved(panel.marks, 0.0, LINE))
        drawn.append(Drawing(panel.width, panel.height + LINE, marks, panel.about))
    return beside(drawn, 2, f"Profiles of {len(drawn)} clusters. The values are in the table.", caption(released))


def caption(released: Centres) -> str:
    """Return what the panels show."""
    ends = "from its lower to its upper bound" if released.bounded else "from the least to the greatest of all clusters"
    said = [f"Each line is a feature, {ends}; the number is the centre, the tick the mean of all centres."]
    if released.margins is not None:
        said.append(
            "Bars are 95 % ranges for the noise: where they overlap, the clusters cannot be told apart by this feature."
        )
    if len(drawn_features(released)) < len(released.labels):
        said.append(f"Drawn are the {MOST_FEATURES} features by which the clusters differ most.")
    return " ".join([*said, released.made])


def _panel(released: Centres, row: int, columns: list[int], numbers: list[str], sides: tuple[float, float]) -> Drawing:
    left, right = sides
    low, span, flat = released.ends[0], released.span, released.ends[1] <= released.ends[0]

    def place(value: float, column: int) -> float:
        share = 0.5 if flat[column] else min(max(float((value - low[column]) / span[column]), 0.0), 1.0)
        return left + share * (right - left)

    marks, bottom = list[Mark](), len(columns) * _STEP
    for at, share in enumerate((0.0, 0.5, 1.0)):
        x = left + share * (right - left)
        marks += [
            Stroke(((x, 2.0), (x, bottom + 3.0)), "line"),
            Writing(x, bottom + 11.0, f"{50 * at} %", ("start", "middle", "end")[at], "soft"),
        ]
    for at, (column, number) in enumerate(zip(columns, numbers, strict=True)):
        y, value = at * _STEP + 6.0, float(released.values[row, column])
        marks += [
            name_words(released, column, left - _PAD, y + 2.8, "end"),
            Stroke(((left, y), (right, y)), "line"),
            Writing(NARROW, y + 2.8, number, "end"),
        ]
        mean = place(float(released.mean[column]), column)
        marks.append(Stroke(((mean, y - 3.5), (mean, y + 3.5)), "rest"))
        if released.margins is not None:
            margin = float(released.margins[row, column])
            ends = place(value - margin, column), place(value + margin, column)
            marks += [Stroke(((ends[0], y), (ends[1], y)), "range")]
            marks += [Stroke(((end, y - 2.5), (end, y + 2.5)), "range") for end in ends]
        marks.append(Disc(place(value, column), y, 2.6, "mark"))
    about = f"Profile of cluster {released.clusters[row]}: where each feature of its centre lies on its line."
    return Drawing(NARROW, bottom + 14.0, tuple(marks), f"{about} The values are in the table.")
