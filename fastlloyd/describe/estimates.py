"""What a noisy vector says of clusters: sizes, shares, means, median and quartiles, each with a 95 % range.

All numbers follow from the released vector and the stated noise, by sums that no library of matrices reorders: parties
with other processors come to the same bits. Ranges hold the noise of the release, for these
records and these centres; they hold no sampling: other patients of the same kind would differ by more.

Let x be the bins of a column in a cluster and n its size. Least squares over the totals of all columns makes the bins
add up to n, and leaves each bin a contrast, whose noise is independent of that of n, plus n / B. So for any weights a,
with A their sum, a x has the variance s^2 (a a - A^2 / B) + var(n) A^2 / B^2. A share r is in its range if x_b - r n
is within 1.96 deviations of 0 by the delta method; a mean and the records below an edge are such forms, too.

Source: docs/privacy.md, "Descriptions of clusters".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastlloyd.describe.coding import Layout
from fastlloyd.describe.columns import DescribedColumn
from fastlloyd.report.ranges import NORMAL_TAIL

Floats = NDArray[np.float64]
Shown = Literal["fine", "coarse", "nothing"]
# Measure, value, what may be shown, number, and the ends of its range.
_Line = tuple[str, str, Shown, Any, Any, Any]
FINE, COARSE = 0.05, 0.2
"""Noise over records: up to the first, numbers are shown with ranges; up to the second, ranges alone; else nothing."""
QUARTILES = {"quartile 1": 0.25, "median": 0.5, "quartile 3": 0.75}


@dataclass(frozen=True, slots=True)
class Described:
    """One line of a description.

    Attributes
    ----------
    cluster : int
    column : str
        Empty for the size.
    measure : str
        'size', 'share', 'mean', 'quartile 1', 'median' or 'quartile 3'.
    value : str
        Of a share: the bin or category.
    estimate, low, high : float or None
        Released number and the ends of its 95 % range; None where they are not shown.
    shown : {'fine', 'coarse', 'nothing'}
        'coarse': the range says more than the number. 'nothing': too few records for this budget.
    """

    cluster: int
    column: str
    measure: str
    value: str
    estimate: float | None
    low: float | None
    high: float | None
    shown: Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Consistent:
    """A released vector after least squares over the totals of all columns.

    Attributes
    ----------
    sizes : float64 array, shape (k,)
    size_deviation : float
    blocks : list of float64 arrays, shapes (k, B)
        Bins of each column, which add up to the sizes; may be negative.
    halves : float64 array, shape (k, m_num)
        Half the sums of scaled values.
    noise : float
        s, the standard deviation of the noise on each number of the vector.
    """

    sizes: Floats
    size_deviation: float
    blocks: list[Floats] = field(repr=False)
    halves: Floats = field(repr=False)
    noise: float

    def deviation(self, weights: Floats) -> Floats:
        """Return the standard deviations of weighted sums of a block's bins.

        Parameters
        ----------
        weights : float64 array, shape (.., B)

        Returns
        -------
        float64 array, shape (..)
        """
        bins, total = weights.shape[-1], weights.sum(axis=-1)
        contrast = np.maximum((weights**2).sum(axis=-1) - total**2 / bins, 0.0)
        deviation: Floats = np.sqrt(self.noise**2 * contrast + (self.size_deviation * total / bins) ** 2)
        return deviation


def make_consistent(layout: Layout, noisy: Floats, noise: float) -> Consistent:
    """Fit sizes and bins to all totals by least squares.

    Parameters
    ----------
    layout : Layout
    noisy : float64 array, shape (k, width)
        As released.
    noise : float
        s, the standard deviation on each number.

    Notes
    -----
    The total of B bins has the variance B s^2, the size s^2. Privacy: post-processing.
    """
    blocks = layout.blocks(noisy)
    weight = 1.0 + sum(1.0 / block.shape[1] for block in blocks)
    sizes = (noisy[:, 0] + sum(block.sum(axis=1) / block.shape[1] for block in blocks)) / weight
    fitted = [block + ((sizes - block.sum(axis=1)) / block.shape[1])[:, None] for block in blocks]
    return Consistent(
        sizes=sizes,
        size_deviation=noise / float(np.sqrt(weight)),
        blocks=fitted,
        halves=noisy[:, layout.starts[-1] :],
        noise=noise,
    )


def project(values: Floats, total: float) -> Floats:
    """Return the nearest numbers from 0 that add up to `total`, shape (B,); zeros where that is not above 0."""
    if total <= 0.0:
        return np.zeros_like(values)
    falling = -np.sort(-values)
    over = falling.cumsum() - total
    # At the first one both sides are equal where the total vanishes beside it.
    last = int(np.flatnonzero(falling * np.arange(1, len(values) + 1) >= over)[-1])
    projected: Floats = np.maximum(values - over[last] / (last + 1), 0.0)
    return projected


def grade(noise: float, records: float) -> Shown:
    """Say what may be shown of records, by their released number."""
    if records <= 0.0 or noise > COARSE * records:
        return "nothing"
    return "fine" if noise <= FINE * records else "coarse"


def describable_from(noise: float) -> tuple[int, int]:
    """Return from how many people in a cluster its numbers are shown, and from how many its ranges.

    Examples
    --------
    >>> describable_from(59.0)
    (1180, 295)
    """
    return round(noise / FINE), round(noise / COARSE)


def describe(layout: Layout, noisy: Floats, *, noise: float, n_total: int, fraction_bits: int) -> Iterator[Described]:
    """Yield the description of all clusters: the size of each, and its columns in their order.

    Parameters
    ----------
    layout : Layout
    noisy : float64 array, shape (k, width)
        As released.
    noise : float
        s, the standard deviation on each number of it.
    n_total : int
        Public bound on all records.
    fraction_bits : int
        q: scaled values were rounded to the grid of 2^-(q - 1); ranges of means hold that.
    """
    found = make_consistent(layout, noisy, noise)
    places = {at: place for place, at in enumerate(layout.numbers)}
    for cluster, size in enumerate(found.sizes.tolist()):
        margin = NORMAL_TAIL * found.size_deviation
        low, high = (float(np.clip(size + side, 0.0, n_total)) for side in (-margin, margin))
        yield Described(cluster, "", "size", "", min(max(size, low), high), low, high, "fine")
        for at, column in enumerate(layout.columns):
            bins = found.blocks[at][cluster]
            lines = [_shares(found, column, bins, size)]
            if column.is_number:
                half = float(found.halves[cluster, places[at]])
                lines.append(_numbers(found, column, bins, half, 2.0**-fraction_bits))
            for measure, value, shown, *ends in chain.from_iterable(lines):
                kept = [None] * 3 if shown == "nothing" else [float(end) for end in ends]
                number, least, most = kept
                yield Described(cluster, column.name, measure, value, number, least, most, shown)


def _shares(found: Consistent, column: DescribedColumn, bins: Floats, size: float) -> Iterator[_Line]:
    """Yield the share of each bin of a column, the one of missing values included."""
    shown, n = grade(found.noise, size), max(size, 1e-9)
    shares = bins / n
    # The weights of x_b - r n, where n is the sum of the bins.
    margins = NORMAL_TAIL * found.deviation(np.eye(len(bins)) - shares[:, None]) / n
    low, high = np.clip(shares - margins, 0.0, 1.0), np.clip(shares + margins, 0.0, 1.0)
    numbers = np.clip(project(bins, size) / n, low, high)
    for value, number, least, most in zip(column.labels, numbers, low, high, strict=True):
        yield "share", value, shown, number, least, most


def _numbers(found: Consistent, column: DescribedColumn, bins: Floats, half: float, rounding: float) -> Iterator[_Line]:
    """Yield mean, median and quartiles of the values that are not missing."""
    present = np.ones(len(bins))
    present[-1] = 0.0
    there = float((present * bins).sum())
    shown, n = grade(found.noise, there), max(there, 1e-9)
    mean = 2.0 * half / n
    margin = NORMAL_TAIL * float(np.hypot(2.0 * found.noise, mean * found.deviation(present))) / n + rounding
    ends = np.clip([mean, mean - margin, mean + margin], -1.0, 1.0)
    number, low, high = column.bottom + (ends + 1.0) / 2.0 * (column.top - column.bottom)
    yield "mean", "", shown, number, low, high
    # For the number: bins from 0 that add up to what is there.
    inside = project(bins[:-1], there)
    for measure, share in QUARTILES.items():
        first, last = quantile_bins(found, bins, share)
        low, high = column.all_edges[first], column.all_edges[last if column.whole else last + 1]
        yield measure, "", shown, np.clip(quantile(column, inside, share), low, high), low, high


def quantile_bins(found: Consistent, bins: Floats, share: float) -> tuple[int, int]:
    """Return the first and the last bin in which a quantile may lie, of one cluster's bins, the missing ones last.

    G(e) is the number of records below edge e less `share` of all that are there. The quantile lies above each edge
    with G surely below 0, and at or below each edge with G surely above 0.
    """
    count = len(bins) - 1
    weights = np.zeros((count - 1, len(bins)))
    weights[:, :count] = np.tri(count - 1, count) - share
    gaps, margins = (weights * bins).sum(axis=-1), NORMAL_TAIL * found.deviation(weights)
    above = np.flatnonzero(gaps >= -margins)
    below = np.flatnonzero(gaps <= margins)
    first = int(above[0]) if len(above) else count - 1
    last = int(below[-1]) + 1 if len(below) else 0
    return first, max(first, last)


def quantile(column: DescribedColumn, inside: Floats, share: float) -> float:
    """Return where bins from 0 reach a share of their sum, by a straight line within the bin."""
    total = float(inside.sum())
    if total <= 0.0:
        return (column.bottom + column.top) / 2.0
    reached = inside.cumsum() / total
    at = min(int(np.searchsorted(reached, share - 1e-12)), len(inside) - 1)
    if column.whole:
        return float(column.all_edges[at])
    before = float(reached[at - 1]) if at else 0.0
    part = (share - before) / max(float(reached[at]) - before, 1e-12)
    low, high = column.all_edges[at], column.all_edges[at + 1]
    return float(low + np.clip(part, 0.0, 1.0) * (high - low))
