"""What each party computes from a round's noisy sums, outside the encryption; the same at all parties.

**Weighing**, in private runs unless it is switched off. A centre is known up to a variance P, and between rounds it
moves by its Lloyd step, of expected square Q. A noisy centre, sum over count, has noise of variance V. So the best
guess goes the share (P + Q) / (P + Q + V) of the way from the previous centre to the noisy one (a Kalman filter).
Counts are weighed the same way, from the prior that all clusters are equal. A cluster that hardly improves the result
moves to where one is missing (`kmeans/swap.py`). All operations are basic IEEE ones in a fixed order, so every party
computes the same bits.

All of it but `draw_noise` is post-processing of releases: no privacy is spent.

Source: Vertical HE, §3 and Figure 1: the initialisation, steps (4) "Noise Injection" and (5) "Centroid Update"; the
weighing is ours, as in fastlloyd-plus; docs/vertical-he.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.initial import GRID_BITS, sphere_packing
from fastlloyd.kmeans.swap import Clusters, swap
from fastlloyd.kmeans.update import move, truncate
from fastlloyd.privacy.noise.sampler import round_normal
from fastlloyd.protocols.vertical_he.budget import FEATURE_VARIANCE
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import PartyId

Floats = NDArray[np.float64]
Draw = Callable[..., NDArray[np.int64]]
"""One party's noise: round number and, for parts of openings, the grid of `draw_noise` to int64, shape (k (d + 1),)."""

# Tuned on synthetic sets, see docs/vertical-he.md. Variances are per feature, on the domain [-1, 1].
FIRST_SCALE = 0.45
"""Where a private run starts: the packed points, times this factor."""
_FIRST_VARIANCE = 0.1  # of a first centre, first step included
# A centre's expected squared step over the variance of its part of the records, and its decay from round to round:
# where whole records are added up, and where steps are.
_STEP, _STEP_DECAY = 0.3, 0.5
_SHORT_STEP, _SHORT_STEP_DECAY = 1.0, 0.6
_COUNT_DOUBT, _COUNT_STEP = 0.8, 0.5  # of a cluster's equal share: before anything is known, and from round to round
_LEAST_SHARE = 0.2  # the smallest part of an equal share that a cluster is assumed to have
_LEAST_GAIN = 1.0  # of a swap over its loss


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """What every party knows after a round: released, or made of releases.

    Attributes
    ----------
    centers, variance : float64 arrays, shape (k, d)
        Scaled to [-1, 1], columns owner by owner; and the variance of each coordinate.
    counts, count_variance : float64 arrays, shape (k,)
        Records of each cluster, noisy, and weighed in a run that weighs; and the variance of each count.
    steps, step_variance : float64 arrays, shape (k, d)
        From the previous centre to the last round's noisy one; and the variance of the noise on it.
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
    """Return the deviations, in the domain's units, of all noise on each column's sum, shape (d,), and on a count."""
    sums = np.full(plan.d, math.sqrt(plan.noises) * plan.sum_scale / plan.unit)
    sums[list(plan.stepping)] = math.sqrt(plan.noises) * plan.step_scale / plan.unit * plan.radius
    return sums, math.sqrt(plan.noises) * plan.count_scale / plan.unit


def weigh(noisy_sums: Floats, noisy_counts: Floats, state: Estimate, plan: Plan, t: int) -> Estimate:
    """Return the next state from round t's noisy sums, shape (k, d), and counts, shape (k,), in the domain's units."""
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
    """Return the expected standard deviation of an average centre's coordinate, scaled domain.

    It follows the rounds' weighing for a cluster with an equal share of the records, at a typical place.
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
    """Return the variance of the counts before round t's release: from the second round on they have moved."""
    step = _COUNT_STEP * plan.n_total / plan.k if t > 0 else 0.0
    return count_variance + step * step


def _expected_squares(plan: Plan, t: int) -> Floats:
    """Return the expected square of each coordinate of a step, shape (d,); P includes the first step."""
    long, short = (0.0, 0.0) if t == 0 else (_STEP, _SHORT_STEP)
    for _ in range(t):
        long, short = long * _STEP_DECAY, short * _SHORT_STEP_DECAY
    return FEATURE_VARIANCE * plan.cell * plan.cell * np.where(_whole(plan) > 0.0, long, short)


def _whole(plan: Plan) -> Floats:
    """Return 1 for columns whose whole records are added up, 0 for those whose steps are, shape (d,)."""
    whole = np.ones(plan.d)
    whole[list(plan.stepping)] = 0.0
    return whole


@dataclass(frozen=True, slots=True)
class Released:
    """What every party has at the end: all of it is released.

    Attributes
    ----------
    state : Estimate
        After the last round.
    rounds : int
        Rounds done.
    path : tuple of float64 arrays, shape (k, d)
        The centres at the start and after each round.
    present : tuple of PartyId
        Owners who helped to open the last round, where more than two share the key.
    """

    state: Estimate
    rounds: int
    path: tuple[NDArray[np.float64], ...] = ()
    present: tuple[PartyId, ...] = ()

    @property
    def centers(self) -> NDArray[np.float64]:
        """Centres, shape (k, d), scaled to [-1, 1]; columns owner by owner."""
        return self.state.centers


def first_centers(plan: Plan) -> NDArray[np.float64]:
    """Return the public start, shape (k, d): sphere packing from the seed, scaled down where steps are weighed."""
    packed = sphere_packing(plan.k, plan.d, plan.seed) / float(1 << GRID_BITS)  # Figure 1, "Centroid initialization"
    return FIRST_SCALE * packed if plan.shrinks else packed


def begin(plan: Plan, start: NDArray[np.float64] | None = None) -> Estimate:
    """Return the state before the first round: the public start, or given centres, shape (k, d)."""
    return first_state(plan, first_centers(plan) if start is None else np.asarray(start, dtype=np.float64).copy())


def draw_noise(plan: Plan, secret: SecretRandom, grid: float = 1.0) -> NDArray[np.int64]:
    """Draw one party's noise of one round, integers, shape (k (d + 1),): cluster by cluster, first the count.

    Parameters
    ----------
    plan : Plan
    secret : SecretRandom
    grid : float
        Integer units of the sums to one unit of the noise.

    Notes
    -----
    Sees: the party that draws it. Every party that opens adds its own noise, because each could subtract its own again.
    """
    noise = np.empty((plan.k, plan.d + 1), dtype=np.int64)
    noise[:, 0] = round_normal(plan.count_scale / grid, plan.k, secret)  # §3, step (4): N(0, sigma_T^2)
    noise[:, 1:] = round_normal(plan.sum_scale / grid, (plan.k, plan.d), secret)  # §3, step (4): N(0, sigma_S^2)
    if plan.stepping:
        own = [1 + column for column in plan.stepping]
        noise[:, own] = round_normal(plan.step_scale / grid, (plan.k, len(own)), secret)
    return noise.reshape(-1)


def fresh_noise(plan: Plan, secret: SecretRandom) -> Draw:
    """Return a function that draws one party's noise, see `draw_noise`."""
    return lambda t, grid=1.0: draw_noise(plan, secret, grid)


def post_process(noisy: NDArray[np.int64], state: Estimate, plan: Plan, t: int) -> Estimate:
    """Return the next state from the noisy integers of round t.

    Without weighing, a cluster whose noisy count is below the noise's deviation keeps its centre: its sum is noise.
    """
    table = noisy.reshape(plan.k, plan.d + 1).astype(np.float64) / plan.unit
    counts, sums = table[:, 0], table[:, 1:]
    if plan.shrinks:
        sums[:, list(plan.stepping)] *= plan.radius
        return weigh(sums, counts, state, plan, t)
    least = max(1.0, math.sqrt(plan.noises) * plan.count_scale / plan.unit)
    # §3, step (5): s / t.
    moved = np.where((counts >= least)[:, None], truncate(move(sums, counts)), state.centers)
    return dataclasses.replace(state, centers=moved, counts=counts)


def settled(before: NDArray[np.float64], after: NDArray[np.float64], plan: Plan) -> bool:
    """Return whether the public centres have stopped moving, up to the plan's tolerance."""
    # §3: "until the centroids are sufficiently stable, or a fixed number of rounds".
    return bool(plan.tolerance > 0.0 and np.abs(after - before).max() <= plan.tolerance)
