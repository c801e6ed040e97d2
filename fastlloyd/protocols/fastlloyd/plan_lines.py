"""What a run of FastLloyd or a baseline would take, from public numbers alone: time, and the noise of each round."""

from __future__ import annotations

from itertools import groupby

from fastlloyd.privacy.release import SHARED
from fastlloyd.privacy.shares import spread
from fastlloyd.protocol.masked import name_rounds
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.report.outlook import PlanLine
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import share_caps

# A round's time, on links that delay each message by so much:
#   2 messages one after the other + overhead + records of the largest client * 3 (k + d) ns.
# Rounded from papers/benchmarks/results: fastlloyd-table3.md, column lan, and fastlloyd-scaling.md, processes: all
# rows with two clients but N of 10 million, whose 30 rounds are enough for compiled code to pay. No row has both k and
# d large.
_MESSAGES = 2
_OVERHEAD_MS = 0.8
_RECORD_NS = 3
_LAN_MS, _WAN_MS = 0.25, 25.0


def cost_lines(config: RunConfig, plan: Plan) -> list[PlanLine]:
    """Say how long the rounds take, and which of them count where the clients choose k."""
    lines = [_time_line(plan, max(share_caps(config, plan.clients, plan.n_total)))]
    if plan.choose_k:
        noise = f"the noise of all rounds is that of {format_count(plan.k, 'cluster')}"
        lines.append(PlanLine("k", f"the clients choose it from the last centres; {noise}"))
    return lines


def round_lines(plan: Plan) -> list[PlanLine]:
    """Describe the rounds: what each asks for, and all noise on it; rounds in a row that are the same in one line."""
    lines = []
    for words, group in groupby(range(len(plan.rounds)), lambda t: _round_words(plan, t)):
        same = tuple(group)
        lines.append(PlanLine(f"  {name_rounds(*same)}{', each' if len(same) > 1 else ''}", words))
    return lines


def _round_words(plan: Plan, t: int) -> str:
    """Say what round t asks for."""
    planned, grid = plan.rounds[t], 2.0**plan.fraction_bits
    all_noise = spread(plan.clients, plan.known_shares) if plan.mechanism in SHARED else 1.0
    sums, counts = planned.sum_scale * all_noise / grid, planned.count_scale * all_noise / grid
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
