"""Where a cluster differs from the rest, by a rule with a stated rate of false alarms.

The rest are all other clusters together; all records would hold the cluster itself. A cell is the mean of a column of
numbers or one share; M is the number of cells of the description. The range of a difference holds noise **and**
sampling, with the normal quantile of 1 - 0.05 / (2 M) (Bonferroni): all ranges of the description hold together in 95 %
of cases. A cell differs where its whole range lies beyond 0.2 standard deviations or 5 points.

By the noise alone, or with 1.96 deviations, nearly every description of columns that have nothing to do with the
clusters would have such a word. Columns that made the clusters differ by construction, and are not compared.

Source: docs/privacy.md, "Descriptions of clusters"; papers/benchmarks/results/differs.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from fastlloyd.describe.coding import Layout
from fastlloyd.describe.columns import DescribedColumn
from fastlloyd.describe.estimates import (
    Consistent,
    Floats,
    grade,
    make_consistent,
    mean_noise,
    project,
    share_noise,
    share_sampling,
    spread,
)

ALARMS = 0.05
"""At most this share of descriptions has a range of a difference that does not hold."""
POINTS, DEVIATIONS = 0.05, 0.2
"""A difference of shares, or of means in standard deviations, up to which two are taken for the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far one number of a cluster is from that of the rest.

    Attributes
    ----------
    rest : float
        The number of all other clusters together.
    low, high : float
        Ends of the wide range of the cluster's number less that of the rest.
    least : float
        Differences up to it are taken for none.
    """

    rest: float
    low: float
    high: float
    least: float

    @property
    def differs(self) -> bool:
        """Whether the whole range lies beyond what is taken for none."""
        return self.low > self.least or self.high < -self.least

    @property
    def size(self) -> float:
        """How many times `least` the nearer end is from 0; 0 if the range holds 0."""
        return max(self.low, -self.high, 0.0) / self.least


Key = tuple[int, str, str, str]
"""Cluster, column, measure and value, as a line of a description has them."""


def count_cells(layout: Layout, k: int, made_by: Collection[str]) -> int:
    """Return M, the number of cells that are compared; it follows from public numbers alone."""
    compared = [column for column in layout.columns if column.name not in made_by]
    return k * sum(2 if column.is_number else column.width for column in compared)


def compare(
    layout: Layout, noisy: Floats, *, noise: float, made_by: Collection[str], fraction_bits: int
) -> dict[Key, Difference]:
    """Return the differences between each cluster and the rest, where both have enough records.

    Parameters
    ----------
    layout : Layout
    noisy : float64 array, shape (k, width)
        As released.
    noise : float
        s, the standard deviation on each number of it.
    made_by : collection of str
        Columns that made the clusters: not compared.
    fraction_bits : int
        q, as for `describe`.

    Notes
    -----
    Privacy: post-processing.
    """
    k, cells = len(noisy), count_cells(layout, len(noisy), made_by)
    if k < 2 or not cells:
        return {}
    z = NormalDist().inv_cdf(1.0 - ALARMS / (2.0 * cells))
    own = make_consistent(layout, noisy, noise)
    # Least squares is linear: the rest is fitted as one cluster, whose noise is that of all others together.
    rest = make_consistent(layout, noisy.sum(axis=0) - noisy, noise * (k - 1) ** 0.5)
    places = {at: place for place, at in enumerate(layout.numbers)}
    found: dict[Key, Difference] = {}
    for cluster in range(k):
        for at, column in enumerate(layout.columns):
            if column.name in made_by:
                continue
            pair = _Pair(column, cluster, at, own, rest)
            for value, difference in pair.shares(z):
                found[cluster, column.name, "share", value] = difference
            if column.is_number:
                for difference in pair.means(places[at], z, 2.0**-fraction_bits):
                    found[cluster, column.name, "mean", ""] = difference
    return found


@dataclass(frozen=True, slots=True)
class _Pair:
    """One column of a cluster, and of the rest."""

    column: DescribedColumn
    cluster: int
    at: int
    own: Consistent
    rest: Consistent

    def shares(self, z: float) -> Iterator[tuple[str, Difference]]:
        """Yield the differences of shares; of numbers, which are compared by their mean, only of the missing ones."""
        sizes = [float(side.sizes[self.cluster]) for side in (self.own, self.rest)]
        if not self._enough(*sizes):
            return
        (n, m), (bins, others) = sizes, self._bins
        deviations = np.hypot(share_noise(self.own, bins, n), share_noise(self.rest, others, m))
        margins = z * np.hypot(deviations, share_sampling(bins + others, n + m, 1.0 / (1.0 / n + 1.0 / m)))
        apart, shown = bins / n - others / m, np.clip(others / m, 0.0, 1.0)
        low, high = np.clip(apart - margins, -1.0, 1.0), np.clip(apart + margins, -1.0, 1.0)
        first = len(bins) - 1 if self.column.is_number else 0
        for place in range(first, len(bins)):
            yield (
                self.column.labels[place],
                Difference(rest=float(shown[place]), low=float(low[place]), high=float(high[place]), least=POINTS),
            )

    def means(self, place: int, z: float, rounding: float) -> Iterator[Difference]:
        """Yield the difference of means, if both have enough values."""
        there = [float(bins[:-1].sum()) for bins in self._bins]
        if not self._enough(*there):
            return
        sides = zip((self.own, self.rest), there, strict=True)
        means = [2.0 * float(side.halves[self.cluster, place]) / n for side, n in sides]
        count = self.column.width
        one_noise, other_noise = (
            mean_noise(side, mean, count, n) for side, mean, n in zip((self.own, self.rest), means, there, strict=True)
        )
        own, others = self._bins
        # Of all records together: under "no difference" it is the spread of both.
        one = spread(self.column, project(own[:-1] + others[:-1], sum(there)))
        sampling = one * (1.0 / there[0] + 1.0 / there[1]) ** 0.5
        margin = z * math.hypot(one_noise, other_noise, sampling) + 2.0 * rounding
        apart, half = means[0] - means[1], (self.column.top - self.column.bottom) / 2.0
        yield Difference(
            rest=self.column.bottom + (min(max(means[1], -1.0), 1.0) + 1.0) * half,
            low=max(apart - margin, -2.0) * half,
            high=min(apart + margin, 2.0) * half,
            least=max(DEVIATIONS * one, 1e-12) * half,
        )

    @property
    def _bins(self) -> tuple[Floats, Floats]:
        return self.own.blocks[self.at][self.cluster], self.rest.blocks[self.at][self.cluster]

    def _enough(self, n: float, m: float) -> bool:
        return grade(self.own.noise, n) == grade(self.rest.noise, m) == "fine"
