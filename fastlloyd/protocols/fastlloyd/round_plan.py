"""One round's numbers, and how they follow from public parameters: radii, noise, fraction bits.

Source: FastLloyd, Eq. 7 and 8, Lemma A.1; docs/privacy.md; docs/fastlloyd-plus.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from fastlloyd.kmeans.update import FREE_LIMIT
from fastlloyd.masking.fixed import GAUSSIAN_TAIL, LAPLACE_TAIL, MIN_FRACTION_BITS, choose_fraction_bits
from fastlloyd.privacy.release import NORM_OF
from fastlloyd.protocols.fastlloyd.parameters import PublicParameters
from fastlloyd.protocols.fastlloyd.plus_plan import PlusPlan, make_plus, plus_multipliers, survey_sensitivity
from fastlloyd.protocols.fastlloyd.settings import PLUS, Settings, count_ratio, radius_of_round, split_gaussian
from fastlloyd.wire.decode import MOST_INTEGER, Amount, Within

MOST_CELLS = 1 << 20
"""The largest number of counts in one round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """One round's numbers, in grid units.

    Attributes
    ----------
    radius : int or None
        floor(eta * 2^q): a point farther from its centre does not count. None: no radius. For fastlloyd-plus the
        largest possible radius.
    sum_scale, count_scale : float
        Standard deviation (Gaussian) or scale b (Laplace) of the noise on each sum and count; 0 without noise. With
        noise in shares, that of the m - t shares that count.
    clusters : int
        k, or more if clusters are merged later.
    cells : int
        0: the round asks for clusters * d sums and one count per cluster. Otherwise the number of counts of a
        histogram, which has no sums, no radius and no `sum_scale`.
    """

    radius: Annotated[int, Within(1, MOST_INTEGER)] | None
    sum_scale: Amount
    count_scale: Amount
    clusters: Annotated[int, Within(1, MOST_INTEGER)]
    cells: Annotated[int, Within(0, MOST_CELLS)]


class Outline:
    """The figures of a run before its fraction bits and the last digits of its noise are fixed.

    Parameters
    ----------
    public : PublicParameters
    settings : Settings
    d : int
    sigma : float
        Noise multiplier of the whole run (1/sigma-GDP).
    count : int
        Rounds.
    """

    def __init__(self, public: PublicParameters, settings: Settings, *, d: int, sigma: float, count: int) -> None:
        self._public = public
        self.settings = settings
        self._d = d
        self._count = count
        self.plus = self._make_plus(sigma)
        self._multipliers = self._split(sigma)

    @property
    def relative(self) -> bool:
        """Whether sums are relative to the centres."""
        return self._public.protocol in ("fastlloyd", PLUS)

    @property
    def clip(self) -> bool:
        """Whether steps are clipped to the radius."""
        return self.relative and self.plus is None and self.settings.clip

    def cells(self, t: int) -> int:
        """Return the number of cells of round t's histogram; 0 for a round of sums and counts."""
        return 0 if t or self.plus is None or not self.plus.cells else self.plus.cells**self._d

    def clusters(self, t: int) -> int:
        """Return the number of clusters of round t."""
        return self._public.k if self.plus is None else self.plus.stage(t)[0].clusters

    def radius(self, t: int) -> float | None:
        """Return round t's radius, scaled domain.

        For fastlloyd-plus the largest possible, and none for a survey or a histogram.
        """
        if not self.relative or self._is_survey(t) or self.cells(t):
            return None
        if self.plus is not None:
            return self.plus.nominal_radius(t, self._d)
        return radius_of_round(t, self._public.k, self._d, self.settings)

    def round_plan(self, t: int, bits: int, factor: float) -> RoundPlan:
        """Return round t in grid units, its noise times a factor."""
        grid, radius = 1 << bits, self.radius(t)
        whole = None if radius is None else math.floor(radius * grid)
        sums, counts = self._multipliers[t]
        return RoundPlan(
            radius=whole,
            sum_scale=sums * factor * self._moved(t, whole, bits),
            count_scale=counts * factor * grid,
            clusters=self.clusters(t),
            cells=self.cells(t),
        )

    def fraction_bits(self) -> int:
        """Choose q from the public bounds (docs/protocol.md, "Arithmetic").

        Raises
        ------
        RangeError
            The ring is too narrow; the error says how to fix it.
        """
        public, free = self._public, self.settings.domain == "none"
        # The tail of m Polya shares is that of m - t shares times a polynomial: m / (m - t) times the tail covers it.
        laplace = NORM_OF.get(public.mechanism) == "l1"
        factor = LAPLACE_TAIL * public.all_noise**2 if laplace else GAUSSIAN_TAIL * public.all_noise
        radii = [self.radius(t) for t in range(self._count)]
        widest = max((radius for radius in radii if radius is not None), default=None)
        # What a record adds to a coordinate: itself (1), or a vector from its centre (2); fastlloyd-plus multiplies it.
        largest = 1.0 if widest is None else max(1.0, widest if free else min(widest, 2.0))
        if self.plus is not None:
            largest = max(1.0, self.plus.largest_coordinate(public.k, self._d))
        return choose_fraction_bits(
            ring_bits=public.ring_bits,
            n_total=public.n_total,
            d=self._d,
            largest_coordinate=largest,
            tail=1.01 * factor * max(self._tail(t, radius) for t, radius in enumerate(radii)),
            largest_center=FREE_LIMIT if free else 1.0,
        )

    def _tail(self, t: int, radius: float | None) -> float:
        """Return the larger of round t's noise scales, scaled domain, up to the rounding of its sensitivity."""
        sums, counts = self._multipliers[t]
        grid = 1 << MIN_FRACTION_BITS
        moved = self._moved(t, None, MIN_FRACTION_BITS) / grid if radius is None else radius
        return max(sums * moved, counts)

    def _moved(self, t: int, radius: int | None, bits: int) -> float:
        """Return round t's sensitivity of the sums in grid units; 0 for a histogram, which has none."""
        if self.cells(t):
            return 0.0
        if self._is_survey(t):
            return survey_sensitivity(self._public.k, self._d, bits)
        return sum_sensitivity(radius, self._public.mechanism, self._d, bits)

    def _is_survey(self, t: int) -> bool:
        return t == 0 and self.plus is not None and self.plus.survey

    def _make_plus(self, sigma: float) -> PlusPlan | None:
        public = self._public
        if public.protocol != PLUS:
            return None
        return make_plus(
            self.settings,
            k=public.k,
            d=self._d,
            n=public.n_total,
            sigma=sigma * public.all_noise,
            rounds=self._count,
            choose_k=public.choose_k,
        )

    def _split(self, sigma: float) -> list[tuple[float, float]]:
        """Return the noise multipliers of sums and counts in each round (Eq. 7, 8; Su et al.)."""
        public, d, count = self._public, self._d, self._count
        if self.plus is not None:
            return plus_multipliers(self.plus, self.settings, d=d, sigma=sigma, rounds=count)
        ratio = count_ratio(public.protocol, d, self.settings)
        if public.protocol == "lloyd":
            return [(0.0, 0.0)] * count
        if public.protocol == "sulloyd":
            # eps_t = d * eps_coordinate + eps_counts, eps_coordinate = ratio * eps_counts.
            eps_counts = public.epsilon / count / (d * ratio + 1.0)
            return [(1.0 / (d * ratio * eps_counts), 1.0 / eps_counts)] * count
        sums, counts = split_gaussian(sigma, ratio)
        return [(sums * math.sqrt(count), counts * math.sqrt(count))] * count


def sum_sensitivity(radius: int | None, mechanism: str, d: int, bits: int) -> float:
    """Return how far one record moves a cluster's sums, in grid units: L1 for Laplace, else L2."""
    if radius is not None:
        return float(radius)
    return (d if NORM_OF.get(mechanism) == "l1" else math.sqrt(d)) * float(1 << bits)
