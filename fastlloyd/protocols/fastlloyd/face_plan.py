"""What a run of FastLloyd or a baseline would do, from public numbers alone: rounds, noise, ring, bytes."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.privacy.calibration import gaussian_noise_multiplier
from fastlloyd.privacy.shares import zcdp_noise_multiplier
from fastlloyd.protocols.fastlloyd.face_inputs import public_parameters
from fastlloyd.protocols.fastlloyd.face_noise import expect
from fastlloyd.protocols.fastlloyd.parameters import PublicParameters
from fastlloyd.protocols.fastlloyd.plan import Plan, check_plan, make_plan
from fastlloyd.report.expected import Expected
from fastlloyd.report.outlook import PlanLine, outlook_line
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import plan_inputs, share_caps
from fastlloyd.run.promise import promise_lines

# A round's time, on links that delay each message by so much:
#   2 messages one after the other + overhead + records of the largest client * 3 (k + d) ns.
# Rounded from papers/benchmarks/results: fastlloyd-table3.md, column lan, and fastlloyd-scaling.md, processes: all
# rows with two clients but N of 10 million, whose 30 rounds are enough for compiled code to pay. No row has both k and
# d large.
_MESSAGES = 2
_OVERHEAD_MS = 0.8
_RECORD_NS = 3
_LAN_MS, _WAN_MS = 0.25, 25.0


def plan_lines(config: RunConfig, clients: int, d: int | None) -> list[PlanLine]:
    """Describe the plan of a run, line by line; opens no data but a public --dataset.

    Raises
    ------
    ConfigError
        Public parameters that do not fit, or an unknown number of features.
    """
    public, d = plan_inputs(config, clients, d, public_parameters)
    names = tuple(f"x{i + 1}" for i in range(d))
    plan = make_plan(public, d=d, names=names)
    epsilon = check_plan(plan, public, d=d, names=names)
    lines = [
        PlanLine(
            plan.protocol,
            f"{format_count(public.n_total, 'record')} at most, {format_count(d, 'feature')}, "
            f"{'at most ' if plan.choose_k else ''}{format_count(public.k, 'cluster')}, "
            f"{format_count(public.clients, 'client')} (at least {public.min_clients} in each round)",
        ),
        PlanLine("rounds", f"{len(plan.rounds)}"),
        PlanLine("arithmetic", f"ring Z_2^{plan.ring_bits}, {plan.fraction_bits} fraction bits"),
        payload_line(plan),
        _time_line(plan, max(share_caps(config, clients, public.n_total))),
    ]
    if plan.choose_k:
        noise = f"the noise of all rounds is that of {format_count(plan.k, 'cluster')}"
        lines.append(PlanLine("k", f"the clients choose it from the last centres; {noise}"))
    if plan.private:
        delta = f", delta {plan.delta:.3g}" if plan.delta else " (pure)"
        stated = f"epsilon {epsilon:.6g} of {plan.epsilon:g}{delta}, add-remove record, {plan.mechanism} noise"
        lines.append(PlanLine("privacy", stated))
        lines += promise_lines(config, delta=plan.delta, n_total=plan.n_total)
        if plan.masking == "pairwise":
            lines += _share_lines(plan)
        lines += round_lines(plan, spread=public.spread)
        lines.append(_outlook(config, public, names))
    else:
        lines.append(PlanLine("privacy", "none on the result; only the sums of each round are masked"))
    return lines


def payload_line(plan: Plan) -> PlanLine:
    """Say how many bytes of vectors all parties send in a round, and in which rounds it is another number."""
    each = [2 * plan.clients * plan.elements(t) * plan.ring_bits // 8 for t in range(len(plan.rounds))]
    others = ""
    for size, found in groupby(range(len(each)), each.__getitem__):
        others += f", {size:,} in {_name(*found)}" if size != each[-1] else ""
    return PlanLine("payload", f"{each[-1]:,} bytes a round{others}, all parties together")


def round_lines(plan: Plan, *, spread: float) -> list[PlanLine]:
    """Describe the rounds: what each asks for, and the noise on it; rounds in a row that are alike in one line.

    Parameters
    ----------
    plan : Plan
    spread : float
        All noise over the noise that counts for privacy.
    """
    lines = []
    for words, group in groupby(range(len(plan.rounds)), lambda t: _round_words(plan, t, spread=spread)):
        alike = tuple(group)
        lines.append(PlanLine(f"  {_name(*alike)}{', each' if len(alike) > 1 else ''}", words))
    return lines


def _name(first: int, *others: int) -> str:
    """Name a round, or rounds in a row."""
    return f"rounds {first + 1} to {others[-1] + 1}" if others else f"round {first + 1}"


def _round_words(plan: Plan, t: int, *, spread: float) -> str:
    """Say what round t asks for."""
    planned, grid = plan.rounds[t], 2.0**plan.fraction_bits
    sums, counts = planned.sum_scale * spread / grid, planned.count_scale * spread / grid
    if planned.cells:
        return f"histogram of {format_count(planned.cells, 'cell')}, noise on a count {counts:.3g}"
    largest = "at most " if plan.plus is not None else ""
    radius = "" if planned.radius is None else f"radius {largest}{planned.radius / grid:.3g}, "
    if planned.clusters != plan.k:
        radius = f"{format_count(planned.clusters, 'cluster')}, {radius}"
    records = plan.n_total / planned.clusters
    count, centre = f"{radius}noise on a count", "an average cluster's centre"
    if plan.is_survey(t):
        count, centre, records = "survey of all records, noise on their number", "their middle", plan.n_total
    percent = 100 * sums / records / 2
    return f"{count} {counts:.3g}; on a coordinate of {centre} {percent:.2f} % of the feature's range"


def _outlook(config: RunConfig, public: PublicParameters, names: tuple[str, ...]) -> PlanLine:
    """Say what to expect of the result, and what would be good."""

    def expected(k: int, epsilon: float, n_total: int) -> Expected:
        changed = replace(public, k=k, epsilon=epsilon, n_total=n_total)
        return expect(make_plan(changed, d=len(names), names=names))

    return outlook_line(
        expected, k=public.k, epsilon=public.epsilon, n_total=public.n_total, fixed_n=config.dataset is not None
    )


def _time_line(plan: Plan, records: int) -> PlanLine:
    """Say about how long the rounds take when the largest client has so many records."""
    clusters = sum(planned.clusters for planned in plan.rounds) / len(plan.rounds)
    work = _OVERHEAD_MS + records * _RECORD_NS * (clusters + plan.d) / 1e6
    lan, wan = (work + _MESSAGES * delay for delay in (_LAN_MS, _WAN_MS))
    rounds = len(plan.rounds)
    return PlanLine(
        "time",
        f"about {lan:.2f} ms a round on a lan ({_LAN_MS:g} ms per message), {wan:.2f} ms on a wan "
        f"({_WAN_MS:g} ms); {rounds * lan / 1e3:.3g} s and {rounds * wan / 1e3:.3g} s for all rounds, on a machine "
        "like that of the benchmarks",
    )


def _share_lines(plan: Plan) -> list[PlanLine]:
    """Say what it costs that the clients add the noise in shares."""
    counted = plan.clients - plan.known_shares
    lines = [
        PlanLine(
            "shares",
            f"each client adds one, and the guarantee rests on {counted} of {plan.clients} (an observer may know "
            f"{plan.known_shares}); {plan.noise_price - 1.0:.1%} more noise in all than a server alone would add",
        )
    ]
    if plan.delta > 0.0:
        delta = plan.delta - SAMPLER_DELTA
        zcdp = zcdp_noise_multiplier(plan.epsilon, delta) / gaussian_noise_multiplier(plan.epsilon, delta)
        words = f"accounted as the Gaussian that dominates them; by zCDP it would be {zcdp - 1.0:.1%} on top"
        lines.append(PlanLine("", f"  ({words})"))
    return lines
