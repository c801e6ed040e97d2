"""fastlloyd-plus: what a client sends in a round, and what all clients compute from the noisy reply.

Round 0 asks for the middle and the spread of all records together, or for a histogram (`plus_grid.py`), which determine
the start and the radius; there is no such round if both would be mostly noise. In each later round a record contributes
its vector from the nearest centre, shortened to the radius r. As r follows from earlier releases, the vector is sent in
units of r, so that the sensitivity is constant. The noisy steps are then combined with the estimates so far (a Kalman
filter with known noise), and a nearly useless cluster is moved to where one is missing.

Everything but the updates works on released values only. It uses basic IEEE operations in a fixed order (sums by
`total`), so that every client computes the same bits.

Source: docs/fastlloyd-plus.md.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.assign import accumulate, add_up
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.kmeans.swap import Clusters, narrow, swap
from fastlloyd.kmeans.update import join, split, total, truncate
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.plus_grid import State, expected_variance, grid_update, left_out, read_grid
from fastlloyd.protocols.fastlloyd.plus_plan import (
    FEATURE_FLOOR,
    MIDDLE_VARIANCE,
    SPREAD_LIMITS,
    SPREAD_PRIOR,
    square_limit,
)
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

Floats = NDArray[np.float64]

# Tuned on synthetic sets, see docs/fastlloyd-plus.md. Variances are per feature, on the domain [-1, 1].
_SPREAD_DOUBT = 0.1  # how far off the expected variance of a feature may be
_START = 1.6  # start: packed points times this times each feature's deviation, about the middle
_STEP_DECAY = 0.6  # a centre's expected squared step, from one round to the next
_LATER_STEP = 0.3  # the same after a histogram or a merge, over that after a survey
_COUNT_DOUBT, _COUNT_STEP, _COUNT_DECAY = 0.5, 0.25, 0.5  # of a cluster's share of the records
_LEAST_SHARE = 0.2  # a cluster is taken to have at least this part of an equal share
_QUIET_ROUNDS, _GRID_QUIET_ROUNDS = 2, 4  # at the end, without swaps; after a histogram
_LEAST_GAIN, _GRID_LEAST_GAIN = 1.0, 4.0  # of a swap over its loss; after a histogram
_REST_ROUNDS = 2  # at the end, in which a histogram makes up for what shortening leaves out

_BLOCK = 1 << 16


def first_state(plan: Plan, *, given: bool) -> State:
    """Return the state before round 0."""
    return _state(plan, np.zeros(plan.d), np.full(plan.d, math.sqrt(SPREAD_PRIOR)), float(plan.n_total), given=given)


def plus_update(points: GridPoints, centers: NDArray[np.int64], state: State, plan: Plan, t: int) -> NDArray[np.int64]:
    """Return one client's vector of round t, shape (plan.elements(t),): of histogram, survey, or sums and counts.

    Notes
    -----
    Sees: nobody but the caller, until masked. Privacy: see each of the three.
    """
    if plan.rounds[t].cells:
        return grid_update(points, plan)
    if plan.is_survey(t):
        return survey_update(points, plan)
    return scaled_update(points, centers, state, plan, t)


def next_state(noisy: Floats, centers: Floats, state: State, plan: Plan, t: int) -> tuple[Floats, State]:
    """Make the next centres, shape (k, d), and state from round t's noisy answer, shape (plan.elements(t),).

    All in the units of the domain.
    """
    if plan.rounds[t].cells:
        return read_grid(noisy, centers, state, plan)
    noisy_sums, noisy_counts = split(noisy, plan.rounds[t].clusters, plan.d)
    if plan.is_survey(t):
        return read_survey(noisy_sums, noisy_counts, centers, state, plan)
    return advance(noisy_sums, noisy_counts, centers, state, plan, t=t)


def radius(state: State, plan: Plan, t: int) -> tuple[int, int]:
    """Return the radius of round t in grid units, and the whole number that a sent vector is multiplied by.

    Notes
    -----
    Privacy: radius times multiple is at most the round's nominal radius R; both follow from earlier releases.
    """
    nominal = plan.rounds[t].radius
    if plan.plus is None or nominal is None:
        raise ValueError(f"round {t} of this plan has no radius")
    target = state.spread * plan.plus.stage(t)[0].reach * float(1 << plan.fraction_bits)
    multiple = min(max(1, math.floor(nominal / max(target, 1.0) + 0.5)), nominal)
    return nominal // multiple, multiple


def scaled_update(
    points: GridPoints, centers: NDArray[np.int64], state: State, plan: Plan, t: int
) -> NDArray[np.int64]:
    """Return one client's relative sums, times a public whole number, and counts, shape (k (d + 1),).

    Notes
    -----
    Sees: nobody but the caller, until masked.
    Privacy: one record enters one row, as an integer vector of norm at most r (`kmeans.assign.accumulate`), times a
    whole number m with m r <= R: it moves the sums by at most R in L2 and one count by 2^q, for whatever centres and
    radius earlier releases gave.
    """
    reach, multiple = radius(state, plan, t)
    shorten = plan.plus is not None and plan.plus.shorten
    raw_sums, raw_counts = accumulate(points, centers, radius=reach, relative=True, shorten=shorten)
    return join(multiple * raw_sums, raw_counts << plan.fraction_bits)


def survey_update(points: GridPoints, plan: Plan) -> NDArray[np.int64]:
    """Return the sums of one client's records and of their squares, and their number, shape (k (d + 1),).

    Row 0 holds the sum of the records x, row 1 (if k > 1) that of w (2 x^2 - 1), rounded toward zero for each record,
    the first count their number; all else is zero.

    Notes
    -----
    Sees: nobody but the caller, until masked.
    Privacy: one record moves rows 0 and 1 together by at most `plus_plan.survey_sensitivity` in L2, and the number
    by 2^q.
    """
    clusters = plan.rounds[0].clusters
    limit, bits = square_limit(plan.fraction_bits), 2 * plan.fraction_bits
    height = max(1, _BLOCK // plan.d)

    def add(start: int, stop: int) -> tuple[NDArray[np.int64], ...]:
        raw_sums = np.zeros((clusters, plan.d), dtype=np.int64)
        for at in range(start, stop, height):
            raw_block = points.raw_coordinates[:, at : min(at + height, stop)].astype(np.int64)
            raw_sums[0] += raw_block.sum(axis=1)
            if plan.k > 1:
                raw_squares = 2 * raw_block * raw_block - (1 << bits)
                raw_sums[1] += (np.sign(raw_squares) * ((np.abs(raw_squares) * limit) >> bits)).sum(axis=1)
        return (raw_sums,)

    (raw_sums,) = add_up(points.passes.over(points.n, 2, plan.d, add))
    raw_counts = np.zeros(clusters, dtype=np.int64)
    raw_counts[0] = points.n
    return join(raw_sums, raw_counts << plan.fraction_bits)


def read_survey(
    noisy_sums: Floats, noisy_counts: Floats, start: Floats, state: State, plan: Plan
) -> tuple[Floats, State]:
    """Make start and state from the survey's noisy answer.

    Parameters
    ----------
    noisy_sums : float64 array, shape (k, d)
    noisy_counts : float64 array, shape (k,)
        Both in the units of the domain.
    start : float64 array, shape (k, d)
        Packed points in [-1, 1]^d.

    Notes
    -----
    Sees: the clients. Post-processing.
    """
    sum_noise, count_noise = plan.noise_deviations(0)
    records = min(max(float(noisy_counts[0]), 0.5 * count_noise, 1.0), float(plan.n_total))
    doubt = _square(sum_noise / records)
    middle = noisy_sums[0] / records * (MIDDLE_VARIANCE / (MIDDLE_VARIANCE + doubt))
    deviation = state.deviation
    if plan.k > 1:
        weight = square_limit(plan.fraction_bits) / float(1 << plan.fraction_bits)
        squares = 0.5 + noisy_sums[1] / records / (2.0 * weight)
        deviation = np.sqrt(_feature_variances(squares - middle * middle, doubt / _square(2.0 * weight)))
    known = _state(plan, truncate(middle), deviation, records, given=state.given)
    if state.given:
        return start, known
    return truncate(known.middle + start * (_START * deviation)), known


def _feature_variances(noisy: Floats, doubt: float) -> Floats:
    """Combine noisy variances of features, shape (d,), of error variance `doubt`, with their mean and a prior."""
    mean = total(noisy) / len(noisy)
    precision, prior = len(noisy) / max(doubt, 1e-12), 1.0 / (_SPREAD_DOUBT * _SPREAD_DOUBT)
    pooled = (mean * precision + SPREAD_PRIOR * prior) / (precision + prior)
    pooled = min(max(pooled, SPREAD_LIMITS[0]), SPREAD_LIMITS[1])
    between = max(total((noisy - mean) ** 2) / len(noisy) - doubt, 0.0) + 1e-4
    weighed = pooled + (noisy - pooled) * (between / (between + doubt))
    return np.clip(weighed, FEATURE_FLOOR * pooled, 1.0)


def advance(
    noisy_sums: Floats, noisy_counts: Floats, centers: Floats, state: State, plan: Plan, *, t: int
) -> tuple[Floats, State]:
    """Make the next centres and state from round t's noisy answer.

    Parameters
    ----------
    noisy_sums : float64 array, shape (k, d)
        Relative sums in units of the nominal radius's grid, as sent.
    noisy_counts : float64 array, shape (k,)
    centers : float64 array, shape (k, d)
        What the sums are relative to.

    Notes
    -----
    Sees: the clients. Post-processing: no privacy is spent.
    A centre's error has variance P, and between rounds it moves by its Lloyd step, of expected square Q. Its noisy step
    y has noise of variance V = (noise / count)^2; so the best estimate is (P + Q) / (P + Q + V) times y.
    After the last round of a stage, clusters are merged to the number of the next stage. After a histogram, the last
    rounds correct for shortening.
    """
    if plan.plus is None:
        raise ValueError("this plan is not one of fastlloyd-plus")
    reach, multiple = radius(state, plan, t)
    sum_noise, count_noise = plan.noise_deviations(t)
    stage, begin = plan.plus.stage(t)
    counts, count_variance = _weigh_counts(noisy_counts, count_noise, state, plan, plan.plus.age(t))
    divisor = _divisor(counts, state.records / stage.clusters)
    step = noisy_sums / float(multiple) / divisor[:, None]
    if plan.plus.cells and plan.plus.shorten and t >= plan.moving - _REST_ROUNDS:
        step = step + left_out(centers, divisor, reach / float(1 << plan.fraction_bits), state, plan)
    doubt = (sum_noise / float(multiple) / divisor) ** 2
    expected = _expected_square(state, plan, t)
    before = state.variance + expected
    gain = before / (before + doubt) if plan.plus.shrink else np.ones(stage.clusters)
    moved = truncate(centers + gain[:, None] * step)
    found, end = Clusters(moved, counts, count_variance, before * (1.0 - gain)), begin + stage.rounds
    quiet = _GRID_QUIET_ROUNDS if plan.plus.cells else _QUIET_ROUNDS
    if plan.plus.swap and stage.clusters > 2 and begin == plan.plus.first and t < end - quiet:
        found = _swap(found, state, plan, t)
    elif t + 1 == end < plan.moving:
        found = narrow(found, plan.rounds[end].clusters)
    return found.centers, replace(
        state, counts=found.counts, count_variance=found.count_variance, variance=found.variance
    )


def last_doubt(plan: Plan, state: State) -> tuple[Floats, Floats, int]:
    """Return the variance of the noise on the last round's steps, shape (k,), what they were divided by, and m.

    Parameters
    ----------
    state : State
        After the last round.
    """
    last = plan.moving - 1
    multiple = radius(state, plan, last)[1]
    divisor = _divisor(state.counts, state.records / plan.k)
    return (plan.noise_deviations(last)[0] / float(multiple) / divisor) ** 2, divisor, multiple


def expected_deviation(plan: Plan) -> float:
    """Return the expected standard deviation of a coordinate of an average centre, scaled domain.

    It follows the filter of all rounds from what is public before: equal clusters of N records, features of the prior
    variance.
    """
    if plan.plus is None:
        raise ValueError("this plan is not one of fastlloyd-plus")
    state, known = first_state(plan, given=False), expected_variance(plan) if plan.plus.cells else 0.0
    for t in range(plan.plus.first, plan.moving):
        multiple = radius(state, plan, t)[1]
        doubt = _square(plan.noise_deviations(t)[0] / float(multiple) / (plan.n_total / plan.rounds[t].clusters))
        before = known + _expected_square(state, plan, t)
        known = before * doubt / (before + doubt) if plan.plus.shrink else doubt
        if t + 1 < plan.moving:  # merging takes the mean of several
            known *= plan.rounds[t + 1].clusters / plan.rounds[t].clusters
    return math.sqrt(known)


def _expected_square(state: State, plan: Plan, t: int) -> float:
    """Return the expected square of a coordinate of a centre's step."""
    if plan.plus is None:
        raise ValueError("this plan is not one of fastlloyd-plus")
    stage, begin = plan.plus.stage(t)
    scale = _LATER_STEP if plan.plus.cells or begin > plan.plus.first else 1.0
    return scale * _square(state.spread) / plan.d * _square(stage.cell) * _power(_STEP_DECAY, plan.plus.age(t))


def _divisor(counts: Floats, share: float) -> Floats:
    """Return the divisors of sums: the counts, but at least a part of an equal share."""
    return np.maximum(counts, _LEAST_SHARE * share)


def _weigh_counts(noisy: Floats, count_noise: float, state: State, plan: Plan, age: int) -> tuple[Floats, Floats]:
    """Combine noisy counts with the estimates so far."""
    share = state.records / len(noisy)
    if not plan.plus or not plan.plus.shrink:
        return noisy, np.full(len(noisy), _square(count_noise))
    before = state.count_variance
    if age > 0:
        before = before + _square(_COUNT_STEP * _power(_COUNT_DECAY, age) * share)
    gain = before / (before + _square(count_noise))
    return state.counts + gain * (noisy - state.counts), before * (1.0 - gain)


def _swap(found: Clusters, state: State, plan: Plan, t: int) -> Clusters:
    """Move nearly useless clusters to where one is missing."""
    cell = 1.0 if plan.plus is None else plan.plus.stage(t)[0].cell
    least = _GRID_LEAST_GAIN if plan.rounds[0].cells else _LEAST_GAIN
    stream = PublicStream(plan.seed, f"{domains.PLUS_SWAPS}{t}")
    return swap(found, deviation=state.deviation, cell=cell, least=least, stream=stream)


def _state(plan: Plan, middle: Floats, deviation: Floats, records: float, *, given: bool) -> State:
    """Return a state without knowledge about single clusters."""
    clusters = plan.rounds[0].clusters
    share = np.full(clusters, records / clusters)
    doubt = (_COUNT_DOUBT * share) ** 2
    return State(middle, deviation, records, share, doubt, np.zeros(clusters), given, cells=np.empty(0))


def _square(value: float) -> float:
    """Square a number: `pow` rounds differently in some C libraries, and all clients must agree."""
    return value * value


def _power(base: float, exponent: int) -> float:
    """Multiply in order: the library's power may differ in the last digit between machines."""
    result = 1.0
    for _ in range(exponent):
        result *= base
    return result
