"""Making and checking a plan: the server makes it, and each client recomputes its noise, bounds and grids.

Source: FedDP-KMeans, §3, App. H.1; docs/privacy.md, "Calibration".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.masking.fixed import GAUSSIAN_TAIL, LAPLACE_TAIL, choose_fraction_bits
from fastlloyd.party.declaration import MOST_MESSAGE_BYTES
from fastlloyd.party.plain_plan import ACCOUNTING_SLACK, check_delta, check_epsilon, same_named
from fastlloyd.privacy.calibration import calibrate, stated_delta
from fastlloyd.privacy.noise.discrete import MAX_SCALE
from fastlloyd.protocols.feddp.math.projection import choose_outer_bits, choose_projected_bits
from fastlloyd.protocols.feddp.plan import LIFT, PROXY_DIRECTIONS, Plan, PublicParameters, StepPlan
from fastlloyd.protocols.feddp.settings import (
    CENTERS,
    LLOYD,
    OUTER,
    PRIVATE,
    START,
    WEIGHTS,
    Kind,
    Settings,
    default_rounds,
    epsilon_shares,
    multipliers,
    settings_from,
    steps_of,
)

# The grids leave room for this factor on the noise that a simple sum of epsilons needs; composition needs less.
_MARGIN = 1.25
# Noise after composition over the noise for a simple sum of epsilons, roughly.
_GUESS = 0.8
MAX_SERVER_POINTS = 1 << 22

# Proxy points of the start 'private': tuned on generated mixtures, see docs/feddp.md.
_PROXY_NOISE = 4.0  # records over the noise on a weight, over this, is (points) ^ ((2 + s) / 2s)
_PROXIES_OF_CLUSTER, _LEAST_PROXIES, _MOST_PROXIES = 2, 8, 4096
_RECORDS_OF_USER = 20.0  # at client level, where the number of users is not public


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Norm bound and clip bounds, scaled domain."""

    norm: float
    outer: float
    weight: float
    mean: float
    count: float

    def sensitivities(self, settings: Settings, kind: str) -> tuple[float, float]:
        """Return the Gaussian and the Laplace sensitivity of one step, scaled domain, before rounding down."""
        if settings.privacy_level == "record":
            lift = LIFT if settings.start == PRIVATE else 0.0
            table = {OUTER: ((1.0 + lift**2) * self.norm**2, 0.0), WEIGHTS: (0.0, 1.0), START: (0.0, 0.0)}
            return table.get(kind, (self.norm, 1.0))
        table = {OUTER: (self.outer, 0.0), WEIGHTS: (0.0, self.weight), START: (0.0, 0.0)}
        return table.get(kind, (self.mean, self.count))


@dataclass(frozen=True, slots=True)
class _Division:
    """The steps and how epsilon is divided among them."""

    kinds: tuple[Kind, ...]
    shares: Mapping[str, tuple[float, float]]
    epsilon: float
    delta: float

    def noise(self, factor: float) -> Mapping[str, tuple[float, float]]:
        """Return the noise multipliers of each kind of step, all epsilons divided by `factor`."""
        return multipliers(self.shares, epsilon=self.epsilon, delta=self.delta, factor=factor)


def make_plan(
    public: PublicParameters, *, d: int, names: tuple[str, ...], server_points: NDArray[np.float64] | None = None
) -> Plan:
    """Make the plan of a run; run by the server.

    Parameters
    ----------
    public : PublicParameters
    d : int
    names : tuple of str
    server_points : float64 array, shape (|Q|, d), optional
        The server's own data, scaled by the public bounds; all starts but 'private' and 'sphere-packing' need them.

    Raises
    ------
    ConfigError
        Server data are missing or do not fit, or a message would be longer than one can be.
    RangeError
        The rings are too narrow for these public bounds; the error says how to fix it.

    Notes
    -----
    Privacy: the norm bound may be read off the server's points, which this protocol does not protect.
    """
    silent, division = _without_noise(public, d, names, server_points)

    def build(factor: float) -> Plan:
        return _with_noise(silent, division.noise(factor))

    factor, _ = calibrate(lambda candidate: build(candidate).all_releases(), public.epsilon, silent.delta, _GUESS)
    if factor > _MARGIN:
        raise ConfigError(
            f"the shares of epsilon need {factor:.3g} times the noise expected; choose more even shares (--set "
            "feddp.*_share), fewer --rounds, or a smaller --delta"
        )
    plan = build(factor)
    if plan.longest_bytes > MOST_MESSAGE_BYTES:
        most, other, first = d * MOST_MESSAGE_BYTES // plan.longest_bytes, "", plan.elements(0)
        if plan.rounds[0].kind == OUTER and first == max(map(plan.elements, range(len(plan.rounds)))):
            # Of w (w + 1) / 2 numbers, where w is d, or d + 1 where points are lifted.
            widest, width = (
                (math.isqrt(1 + 8 * count) - 1) // 2
                for count in (
                    MOST_MESSAGE_BYTES * first // plan.longest_bytes,
                    first,
                )
            )
            most, other = widest - (width - d), ", or --set feddp.start=sphere-packing"
        raise ConfigError(
            f"feddp: {d} features make a message of {plan.longest_bytes:,} bytes from each client, expected at most "
            f"{MOST_MESSAGE_BYTES:,}; use at most {most} features (--columns){other}"
        )
    return plan


def sketch_plan(
    public: PublicParameters, *, d: int, names: tuple[str, ...], server_points: NDArray[np.float64] | None = None
) -> Plan:
    """Return roughly the plan of `make_plan`. No accountant has checked its noise: it must not be run."""
    silent, division = _without_noise(public, d, names, server_points)
    return _with_noise(silent, division.noise(_GUESS))


def _without_noise(
    public: PublicParameters, d: int, names: tuple[str, ...], server_points: NDArray[np.float64] | None
) -> tuple[Plan, _Division]:
    """Return the plan without noise, and the division of epsilon among the steps."""
    settings = settings_from(public.settings)
    if settings.start == PRIVATE:
        server_points = None
    rounds = default_rounds(settings) if public.rounds is None else public.rounds
    delta = stated_delta(public.delta, public.n_total)
    bounds = _bounds(settings, public.k, _norm_bound(settings, server_points, d))
    division = _Division(steps_of(settings, rounds), epsilon_shares(settings, rounds), public.epsilon, delta)
    count = _check_server_points(server_points, settings, public, d)
    if settings.start == PRIVATE:
        count = _count_proxies(public, settings, d, division)
    bits, outer_bits, projected = _choose_grids(public, settings, d, bounds, division)

    silent = Plan(
        **same_named(Plan, public),
        d=d,
        names=names,
        n_server=count,
        delta=delta,
        privacy_level=settings.privacy_level,
        start=settings.start,
        norm_bound=bounds.norm,
        outer_clip=bounds.outer,
        weight_clip=bounds.weight,
        mean_clip=bounds.mean,
        count_clip=bounds.count,
        fraction_bits=bits,
        outer_bits=outer_bits,
        projected_bits=projected,
        rounds=tuple(StepPlan(kind=kind, sigma=0.0, scale=0.0) for kind in division.kinds),
    )
    return silent, division


def check_plan(plan: Plan, public: PublicParameters, *, d: int, names: tuple[str, ...]) -> float:
    """Check a plan against a client's own configuration; run by each client.

    Returns
    -------
    float
        Epsilon of the planned releases.

    Raises
    ------
    ValueError
        The plan differs from the configuration or spends more than epsilon: the server is at fault.
    """
    settings = settings_from(public.settings)
    chosen = {"privacy_level": settings.privacy_level, "start": settings.start}
    plan.compare({**same_named(Plan, public), **chosen, "d": d, "names": names})
    _check_bounds(plan, settings, d)
    rounds = default_rounds(settings) if public.rounds is None else public.rounds
    kinds = tuple(step.kind for step in plan.rounds)
    if kinds != steps_of(settings, rounds):
        raise ValueError(f"the plan has the steps {', '.join(kinds)}, expected {', '.join(steps_of(settings, rounds))}")
    delta = stated_delta(public.delta, public.n_total)
    check_delta(plan.delta, delta)
    division = _Division(kinds, epsilon_shares(settings, rounds), public.epsilon, plan.delta)
    if settings.start == PRIVATE and plan.n_server != (count := _count_proxies(public, settings, d, division)):
        raise ValueError(f"the plan has {plan.n_server} proxy points, expected {count}")
    _check_grids(plan, public, settings, division)
    for step in plan.rounds:
        most = max(step.sigma, step.scale)
        if most > MAX_SCALE:  # more than a client can draw a share of
            raise ValueError(f"the plan has noise of {most:g} grid units, expected at most {MAX_SCALE:g}")
    return check_epsilon(plan.all_releases, plan.delta, most=public.epsilon)


def _check_bounds(plan: Plan, settings: Settings, d: int) -> None:
    """Refuse bounds and grids that differ from the configuration's or overflow the arithmetic."""
    if not (0.0 < plan.norm_bound <= math.sqrt(d) * (1 + ACCOUNTING_SLACK)):
        raise ValueError(
            f"the plan has norm_bound = {plan.norm_bound:g}, expected above 0 and at most {math.sqrt(d):g}"
        )
    if settings.norm_bound is not None or settings.start == PRIVATE:
        expected = _norm_bound(settings, None, d)
        if plan.norm_bound != expected:
            raise ValueError(f"the plan has norm_bound = {plan.norm_bound:g}, expected {expected:g}")
    given = _bounds(settings, plan.k, plan.norm_bound)
    stated = _Bounds(plan.norm_bound, plan.outer_clip, plan.weight_clip, plan.mean_clip, plan.count_clip)
    if given != stated:
        raise ValueError(
            f"the plan has the bounds {astuple(stated)} on a user's norm, outer product, weights, means and counts, "
            f"expected {astuple(given)}"
        )
    least = plan.k if settings.start != "sphere-packing" else 0
    if not least <= plan.n_server <= MAX_SERVER_POINTS:
        raise ValueError(f"the plan has {plan.n_server} server points, expected {least} to {MAX_SERVER_POINTS}")
    if not 8 <= plan.fraction_bits <= 16 or not 0 <= plan.outer_bits <= plan.fraction_bits:
        raise ValueError(
            f"the plan has {plan.fraction_bits} fraction bits, {plan.outer_bits} of outer products, expected 8 to 16 "
            "and no more of outer products"
        )


def _check_grids(plan: Plan, public: PublicParameters, settings: Settings, division: _Division) -> None:
    """Refuse grids that do not follow from the public bounds: on finer ones a sum may overflow its ring."""
    given = _bounds(settings, plan.k, plan.norm_bound)
    try:
        expected = _choose_grids(public, settings, plan.d, given, division)
    except (ConfigError, RangeError) as error:
        raise ValueError(f"no grid fits its bounds: {error}") from error
    stated = (plan.fraction_bits, plan.outer_bits, plan.projected_bits)
    if stated != expected:
        raise ValueError(f"the plan has fraction bits {stated}, expected {expected}")


def _check_server_points(
    server_points: NDArray[np.float64] | None, settings: Settings, public: PublicParameters, d: int
) -> int:
    """Return the number of server points the run uses."""
    if server_points is None:
        if not settings.needs_points:
            return 0
        raise ConfigError(
            f"feddp: the start {settings.start!r} needs the server's own data, got none; give --server-data FILE, or "
            "--set feddp.start=private at all parties, which does without"
        )
    if server_points.ndim != 2 or server_points.shape[1] != d:
        raise ConfigError(
            f"--server-data: expected {d} features as the clients have, got shape {server_points.shape}; give the same "
            "columns"
        )
    count = len(server_points)
    if not public.k <= count <= MAX_SERVER_POINTS and settings.start != "sphere-packing":
        raise ConfigError(
            f"--server-data: expected {public.k} (the clusters) to {MAX_SERVER_POINTS} points, got {count}; give "
            "another file or a lower --k"
        )
    if not np.isfinite(server_points).all():
        raise ConfigError("--server-data: expected finite numbers, got others; clean the file")
    return count


def _count_proxies(public: PublicParameters, settings: Settings, d: int, division: _Division) -> int:
    """Return how many proxy points there are, from public numbers alone.

    Closer points resolve clusters better, but put more noise on the sum of their weights. The best distance follows
    from the number of records over the noise on one count, as in Su et al. (2016), §5.
    """
    if settings.proxies is not None:
        return max(settings.proxies, public.k)
    noise = math.sqrt(2.0) * division.noise(_GUESS)[WEIGHTS][1] * public.all_noise
    people = public.n_total / (_RECORDS_OF_USER if settings.privacy_level == "client" else 1.0)
    s = min(public.k, d, PROXY_DIRECTIONS)
    count = round(math.pow(people / (_PROXY_NOISE * noise), 2.0 * s / (2.0 + s)))
    return max(min(count, _MOST_PROXIES), _PROXIES_OF_CLUSTER * public.k, _LEAST_PROXIES)


def _norm_bound(settings: Settings, server_points: NDArray[np.float64] | None, d: int) -> float:
    """Return Delta; a record in [-1, 1]^d has norm at most sqrt(d)."""
    largest = math.sqrt(d)
    if settings.norm_bound is not None:
        return min(settings.norm_bound, largest)
    if server_points is None or len(server_points) == 0:
        return largest
    inside = np.clip(server_points, -1.0, 1.0)
    found = math.sqrt(float(np.einsum("ij,ij->i", inside, inside).max()))
    return min(max(found, 2.0**-6), largest)


def _bounds(settings: Settings, k: int, norm: float) -> _Bounds:
    """Return the bounds on a user's statistics; zeros at record level.

    Notes
    -----
    All are public. A bound below the size of the users' statistics costs almost nothing: all users are cut equally, and
    the signal-to-noise ratio stays. A bound above it only adds noise. Outer products exceed Delta^2 from a few records
    on, and a histogram adds up to 1 from one record on. A user with records in all k clusters, with means of about
    Delta / 2 each, has means of norm sqrt(k) Delta / 2: cut to Delta / 2, its k counts become sqrt(k), so that both
    bounds cut equally.
    """
    if settings.privacy_level == "record":
        return _Bounds(norm, 0.0, 0.0, 0.0, 0.0)
    given = (settings.outer_clip, settings.weight_clip, settings.mean_clip, settings.count_clip)
    automatic = (norm * norm, 1.0, 0.5 * norm, math.sqrt(k))
    outer, weight, mean, count = (value if clip is None else clip for clip, value in zip(given, automatic, strict=True))
    return _Bounds(norm, outer, weight, mean, count)


def _choose_grids(
    public: PublicParameters, settings: Settings, d: int, bounds: _Bounds, division: _Division
) -> tuple[int, int, int]:
    """Choose q, p and g from public quantities."""
    noise = division.noise(_MARGIN)
    spread = public.most_noise
    tail = 0.0
    for kind in (WEIGHTS, CENTERS, LLOYD):
        if kind in division.kinds:
            gauss, laplace = bounds.sensitivities(settings, kind)
            sigma, scale = noise[kind][0] * gauss, noise[kind][1] * laplace
            tail = max(tail, GAUSSIAN_TAIL * spread * sigma, LAPLACE_TAIL * spread**2 * scale)
    bits = choose_fraction_bits(
        ring_bits=public.ring_bits,
        n_total=public.n_total,
        d=d,
        largest_coordinate=max(1.0, bounds.weight),
        tail=tail,
    )
    if OUTER not in division.kinds:
        return bits, bits, 0
    largest = bounds.sensitivities(settings, OUTER)[0]
    sigma = noise[OUTER][0] * largest * spread
    outer = choose_outer_bits(
        n_total=public.n_total, largest=largest, noise=sigma, tail=GAUSSIAN_TAIL * sigma, most=bits
    )
    return bits, outer, choose_projected_bits(bounds.norm, min(public.k, d))


def _with_noise(plan: Plan, noise: Mapping[str, tuple[float, float]]) -> Plan:
    """Fill in the steps' noise in grid units."""
    steps = []
    for t, step in enumerate(plan.rounds):
        gauss, laplace = plan.sensitivities(t)
        sigma, scale = noise[step.kind]
        steps.append(StepPlan(kind=step.kind, sigma=sigma * gauss, scale=scale * laplace))
    return replace(plan, rounds=tuple(steps))
