"""How good clusters are: the five numbers that records add up to, and what the noisy sums say, with 95 % ranges.

A record x whose nearest released centre is at the squared distance a, and the next one at b, enters as::

    1/2 | a / C, 0 if a <= C, else 4/5, 3/5 | s - 1/2 | min(|x - c|^2, d) / (2 d)

with C the public bound, s = 1 - sqrt(a / b) the simplified silhouette, and c the middle of all released centres. A far
record, with a > C, adds 4/5 + (3/5) / 3 = 1 to the distances over C, and 3/5 to a number that counts far records alone.

Every figure is a ratio of sums of this vector. Its own number of records is among them: that of the run has other
noise, which the ranges would have to hold.

Source: docs/privacy.md, "Quality of clusters"; Vendramin, Campello and Hruschka, "Relative clustering validity
criteria" (2010), for the simplified silhouette.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastlloyd.describe.estimates import Shown, grade
from fastlloyd.kmeans.weighted import ordered_distances
from fastlloyd.report.ranges import NORMAL_TAIL

Floats = NDArray[np.float64]
Range = tuple[float, float, float]
"""A number, and the ends of its 95 % range."""
Measure = Literal["records", "silhouette", "nicv", "far", "explained"]
# The bound over d k^(-2/d), over the mean squared distance that a plan expects, and at most over d.
_BOUND, _TIGHTER, _LARGEST = 0.6, 4.0, 4.0
# What a far record adds to the distances, and to the number of far records: a vector of length 1.
_FAR = (0.8, 0.6)


@dataclass(frozen=True, slots=True)
class Judged:
    """One figure on the quality of clusters.

    Attributes
    ----------
    measure : {'records', 'silhouette', 'nicv', 'far', 'explained'}
        Number of records; mean simplified silhouette, in [0, 1]; mean of min(a, C), scaled domain; share of the records
        with a > C; share of the records' spread that the centres explain, by distances up to C.
    estimate, low, high : float or None
        Released number and the ends of its 95 % range; None where they are not shown.
    shown : {'fine', 'coarse', 'nothing'}
        As in a description of clusters.
    """

    measure: Measure
    estimate: float | None
    low: float | None
    high: float | None
    shown: Shown


@dataclass(frozen=True, slots=True)
class QualityVector:
    """The vector of k clusters over d features.

    Attributes
    ----------
    k, d : int
    """

    k: int
    d: int

    @property
    def width(self) -> int:
        """How many numbers there are."""
        return 5

    @property
    def bound(self) -> float:
        """C: squared distances count up to it, scaled domain [-1, 1]^d.

        Examples
        --------
        >>> round(QualityVector(15, 2).bound, 3), QualityVector(1, 1).bound
        (0.08, 0.6)
        """
        return min(_BOUND * self.d * math.pow(self.k, -2.0 / self.d), _LARGEST * self.d)

    @property
    def sensitivity(self) -> float:
        """How far one record more or less moves the vector at most, in the L2 norm: sqrt(7/4).

        Notes
        -----
        Privacy: neighbours differ in one record, added or removed. The centres and their middle are public, so what
        every other record adds is the same for both. The record itself adds 1/2 to the number of records; to the two
        numbers of distances a vector that is (a / C, 0), at most 1 long, or (4/5, 3/5), 1 long; s - 1/2 with s in
        [0, 1], at most 1/2 long; and a number from 0 to 1/2. The squares add up to at most
        1/4 + 1 + 1/4 + 1/4 = 7/4. Both 1/2 and 1 lie on the grid, so rounding to the nearest place does not pass them,
        and 4/5 and 3/5 are rounded down. A record C away from two centres, and sqrt(d) from the middle, reaches it.
        """
        return math.sqrt(1.75)

    def outlook(self, noise: float, n_total: int) -> str:
        """Say how exact the figures would be, from public numbers alone.

        Examples
        --------
        >>> QualityVector(5, 2).outlook(20.0, 5000)
        'silhouette within 0.0078, mean squared distance within 3.3 % where clusters are as tight as usual (95 %)'
        """
        silhouette = NORMAL_TAIL * noise / n_total
        # The usual distance is a quarter of the bound; its error is that of the sum and of the number of records.
        distance = NORMAL_TAIL * noise * math.hypot(math.hypot(1.0, 1.0 / 3.0) * _TIGHTER, 2.0) / n_total
        return (
            f"silhouette within {silhouette:.2g}, mean squared distance within {100.0 * distance:.2g} % where clusters "
            "are as tight as usual (95 %)"
        )

    def add_up(self, raw_points: Floats, centers: Floats, middle: Floats, fraction_bits: int) -> NDArray[np.int64]:
        """Add up over own records.

        Parameters
        ----------
        raw_points : float64 array, shape (n, d)
            Scaled to [-1, 1].
        centers : float64 array, shape (k, d)
            Released, scaled.
        middle : float64 array, shape (d,)
            Public: the middle of all centres.
        fraction_bits : int
            q, at least 1: numbers are on the grid of 2^-q.

        Returns
        -------
        int64 array, shape (5,)
            In units of 2^-q.
        """
        one = 1 << fraction_bits
        raw_own, raw_next = two_nearest(raw_points, centers)
        raw_far = raw_own > self.bound
        raw_middle = np.minimum(ordered_distances(raw_points, middle[None])[:, 0], self.d) / self.d
        far, beyond = _far(fraction_bits)
        return np.array(
            [
                len(raw_points) * (one // 2),
                _round(raw_own[~raw_far] / self.bound, one) + far * raw_far.sum(),
                beyond * raw_far.sum(),
                _round(silhouettes(raw_own, raw_next) - 0.5, one),
                _round(raw_middle / 2.0, one),
            ],
            dtype=np.int64,
        )

    def read(self, noisy: Floats, *, noise: float, n_total: int, fraction_bits: int) -> tuple[Judged, ...]:
        """Return what a noisy vector says.

        Parameters
        ----------
        noisy : float64 array, shape (5,)
            As released.
        noise : float
            Standard deviation of the noise on each number.
        n_total : int
            Public bound on the number of records.
        fraction_bits : int
            q: what records add was rounded to the grid; ranges hold that.

        Notes
        -----
        Privacy: post-processing.
        """
        half, near, beyond, apart, about = noisy.tolist()
        far, part = (value * 2.0**-fraction_bits for value in _far(fraction_bits))
        rest = (1.0 - far) / part  # times `beyond`: what a far record adds to the distances is 1 in all
        distances = near + rest * beyond, noise * math.hypot(1.0, rest)
        number, spread = (2.0 * half, 2.0 * noise), (2.0 * about, 2.0 * noise)
        n, rounding = max(number[0], 1.0), 2.0 ** -(fraction_bits + 1)
        c, share, shown = self.bound, self.bound / self.d, grade(noise, number[0])
        margin = NORMAL_TAIL * number[1]
        silhouette, mean, beyond_c = (
            _ratio(top, number) for top in ((apart, noise), distances, (beyond / part, noise / part))
        )
        left = _ratio(distances, spread)  # of C, over d: what the centres leave of the spread
        # The spread has to stand out, not only the number of records.
        clear = grade(noise, min(number[0], 4.0 * about))
        coarse = (share + 2.0 * share * abs(left[0])) * rounding * n / max(spread[0], 1.0)
        found = [
            _judged("records", (number[0], number[0] - margin, number[0] + margin), (0.0, n_total), shown),
            _judged("silhouette", _moved(silhouette, 1.0, 0.5, rounding), (0.0, 1.0), shown),
            _judged("nicv", _moved(mean, c, 0.0, c * rounding), (0.0, c), shown),
            _judged("far", beyond_c, (0.0, 1.0), shown),
            _judged("explained", _moved(left, -share, 1.0, coarse), (0.0, 1.0), clear),
        ]
        return tuple(one for one in found if self.k > 1 or one.measure != "silhouette")


@dataclass(frozen=True, slots=True)
class OfNumber:
    """The silhouette of one number of clusters.

    Attributes
    ----------
    k : int
    estimate, low, high, shown
        As `Judged` has them; `nothing` also where there are no centres for this number.
    """

    k: int
    estimate: float | None
    low: float | None
    high: float | None
    shown: Shown


@dataclass(frozen=True, slots=True)
class SilhouetteVector:
    """The vector of the silhouettes of several numbers of clusters: 1/4 | s - 1/2 for each of them.

    Attributes
    ----------
    numbers : tuple of int
        The numbers of clusters, ascending.
    """

    numbers: tuple[int, ...]

    @property
    def width(self) -> int:
        """How many numbers there are."""
        return 1 + len(self.numbers)

    @property
    def sensitivity(self) -> float:
        """How far one record more or less moves the vector at most, in the L2 norm: sqrt(1/16 + K/4) for K numbers.

        Notes
        -----
        Privacy: as for `QualityVector`, with centres of each number that all follow from earlier releases. The record
        adds 1/4 to the number of records, and for each number of clusters s - 1/2 with s in [0, 1], at most 1/2 long,
        also on the grid. A record on a centre of each number reaches it.
        """
        return math.sqrt(1.0 / 16.0 + len(self.numbers) / 4.0)

    def outlook(self, noise: float, n_total: int) -> str:
        """Say how exact the silhouettes would be, from public numbers alone."""
        first, last = self.numbers[0], self.numbers[-1]
        return f"silhouettes of {first} to {last} clusters, each within {NORMAL_TAIL * noise / n_total:.2g} (95 %)"

    def add_up(self, raw_points: Floats, centers: Sequence[Floats | None], fraction_bits: int) -> NDArray[np.int64]:
        """Add up over own records.

        Parameters
        ----------
        raw_points : float64 array, shape (n, d)
            Scaled to [-1, 1].
        centers : sequence of float64 arrays, shapes (k, d)
            Public, scaled, for each number; None where there are none: no record adds anything to it.
        fraction_bits : int
            q, at least 2.

        Returns
        -------
        int64 array, shape (width,)
            In units of 2^-q.
        """
        one = 1 << fraction_bits
        sums = [
            0 if found is None else _round(silhouettes(*two_nearest(raw_points, found)) - 0.5, one) for found in centers
        ]
        return np.array([len(raw_points) * (one // 4), *sums], dtype=np.int64)

    def read(
        self, noisy: Floats, centers: Sequence[Floats | None], *, noise: float, fraction_bits: int
    ) -> tuple[OfNumber, ...]:
        """Return what a noisy vector says; parameters as for `QualityVector.read`, and the centres of `add_up`.

        Notes
        -----
        Privacy: post-processing.
        """
        number, rounding = (4.0 * float(noisy[0]), 4.0 * noise), 2.0 ** -(fraction_bits + 1)
        graded, found = grade(noise, number[0]), []
        for k, held, value in zip(self.numbers, centers, noisy[1:].tolist(), strict=True):
            one = _moved(_ratio((value, noise), number), 1.0, 0.5, rounding)
            judged = _judged("silhouette", one, (0.0, 1.0), "nothing" if held is None else graded)
            found.append(OfNumber(k, judged.estimate, judged.low, judged.high, judged.shown))
        return tuple(found)


def quality_csv(judged: Iterable[Judged]) -> str:
    """Return quality.csv: a line for each figure; empty cells where it would be noise."""
    return "measure,estimate,low,high,shown\n" + "".join(f"{one.measure},{_cells(one)}\n" for one in judged)


def silhouettes_csv(curve: Iterable[OfNumber], chosen: int) -> str:
    """Return silhouettes.csv: a line for each number of clusters; empty cells where it would be noise."""
    lines = "".join(f"{one.k},{_cells(one)},{int(one.k == chosen)}\n" for one in curve)
    return "k,estimate,low,high,shown,chosen\n" + lines


def _cells(one: Judged | OfNumber) -> str:
    """Return number, range and what is shown, as the files have them."""
    numbers = ("" if number is None else f"{number:.6g}" for number in (one.estimate, one.low, one.high))
    return ",".join((*numbers, one.shown))


def two_nearest(raw_points: Floats, centers: Floats) -> tuple[Floats, Floats]:
    """Return each record's squared distance to the nearest centre, and to the next one.

    Parameters
    ----------
    raw_points : float64 array, shape (n, d)
    centers : float64 array, shape (k, d)

    Returns
    -------
    raw_own, raw_next : float64 array, shape (n,)
        `raw_next` is infinite with one centre.

    Notes
    -----
    Privacy: added feature by feature, so the bits of a record's distances follow from it and the centres alone. A sum
    along an axis may add in another order where a record stands alone in its block.
    """
    raw_own, raw_next = np.full(len(raw_points), np.inf), np.full(len(raw_points), np.inf)
    for centre in centers:
        raw_squared = ordered_distances(raw_points, centre[None])[:, 0]
        np.minimum(raw_next, np.maximum(raw_own, raw_squared), out=raw_next)
        np.minimum(raw_own, raw_squared, out=raw_own)
    return raw_own, raw_next


def silhouettes(raw_own: Floats, raw_next: Floats) -> Floats:
    """Return the simplified silhouettes 1 - sqrt(a / b), in [0, 1]; 0 where both distances are 0."""
    apart = raw_next > 0.0
    found: Floats = 1.0 - np.sqrt(np.divide(raw_own, raw_next, out=np.ones_like(raw_own), where=apart))
    return found


def ratio_range(top: tuple[float, float], bottom: tuple[float, float]) -> tuple[float, float]:
    """Return the 95 % range of a ratio of two numbers with independent normal noise, by Fieller's theorem.

    Parameters
    ----------
    top, bottom : (float, float)
        Number and standard deviation of its noise.

    Returns
    -------
    low, high : float
        Infinite where the divisor cannot be told from 0: the ratio may be anything.

    Notes
    -----
    A ratio r is in the range where top - r bottom is within 1.96 of its deviations of 0.
    Source: Fieller, "Some problems in interval estimation" (1954).
    """
    (over, over_noise), (under, under_noise) = top, bottom
    if under <= NORMAL_TAIL * under_noise:
        return -math.inf, math.inf
    g = (NORMAL_TAIL * under_noise / under) ** 2
    ratio = over / under
    margin = NORMAL_TAIL * math.sqrt((1.0 - g) * over_noise**2 + (ratio * under_noise) ** 2) / under
    return (ratio - margin) / (1.0 - g), (ratio + margin) / (1.0 - g)


def middle_of(centers: Floats, sizes: Floats | None) -> Floats:
    """Return the middle of released centres, shape (d,), by their released sizes where there are any."""
    held = np.ones(len(centers)) if sizes is None else np.maximum(sizes, 0.0)
    if not held.sum() > 0.0:
        held = np.ones(len(centers))
    middle: Floats = (held[:, None] * centers).sum(axis=0) / held.sum()
    return middle


def _far(fraction_bits: int) -> tuple[int, int]:
    """Return what a far record adds, on the grid; rounded down, so that it is not longer than 1."""
    return math.floor(_FAR[0] * (1 << fraction_bits)), math.floor(_FAR[1] * (1 << fraction_bits))


def _round(values: Floats, one: int) -> int:
    """Add up values, each rounded to the grid."""
    return int(np.rint(values * one).sum())


def _ratio(top: tuple[float, float], bottom: tuple[float, float]) -> Range:
    """Return a ratio and its range."""
    return (top[0] / max(bottom[0], 1e-9), *ratio_range(top, bottom))


def _moved(found: Range, factor: float, offset: float, more: float) -> Range:
    """Return a number and its range times a factor, plus an offset, the range wider by `more` on both sides."""
    number, low, high = (offset + factor * value for value in found)
    return number, min(low, high) - more, max(low, high) + more


def _judged(measure: Measure, found: Range, limits: tuple[float, float], shown: Shown) -> Judged:
    """Return a figure whose number and range are cut to what is possible."""
    if shown == "nothing":
        return Judged(measure, None, None, None, shown)
    least, most = (min(max(end, limits[0]), limits[1]) for end in found[1:])
    return Judged(measure, min(max(found[0], least), most), least, most, shown)
