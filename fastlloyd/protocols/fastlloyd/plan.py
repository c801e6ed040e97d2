"""From public parameters to the plan of one run: radii, noise, fraction bits, releases.

The server makes the plan and sends it; each client checks it against its own configuration and
recomputes epsilon from the planned releases before it takes part. Noise scales and sensitivities are in
grid units (2^-q of the scaled domain), where they hold exactly.

Source: FastLloyd, Eq. 7 and 8, Lemma A.1; docs/privacy.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from fastlloyd.kmeans.update import FREE_LIMIT
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.calibration import SAMPLER_DELTA, calibrate, gaussian_noise_multiplier
from fastlloyd.privacy.release import NORM_OF, SHARED, Release
from fastlloyd.privacy.shares import noise_price
from fastlloyd.protocols.fastlloyd.parameters import MECHANISMS, PublicParameters
from fastlloyd.protocols.fastlloyd.settings import (
    Settings,
    automatic_rounds,
    count_ratio,
    radius_of_round,
    settings_from,
    split_gaussian,
)
from fastlloyd.ring.fixed import choose_fraction_bits

__all__ = [
    "MECHANISMS",
    "Plan",
    "PublicParameters",
    "RoundPlan",
    "automatic_delta",
    "check_plan",
    "lifetime_delta",
    "make_plan",
]

# Ring elements that a party keeps ready for rounds to come (8 MiB at most).
_READY_ELEMENTS = 1 << 20
GAUSSIAN_TAIL = 12.0
LAPLACE_TAIL = 45.0
# How far a recomputed epsilon may differ between two versions of the accounting library.
_ACCOUNTING_SLACK = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """One round's numbers, in grid units.

    Attributes
    ----------
    radius : int or None
        floor(eta * 2^q): a point farther from its centre does not count. None: no radius.
    sum_scale, count_scale : float
        Standard deviation (Gaussian) or scale b (Laplace) of the noise on each sum and count; 0 without. Of
        noise in shares: of the m - t shares that count.
    """

    radius: int | None
    sum_scale: float
    count_scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything public that one run needs; the same on all parties."""

    protocol: str
    clients: int
    min_clients: int
    k: int
    d: int
    names: tuple[str, ...]
    n_total: int
    epsilon: float
    delta: float
    seed: int
    ring_bits: int
    fraction_bits: int
    masking: str
    known_shares: int
    mechanism: str
    relative: bool
    clip: bool
    domain: str
    rounds: tuple[RoundPlan, ...]

    @property
    def elements(self) -> int:
        """Ring elements per message: k (d + 1)."""
        return self.k * (self.d + 1)

    @property
    def private(self) -> bool:
        """Whether the releases carry differential privacy at all."""
        return self.mechanism != "none"

    def rounds_ahead(self, t: int) -> range:
        """Give the rounds from t on whose noise and masks are worth having ready: bounded in memory."""
        return range(t, min(len(self.rounds), t + max(1, _READY_ELEMENTS // self.elements)))

    def releases(self, t: int) -> tuple[Release, ...]:
        """Give what round t releases: sums and counts, each a vector over all clusters.

        Notes
        -----
        Privacy: one record enters one cluster, so it moves one row of the sums and one count
        (`kmeans.assign.accumulate`); the k clusters together are one release of the stated sensitivity.
        """
        planned = self.rounds[t]
        grid = float(1 << self.fraction_bits)
        shared = self.mechanism in SHARED
        sensitivity = _sum_sensitivity(planned.radius, self.mechanism, self.d, self.fraction_bits)
        common: dict[str, Any] = {
            "round": t,
            "mechanism": self.mechanism,
            "norm": NORM_OF.get(self.mechanism, "l2"),
            "unit": f"grid of 2^-{self.fraction_bits}",
            "neighbours": "add-remove record",
            "seen_by": "server and clients" if self.masking == "pairwise" else "clients",
            "clients": self.clients if shared else 0,
            "known": self.known_shares if shared else 0,
        }
        name = "relative sums" if self.relative else "sums"
        return (
            Release(name=name, sensitivity=sensitivity, noise_scale=planned.sum_scale, **common),
            Release(name="counts", sensitivity=grid, noise_scale=planned.count_scale, **common),
        )

    def all_releases(self) -> tuple[Release, ...]:
        """Give the releases of all rounds in order."""
        return tuple(release for t in range(len(self.rounds)) for release in self.releases(t))

    @property
    def noise_price(self) -> float:
        """All noise over what a server would add alone for the same epsilon; 1 without shares."""
        return max((noise_price(release) for release in self.all_releases()), default=1.0)

    def to_json(self) -> dict[str, Any]:
        """Give plain values; `from_json` is the inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read a plan that came from the server.

        Raises
        ------
        ValueError
            Not a plan: the sender is at fault.
        """
        expected = {field.name for field in fields(cls)}
        if not isinstance(values, Mapping) or set(values) != expected:
            raise ValueError("the plan does not have the expected fields")
        plain = dict(values)
        plain["names"] = tuple(str(name) for name in plain["names"])
        plain["rounds"] = tuple(RoundPlan(**entry) for entry in plain["rounds"])
        return cls(**plain)


def automatic_delta(n_total: int) -> float:
    """Give 1 / (N ln N) (§6.1.1), N public."""
    return 1.0 / (n_total * math.log(n_total))


def lifetime_delta(plan: Plan) -> float:
    """Give the delta at which a ledger over many runs is read: the run's own, or 1 / (N ln N) for pure epsilon.

    At delta 0 any Gaussian release of an earlier run would count as infinite.
    """
    return plan.delta if plan.delta > 0 else automatic_delta(plan.n_total)


def make_plan(public: PublicParameters, *, d: int, names: tuple[str, ...]) -> Plan:
    """Make the plan of a run; run by the server.

    Raises
    ------
    RangeError
        The ring is too narrow for these public bounds; names the mend.
    """
    settings = settings_from(public.protocol, public.settings)
    mechanism = public.mechanism
    private = mechanism != "none"
    delta = _allowed_delta(public)
    sigma = gaussian_noise_multiplier(public.epsilon, delta - SAMPLER_DELTA) if delta > 0.0 else 0.0
    count = public.rounds or automatic_rounds(
        public.protocol,
        k=public.k,
        d=d,
        n=public.n_total,
        # What the error analysis sees is all noise, not only the part that counts for privacy.
        epsilon=public.epsilon / public.spread,
        sigma=sigma * public.spread,
        settings=settings,
    )
    relative = public.protocol == "fastlloyd"
    radii = [radius_of_round(t, public.k, d, settings) if relative else None for t in range(count)]
    multipliers = _multipliers(public, settings, d, sigma, count)
    bits = _fraction_bits(public, settings, d, radii, multipliers)

    def build(factor: float) -> Plan:
        return Plan(
            protocol=public.protocol,
            clients=public.clients,
            min_clients=public.min_clients,
            k=public.k,
            d=d,
            names=names,
            n_total=public.n_total,
            epsilon=public.epsilon,
            delta=delta,
            seed=public.seed,
            ring_bits=public.ring_bits,
            fraction_bits=bits,
            masking=public.masking,
            known_shares=public.known_shares,
            mechanism=mechanism,
            relative=relative,
            clip=relative and settings.clip,
            domain=settings.domain,
            rounds=tuple(
                _round_plan(radius, mechanism, d, bits, multipliers=multipliers, factor=factor) for radius in radii
            ),
        )

    if not private:
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
        The plan differs from the configuration or spends more than epsilon: the server is at fault.
    """
    expected = {
        "protocol": public.protocol,
        "clients": public.clients,
        "min_clients": public.min_clients,
        "k": public.k,
        "d": d,
        "names": names,
        "n_total": public.n_total,
        "epsilon": public.epsilon,
        "seed": public.seed,
        "ring_bits": public.ring_bits,
        "masking": public.masking,
        "known_shares": public.known_shares,
        "mechanism": public.mechanism,
    }
    for field, value in expected.items():
        if getattr(plan, field) != value:
            raise ValueError(f"the plan has {field} = {getattr(plan, field)!r}, expected {value!r}")
    if public.rounds is not None and len(plan.rounds) != public.rounds:
        raise ValueError(f"the plan has {len(plan.rounds)} rounds, expected {public.rounds}")
    _check_delta(plan, public)
    _check_ranges(plan, settings_from(public.protocol, public.settings))
    epsilon = spent(plan.all_releases(), plan.delta)
    if plan.private and epsilon > public.epsilon * (1 + _ACCOUNTING_SLACK):
        raise ValueError(f"the plan spends epsilon {epsilon:.6g}, expected at most {public.epsilon:g}")
    return epsilon


def _allowed_delta(public: PublicParameters) -> float:
    """Give delta: as stated or by the formula for Gaussian noise, 0 for Laplace noise and none."""
    if NORM_OF.get(public.mechanism) != "l2":
        return 0.0
    return automatic_delta(public.n_total) if public.delta is None else public.delta


def _check_delta(plan: Plan, public: PublicParameters) -> None:
    allowed = _allowed_delta(public)
    if plan.delta > allowed * (1 + _ACCOUNTING_SLACK):
        raise ValueError(f"the plan has delta {plan.delta:g}, expected at most {allowed:g}")


def _check_ranges(plan: Plan, settings: Settings) -> None:
    """Refuse radii, modes and fraction bits that the configuration does not give."""
    relative = plan.protocol == "fastlloyd"
    if plan.relative != relative or plan.clip != (relative and settings.clip) or plan.domain != settings.domain:
        raise ValueError("the plan's update rule differs from the configuration")
    if not 8 <= plan.fraction_bits <= 16 or not 1 <= len(plan.rounds) <= 1000:
        raise ValueError("the plan's fraction bits or rounds are out of range")
    for t, planned in enumerate(plan.rounds):
        if not relative and planned.radius is None:
            continue
        radius = radius_of_round(t, plan.k, plan.d, settings) * (1 << plan.fraction_bits)
        if not relative or not isinstance(planned.radius, int) or abs(planned.radius - radius) > 1 + 1e-9 * radius:
            raise ValueError(f"the plan's radius in round {t} differs from the configuration")


def _round_plan(
    radius: float | None, mechanism: str, d: int, bits: int, *, multipliers: tuple[float, float], factor: float
) -> RoundPlan:
    """Turn one round's radius and noise multipliers into grid units."""
    grid = 1 << bits
    whole = None if radius is None else math.floor(radius * grid)
    sums, counts = multipliers
    return RoundPlan(
        radius=whole,
        sum_scale=sums * factor * _sum_sensitivity(whole, mechanism, d, bits),
        count_scale=counts * factor * grid,
    )


def _sum_sensitivity(radius: int | None, mechanism: str, d: int, bits: int) -> float:
    """Give how far one record moves a cluster's sums, in grid units: L1 for Laplace, else L2."""
    if radius is not None:
        return float(radius)
    return (d if NORM_OF.get(mechanism) == "l1" else math.sqrt(d)) * float(1 << bits)


def _multipliers(public: PublicParameters, settings: Settings, d: int, sigma: float, count: int) -> tuple[float, float]:
    """Give the noise multipliers of sums and counts in each of `count` rounds (Eq. 7, 8; Su et al.)."""
    ratio = count_ratio(public.protocol, d, settings)
    if public.protocol == "lloyd":
        return 0.0, 0.0
    if public.protocol == "sulloyd":
        # eps_t = d * eps_coordinate + eps_counts, eps_coordinate = ratio * eps_counts.
        eps_counts = public.epsilon / count / (d * ratio + 1.0)
        return 1.0 / (d * ratio * eps_counts), 1.0 / eps_counts
    sums, counts = split_gaussian(sigma, ratio)
    return sums * math.sqrt(count), counts * math.sqrt(count)


def _fraction_bits(
    public: PublicParameters,
    settings: Settings,
    d: int,
    radii: list[float | None],
    multipliers: tuple[float, float],
) -> int:
    """Choose q from the public bounds (docs/protocol.md, "Arithmetic")."""
    mechanism = public.mechanism
    # The sum of m Polya shares falls off as that of m - t, times a polynomial: (m / (m - t)) times the tail is plenty.
    laplace = NORM_OF.get(mechanism) == "l1"
    factor = LAPLACE_TAIL * public.spread**2 if laplace else GAUSSIAN_TAIL * public.spread
    widest = max((radius for radius in radii if radius is not None), default=None)
    sensitivity = _sum_sensitivity(None, mechanism, d, 0) if widest is None else widest
    return choose_fraction_bits(
        ring_bits=public.ring_bits,
        n_total=public.n_total,
        d=d,
        largest_coordinate=1.0 if widest is None else (widest if settings.domain == "none" else min(widest, 2.0)),
        tail=1.01 * factor * max(multipliers[0] * sensitivity, multipliers[1]),
        largest_center=FREE_LIMIT if settings.domain == "none" else 1.0,
    )
