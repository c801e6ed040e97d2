"""Positions of the marks in a page's charts; `templates/charts.html` draws them.

Plain numbers in the units of the drawing: colours come from the page's style, light or dark. Only released values and
their ranges enter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar with its range.

    Attributes
    ----------
    label : str
    value : float
    lo, hi : float or None
        Of the range; None if it is not known.
    start, end, low, high : float
        Positions on the chart, from 0 to 100.
    """

    label: str
    value: float
    lo: float | None
    hi: float | None
    start: float
    end: float
    low: float
    high: float


def size_bars(sizes: Sequence[float], ranges: Sequence[Sequence[float]] | None) -> list[Bar]:
    """Return a bar for each noisy size, all on one scale that starts at zero or below.

    Parameters
    ----------
    sizes : sequence of float, length k
    ranges : sequence of pairs of float, length k, or None
    """
    pairs = [(None, None)] * len(sizes) if ranges is None else [(lo, hi) for lo, hi in ranges]
    ends = [0.0, *sizes, *(end for pair in pairs for end in pair if end is not None)]
    least, most = min(ends), max(ends)
    span = most - least or 1.0

    def place(value: float) -> float:
        return round(100.0 * (value - least) / span, 2)

    return [
        Bar(
            label=str(row),
            value=size,
            lo=lo,
            hi=hi,
            start=place(min(0.0, size)),
            end=place(max(0.0, size)),
            low=place(size if lo is None else lo),
            high=place(size if hi is None else hi),
        )
        for row, (size, (lo, hi)) in enumerate(zip(sizes, pairs, strict=True))
    ]


def share_bar(share: float) -> Bar:
    """Return a bar that fills a share of its track, from 0 to 1."""
    (bar, _) = size_bars([min(max(share, 0.0), 1.0), 1.0], None)
    return bar
