"""What a noisy vector says of clusters: sizes, shares, means, median and quartiles, each with a 95 % range.

All numbers follow from the released vector and the stated noise, by sums that no library of matrices reorders: parties
with other processors come to the same bits. A narrow range holds the noise of the release, for these records and these
centres. A wide one also holds sampling: it is about patients like these, of whom the records are independent draws.

Let x be the bins of a column in a cluster and n its size. Least squares over the totals of all columns makes the bins
add up to n, and leaves each bin a contrast, whose noise is independent of that of n, plus n / B. So for any weights a,
with A their sum, a x has the variance s^2 (a a - A^2 / B) + var(n) A^2 / B^2. A share r is in its range if x_b - r n
is within 1.96 deviations of 0 by the delta method; a mean and the records below an edge are such forms, too.

Sampling adds to a variance: that of a share by Agresti and Coull, of a mean that of one value over those who have one,
of the records below an edge that of a binomial. One value spreads as much as its bins allow (`spread`).

Source: docs/privacy.md, "Descriptions of clusters".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastlloyd.describe.coding import Layout
from fastlloyd.describe.columns import DescribedColumn
from fastlloyd.report.ranges import NORMAL_TAIL

Floats = NDArray[np.float64]
Shown = Literal["fine", "coarse", "nothing", "below"]
# Measure, value, what may be shown; number, the ends of its narrow range, and of its wide one.
_Line = tuple[str, str, Shown, Sequence[Any]]
_NOTHING = (None, None, None, None, None)
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
        Empty for the size, and for the cluster's share of all records.
    measure : str
        'size', 'share', 'mean', 'quartile 1', 'median' or 'quartile 3'.
    value : str
        Of a share: the bin or category; empty for the cluster's share of all records.
    estimate, low, high : float or None
        Released number and the ends of its 95 % range for the noise; None where they are not shown.
    wide_low, wide_high : float or None
        Ends of the 95 % range for noise and sampling; of a size, which is about these records alone, those for noise.
    shown : {'fine', 'coarse', 'nothing', 'below'}
        'coarse': the range says more than the number. 'nothing': too few records for this budget. 'below': fewer
        records than are shown (`hide_small`).
    """

    cluster: int
    column: str
    measure: str
    value: str
    estimate: float | None
    low: float | None
    high: float | None
    wide_low: float | None
    wide_high: float | None
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
        least, most = (float(np.clip(size + side, 0.0, n_total)) for side in (-margin, margin))
        yield Described(cluster, "", "size", "", min(max(size, least), most), least, most, least, most, "fine")
        columns: list[tuple[str, Iterator[_Line]]] = [("", _part(found, size))]
        for at, column in enumerate(layout.columns):
            bins = found.blocks[at][cluster]
            columns.append((column.name, _shares(found, column, bins, size)))
            if column.is_number:
                half = float(found.halves[cluster, places[at]])
                columns.append((column.name, _numbers(found, column, bins, half, 2.0**-fraction_bits)))
        for name, lines in columns:
            for measure, value, shown, numbers in lines:
                kept = [None] * 5 if shown == "nothing" else [float(one) for one in numbers]
                number, low, high, wide_low, wide_high = kept
                yield Described(cluster, name, measure, value, number, low, high, wide_low, wide_high, shown)


def hide_small(lines: Iterable[Described], least: int) -> Iterator[Described]:
    """Yield the lines of `describe` without the numbers behind which fewer than `least` records stand, as released.

    A share stands for the records of its value, other numbers of a column for those that have a value.

    Notes
    -----
    Privacy: post-processing. It follows from released values and a public number, and adds nothing to the promise.
    """
    size = there = 0.0
    for line in lines:
        if line.measure == "size":
            size = line.estimate or 0.0
        about = there
        if line.measure == "share":
            about = size * (line.estimate or 0.0)
            there = size - about  # the last of a column is the share of the missing ones
        hidden = bool(line.column) and line.estimate is not None and about < least
        yield Described(line.cluster, line.column, line.measure, line.value, *_NOTHING, "below") if hidden else line


def _part(found: Consistent, size: float) -> Iterator[_Line]:
    """Yield the share of a cluster among the records of all."""
    k, total = len(found.sizes), float(found.sizes.sum())
    all_noise, total = found.size_deviation * k**0.5, max(total, 1e-9)
    share = min(max(size / total, 0.0), 1.0)
    deviation = found.size_deviation * ((1.0 - share) ** 2 + (k - 1) * share**2) ** 0.5 / total
    margins = NORMAL_TAIL * np.array([deviation, np.hypot(deviation, float(share_sampling(size, total)))])
    ends = [end for margin in margins for end in np.clip([share - margin, share + margin], 0.0, 1.0)]
    yield "share", "", grade(all_noise, total), (share, *ends)


def _shares(found: Consistent, column: DescribedColumn, bins: Floats, size: float) -> Iterator[_Line]:
    """Yield the share of each bin of a column, the one of missing values included."""
    shown, n = grade(found.noise, size), max(size, 1e-9)
    shares, deviations = bins / n, share_noise(found, bins, n)
    narrow, wide = (NORMAL_TAIL * one for one in (deviations, np.hypot(deviations, share_sampling(bins, n))))
    ends = [np.clip(shares + margins, 0.0, 1.0) for margins in (-narrow, narrow, -wide, wide)]
    numbers = np.clip(project(bins, size) / n, *ends[:2])
    for value, *each in zip(column.labels, numbers, *ends, strict=True):
        yield "share", value, shown, each


def share_noise(found: Consistent, bins: Floats, n: float) -> Floats:
    """Return the standard deviations, shape (B,), that noise gives the shares of the bins of n records."""
    # The weights of x_b - r n, where n is the sum of the bins.
    deviations: Floats = found.deviation(np.eye(len(bins)) - (bins / n)[:, None]) / n
    return deviations


def share_sampling(counts: Floats | float, n: float, drawn: float | None = None) -> Floats:
    """Return the standard deviations that sampling gives shares, by Agresti and Coull.

    Parameters
    ----------
    counts : float64 array or float
        Records, of n.
    n : float
    drawn : float, optional
        How many records the share is about, if other than n.
    """
    share = (np.clip(counts, 0.0, n) + 2.0) / (n + 4.0)
    deviations: Floats = np.sqrt(share * (1.0 - share) / (n if drawn is None else drawn))
    return deviations


def mean_noise(found: Consistent, mean: float, bins: int, there: float) -> float:
    """Return the standard deviation that noise gives a mean in [-1, 1] of a column with `bins` bins.

    Parameters
    ----------
    found : Consistent
    mean : float
    bins : int
        B, the one of missing values included.
    there : float
        Records that have a value, above 0.
    """
    return float(np.hypot(2.0 * found.noise, mean * found.deviation(_present(bins)))) / there


def spread(column: DescribedColumn, inside: Floats) -> float:
    """Return the standard deviation of one scaled value, as large as its bins allow.

    Parameters
    ----------
    column : DescribedColumn
        Of numbers.
    inside : float64 array, shape (B - 1,)
        Records in each bin from 0, the missing ones left out.

    Notes
    -----
    Between bins by their middles, within a bin half its width: values lie no farther apart than its ends.
    """
    total = float(inside.sum())
    if total <= 0.0:
        return 1.0
    edges = (column.all_edges - column.bottom) / (column.top - column.bottom) * 2.0 - 1.0
    middles, halves = (edges, 0.0 * edges) if column.whole else ((edges[1:] + edges[:-1]) / 2.0, np.diff(edges) / 2.0)
    mean = float((inside * middles).sum()) / total
    return math.sqrt(float((inside * ((middles - mean) ** 2 + halves**2)).sum()) / total)


def _present(bins: int) -> Floats:
    """Return the weights of those that have a value."""
    return np.append(np.ones(bins - 1), 0.0)


def _numbers(found: Consistent, column: DescribedColumn, bins: Floats, half: float, rounding: float) -> Iterator[_Line]:
    """Yield mean, median and quartiles of the values that are not missing."""
    there = float(bins[:-1].sum())
    shown, n = grade(found.noise, there), max(there, 1e-9)
    mean = 2.0 * half / n
    # Bins from 0 that add up to what is there.
    inside = project(bins[:-1], there)
    noise = mean_noise(found, mean, len(bins), n)
    narrow, wide = (NORMAL_TAIL * one + rounding for one in (noise, np.hypot(noise, spread(column, inside) / n**0.5)))
    scaled = np.clip([mean, mean - narrow, mean + narrow, mean - wide, mean + wide], -1.0, 1.0)
    yield "mean", "", shown, list(column.bottom + (scaled + 1.0) / 2.0 * (column.top - column.bottom))
    for measure, share in QUARTILES.items():
        ends = []
        for sampled in (0.0, max(there, 0.0)):
            first, last = quantile_bins(found, bins, share, sampled)
            ends += [column.all_edges[first], column.all_edges[last if column.whole else last + 1]]
        yield measure, "", shown, (np.clip(quantile(column, inside, share), *ends[:2]), *ends)


def quantile_bins(found: Consistent, bins: Floats, share: float, sampled: float = 0.0) -> tuple[int, int]:
    """Return the first and the last bin in which a quantile may lie, of one cluster's bins, the missing ones last.

    With sampling, `sampled` is the number of records that have a value; 0 for noise alone.

    G(e) is the number of records below edge e less `share` of all that are there. The quantile lies above each edge
    with G surely below 0, and at or below each edge with G surely above 0.
    """
    count = len(bins) - 1
    weights = np.zeros((count - 1, len(bins)))
    weights[:, :count] = np.tri(count - 1, count) - share
    sampling = (sampled * share * (1.0 - share)) ** 0.5
    gaps, margins = (weights * bins).sum(axis=-1), NORMAL_TAIL * np.hypot(found.deviation(weights), sampling)
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
