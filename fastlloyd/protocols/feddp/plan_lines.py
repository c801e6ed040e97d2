"""What a run of FedDP-KMeans would do, from public numbers and the server's own points, and how much noise is in it.

The last step divides noisy sums by noisy counts (at client level: users' means by users, each cut to a bound). Ranges
are about the result that this step would have without noise.

Privacy: post-processing of releases, with the noise that the plan states.

Source: FedDP-KMeans, Alg. 1 line 24, Alg. 2 line 11; docs/report.md, "Quality".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.release import ADD_REMOVE, ADD_REMOVE_USER
from fastlloyd.protocol.threshold import threshold_lines
from fastlloyd.protocols.feddp.inputs import ServerPoints, gather, load, most_users, public_parameters
from fastlloyd.protocols.feddp.math.stage import CLEAR, Centers, margin
from fastlloyd.protocols.feddp.plan import Plan, PublicParameters
from fastlloyd.protocols.feddp.proposal import check_plan, make_plan, sketch_plan
from fastlloyd.protocols.feddp.settings import PRIVATE, START, settings_from
from fastlloyd.protocols.feddp.work import estimate_work
from fastlloyd.report.outlook import Expected, PlanLine, expect_mean, outlook_line
from fastlloyd.report.quality import UNKNOWN, ResultNoise
from fastlloyd.report.ranges import LAPLACE_TAIL, ratio_deviations
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import settle_size
from fastlloyd.run.promise import promise_lines
from fastlloyd.run.work import work_lines
from fastlloyd.wire.header import SERVER

_ASSUMED = PlanLine(
    "assumed",
    "as many points of the server as clusters, of the largest norm; the run needs --server-data FILE, and its noise is "
    "at most this",
)
_NOISE = {"l1": "laplace", "l2": "gaussian"}


def expect(plan: Plan, users: int) -> Expected:
    """Return the noise to expect on an average centre, from public numbers alone.

    At client level the number of users with records in a cluster is unknown. Only the least noise is known: that of
    `users`, the largest number of users, if each counts in as many clusters as the bound on its counts allows.
    """
    if plan.rounds[-1].kind == START:
        return Expected(centre_noise=None, k=plan.k, d=plan.d)
    sums, counts = deviations(plan)
    share = users * min(plan.k, plan.count_clip) / plan.k if plan.by_user else plan.n_total / plan.k
    found = expect_mean(sums=sums, counts=counts, share=share, k=plan.k, d=plan.d)
    if not plan.by_user:
        return found
    each = "each client is one" if users == plan.clients else "each record is of another"
    return replace(
        found, centre_noise=None, least=found.centre_noise, if_least=f"if there are {users:,} users ({each})"
    )


def noise_of(
    plan: Plan, centers: Centers, users: int, costs: NDArray[np.float64], all_noise: float | None = None
) -> ResultNoise:
    """Return the error ranges of the released centres and sizes, and whether a chosen k stands out.

    Parameters
    ----------
    plan : Plan
    centers : Centers
    users : int
    costs : float64 array, shape (kmax,) or (0,)
    all_noise : float, optional
        Of the last step, over the noise that counts; by default as planned.
    """
    if plan.rounds[-1].kind == START:
        return UNKNOWN
    sums, counts = deviations(plan, all_noise)
    sizes = centers.noisy_counts
    reach = LAPLACE_TAIL * counts
    return ResultNoise(
        size_ranges=np.clip(np.column_stack([sizes - reach, sizes + reach]), 0.0, plan.n_total),
        centre_deviations=ratio_deviations(centers.exact, sizes, sums=sums, counts=counts, tail=LAPLACE_TAIL),
        tail=LAPLACE_TAIL,
        expected=expect(plan, users),
        stands_out=margin(costs.tolist()) >= CLEAR if plan.choose_k else None,
    )


def deviations(plan: Plan, all_noise: float | None = None) -> tuple[float, float]:
    """Return the standard deviation of all noise on a sum and on a count of the last step, in the domain's units."""
    step, grid = plan.rounds[-1], float(1 << plan.fraction_bits)
    more = plan.all_noise if all_noise is None else all_noise
    return step.sigma * more / grid, math.sqrt(2.0) * step.scale * more / grid


def plan_lines(config: RunConfig, clients: int, d: int | None) -> list[PlanLine]:
    """Describe the plan of a run, line by line; opens no data but the server's and a public --dataset.

    Raises
    ------
    ConfigError
        Public parameters that do not fit, or an unknown number of features.
    """
    public, names, points = _planning(config, clients, d)
    plan = make_plan(public, d=len(names), names=names, server_points=points)
    assumed = assumed_points(config)
    epsilon = check_plan(plan, public, d=len(names), names=names)
    held = f"{format_count(plan.n_server, 'point')} of the server"
    if plan.start == PRIVATE:
        held = format_count(plan.n_server, "proxy point")
    return [
        PlanLine(
            "feddp",
            f"{format_count(plan.n_total, 'record')} at most, {format_count(plan.d, 'feature')}, "
            f"{'at most ' if plan.choose_k else ''}{format_count(plan.k, 'cluster')}, "
            f"{format_count(plan.clients, 'client')}, {held}",
        ),
        PlanLine(
            "arithmetic",
            f"ring Z_2^{plan.ring_bits} (outer product: Z_2^64), {plan.fraction_bits} fraction bits (outer "
            f"product: {plan.outer_bits})",
        ),
        *work_lines(config, estimate_work(config, plan)),
        PlanLine(
            "privacy",
            f"epsilon {epsilon:.6g} of {plan.epsilon:g}, delta {plan.delta:.3g}, "
            f"{ADD_REMOVE_USER if plan.by_user else ADD_REMOVE}; records are cut to norm {plan.norm_bound:.4g}",
        ),
        *(() if assumed is None else (assumed,)),
        *promise_lines(config, delta=plan.delta, n_total=plan.n_total),
        PlanLine(
            "shares",
            f"each client adds one, and the guarantee rests on {plan.clients - plan.known_shares} of {plan.clients}; "
            f"{plan.noise_price - 1.0:.1%} more noise in all than a server alone would add",
        ),
        *(() if plan.numbers is None else threshold_lines(plan.numbers)),
        *(_step_line(plan, t) for t in range(len(plan.rounds))),
        _outlook(config, public, points, plan),
    ]


def _outlook(config: RunConfig, public: PublicParameters, points: NDArray[np.float64] | None, plan: Plan) -> PlanLine:
    """Return what to expect of the result, and what would improve it."""
    own = (public.k, public.epsilon, public.n_total)

    def planned(make: Callable[..., Plan], k: int, epsilon: float, n_total: int) -> Plan:
        changed = replace(public, k=k, epsilon=epsilon, n_total=n_total)
        return make(changed, d=plan.d, names=plan.names, server_points=points)

    def expected(k: int, epsilon: float, n_total: int) -> Expected:
        made = plan if (k, epsilon, n_total) == own else planned(make_plan, k, epsilon, n_total)
        return expect(made, most_users(config, made.clients, made.n_total))

    @cache
    def noise_at(epsilon: float, n_total: int) -> NDArray[np.float64]:
        return np.array(deviations(planned(sketch_plan, public.k, epsilon, n_total)))

    def roughly(k: int, epsilon: float, n_total: int) -> Expected:
        # Composition saves much the same everywhere; k does not change a step's noise, and N only through delta.
        sums, counts = noise_at(epsilon, n_total) * deviations(plan) / noise_at(public.epsilon, public.n_total)
        return expect_mean(sums=float(sums), counts=float(counts), share=n_total / k, k=k, d=plan.d)

    return outlook_line(
        expected,
        k=public.k,
        epsilon=public.epsilon,
        n_total=public.n_total,
        fixed_n=config.dataset is not None,
        roughly=roughly,
    )


def planned(config: RunConfig, clients: int, d: int | None) -> Plan:
    """Return the plan of a run; errors as for `plan_lines`."""
    public, names, points = _planning(config, clients, d)
    return make_plan(public, d=len(names), names=names, server_points=points)


def assumed_points(config: RunConfig) -> PlanLine | None:
    """Return what a plan assumes in place of the server's points, if a run needs some and they are unknown."""
    known = config.dataset is not None or config.server_data is not None
    return None if known or not settings_from(config.own_settings).needs_points else _ASSUMED


def _planning(
    config: RunConfig, clients: int, d: int | None
) -> tuple[PublicParameters, tuple[str, ...], NDArray[np.float64] | None]:
    """Return public parameters, features and the server's points, which are assumed if only `d` is known."""
    unknown = config.dataset is None and config.server_data is None
    return _without_points(config, clients, d) if unknown and d else _from_data(config, clients, d)


def _without_points(
    config: RunConfig, clients: int, d: int
) -> tuple[PublicParameters, tuple[str, ...], NDArray[np.float64] | None]:
    """Plan from `--d` alone: with the fewest possible server points, in a corner, where the norm is largest."""
    public = public_parameters(config, clients, *settle_size(config, None))
    names = tuple(f"x{i + 1}" for i in range(d))
    needs_points = settings_from(config.own_settings).needs_points
    return public, names, np.ones((public.k, d)) if needs_points else None


def _from_data(
    config: RunConfig, clients: int, d: int | None
) -> tuple[PublicParameters, tuple[str, ...], NDArray[np.float64] | None]:
    """Plan with the server's own points, or the public data set that holds them."""
    config, inputs = gather(config, clients)
    own = load(config, inputs, SERVER)
    names = own.names if isinstance(own, ServerPoints) else None
    if names is None:
        if d is None:
            raise ConfigError("--d: expected the number of features, or --server-data, which has them")
        names = tuple(f"x{i + 1}" for i in range(d))
    if d not in (None, len(names)):
        raise ConfigError(f"--d: the server's data have {format_count(len(names), 'feature')}, got {d}; leave it out")
    return inputs.public, names, own.points if isinstance(own, ServerPoints) else None


def _step_line(plan: Plan, t: int) -> PlanLine:
    """Describe one step."""
    step = plan.rounds[t]
    boxed = plan.numbers is not None and plan.numbers.lost > 0
    up = plan.elements(t) * plan.ring_of(t) // 8 * (2 if boxed else 1)
    noises = [
        f"{release.name}: {_NOISE[release.norm]} noise of {release.noise_multiplier:.3g} times the sensitivity"
        for release in plan.releases(t)
    ]
    asked = "; ".join(noises) or "nothing asked"
    return PlanLine(f"  step {t + 1}, {step.kind}", f"{up:,} bytes up from each client; {asked}")
