"""From public parameters to the plan of one run: radii, noise, fraction bits, releases.

The server makes the plan and sends it; each client checks it against its own configuration and
recomputes epsilon from the planned releases before it takes part. Noise scales and sensitivities are in
grid units (2^-q of the scaled domain), where they hold exactly.

Source: FastLloyd, Eq. 7 and 8, Lemma A.1; docs/privacy.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastlloyd.errors import RangeError
from fastlloyd.party.plain_plan import RoundsPlan, check_delta, check_epsilon, same_named
from fastlloyd.privacy.calibration import SAMPLER_DELTA, calibrate, gaussian_noise_multiplier
from fastlloyd.privacy.delta import automatic_delta, stated_delta
from fastlloyd.privacy.release import NORM_OF, Release
from fastlloyd.protocols.fastlloyd.parameters import MECHANISMS, AgreedTerms, PublicParameters
from fastlloyd.protocols.fastlloyd.plus_plan import PlusPlan, survey_sensitivity
from fastlloyd.protocols.fastlloyd.round_plan import Outline, RoundPlan, sum_sensitivity
from fastlloyd.protocols.fastlloyd.settings import automatic_rounds, settings_from
from fastlloyd.wire.decode import Within, show

__all__ = [
    "MECHANISMS",
    "Plan",
    "PublicParameters",
    "RoundPlan",
    "check_plan",
    "lifetime_delta",
    "make_plan",
]

MAX_ROUNDS = 1000
# The largest factor between a plan's noise and that of the formulas: the plan is calibrated to epsilon.
_MOST_NOISE = 1.01


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

    def is_survey(self, t: int) -> bool:
        """Return whether round t is a survey of all records together (fastlloyd-plus)."""
        return t == 0 and self.plus is not None and self.plus.survey

    def lengths(self, t: int) -> tuple[int, int]:
        """Return the numbers of sums and of counts in round t's vector: k d and k, or 0 and all cells."""
        cells, clusters = self.rounds[t].cells, self.rounds[t].clusters
        return (0, cells) if cells else (clusters * self.d, clusters)

    def elements(self, t: int) -> int:
        """Return the ring elements of a message in round t: k (d + 1), or the cells of a histogram."""
        return sum(self.lengths(t))

    @property
    def private(self) -> bool:
        """Whether the releases are differentially private."""
        return self.mechanism != "none"

    def releases(self, t: int) -> tuple[Release, ...]:
        """Return what round t releases: sums and counts, each a vector over all clusters, or a histogram.

        Notes
        -----
        Privacy: one record enters one cluster, so it moves one row of the sums and one count
        (`kmeans.assign.accumulate`); the k clusters together are one release of the stated sensitivity. A survey's
        record moves two rows, by no more than that together (`plus_plan.survey_sensitivity`). In a histogram it enters
        one cell, so it moves one count by 2^q: the sensitivity of the vector of all counts, in L1 and in L2.
        """
        planned = self.rounds[t]
        grid = float(1 << self.fraction_bits)
        common: dict[str, Any] = {
            "round": t,
            "mechanism": self.mechanism,
            "norm": NORM_OF.get(self.mechanism, "l2"),
            "unit": f"grid of 2^-{self.fraction_bits}",
            "neighbours": "add-remove record",
            "seen_by": "server and clients" if self.masking == "pairwise" else "clients",
            "clients": self.clients if self.in_shares else 0,
            "known": self.known_shares if self.in_shares else 0,
        }
        if planned.cells:
            return (Release(name="histogram", sensitivity=grid, noise_scale=planned.count_scale, **common),)
        if self.is_survey(t):
            name, sensitivity = "sums and squares", survey_sensitivity(self.k, self.d, self.fraction_bits)
        else:
            name = "relative sums" if self.relative else "sums"
            sensitivity = sum_sensitivity(planned.radius, self.mechanism, self.d, self.fraction_bits)
        return (
            Release(name=name, sensitivity=sensitivity, noise_scale=planned.sum_scale, **common),
            Release(name="counts", sensitivity=grid, noise_scale=planned.count_scale, **common),
        )


def lifetime_delta(plan: Plan) -> float:
    """Return the delta at which a ledger over many runs is read: the run's own, or the default for pure epsilon.

    At delta 0 any Gaussian release of an earlier run would count as infinite.
    """
    return plan.delta if plan.delta > 0 else automatic_delta(plan.n_total)


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
        sigma=sigma * public.all_noise,
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
            rounds=tuple(outline.round_plan(t, bits, factor) for t in range(count)),
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
    if public.rounds is not None and len(plan.rounds) != public.rounds:
        raise ValueError(f"the plan has {len(plan.rounds)} rounds, expected {public.rounds}")
    check_delta(plan.delta, _allowed_delta(public))
    settings = settings_from(public.protocol, public.settings)
    sigma = _sigma(public, _allowed_delta(public))
    outline = Outline(public, settings, d=d, sigma=sigma, count=len(plan.rounds))
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
        if planned.clusters != (clusters := outline.clusters(t)):
            raise ValueError(f"the plan has {planned.clusters} clusters in round {t}, expected {clusters}")
        if cells and planned.sum_scale:
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


def _sigma(public: PublicParameters, delta: float) -> float:
    """Return the noise multiplier of the whole run; 0 for pure epsilon and none."""
    return gaussian_noise_multiplier(public.epsilon, delta - SAMPLER_DELTA) if delta > 0.0 else 0.0
