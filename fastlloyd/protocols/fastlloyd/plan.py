"""From public parameters to the plan of one run: each round's radius and noise, fraction bits, releases.

The server makes the plan and sends it; each client checks it against its own configuration and
recomputes epsilon from the planned releases before it takes part. Noise scales and sensitivities are in
grid units (2^-q of the scaled domain), where they hold exactly.

Source: FastLloyd, Eq. 7 and 8, Lemma A.1; docs/privacy.md; docs/fastlloyd-plus.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastlloyd.describe.quality import QualityVector, SilhouetteVector
from fastlloyd.errors import RangeError
from fastlloyd.kmeans.update import FREE_LIMIT
from fastlloyd.masking.fixed import GAUSSIAN_TAIL, LAPLACE_TAIL, MIN_FRACTION_BITS, choose_fraction_bits
from fastlloyd.party.plain_plan import RoundsPlan, check_delta, check_epsilon, same_named
from fastlloyd.privacy.calibration import SAMPLER_DELTA, calibrate, gaussian_noise_multiplier, stated_delta
from fastlloyd.privacy.release import NORM_OF, SHARED, Release
from fastlloyd.protocols.fastlloyd.plus_plan import PlusPlan, make_plus, plus_multipliers, survey_sensitivity
from fastlloyd.protocols.fastlloyd.settings import (
    PLUS,
    AgreedTerms,
    PublicParameters,
    Settings,
    automatic_rounds,
    count_ratio,
    radius_of_round,
    settings_from,
    split_gaussian,
)
from fastlloyd.wire.decode import MOST_INTEGER, Amount, Within, show

MAX_ROUNDS = 1000
# The largest factor between a plan's noise and that of the formulas: the plan is calibrated to epsilon.
_MOST_NOISE = 1.01


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
    numbers : int
        0, or how many numbers the last round asks for that says how good the clusters are; it has none of the above.
    """

    radius: Annotated[int, Within(1, MOST_INTEGER)] | None
    sum_scale: Amount
    count_scale: Amount
    clusters: Annotated[int, Within(1, MOST_INTEGER)]
    cells: Annotated[int, Within(0, MOST_CELLS)]
    numbers: Annotated[int, Within(0, MOST_INTEGER)] = 0


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
        Rounds that move centres; one on the quality of the clusters may follow them.
    """

    def __init__(self, public: PublicParameters, settings: Settings, *, d: int, sigma: float, count: int) -> None:
        self._public = public
        self.settings = settings
        self._d = d
        self._count = count
        self.asks = asked_quality(public, d)
        moving = sigma if self.asks is None else sigma / math.sqrt(1.0 - public.quality)
        self.plus = self._make_plus(moving)
        self._multipliers = self._split(moving)
        if self.asks is not None:
            self._multipliers.append((0.0, sigma / math.sqrt(public.quality) * self.asks.sensitivity))

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

    @property
    def rounds(self) -> int:
        """The number of all rounds."""
        return len(self._multipliers)

    def numbers(self, t: int) -> int:
        """Return how many numbers round t asks for on the quality of the clusters; 0 where it moves centres."""
        return 0 if t < self._count or self.asks is None else self.asks.width

    def clusters(self, t: int) -> int:
        """Return the number of clusters of round t."""
        return self._public.k if self.plus is None or self.numbers(t) else self.plus.stage(t)[0].clusters

    def radius(self, t: int) -> float | None:
        """Return round t's radius, scaled domain.

        For fastlloyd-plus the largest possible, and none for a survey or a histogram.
        """
        if not self.relative or self._is_survey(t) or self.cells(t) or self.numbers(t):
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
            numbers=self.numbers(t),
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
        factor = LAPLACE_TAIL * public.most_noise**2 if laplace else GAUSSIAN_TAIL * public.most_noise
        radii = [self.radius(t) for t in range(self.rounds)]
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
        """Return round t's sensitivity of the sums in grid units; 0 where it has none."""
        if self.cells(t) or self.numbers(t):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(AgreedTerms, RoundsPlan):
    """Everything public that one run needs; the same on all parties."""

    d: int
    names: tuple[str, ...]
    delta: float
    fraction_bits: int
    mechanism: str
    relative: bool
    clip: bool
    domain: str
    rounds: Annotated[tuple[RoundPlan, ...], Within(1, MAX_ROUNDS)]
    plus: PlusPlan | None = None

    @property
    def moving(self) -> int:
        """How many rounds move centres: all, or all but the last one, which asks how good the clusters are."""
        return len(self.rounds) - (self.rounds[-1].numbers > 0)

    def is_survey(self, t: int) -> bool:
        """Return whether round t is a survey of all records together (fastlloyd-plus)."""
        return t == 0 and self.plus is not None and self.plus.survey

    def lengths(self, t: int) -> tuple[int, int]:
        """Return the numbers of sums and of counts in round t's vector: k d and k, or 0 and all others."""
        planned = self.rounds[t]
        others = planned.cells or planned.numbers
        return (0, others) if others else (planned.clusters * self.d, planned.clusters)

    def elements(self, t: int) -> int:
        """Return the ring elements of a message in round t: k (d + 1), the cells of a histogram, or the quality."""
        return sum(self.lengths(t))

    @property
    def in_shares(self) -> bool:
        """Whether the clients add the noise, in shares: as the plan says, whatever masks there are."""
        return self.mechanism in SHARED

    def noise_in(self, t: int) -> float:
        """Return the standard deviation of all noise in round t over that of the noise that counts, as planned."""
        return self.all_noise

    def played(self, noise: Sequence[float]) -> PlayedPlan:
        """Return the same plan with the noise that its first rounds have had (`noise_with`)."""
        return PlayedPlan(**self.values(), noise=tuple(noise))

    @property
    def private(self) -> bool:
        """Whether the releases are differentially private."""
        return self.mechanism != "none"

    def noise_deviations(self, t: int) -> tuple[float, float]:
        """Return the standard deviation of all noise on a sum and on a count of round t, in the units of the domain."""
        planned, grid = self.rounds[t], float(1 << self.fraction_bits)
        more = self.noise_in(t) * (math.sqrt(2.0) if NORM_OF.get(self.mechanism) == "l1" else 1.0)  # of the scale b
        return planned.sum_scale * more / grid, planned.count_scale * more / grid

    def releases(self, t: int) -> tuple[Release, ...]:
        """Return what round t releases: sums and counts, each a vector over all clusters, or a histogram.

        Notes
        -----
        Privacy: one record enters one cluster, so it moves one row of the sums and one count
        (`kmeans.assign.accumulate`); the k clusters together are one release of the stated sensitivity. A survey's
        record moves two rows, by no more than that together (`plus_plan.survey_sensitivity`). In a histogram it enters
        one cell, so it moves one count by 2^q: the sensitivity of the vector of all counts, in L1 and in L2. The vector
        of the quality states its own (`describe.quality`); the centres that it is about follow from earlier rounds.
        """
        planned = self.rounds[t]
        grid = float(1 << self.fraction_bits)
        release = partial(self.noisy_sum, t, mechanism=self.mechanism, bits=self.fraction_bits)
        counts = partial(release, sensitivity=grid, noise_scale=planned.count_scale)
        if planned.cells:
            return (counts(name="histogram"),)
        if planned.numbers and (asks := asked_quality(self, self.d)) is not None:
            return (release(name="quality", sensitivity=asks.sensitivity * grid, noise_scale=planned.count_scale),)
        if self.is_survey(t):
            name, sensitivity = "sums and squares", survey_sensitivity(self.k, self.d, self.fraction_bits)
        else:
            name = "relative sums" if self.relative else "sums"
            sensitivity = sum_sensitivity(planned.radius, self.mechanism, self.d, self.fraction_bits)
        return (
            release(name=name, sensitivity=sensitivity, noise_scale=planned.sum_scale),
            counts(name="counts"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedPlan(Plan):
    """A plan of which some rounds are over: clients were lost in them, and their noise is known.

    Attributes
    ----------
    noise : tuple of float
        Of each round so far: all noise over the noise that counts.
    """

    noise: tuple[float, ...]

    def noise_in(self, t: int) -> float:
        """Return the standard deviation of all noise in round t over that of the noise that counts."""
        return self.noise[t] if t < len(self.noise) else self.all_noise


def make_plan(public: PublicParameters, *, d: int, names: tuple[str, ...]) -> Plan:
    """Make the plan of a run; run by the server.

    Raises
    ------
    RangeError
        The ring is too narrow for these public bounds; the error says how to fix it.
    """
    settings = settings_from(public.protocol, public.settings)
    delta = _allowed_delta(public)
    sigma = _sigma(public, delta)
    count = public.rounds or automatic_rounds(
        public.protocol,
        k=public.k,
        d=d,
        n=public.n_total,
        # The error analysis uses all noise, not only the part that counts for privacy.
        epsilon=public.epsilon / public.all_noise,
        sigma=sigma * public.all_noise / math.sqrt(1.0 - public.quality),
        settings=settings,
    )
    outline = Outline(public, settings, d=d, sigma=sigma, count=count)
    bits = outline.fraction_bits()

    def build(factor: float) -> Plan:
        return Plan(
            **same_named(Plan, public),
            d=d,
            names=names,
            delta=delta,
            fraction_bits=bits,
            relative=outline.relative,
            clip=outline.clip,
            domain=settings.domain,
            rounds=tuple(outline.round_plan(t, bits, factor) for t in range(outline.rounds)),
            plus=outline.plus,
        )

    if public.mechanism == "none":
        return build(1.0)
    factor, _ = calibrate(lambda candidate: build(candidate).all_releases(), public.epsilon, delta, 1.0)
    return build(factor)


def check_plan(plan: Plan, public: PublicParameters, *, d: int, names: tuple[str, ...]) -> float:
    """Check a plan against a client's own configuration; run by each client.

    Returns
    -------
    float
        Epsilon of the planned releases (infinite for lloyd).

    Raises
    ------
    ValueError
        The plan differs from the configuration, spends more than epsilon, or adds more noise than epsilon needs: the
        server is at fault.
    """
    plan.compare({**same_named(Plan, public), "d": d, "names": names})
    asks = asked_quality(public, d) is not None
    moving = len(plan.rounds) - asks
    if moving < 1 or (public.rounds is not None and moving != public.rounds):
        expected = "2 or more" if public.rounds is None else str(public.rounds + asks)
        raise ValueError(f"the plan has {len(plan.rounds)} rounds, expected {expected}")
    check_delta(plan.delta, _allowed_delta(public))
    settings = settings_from(public.protocol, public.settings)
    sigma = _sigma(public, _allowed_delta(public))
    outline = Outline(public, settings, d=d, sigma=sigma, count=moving)
    _check_ranges(plan, outline)
    _check_noise(plan, outline)
    return check_epsilon(plan.all_releases, plan.delta, most=public.epsilon, private=plan.private)


def _allowed_delta(public: PublicParameters) -> float:
    """Return delta: as stated or by the formula for Gaussian noise, 0 for Laplace noise and none."""
    if NORM_OF.get(public.mechanism) != "l2":
        return 0.0
    return stated_delta(public.delta, public.n_total)


def _check_ranges(plan: Plan, outline: Outline) -> None:
    """Refuse radii, cells, modes and fraction bits that differ from the configuration's."""
    rule = (outline.relative, outline.clip, outline.settings.domain)
    if (plan.relative, plan.clip, plan.domain) != rule:
        raise ValueError(
            f"the plan's relative, clip and domain: expected {show(rule)} as configured, got "
            f"{show((plan.relative, plan.clip, plan.domain))}"
        )
    _check_plus(plan.plus, outline.plus)
    if not 8 <= plan.fraction_bits <= 16:
        raise ValueError(f"the plan has {plan.fraction_bits} fraction bits, expected 8 to 16")
    if not 1 <= len(plan.rounds) <= MAX_ROUNDS:
        raise ValueError(f"the plan has {len(plan.rounds)} rounds, expected 1 to {MAX_ROUNDS}")
    try:
        most = outline.fraction_bits()
    except RangeError as error:
        raise ValueError(f"no grid fits its bounds: {error}") from error
    if plan.fraction_bits > most:
        raise ValueError(f"the plan has {plan.fraction_bits} fraction bits, on which sums may not fit; expected {most}")
    for t, planned in enumerate(plan.rounds):
        if planned.cells != (cells := outline.cells(t)):
            raise ValueError(f"the plan has {planned.cells} cells in round {t}, expected {cells}")
        if planned.numbers != (numbers := outline.numbers(t)):
            raise ValueError(f"the plan asks for {planned.numbers} numbers on quality in round {t}, expected {numbers}")
        if planned.clusters != (clusters := outline.clusters(t)):
            raise ValueError(f"the plan has {planned.clusters} clusters in round {t}, expected {clusters}")
        if (cells or numbers) and planned.sum_scale:
            raise ValueError(f"the plan has noise on sums in round {t}, expected none: it has no sums")
        radius = outline.radius(t)
        if radius is None and planned.radius is None:
            continue
        if radius is None or planned.radius is None:
            got, needed = ("no radius", "one") if planned.radius is None else (f"the radius {planned.radius}", "none")
            raise ValueError(f"the plan has {got} in round {t}, expected {needed}")
        radius *= 1 << plan.fraction_bits
        if abs(planned.radius - radius) > 1 + 1e-9 * radius:
            raise ValueError(f"the plan has the radius {planned.radius} in round {t}, expected about {radius:.6g}")


def _check_plus(plan: PlusPlan | None, expected: PlusPlan | None) -> None:
    """Refuse numbers of fastlloyd-plus that differ from the configuration's."""
    if plan is None or expected is None:
        if plan is not expected:
            got, needed = ("a", "none") if expected is None else ("no", "one")
            raise ValueError(f"the plan has {got} part for fastlloyd-plus, expected {needed}")
    elif names := plan.differing(expected):
        got, needed = (show(getattr(one, names[0])) for one in (plan, expected))
        raise ValueError(f"the plan's {names[0]} of fastlloyd-plus: expected {needed}, got {got}")


def _check_noise(plan: Plan, outline: Outline) -> None:
    """Refuse more noise than epsilon needs: it would spoil the result, or exceed what a client can draw."""
    for t, planned in enumerate(plan.rounds):
        most = outline.round_plan(t, plan.fraction_bits, _MOST_NOISE)
        if planned.sum_scale > most.sum_scale or planned.count_scale > most.count_scale:
            raise ValueError(
                f"the plan has noise {planned.sum_scale:.6g} on sums and {planned.count_scale:.6g} on counts in round "
                f"{t}, expected at most {most.sum_scale:.6g} and {most.count_scale:.6g}, which its epsilon asks for"
            )


def asked_quality(public: AgreedTerms, d: int) -> QualityVector | SilhouetteVector | None:
    """Return the vector of the last round, which says how good the clusters are; None where there is no such round.

    Its bound on distances is that of k clusters, or of the number that the clients choose (`rounds.asked`).
    """
    if not public.quality:
        return None
    if public.least_k:
        return SilhouetteVector(tuple(range(public.least_k, public.k + 1)))
    return QualityVector(public.k, d)


def _sigma(public: PublicParameters, delta: float) -> float:
    """Return the noise multiplier of the whole run; 0 for pure epsilon and none."""
    return gaussian_noise_multiplier(public.epsilon, delta - SAMPLER_DELTA) if delta > 0.0 else 0.0
