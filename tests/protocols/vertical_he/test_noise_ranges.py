"""The 95 % ranges of a result hold the last round's sums and counts without noise as often as they say."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.vertical_he.math.linear import short_steps
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.protocols.vertical_he.protocol import expect, noise_of
from fastlloyd.protocols.vertical_he.rounds import Estimate, begin, post_process
from fastlloyd.report.quality import ResultNoise, judge
from tests.protocols.vertical_he.support import blobs, linear_plan, lloyd, names, parameters

RUNS = 100
MOST = 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / (RUNS * 3))


def add_noise(exact: np.ndarray, plan: Plan, rng: np.random.Generator) -> np.ndarray:
    """Counts and sums, shape (k, d + 1), in the domain's units; both sides add their own."""
    columns = [plan.step_scale if h in plan.stepping else plan.sum_scale for h in range(plan.d)]
    sides = rng.normal(0.0, np.tile([plan.count_scale, *columns], (2, plan.k)))
    return np.rint(exact.reshape(-1) * plan.unit).astype(np.int64) + np.rint(sides.sum(axis=0)).astype(np.int64)


def test_ranges_hold_the_truth() -> None:
    plan = linear_plan(4000, 3, shrink=False)
    k, d = plan.k, plan.d
    rng = np.random.default_rng(1)
    means, counts = rng.uniform(-0.6, 0.6, (k, d)), np.array([2000.0, 1500.0, 500.0])
    exact = np.column_stack([counts, means * counts[:, None]])
    sizes, coordinates = [], []
    for _ in range(RUNS):
        state = post_process(add_noise(exact, plan, rng), begin(plan, np.zeros((k, d))), plan, 0)
        told = noise_of(plan, state)
        assert told.size_ranges is not None and told.centre_deviations is not None
        sizes.append((told.size_ranges[:, 0] <= counts) & (counts <= told.size_ranges[:, 1]))
        coordinates.append(np.abs(state.centers - means) <= told.tail * told.centre_deviations)
    assert 0.0 < 1.0 - np.mean(sizes) <= MOST
    assert 0.0 < 1.0 - np.mean(coordinates) <= MOST


def weighed_run(plan: Plan, points: np.ndarray, rng: np.random.Generator) -> tuple[Estimate, np.ndarray]:
    """Play a run with hard labels; the state at the end, and the last round's counts and sums without noise."""
    state = begin(plan)
    for t in range(plan.rounds):
        before, own = state.centers, list(plan.stepping)
        labels = nearest(points, before)[0]
        one_hot, entered = np.eye(plan.k)[labels], points.copy()
        for j in range(plan.k if own else 0):
            held = labels == j
            entered[np.ix_(held, own)] = short_steps(points[np.ix_(held, own)].T, before[j, own], plan.radius).T
        exact = np.column_stack([one_hot.sum(axis=0), one_hot.T @ entered])
        state = post_process(add_noise(exact, plan, rng), state, plan, t)
    exact[:, [1 + column for column in own]] *= plan.radius
    exact[:, [1 + column for column in own]] += exact[:, :1] * before[:, own]
    return state, exact


@pytest.mark.parametrize("rounds", [5, 10])
@pytest.mark.parametrize("n", [400, 2000, 6000])
def test_ranges_of_weighed_centres_hold_the_truth(n: int, rounds: int) -> None:
    points, _ = blobs(n, 3, 3, seed=3)
    plan = make_plan(parameters(n, 3, rounds=rounds, scheme="linear"), names(2, 1))
    assert bool(plan.stepping) == (rounds == 10)
    rng = np.random.default_rng(n)
    sizes, coordinates = [], []
    for seed in range(RUNS):
        state, exact = weighed_run(dataclasses.replace(plan, seed=seed), points, rng)
        told, counts = noise_of(plan, state), exact[:, 0]
        assert told.size_ranges is not None and told.centre_deviations is not None
        sizes.append((told.size_ranges[:, 0] <= counts) & (counts <= told.size_ranges[:, 1]))
        held = counts > 0
        off = np.abs(state.centers[held] - exact[held, 1:] / counts[held, None])
        coordinates.append((off <= told.tail * told.centre_deviations[held]).ravel())
    assert 1.0 - np.mean(np.concatenate(sizes)) <= MOST
    assert 1.0 - np.mean(np.concatenate(coordinates)) <= MOST


def test_a_fine_result_whose_last_steps_are_noise_is_not_called_noise() -> None:
    """As in the breast data: one group in a corner of the range, the other all over it; the last steps are long."""
    rng = np.random.default_rng(8)
    corner = rng.exponential(0.12, (460, 9)) - 1.0
    points = np.clip(np.vstack([corner, rng.normal(0.2, 0.7, (240, 9))]), -1.0, 1.0)
    optimum = nearest(points, lloyd(points, np.array([[-0.9] * 9, [0.1] * 9]), 50))[1]
    plan = make_plan(parameters(700, 2, rounds=None, scheme="pairwise"), names(5, 4))
    found, with_steps = [], []
    for seed in range(30):
        state, _ = weighed_run(dataclasses.replace(plan, seed=seed), points, rng)
        if nearest(points, state.centers)[1] < 1.1 * optimum:
            noise = noise_of(plan, state)
            found.append(verdict_on(noise, state))
            left = (1.0 - state.variance / state.step_variance) * state.steps
            longer = dataclasses.replace(noise, centre_deviations=np.sqrt(state.variance + left**2))
            with_steps.append(verdict_on(longer, state))
    assert len(found) >= 20 and found.count("noise") <= 1, found
    assert with_steps.count("noise") > 0.5 * len(found)  # what was not taken of the last steps is noise


def verdict_on(noise: ResultNoise, state: Estimate) -> str:
    ends = np.ones(state.centers.shape[1])
    return judge(noise, centroids=state.centers, sizes=state.counts.tolist(), lo=-ends, hi=ends).verdict


def test_the_noise_that_protects_the_key_is_judged_like_any_other() -> None:
    plan = make_plan(parameters(40, 2, scheme="linear", noise="flooding"), names(1, 1))
    points = np.repeat([[-0.5, 0.5], [0.5, -0.5]], 20, axis=0)
    state, exact = weighed_run(plan, points, np.random.default_rng(3))
    told = noise_of(plan, state)
    assert not told.exact and told.expected is None
    assert told.size_ranges is not None and told.centre_deviations is not None
    assert (told.size_ranges[:, 0] <= exact[:, 0]).all() and (exact[:, 0] <= told.size_ranges[:, 1]).all()
    assert (told.centre_deviations > 0.0).all()


def test_a_result_of_noise_is_called_noise_and_one_of_many_records_good() -> None:
    verdicts = {}
    for n in (60, 200_000):
        points, _ = blobs(min(n, 2000), 3, 2, seed=3)
        plan = linear_plan(n, 3, rounds=10)
        state, _ = weighed_run(plan, np.tile(points, (max(1, n // 2000), 1)), np.random.default_rng(1))
        verdicts[n] = (expect(plan).verdict, verdict_on(noise_of(plan, state), state))
    assert verdicts[60] == ("noise", "noise")
    assert verdicts[200_000][0] == "good" and verdicts[200_000][1] in ("good", "fair")
