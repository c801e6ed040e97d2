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
from fastlloyd.kmeans.merging import CLEAR, gather
from fastlloyd.kmeans.update import clip_step, move
from fastlloyd.privacy.release import NORM_OF
from fastlloyd.protocols.fastlloyd.choose_k import Chosen, shares
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.plus import expected_deviation, last_doubt
from fastlloyd.protocols.fastlloyd.plus_plan import square_limit
from fastlloyd.protocols.fastlloyd.plus_state import State, noise_deviations
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


def noise_of(plan: Plan, centers: Centers, chosen: Chosen | None = None) -> Noise:
    """Say how far off the released centres and sizes may be; of a choice of k, those of the clusters that are left."""
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
    weighed, margins = centers.noisy_counts, np.full(plan.k, tail * counts)
    if chosen is not None:
        groups = chosen.merging.groups
        weighed, noisy_counts = chosen.noisy_counts, gather(noisy_counts, groups)
        margins = np.sqrt(gather(margins**2, groups))
        deviations, more = _merged(centers, chosen, deviations, more, count_noise=counts)
    # fastlloyd-plus weighs a count with those before: its range holds both.
    low, high = np.minimum(noisy_counts - margins, weighed), np.maximum(noisy_counts + margins, weighed)
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
    if plan.rounds[0].cells:
        more["spread"] = state.spread**2  # if anything too large: cells of noise lie far away
    elif plan.is_survey(0) and plan.k > 1:
        more |= {"spread": state.spread**2, "spread_deviation": _spread_deviation(plan, state)}
    return deviations, more


def _merged(
    centers: Centers, chosen: Chosen, deviations: Floats, more: dict[str, Any], *, count_noise: float
) -> tuple[Floats, dict[str, Any]]:
    """Return the same for the clusters that are left: weighed means of those that they are made of."""
    groups, part = chosen.merging.groups, shares(centers, chosen.merging)[:, None]
    away = np.zeros_like(centers.exact)
    for place, group in enumerate(groups):
        # What a record more in one of them would do to the mean.
        total = np.maximum(chosen.noisy_counts[place], 1.0)
        away[list(group)] = (centers.exact[list(group)] - chosen.exact[place]) / total
    variances = gather((part * deviations) ** 2 + (count_noise * away) ** 2, groups)
    step_deviations = np.sqrt(gather((part[:, 0] * more["step_deviations"]) ** 2, groups))
    steps = gather(part * more["steps"], groups)
    changed = {"steps": steps, "step_deviations": step_deviations, "stands_out": chosen.merging.step >= CLEAR}
    return np.sqrt(variances), {**more, **changed}


def _spread_deviation(plan: Plan, state: State) -> float:
    """Return the standard deviation of the noise on the surveyed squared spread: of the squares, and of the middle."""
    noise = noise_deviations(plan, 0)[0] / state.records
    weight = square_limit(plan.fraction_bits) / float(1 << plan.fraction_bits)
    return noise * math.sqrt(plan.d / (2.0 * weight) ** 2 + 4.0 * float(state.middle @ state.middle))
