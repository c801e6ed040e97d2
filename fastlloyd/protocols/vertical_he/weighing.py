"""What the parties of a private run make of a round's noisy sums: weighed with what they know by then.

A centre is known up to a variance P, and between rounds it moves by its Lloyd step, of expected square Q. A noisy
centre, sum over count, is off by noise of variance V. So the best guess goes the share (P + Q) / (P + Q + V) of the way
from the centre before to the noisy one (a Kalman filter). Counts are weighed likewise, from the prior that all clusters
are equal; and a cluster that is hardly worth having is moved to where one is missing (`kmeans/swap.py`).

Post-processing of releases: no privacy is spent. Basic IEEE operations in a fixed order, so that every party computes
the same bits.

Source: ours, as in fastlloyd-plus; docs/vertical-he.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.swap import Clusters, swap
from fastlloyd.kmeans.update import truncate
from fastlloyd.protocols.vertical_he.budget import FEATURE_VARIANCE
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

Floats = NDArray[np.float64]

# Tuned on synthetic sets, see docs/vertical-he.md. Variances are per feature, on the domain [-1, 1].
FIRST_SCALE = 0.45
"""Where a private run starts: the packed points, drawn in towards the middle by this."""
_FIRST_VARIANCE = 0.1  # how far off a first centre is, first step included
# A centre's expected squared step, over the variance of its part of the records, and from one round to the next; where
# whole records are added up, and where steps are.
_STEP, _STEP_DECAY = 0.3, 0.5
_SHORT_STEP, _SHORT_STEP_DECAY = 1.0, 0.6
_COUNT_DOUBT, _COUNT_STEP = 0.8, 0.5  # of a cluster's equal share: before anything is known, and from round to round
_LEAST_SHARE = 0.2  # a cluster is taken to have at least this part of an equal share
_LEAST_GAIN = 1.0  # of a swap over its loss


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """What every party knows after a round: released, or made of releases.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
        Scaled to [-1, 1]; columns owner by owner.
    counts : float64 array, shape (k,)
        Records of each cluster: noisy, and weighed in a run that weighs.
    count_variance : float64 array, shape (k,)
        How far off each count is held to be.
    variance : float64 array, shape (k, d)
        The same of each coordinate of a centre.
    steps : float64 array, shape (k, d)
        From the centre before to the last round's noisy one.
    step_variance : float64 array, shape (k, d)
        Of the noise on them.
    """

    centers: Floats
    counts: Floats
    count_variance: Floats
    variance: Floats
    steps: Floats
    step_variance: Floats


def first_state(plan: Plan, centers: Floats) -> Estimate:
    """Return what is known before the first round."""
    share, none = np.full(plan.k, plan.n_total / plan.k), np.zeros((plan.k, plan.d))
    return Estimate(
        centers=centers,
        counts=share,
        count_variance=(_COUNT_DOUBT * share) ** 2,
        variance=np.full((plan.k, plan.d), _FIRST_VARIANCE),
        steps=none,
        step_variance=none,
    )


def noise_deviations(plan: Plan) -> tuple[Floats, float]:
    """Return the standard deviation of all parties' noise on each column's sum, shape (d,), and on a count.

    In the domain's units.
    """
    sums = np.full(plan.d, math.sqrt(plan.noises) * plan.sum_scale / plan.unit)
    sums[list(plan.stepping)] = math.sqrt(plan.noises) * plan.step_scale / plan.unit * plan.radius
    return sums, math.sqrt(plan.noises) * plan.count_scale / plan.unit


def weigh(noisy_sums: Floats, noisy_counts: Floats, state: Estimate, plan: Plan, t: int) -> Estimate:
    """Make the next state from round t's noisy sums, shape (k, d), and counts, shape (k,), in the domain's units."""
    sum_noise, count_noise = noise_deviations(plan)
    before = _counts_before(state.count_variance, plan, t)
    gain = before / (before + count_noise * count_noise)
    counts = state.counts + gain * (noisy_counts - state.counts)
    count_variance = gain * (count_noise * count_noise)
    divisor = np.maximum(counts, _LEAST_SHARE * plan.n_total / plan.k)[:, None]
    whole = _whole(plan)
    steps = noisy_sums / divisor - whole * state.centers
    squares = np.cumsum(state.centers * state.centers, axis=1)[:, -1:] / plan.d
    doubt = (sum_noise * sum_noise + whole * (squares * count_variance[:, None])) / (divisor * divisor)
    uncertain = state.variance + _expected_squares(plan, t)
    part = uncertain / (uncertain + doubt)
    clusters = Clusters(truncate(state.centers + part * steps), counts, count_variance, part * doubt)
    if t < plan.rounds - 1:
        stream = PublicStream(plan.seed, f"{domains.VERTICAL_HE_SWAPS}{t}")
        deviation = np.full(plan.d, math.sqrt(FEATURE_VARIANCE))
        clusters = swap(clusters, deviation=deviation, cell=plan.cell, least=_LEAST_GAIN, stream=stream)
    return Estimate(
        centers=clusters.centers,
        counts=clusters.counts,
        count_variance=clusters.count_variance,
        variance=clusters.variance,
        steps=steps,
        step_variance=doubt,
    )


def expected_deviation(plan: Plan) -> float:
    """Return how far off an average centre is expected to be: standard deviation of a coordinate, scaled domain.

    The rounds' weighing for a cluster of an equal share of the records, at a usual place.
    """
    sum_noise, count_noise = noise_deviations(plan)
    share = plan.n_total / plan.k
    count_variance, variance = np.array([(_COUNT_DOUBT * share) ** 2]), np.full(plan.d, _FIRST_VARIANCE)
    for t in range(plan.rounds):
        before = _counts_before(count_variance, plan, t)
        count_variance = before * count_noise * count_noise / (before + count_noise * count_noise)
        doubt = (sum_noise * sum_noise + _whole(plan) * (FEATURE_VARIANCE * count_variance)) / (share * share)
        uncertain = variance + _expected_squares(plan, t)
        variance = uncertain * doubt / (uncertain + doubt)
    return math.sqrt(float(np.cumsum(variance)[-1]) / plan.d)


def _counts_before(count_variance: Floats, plan: Plan, t: int) -> Floats:
    """Return how far off counts are before round t tells: from the second one on they have moved."""
    step = _COUNT_STEP * plan.n_total / plan.k if t > 0 else 0.0
    return count_variance + step * step


def _expected_squares(plan: Plan, t: int) -> Floats:
    """Return the square that each coordinate of a step is expected to have, shape (d,); P holds the first one's."""
    long, short = (0.0, 0.0) if t == 0 else (_STEP, _SHORT_STEP)
    for _ in range(t):
        long, short = long * _STEP_DECAY, short * _SHORT_STEP_DECAY
    return FEATURE_VARIANCE * plan.cell * plan.cell * np.where(_whole(plan) > 0.0, long, short)


def _whole(plan: Plan) -> Floats:
    """Return 1 for the columns of which whole records are added up, 0 for those of which steps are, shape (d,)."""
    whole = np.ones(plan.d)
    whole[list(plan.stepping)] = 0.0
    return whole
