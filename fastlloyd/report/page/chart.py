"""Positions of the marks in a page's charts; `templates/charts.html` draws them.

Plain numbers in the units of the drawing: colours come from the page's style, light or dark. Only released values and
their ranges enter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.report.label import width_of

MOST_ROWS = 24
_MIDDLE = 0.5


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


@dataclass(frozen=True, slots=True)
class Point:
    """One feature of one cluster: its value between the ends of the scale, 0 to 1, and the range around it."""

    name: str
    value: float
    margin: float | None
    at: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Disc:
    """One centre in the plane of two features, all from 0 to 1 (y upwards); `radius` and half-widths too."""

    cluster: int
    x: float
    y: float
    radius: float
    half: tuple[float, float]


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


def label_width(names: Sequence[str]) -> int:
    """Return the width of the longest label, in the units of a profile."""
    return 18 + 7 * max(map(width_of, names), default=0)


def profiles(
    names: Sequence[str],
    centroids: NDArray[np.float64],
    margins: NDArray[np.float64] | None,
    bounds: NDArray[np.float64] | None = None,
) -> tuple[list[list[Point]], list[int]]:
    """Return each cluster's profile: every feature between its bounds, or its ends over all clusters and ranges.

    Parameters
    ----------
    names : sequence of str, length d
    centroids : float64 array, shape (k, d)
    margins : float64 array, shape (k, d), or None
        Half-widths of the ranges.
    bounds : float64 array, shape (2, d), or None
        Public bounds; values beyond them are drawn on them.

    Returns
    -------
    profiles : list of lists of Point
        Of at most `MOST_ROWS` features.
    columns : list of int
        Their places: the features whose centres are farthest apart on their lines.
    """
    half = np.zeros_like(centroids) if margins is None else margins
    least, most = ((centroids - half).min(axis=0), (centroids + half).max(axis=0)) if bounds is None else bounds
    span = np.where(most > least, most - least, 1.0)
    spread = (centroids.max(axis=0) - centroids.min(axis=0)) / span
    order = np.argsort(-spread, kind="stable")[:MOST_ROWS]
    columns = sorted(order.tolist())

    def place(value: float, column: int) -> float:
        flat = most[column] <= least[column]
        return _MIDDLE if flat else round(min(max(float((value - least[column]) / span[column]), 0.0), 1.0), 4)

    return [
        [
            Point(
                name=names[column],
                value=float(row[column]),
                margin=None if margins is None else float(own[column]),
                at=place(row[column], column),
                low=place(row[column] - own[column], column),
                high=place(row[column] + own[column], column),
            )
            for column in columns
        ]
        for row, own in zip(centroids, half, strict=True)
    ], columns


def discs(
    centroids: NDArray[np.float64],
    margins: NDArray[np.float64] | None,
    sizes: Sequence[float] | None,
    bounds: NDArray[np.float64] | None = None,
) -> tuple[list[Disc], NDArray[np.float64]]:
    """Return the centres of two features in their plane, the large ones first so that they do not hide smaller ones.

    Parameters
    ----------
    centroids : float64 array, shape (k, 2)
    margins : float64 array, shape (k, 2), or None
    sizes : sequence of float, length k, or None
        Noisy; a disc's area grows with its size.
    bounds : float64 array, shape (2, 2), or None
        Public bounds, the ends of the axes.

    Returns
    -------
    discs : list of Disc
    ends : float64 array, shape (2, 2)
        Least and greatest value of each axis.
    """
    half = np.zeros_like(centroids) if margins is None else margins
    ends = np.stack([(centroids - half).min(axis=0), (centroids + half).max(axis=0)]) if bounds is None else bounds
    span = np.where(ends[1] > ends[0], ends[1] - ends[0], 1.0)
    weights = np.ones(len(centroids)) if sizes is None else np.clip(np.asarray(sizes, dtype=np.float64), 0.0, None)
    radii = 0.028 + 0.03 * np.sqrt(weights / max(weights.max(initial=0.0), 1e-12)) * (sizes is not None)
    made = [
        Disc(
            cluster=row,
            x=float((centroids[row, 0] - ends[0, 0]) / span[0]),
            y=float((centroids[row, 1] - ends[0, 1]) / span[1]),
            radius=float(radii[row]),
            half=(float(half[row, 0] / span[0]), float(half[row, 1] / span[1])),
        )
        for row in np.argsort(-radii, kind="stable").tolist()
    ]
    return made, ends
