"""How much noise lies on what a run of FastLloyd or a baseline releases last, and on what a plan would release.

A centre is what its sums over its count say. Its range is meant for the mean that the same round would have given
without noise, of the records that the round counted; which records these are, earlier rounds have decided.

Privacy: post-processing of releases, with the noise that the plan states.

Source: docs/report.md, "Quality".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.layout import split
from fastlloyd.kmeans.update import clip_step, move
from fastlloyd.privacy.release import NORM_OF
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.plus import State, expected_deviation, last_doubt, noise_deviations
from fastlloyd.protocols.fastlloyd.plus_plan import square_limit
from fastlloyd.protocols.fastlloyd.rounds import Centers
from fastlloyd.report.expected import Expected, expect_mean
from fastlloyd.report.quality import EXACT, UNKNOWN, Noise
from fastlloyd.report.ranges import LAPLACE_TAIL, NORMAL_TAIL, ratio_deviations

Floats = NDArray[np.float64]


def expect(plan: Plan) -> Expected:
    """Say what noise to expect on an average centre, from public numbers alone."""
    if plan.plus is not None:
        return Expected(centre_noise=expected_deviation(plan) / 2.0, k=plan.k, d=plan.d)
    sums, counts = noise_deviations(plan, len(plan.rounds) - 1)
    share = plan.n_total / plan.k
    return expect_mean(sums=sums, counts=counts, share=share, k=plan.k, d=plan.d, relative=plan.relative)


def noise_of(plan: Plan, centers: Centers) -> Noise:
    """Say how far off the released centres and sizes may be."""
    if not plan.private:
        return EXACT
    if centers.released is None:
        return UNKNOWN
    last, grid = len(plan.rounds) - 1, float(1 << plan.fraction_bits)
    sums, counts = noise_deviations(plan, last)
    tail = LAPLACE_TAIL if NORM_OF[plan.mechanism] == "l1" else NORMAL_TAIL
    noisy_sums, noisy_counts = split(centers.released.astype(np.float64) / grid, plan.k, plan.d)
    more: dict[str, Any] = {}
    if centers.state is None:
        ratio = move(noisy_sums, noisy_counts)
        radius = plan.rounds[last].radius
        if plan.clip and radius is not None:
            ratio = clip_step(ratio, radius / grid)
        deviations = ratio_deviations(ratio, noisy_counts, sums=sums, counts=counts, tail=tail)
    else:
        deviations, more = _plus_noise(plan, centers.state, noisy_sums, count_noise=counts)
    # fastlloyd-plus weighs a count with those before: its range holds both.
    low = np.minimum(noisy_counts - tail * counts, centers.noisy_counts)
    high = np.maximum(noisy_counts + tail * counts, centers.noisy_counts)
    return Noise(
        size_ranges=np.clip(np.column_stack([low, high]), 0.0, plan.n_total),
        centre_deviations=deviations,
        tail=tail,
        expected=expect(plan),
        **more,
    )


def _plus_noise(plan: Plan, state: State, noisy_sums: Floats, *, count_noise: float) -> tuple[Floats, dict[str, Any]]:
    """Return how far off the weighed centres of fastlloyd-plus are, shape (k, d), and what else it released."""
    doubt, divisor, multiple = last_doubt(plan, state)
    shrink = plan.plus is not None and plan.plus.shrink
    variance = state.variance if shrink else doubt
    share = variance / doubt  # of the noisy step that was taken
    steps = noisy_sums / float(multiple) / divisor[:, None]
    deviations = np.sqrt(variance[:, None] + (share[:, None] * steps * (count_noise / divisor)[:, None]) ** 2)
    more: dict[str, Any] = {"steps": steps, "step_deviations": np.sqrt(doubt)}
    if plan.is_survey(0) and plan.k > 1:
        more |= {"spread": state.spread**2, "spread_deviation": _spread_deviation(plan, state)}
    return deviations, more


def _spread_deviation(plan: Plan, state: State) -> float:
    """Return the standard deviation of the noise on the surveyed squared spread: of the squares, and of the middle."""
    noise = noise_deviations(plan, 0)[0] / state.records
    weight = square_limit(plan.fraction_bits) / float(1 << plan.fraction_bits)
    return noise * math.sqrt(plan.d / (2.0 * weight) ** 2 + 4.0 * float(state.middle @ state.middle))
