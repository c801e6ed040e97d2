"""The heat map: all clusters by all features, each centre by its difference from the mean.

A cell has a colour only where the 95 % range of the centre does not hold the mean. What the colour says, numbers or
triangles say too.

Source: docs/report.md, "report.html".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastlloyd.report.figure.drawing import LINE, WIDE, Drawing, Mark, Rectangle, Stroke, Writing, moved, text_width
from fastlloyd.report.figure.released import MOST_CLUSTERS, MOST_COLUMNS, Centres, percent_of
from fastlloyd.report.page.render import format_number, format_rounded, format_whole

_STEPS = 3
_ROW = 12.0
_SMALL = 10.0
_GAP = 4.0
_SCALES = (0.03, 0.06, 0.09, 0.15, 0.3, 0.45, 0.6, 0.9)
"""Ends of the scale, as shares of a feature's range."""
_LEGEND = 54.0


def heat_map(released: Centres) -> Drawing:
    """Return the heat map of a result as one figure, its parts below each other."""
    parts, marks, top = heat_parts(released), list[Mark](), 0.0
    for part in parts:
        marks += moved(part.marks, 0.0, top)
        top += part.height
    return replace(parts[0], height=top, marks=_layered(marks), about=_about(released))


def heat_parts(released: Centres) -> list[Drawing]:
    """Return the heat map in parts, each as wide as a page and of all clusters; the last has the scale.

    Parameters
    ----------
    released : Centres
        At most `MOST_CLUSTERS` clusters and `MOST_COLUMNS` features are drawn.
    """
    k, d = _shown(released)
    away = ((released.values - released.mean) / released.span)[:k, :d]
    beyond = _beyond(released)[:k, :d]
    most = next((end for end in _SCALES if np.abs(away[beyond]).max(initial=0.0) <= end + 1e-9), 1.0)
    steps = np.where(
        beyond, np.sign(away) * np.clip(np.ceil(np.abs(away) * _STEPS / most - 1e-9), 1, _STEPS), 0
    ).astype(int)
    texts = [[cell_number(released, row, column) for column in range(d)] for row in range(k)]
    heads = [_row_words(released, row) for row in range(k)]
    left = [max((text_width(head[place]) for head in heads), default=0.0) + _GAP for place in (0, 1)]
    wide = max(text_width(text) for row in texts for text in row) + 2.0 * _GAP
    numbers = d * wide <= WIDE - sum(left)
    named = max(map(text_width, released.labels[:d])) + 2.0 * _GAP
    cell = max(wide, named if d * named <= WIDE - sum(left) else 0.0) if numbers else _SMALL
    row_height = _ROW if numbers else _SMALL
    parts, blocks = list[Drawing](), np.array_split(np.arange(d), -(-d // int((WIDE - sum(left)) // cell)))
    caption = _caption(released, numbers=numbers)
    for number, block in enumerate(blocks, start=1):
        labels = [released.labels[column] for column in block]
        turned = max(map(text_width, labels)) + 2.0 > cell
        marks, top = list[Mark](), max(map(text_width, labels)) + _GAP if turned else LINE
        for at, column in enumerate(block.tolist()):
            x = sum(left) + ((at + 0.5) * cell + 2.8 if turned else (at + 1) * cell - _GAP)
            marks.append(name_words(released, column, x, top - 3.0, "start" if turned else "end", turned=turned))
        marks += _cells(steps[:, block], sum(left), top, (cell, row_height), triangles=not numbers)
        for row, (name, size) in enumerate(heads):
            y = top + row * row_height + row_height - 2.8
            marks += [Writing(0.0, y, name, spare=f"cluster {row}"), Writing(sum(left) - _GAP, y, size, "end")]
            if numbers:
                marks += [
                    Writing(
                        sum(left) + (at + 1) * cell - _GAP,
                        y,
                        texts[row][column],
                        "end",
                        "strong" if steps[row, column] else "",
                    )
                    for at, column in enumerate(block)
                ]
        top += k * row_height + LINE
        if released.total is not None:
            marks += [
                Writing(0.0, top - 2.0, "total"),
                Writing(sum(left) - _GAP, top - 2.0, format_whole(released.total), "end"),
            ]
        if number == len(blocks):
            marks += _scale(most, top + 6.0, triangles=not numbers)
            top += 6.0 + _ROW + LINE
        part = f", part {number} of {len(blocks)}" if len(blocks) > 1 else ""
        parts.append(Drawing(WIDE, top, _layered(marks), _about(released, part), caption))
    return parts


def _shown(released: Centres) -> tuple[int, int]:
    k, d = released.values.shape
    return min(k, MOST_CLUSTERS), min(d, MOST_COLUMNS)


def _about(released: Centres, part: str = "") -> str:
    k, d = _shown(released)
    return f"Heat map of {k} clusters by {d} features{part}. The values are in the table."


def _layered(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """Return marks in the order in which they are drawn: writing above lines, above areas."""
    return tuple(sorted(marks, key=lambda mark: (isinstance(mark, Writing), isinstance(mark, Stroke), mark.style)))


def cell_number(released: Centres, row: int, column: int) -> str:
    """Return a coordinate with two digits of its range; without ranges with what a reader can tell apart."""
    value = float(released.values[row, column])
    margin = 0.0 if released.margins is None else float(released.margins[row, column])
    if 0.0 < margin < math.inf:
        return format_rounded(value, margin)
    return format_rounded(value, 1e-3 * float(released.span[column])) if released.bounded else format_number(value)


def _beyond(released: Centres) -> NDArray[np.bool_]:
    """Return where the range of a centre does not hold the mean; without ranges, where they differ."""
    margins = 0.0 if released.margins is None else released.margins
    away: NDArray[np.bool_] = np.abs(released.values - released.mean) > np.maximum(margins, 1e-9 * released.span)
    return away


def _row_words(released: Centres, row: int) -> tuple[str, str]:
    """Return what a row is called, and its size with the share of all."""
    if released.sizes is None:
        return released.clusters[row], ""
    size, (low, high) = released.sizes[row], released.size_ranges[row] if released.size_ranges else (None, None)
    percent = None if released.total is None else percent_of(size, low, high, released.total)
    return released.clusters[row], format_whole(size) + (f" ({percent})" if percent else "")


def name_words(released: Centres, column: int, x: float, y: float, anchor: str, *, turned: bool = False) -> Writing:
    """Return the label of a feature, with its name in full behind it."""
    name, label = released.names[column], released.labels[column]
    full = name if label != name else ""
    return Writing(x, y, label, anchor, title=full, spare=f"column {column + 1}", turned=turned)


def _cells(
    steps: NDArray[np.int64], left: float, top: float, size: tuple[float, float], *, triangles: bool
) -> Iterator[Mark]:
    for (row, column), step in np.ndenumerate(steps):
        if step:
            x, y = left + column * size[0], top + row * size[1]
            yield Rectangle(x + 0.5, y + 0.5, size[0] - 1.0, size[1] - 1.0, _style(int(step)))
            if triangles:
                yield _triangle(x + size[0] / 2.0, y + size[1] / 2.0, int(step))


def _style(step: int) -> str:
    return f"{'up' if step > 0 else 'down'}{abs(step)}"


def _triangle(x: float, y: float, step: int) -> Stroke:
    """Return a triangle that points up or down and grows with the step."""
    half = math.copysign(0.7 + 0.7 * abs(step), step)
    width = abs(half)
    return Stroke(((x - width, y + half), (x + width, y + half), (x, y - half), (x - width, y + half)), "strong")


def _scale(most: float, top: float, *, triangles: bool) -> Iterator[Mark]:
    """Draw the scale: a box for each step, with the differences at their ends."""
    for side, start in ((-1, 0.0), (1, _STEPS + 1.8)):
        for at in range(_STEPS):
            step, x = side * (_STEPS - at if side < 0 else at + 1), (start + at) * _LEGEND
            yield Rectangle(x + 0.5, top, _LEGEND - 1.0, _ROW, _style(step))
            if triangles:
                yield _triangle(x + _LEGEND / 2.0, top + _ROW / 2.0, step)
        for at in range(_STEPS + 1):
            share = _STEPS - at if side < 0 else at
            text = format_number(100.0 * most * share / _STEPS, 3) + " %"
            sign = "" if share == 0 else "+" if side > 0 else "\u2212"
            anchor = "start" if side < 0 and at == 0 else "middle"
            yield Writing((start + at) * _LEGEND, top + _ROW + 8.5, sign + text, anchor, "soft")
    yield Writing((_STEPS + 0.9) * _LEGEND, top + 8.8, "near the mean", "middle", "soft")


def _caption(released: Centres, *, numbers: bool) -> str:
    weighs = "of all centres" if released.sizes is None else "of all centres, weighted by size"
    of = "its feature's range" if released.bounded else "the span of its feature over all clusters"
    said = [
        f"Rows are clusters{'' if released.sizes is None else ', with noisy size'}"
        f"{'' if released.total is None else ' and share of all'}.",
        f"Colour: difference from the mean {weighs}, in per cent of {of}"
        + (", red above it and blue below." if numbers else "; triangles point up above it and down below."),
    ]
    if released.margins is not None:
        said.append(
            "No colour: the mean is within the centre's 95 % range for the noise; by noise alone about 5 in 100 "
            "such cells would have one."
        )
    if numbers:
        said.append("Numbers are centres in the units of the data.")
    k, d = released.values.shape
    if k > MOST_CLUSTERS or d > MOST_COLUMNS:
        said.append(f"Shown: the first {min(k, MOST_CLUSTERS)} clusters and {min(d, MOST_COLUMNS)} features.")
    return " ".join([*said, released.made])
