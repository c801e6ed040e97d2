"""What a run of the family computes, for `plan`: the start and passes over records measured, the rest by numbers.

Compared with runs: papers/benchmarks/planned_work.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from fastlloyd.kmeans.assign import accumulate, assign
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.initial import packing_units, sphere_packing
from fastlloyd.protocol.work import MOST_TRIED, SAMPLE_UNITS, OwnSteps, masked_work
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.rounds import first_centers, post_process
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import share_caps
from fastlloyd.run.work import Linear, Work, machine_factor, measured, measured_linear

# A unit of `packing_units`, roughly: for more of them than are tried.
_UNIT_S = 5e-9
# The same for a number that fastlloyd-plus filters, and for a cluster beside it in swaps.
_FILTERED_S, _SWAPPED_S = 3e-7, 3e-8
_MOST_NUMBERS = 1 << 21


def estimate_work(config: RunConfig, plan: Plan) -> Work:
    """Estimate what a run of N records computes."""
    clusters = [planned.clusters for planned in plan.rounds]
    most = max(clusters)
    largest = max(share_caps(config, plan.clients, plan.n_total))
    # A pass takes the products of clusters and features: more of them than fit the memory of a plan are not tried.
    d = min(plan.d, max(1, _MOST_NUMBERS // most))
    sample = max(1, min(largest, max(16, SAMPLE_UNITS // (most * d + 80))))
    random = np.random.default_rng(0)
    centers = random.integers(-(1 << plan.fraction_bits), 1 << plan.fraction_bits, (most, d))
    radius = next((planned.radius for planned in reversed(plan.rounds) if planned.radius is not None), None)

    def points(n: int) -> Callable[[], object]:
        made = quantise(random.uniform(-1.0, 1.0, (n, d)), plan.fraction_bits)
        shorten = plan.plus is not None and plan.plus.shorten
        return lambda: accumulate(made, centers, radius=radius, relative=plan.relative, shorten=shorten)

    def labelled(n: int) -> Callable[[], object]:
        made = quantise(random.uniform(-1.0, 1.0, (n, d)), plan.fraction_bits)
        return lambda: assign(made, centers[: plan.k])

    found, labels = measured_linear(points, sample), measured_linear(labelled, sample)
    # Rounds with fewer clusters take less; a survey or a histogram is one pass without centres.
    share = sum(k * plan.d + 80 for k in clusters) / (len(clusters) * (most * d + 80))
    wider = (plan.k * plan.d + 80) / (plan.k * d + 80)
    own = OwnSteps(
        start=_start_seconds(clusters[0], plan.d, plan.seed),
        round=Linear(found.fixed, share * found.each),
        step=0.0 if plan.plus is None else _step_seconds(plan),
        labels=Linear(labels.fixed, wider * labels.each),
    )
    work = masked_work(config, plan, own, centers=plan.k * plan.d)
    if packing_units(clusters[0], plan.d) > MOST_TRIED:
        return replace(work, because="mostly the first centres, roughly")
    return work


@cache
def _start_seconds(k: int, d: int, seed: int) -> float:
    """Measure the first centres, which are public: how many candidates are drawn depends on the seed."""
    if packing_units(k, d) > MOST_TRIED:
        return machine_factor() * _UNIT_S * packing_units(k, d)
    return measured(lambda: sphere_packing.__wrapped__(k, d, seed), 1)


def _step_seconds(plan: Plan) -> float:
    """Measure what fastlloyd-plus makes of the replies of all rounds, with equal clusters in their place; of a round.

    Histogram, filter, swaps and merges: they take more than masks and sums where there are many clusters.
    """
    most = max(planned.clusters for planned in plan.rounds)
    if packing_units(most, plan.d) > MOST_TRIED:
        return machine_factor() * most * plan.d * (_FILTERED_S + most * _SWAPPED_S)
    start = first_centers(plan)

    def follow() -> None:
        random, centers = np.random.default_rng(0), start
        for t in range(plan.moving):
            sums, counts = plan.lengths(t)
            held = plan.n_total / counts * random.exponential(size=counts)
            if sums == 0:
                held[::2] = 0.0  # most histograms have many empty cells
            noisy = np.concatenate([0.1 * held.mean() * random.standard_normal(sums), held]) * (1 << plan.fraction_bits)
            centers = post_process(noisy.astype(np.int64), centers, plan, t)

    return measured(follow, 1) / len(plan.rounds)
