"""How much noise lies on what a run of FastLloyd or a baseline releases last, and on what a plan would release.

A centre is what its sums over its count say. Its range is meant for the mean that the same round would have given
without noise, of the records that the round counted; which records these are, earlier rounds have decided.

Privacy: post-processing of releases, with the noise that the plan states.

Source: docs/report.md, "Quality"; Fieller, "Some problems in interval estimation" (1954).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.layout import split
from fastlloyd.kmeans.update import clip_step, move
from fastlloyd.privacy.release import NORM_OF
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.plus import State, expected_deviation, last_doubt, noise_deviations
from fastlloyd.protocols.fastlloyd.rounds import Centers
from fastlloyd.report.quality import EXACT, LAPLACE_TAIL, NORMAL_TAIL, PRIOR_VARIANCE, UNKNOWN, Expected, Noise

Floats = NDArray[np.float64]


def expect(plan: Plan) -> Expected:
    """Say what noise to expect on an average centre, from public numbers alone."""
    if plan.plus is not None:
        return Expected(centre_noise=expected_deviation(plan) / 2.0, k=plan.k, d=plan.d)
    sums, counts = noise_deviations(plan, len(plan.rounds) - 1)
    # What is divided by a count is a step, small at the end, or the whole centre.
    squared = 0.0 if plan.relative else PRIOR_VARIANCE
    deviation = float(np.sqrt(sums**2 + squared * counts**2)) * plan.k / plan.n_total
    return Expected(centre_noise=deviation / 2.0, k=plan.k, d=plan.d)


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
    spread = None
    if centers.state is None:
        ratio = move(noisy_sums, noisy_counts)
        radius = plan.rounds[last].radius
        if plan.clip and radius is not None:
            ratio = clip_step(ratio, radius / grid)
        deviations = ratio_deviations(ratio, noisy_counts, sums=sums, counts=counts, tail=tail)
    else:
        deviations = _plus_deviations(plan, centers.state, noisy_sums, count_noise=counts)
        if plan.is_survey(0) and plan.k > 1:
            spread = centers.state.spread**2
    # fastlloyd-plus weighs a count with those before: its range holds both.
    low = np.minimum(noisy_counts - tail * counts, centers.noisy_counts)
    high = np.maximum(noisy_counts + tail * counts, centers.noisy_counts)
    return Noise(
        size_ranges=np.clip(np.column_stack([low, high]), 0.0, plan.n_total),
        centre_deviations=deviations,
        tail=tail,
        spread=spread,
        expected=expect(plan),
    )


def ratio_deviations(ratio: Floats, noisy_counts: Floats, *, sums: float, counts: float, tail: float) -> Floats:
    """Return how far off sums over counts are, shape (k, d): `tail` times it covers Fieller's range of the ratio.

    A ratio r is in the range if S - r C is within `tail` deviations of 0. With g = (tail * counts / C)^2 below 1 that
    is a range about r / (1 - g); else the count cannot be told from 0, and any ratio is possible: infinite.

    Parameters
    ----------
    ratio : float64 array, shape (k, d)
        S / C.
    noisy_counts : float64 array, shape (k,)
        C.
    sums, counts : float
        Standard deviations of the noise on S and on C.
    """
    known = noisy_counts > tail * counts
    divisor = np.where(known, noisy_counts, 1.0)[:, None]
    g = np.where(known[:, None], (tail * counts / divisor) ** 2, 0.0)
    about = np.sqrt((1.0 - g) * sums**2 + (ratio * counts) ** 2) / (divisor * (1.0 - g))
    return np.where(known[:, None], about + np.abs(ratio) * g / (1.0 - g) / tail, np.inf)


def _plus_deviations(plan: Plan, state: State, noisy_sums: Floats, *, count_noise: float) -> Floats:
    """Return how far off the weighed centres of fastlloyd-plus are, shape (k, d)."""
    doubt, divisor, multiple = last_doubt(plan, state)
    shrink = plan.plus is not None and plan.plus.shrink
    variance = state.variance if shrink else doubt
    share = variance / doubt  # of the noisy step that was taken
    step = share[:, None] * noisy_sums / float(multiple) / divisor[:, None]
    return np.sqrt(variance[:, None] + (step * (count_noise / divisor)[:, None]) ** 2)
