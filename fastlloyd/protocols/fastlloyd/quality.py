"""How much noise is in the last release of a run of FastLloyd or a baseline, and in what a plan would release.

A centre is its sums over its count. Its range is about the mean that the same round would have without noise, of the
records that the round counted, as earlier rounds decided. Ranges of fastlloyd-plus are about the records with the final
labels: the usual effect of shortening is reported beside the noise.

Privacy: post-processing of releases, with the noise that the plan states.

Source: docs/report.md, "Quality".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.merging import CLEAR, gather
from fastlloyd.kmeans.update import clip_step, move, split
from fastlloyd.privacy.release import NORM_OF
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.plus import expected_deviation, last_doubt, radius
from fastlloyd.protocols.fastlloyd.plus_grid import REST_SHARE, State, rests
from fastlloyd.protocols.fastlloyd.plus_plan import square_limit
from fastlloyd.protocols.fastlloyd.rounds import Centers, Chosen, shares
from fastlloyd.report.outlook import Expected, expect_mean
from fastlloyd.report.quality import EXACT, UNKNOWN, ResultNoise
from fastlloyd.report.ranges import LAPLACE_TAIL, NORMAL_TAIL, ratio_deviations

Floats = NDArray[np.float64]

# How far the centre of shortened records usually lies from their mean, over the spread within clusters, and the least
# that this spread is taken to be, over that of k equal parts. Chosen on generated sets: docs/report.md, "Ranges".
_SHORTENED, _WITHIN_FLOOR = 0.15, 0.05
# Of the square of a count's last change: what sizes may still change. Chosen likewise.
_STILL_CHANGING = 0.5


def expect(plan: Plan) -> Expected:
    """Return the noise to expect on an average centre, from public numbers alone."""
    if plan.plus is not None:
        return Expected(centre_noise=expected_deviation(plan) / 2.0, k=plan.k, d=plan.d)
    sums, counts = plan.noise_deviations(plan.moving - 1)
    share = plan.n_total / plan.k
    return expect_mean(sums=sums, counts=counts, share=share, k=plan.k, d=plan.d, relative=plan.relative)


def noise_of(plan: Plan, centers: Centers, chosen: Chosen | None = None) -> ResultNoise:
    """Return the error ranges of the released centres and sizes; with a choice of k, of the remaining clusters."""
    if not plan.private:
        return EXACT
    if centers.released is None:
        return UNKNOWN
    last, grid = plan.moving - 1, float(1 << plan.fraction_bits)
    sums, counts = plan.noise_deviations(last)
    tail = LAPLACE_TAIL if NORM_OF[plan.mechanism] == "l1" else NORMAL_TAIL
    noisy_sums, noisy_counts = split(centers.released.astype(np.float64) / grid, plan.k, plan.d)
    more: dict[str, Any] = {}
    sizes, variances = centers.noisy_counts, np.full(plan.k, counts**2)
    if centers.state is None:
        ratio = move(noisy_sums, noisy_counts)
        reach = plan.rounds[last].radius
        if plan.clip and reach is not None:
            ratio = clip_step(ratio, reach / grid)
        deviations = ratio_deviations(ratio, noisy_counts, sums=sums, counts=counts, tail=tail)
    else:
        deviations, more = _plus_noise(plan, centers.state, noisy_sums, centers=centers.exact, count_noise=counts)
        variances = _size_variances(noisy_counts, centers.state, count_noise=counts)
    if chosen is not None:
        sizes, variances = chosen.noisy_counts, gather(variances, chosen.merging.groups)
        deviations, more = _merged(centers, chosen, deviations, more, count_noise=counts)
    margins = tail * np.sqrt(variances)
    return ResultNoise(
        size_ranges=np.clip(np.column_stack([sizes - margins, sizes + margins]), 0.0, plan.n_total),
        centre_deviations=deviations,
        tail=tail,
        expected=expect(plan),
        **more,
    )


def _plus_noise(
    plan: Plan, state: State, noisy_sums: Floats, *, centers: Floats, count_noise: float
) -> tuple[Floats, dict[str, Any]]:
    """Return the deviations of the filtered centres of fastlloyd-plus, shape (k, d), and what else it released."""
    doubt, divisor, multiple = last_doubt(plan, state)
    shrink = plan.plus is not None and plan.plus.shrink
    variance = state.variance if shrink else doubt
    share = variance / doubt  # of the noisy step that was taken
    steps = noisy_sums / float(multiple) / divisor[:, None]
    if plan.plus is not None and plan.plus.cells and plan.plus.shorten:
        # The histogram's noise in the last step's correction for shortening, as if the correction were fully applied.
        reach = radius(state, plan, plan.moving - 1)[0] / float(1 << plan.fraction_bits)
        variance = variance + REST_SHARE**2 * rests(centers, divisor, reach, state, plan)[1]
    deviations = np.sqrt(variance[:, None] + (share[:, None] * steps * (count_noise / divisor)[:, None]) ** 2)
    # Records change their cluster in the last step, which moves their mean again, mostly by less than that step.
    bias = np.hypot(share[:, None] * steps, _shortening(plan, state, centers))
    more: dict[str, Any] = {"steps": steps, "step_deviations": np.sqrt(doubt), "unsettled": bias}
    if plan.rounds[0].cells:
        more["spread"] = state.spread**2  # if anything too large: cells of noise lie far away
    elif plan.is_survey(0) and plan.k > 1:
        more |= {"spread": state.spread**2, "spread_deviation": _spread_deviation(plan, state)}
    return deviations, more


def _size_variances(noisy_counts: Floats, state: State, *, count_noise: float) -> Floats:
    """Return the variances of the filtered counts of fastlloyd-plus, shape (k,), as counts of the released centres.

    Besides the remaining noise, records still change their cluster in the last step. The distance of the last noisy
    count from the estimate before it shows how many.
    """
    taken = np.minimum(state.count_variance / count_noise**2, 1.0 - 1e-9)  # share of that difference
    change = (noisy_counts - state.counts) / (1.0 - taken)
    found: Floats = state.count_variance + _STILL_CHANGING * change**2
    return found


def _shortening(plan: Plan, state: State, centers: Floats) -> Floats:
    """Return the usual distance that shortening pulls a centre from the mean of its records, shape (d,), a deviation.

    Skewed clusters lose more on one side than on the other. Only a histogram shows, coarsely, how skewed they are, and
    half of that has been added already. The amount of shortening is known: the radius over the spread within clusters.
    """
    held = np.maximum(state.counts, 0.0)
    parts = held / held.sum() if held.any() else np.full(plan.k, 1.0 / plan.k)
    squares = state.deviation**2
    between = parts @ (centers - parts @ centers) ** 2
    # Records were counted at the middles of cells (Sheppard's correction).
    rounded = (2.0 / plan.plus.cells) ** 2 / 12.0 if plan.plus is not None and plan.plus.cells else 0.0
    within = np.maximum(squares - rounded - between, _WITHIN_FLOOR * plan.k ** (-2.0 / plan.d) * squares)
    reach = radius(state, plan, plan.moving - 1)[0] / float(1 << plan.fraction_bits)
    found: Floats = _SHORTENED * math.exp(-0.5 * reach**2 / float(within.sum())) * np.sqrt(within)
    return found


def _merged(
    centers: Centers, chosen: Chosen, deviations: Floats, more: dict[str, Any], *, count_noise: float
) -> tuple[Floats, dict[str, Any]]:
    """Return the same for the remaining clusters: weighted means of those that were merged."""
    groups, part = chosen.merging.groups, shares(centers, chosen.merging.groups)[:, None]
    away = np.zeros_like(centers.exact)
    for place, group in enumerate(groups):
        # The effect of one more record in one of them on the mean.
        total = np.maximum(chosen.noisy_counts[place], 1.0)
        away[list(group)] = (centers.exact[list(group)] - chosen.exact[place]) / total
    variances = gather((part * deviations) ** 2 + (count_noise * away) ** 2, groups)
    step_deviations = np.sqrt(gather((part[:, 0] * more["step_deviations"]) ** 2, groups))
    steps = gather(part * more["steps"], groups)
    changed = {
        "steps": steps,
        "step_deviations": step_deviations,
        "unsettled": gather(part * more["unsettled"], groups),
        "stands_out": chosen.merging.step >= CLEAR,
    }
    return np.sqrt(variances), {**more, **changed}


def _spread_deviation(plan: Plan, state: State) -> float:
    """Return the standard deviation of the noise on the surveyed squared spread: of the squares, and of the middle."""
    noise = plan.noise_deviations(0)[0] / state.records
    weight = square_limit(plan.fraction_bits) / float(1 << plan.fraction_bits)
    return noise * math.sqrt(plan.d / (2.0 * weight) ** 2 + 4.0 * float(state.middle @ state.middle))
