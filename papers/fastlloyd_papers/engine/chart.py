"""Charts of benchmark figures, as PNG: bars beside each other, and panels of lines. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastlloyd.report.plot import make_figure, render_png

_BAR_SHARE = 0.8
_LEGEND_COLUMNS = 4
_MAX_MARKS = 12
# Of a legend's entry, and of a letter of it at 7 points.
_HANDLE_INCHES, _LETTER_INCHES = 0.55, 0.055


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """One colour of a bar chart.

    Attributes
    ----------
    label : str
    heights : sequence of float or None
        One per place; None leaves the place empty.
    errors : sequence of float or None
        Half-widths of the intervals; None draws no whisker.
    """

    label: str
    heights: Sequence[float | None]
    errors: Sequence[float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One set of axes with lines.

    Attributes
    ----------
    lines : mapping from label to (xs, ys)
    spreads : mapping from label to sequence of float
        Half-widths of the intervals of a line, drawn as a band.
    levels : mapping from label to y
        Drawn as horizontal dashed lines; where there are any, all panels have one legend below them.
    title : str
    log_x, log_y : bool
        Which axes are logarithmic.
    """

    x_label: str
    y_label: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    spreads: Mapping[str, Sequence[float]] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    title: str = ""
    log_x: bool = True
    log_y: bool = True


def bar_chart(places: Sequence[str], series: Sequence[Bars], *, y_label: str) -> bytes:
    """Draw groups of bars.

    Parameters
    ----------
    places : sequence of str
        Name under each group.
    series : sequence of Bars
    y_label : str

    Returns
    -------
    bytes
        A PNG.

    Raises
    ------
    ConfigError
        matplotlib is not installed.
    """
    figure, axes = make_figure((max(6.4, 0.95 * len(places)), 4.4))
    width = _BAR_SHARE / max(len(series), 1)
    for number, bars in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * width
        errors = bars.errors if bars.errors is not None else [None] * len(bars.heights)
        drawn = [(i + shift, h, e) for i, (h, e) in enumerate(zip(bars.heights, errors, strict=True)) if h is not None]
        xs, heights = [x for x, _, _ in drawn], [height for _, height, _ in drawn]
        whiskers = [0.0 if error is None else error for _, _, error in drawn]
        has_errors = any(whiskers)
        axes.bar(xs, heights, width, label=bars.label, yerr=whiskers if has_errors else None, capsize=2)
    axes.set_xticks(range(len(places)), places, rotation=30, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_ylabel(y_label)
    axes.set_ylim(bottom=0.0)
    axes.grid(axis="y", linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)
    figure.legend(
        loc="outside upper center", ncols=min(max(len(series), 1), _LEGEND_COLUMNS), frameon=False, fontsize=9
    )
    return render_png(figure)


def line_panels(panels: Sequence[Panel], *, columns: int) -> bytes:
    """Draw panels of lines, row by row.

    Parameters
    ----------
    panels : sequence of Panel
    columns : int
        Panels in a row; their number is a multiple of it.

    Returns
    -------
    bytes
        A PNG.

    Raises
    ------
    ConfigError
        matplotlib is not installed.
    """
    rows = -(-len(panels) // columns)
    figure, axes = make_figure((3.3 * columns, 2.9 * rows), rows, columns)
    places: list[Any] = list(axes.flat) if hasattr(axes, "flat") else [axes]
    for place, panel in zip(places, panels, strict=True):
        for label, (xs, ys) in panel.lines.items():
            (drawn,) = place.plot(xs, ys, marker="o", markersize=4, linewidth=1.2, label=label)
            if spread := panel.spreads.get(label):
                low, high = ([y + sign * half for y, half in zip(ys, spread, strict=True)] for sign in (-1, 1))
                place.fill_between(xs, low, high, alpha=0.2, color=drawn.get_color(), linewidth=0)
        for label, y in panel.levels.items():
            place.axhline(y, linestyle="--", linewidth=1.0, color=f"C{len(place.lines)}", label=label)
        place.set_xscale("log" if panel.log_x else "linear")
        place.set_yscale("log" if panel.log_y else "linear")
        place.set_title(panel.title, fontsize=9)
        place.set_xlabel(panel.x_label, fontsize=9)
        place.set_ylabel(panel.y_label, fontsize=9)
        marks = sorted({x for xs, _ in panel.lines.values() for x in xs})
        marks = marks[:: max(1, -(-len(marks) // _MAX_MARKS))]
        place.set_xticks(marks, [_short(mark) for mark in marks])
        place.set_xticks([], minor=True)
        place.tick_params(labelsize=8, which="both")
        place.grid(linewidth=0.4, alpha=0.6)
        if panel.lines and not panel.levels:
            place.legend(fontsize=7, frameon=False)
    if any(panel.levels for panel in panels):
        _common_legend(figure, places)
    return render_png(figure)


def _common_legend(figure: Any, places: Sequence[Any]) -> None:
    """Name the lines of all panels once, below them, where it hides none."""
    named: dict[str, Any] = {}
    for place in places:
        for handle, label in zip(*place.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    room = figure.get_figwidth() / (_HANDLE_INCHES + _LETTER_INCHES * max(map(len, named)))
    columns = max(1, min(2 if len(places) == 1 else 4, int(room)))
    figure.legend(
        list(named.values()), list(named), loc="outside lower center", ncols=columns, frameon=False, fontsize=7
    )


def _short(number: float) -> str:
    """Write a number in little room: 316, 10K, 1M."""
    for size, letter in ((1e6, "M"), (1e3, "K")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
