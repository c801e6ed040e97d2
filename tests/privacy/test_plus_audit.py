"""The empirical audit of fastlloyd-plus: attacks stay below the claimed epsilon, and catch noise that is too little.

The attacker knows the anchors, which keep each cluster's centre near a known place, and all canaries: one record for
each cluster, farther from its centre than the radius, present by a coin. From the releases it computes the centres and
the radius of each round, subtracts what it knows and compares likelihoods: the most powerful test there is.
A canary enters one row, with noise of its own, so that a run gives one trial for each cluster. Survey and histogram are
one release of all records together; their canary lies in a corner, where it moves either by exactly the sensitivity.

False alarms: each bound lies above the true epsilon with probability at most `ALARM`. What attacks must reach lies at
least six standard deviations (measured over repetitions) below what it does reach.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.update import join, split
from fastlloyd.privacy.calibration import gaussian_noise_multiplier, gdp_epsilon
from fastlloyd.protocols.fastlloyd.plan import Plan, make_plan
from fastlloyd.protocols.fastlloyd.plus import radius
from fastlloyd.protocols.fastlloyd.rounds import draw_noise, first_centers, local_update, post_process
from fastlloyd.randomness.secret import SecretRandom
from tests.privacy.audit import Trials, combined_scores, epsilon_bound, gaussian_bound
from tests.protocols.support import parameters

ALARM = 1e-6
EPSILON = 1.0
# Large, so that an attack need not wait for rare events; nothing else depends on it.
DELTA = 0.05
MU = 1.0 / gaussian_noise_multiplier(EPSILON, DELTA)
SIDE, ANCHORS, ROUNDS = 8, 40, 3
SHARES = {"survey": 0.15, "grid": 0.5}
"""Of the budget, for what a run starts from."""
NOTHING = "nothing"
"""Neither: all rounds are of the same kind, and the whole budget is theirs."""

Floats = NDArray[np.float64]
Noise = Callable[[Plan, int], NDArray[np.int64]]


def plan_of(k: int, n: int, start: str = "survey") -> Plan:
    settings = {"survey": 0.0, "grid": 0.0, "wide": 1.0} if start == NOTHING else {"start": start}
    public = parameters(n, k, protocol="fastlloyd-plus", epsilon=EPSILON, delta=DELTA, rounds=ROUNDS, settings=settings)
    return make_plan(public, d=2, names=("x1", "x2"))


def lattice(start: str) -> tuple[Plan, Floats, Floats]:
    """Return the plan, the start (where the anchors lie) and the canaries."""
    axis = (2.0 * np.arange(SIDE) + 1.0) / SIDE - 1.0
    sites = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return plan_of(SIDE**2, SIDE**2 * (ANCHORS + 1), start), sites, sites + np.array([0.11, 0.0])


def attack_clusters(runs: int, noise: Noise, start: str = "survey") -> Trials:
    """Attack the rounds after the survey, or all where there is none."""
    plan, sites, canaries = lattice(start)
    k, first = plan.k, int(start != NOTHING)
    anchors, all_canaries = np.repeat(sites, ANCHORS, axis=0), quantise(canaries, plan.fraction_bits)
    known = quantise(anchors, plan.fraction_bits)
    present = np.random.default_rng(5).random((runs, k)) < 0.5
    scores, combined = np.zeros((runs, k, ROUNDS - first, 2)), np.zeros((runs, k, ROUNDS - first, 9))
    for i in range(runs):
        data = quantise(np.concatenate([anchors, canaries[present[i]]]), plan.fraction_bits)
        centers = first_centers(plan, sites)
        for t in range(ROUNDS):
            noisy = local_update(data, centers, plan, t) + noise(plan, t)
            if t >= first:
                rest = split((noisy - local_update(known, centers, plan, t)).astype(np.float64), k, 2)
                move = split(local_update(all_canaries, centers, plan, t).astype(np.float64), k, 2)
                alone = move[1] == plan.releases(t)[1].sensitivity  # one canary in the row
                for part, release in enumerate(plan.releases(t)):
                    ratio = (rest[part] - move[part] / 2.0) * move[part] / release.noise_scale**2
                    scores[i, :, t - first, part] = np.where(alone, ratio.reshape(k, -1).sum(axis=1), 0.0)
                scale = np.repeat([release.noise_scale for release in plan.releases(t)], [2, 1])
                found = combined_scores(np.column_stack(rest), np.column_stack(move), scale)
                combined[i, :, t - first] = np.where(alone[:, None], found, 0.0)
            centers = post_process(noisy, centers, plan, t)
    return Trials(scores.reshape(-1, ROUNDS - first, 2), present.ravel(), combined.reshape(present.size, -1))


def attack_first(runs: int, noise: Noise, start: str) -> Trials:
    """Attack survey or histogram: one record in a corner, or none."""
    plan = plan_of(3, 100, start)
    move = local_update(quantise(np.ones((1, 2)), plan.fraction_bits), first_centers(plan), plan, 0)
    present = np.random.default_rng(6).random(runs) < 0.5
    releases, edges = plan.releases(0), np.cumsum([length for length in plan.lengths(0) if length])
    scores = np.zeros((runs, 1, len(releases)))
    for i in range(runs):
        rest = noise(plan, 0) + (move if present[i] else 0)
        ratios = np.split((rest - move / 2.0) * move, edges[:-1])
        for part, release in enumerate(releases):
            scores[i, 0, part] = ratios[part].sum() / release.noise_scale**2
    return Trials(scores, present)


def honest(plan: Plan, t: int) -> NDArray[np.int64]:
    return draw_noise(plan, t, SecretRandom())


def weaker(sums: float, counts: float) -> Noise:
    """Noise times these factors."""

    def noise(plan: Plan, t: int) -> NDArray[np.int64]:
        rounds = tuple(
            dataclasses.replace(r, sum_scale=sums * r.sum_scale, count_scale=counts * r.count_scale)
            for r in plan.rounds
        )
        return draw_noise(dataclasses.replace(plan, rounds=rounds), t, SecretRandom())

    return noise


@pytest.mark.parametrize("start", ["survey", NOTHING])
def test_the_canaries_move_the_releases_by_nearly_the_sensitivity(start: str) -> None:
    plan, sites, canaries = lattice(start)
    centers = first_centers(plan, sites)
    data = quantise(np.concatenate([np.repeat(sites, ANCHORS, axis=0), canaries]), plan.fraction_bits)
    for t in range(ROUNDS):
        if t > 0 or start == NOTHING:
            assert centers.state is not None
            reach, multiple = radius(centers.state, plan, t)
            sums, counts = split(
                local_update(quantise(canaries, plan.fraction_bits), centers, plan, t).astype(np.float64), plan.k, 2
            )
            assert (counts == plan.releases(t)[1].sensitivity).all()
            assert (np.linalg.norm(sums, axis=1) > 0.99 * reach * multiple).all()
            assert reach * multiple > 0.9 * plan.releases(t)[0].sensitivity
        centers = post_process(local_update(data, centers, plan, t), centers, plan, t)


@pytest.mark.parametrize("start", ["survey", NOTHING])
def test_attacks_on_the_clusters_stay_below_epsilon(start: str) -> None:
    trials = attack_clusters(250, honest, start)
    mu = gaussian_bound(trials, ALARM)
    assert mu <= MU
    assert 0.1 < epsilon_bound(trials, DELTA, ALARM) <= EPSILON
    assert 0.1 < gdp_epsilon(mu, DELTA) <= EPSILON


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", ["survey", NOTHING])
def test_long_attacks_on_the_clusters_stay_below_epsilon(start: str) -> None:
    trials = attack_clusters(5_000, honest, start)
    mu = gaussian_bound(trials, ALARM)
    assert mu <= MU
    assert 0.5 < epsilon_bound(trials, DELTA, ALARM) <= EPSILON


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", SHARES)
def test_long_attacks_on_the_start_stay_below_its_share(start: str) -> None:
    assert gaussian_bound(attack_first(100_000, honest, start), ALARM) <= MU * SHARES[start] ** 0.5


@pytest.mark.parametrize("start", ["survey", NOTHING])
@pytest.mark.parametrize("sums,counts", [(0.35, 0.35), (0.25, 1.0), (1.0, 0.15)])
def test_too_little_noise_on_the_clusters_is_caught(sums: float, counts: float, start: str) -> None:
    assert epsilon_bound(attack_clusters(120, weaker(sums, counts), start), DELTA, ALARM) > EPSILON


def copied(plan: Plan, t: int) -> NDArray[np.int64]:
    """Every cluster has the noise of the first."""
    sums, counts = split(honest(plan, t), plan.k, plan.d)
    return join(np.tile(sums[0], (plan.k, 1)), np.tile(counts[0], plan.k))


def multiplied(plan: Plan, t: int) -> NDArray[np.int64]:
    """A count's noise is a multiple of that of the first sum in its row."""
    sums, _ = split(honest(plan, t), plan.k, plan.d)
    both = plan.rounds[t]
    return join(sums, np.rint(sums[:, 0] * (both.count_scale / both.sum_scale)).astype(np.int64))


@pytest.mark.parametrize("dependent", [copied, multiplied])
def test_noise_of_the_right_size_that_is_dependent_is_caught(dependent: Noise) -> None:
    assert epsilon_bound(attack_clusters(60, dependent, NOTHING), DELTA, ALARM) > EPSILON


@pytest.mark.parametrize("start", SHARES)
def test_the_start_has_its_share_of_the_budget_and_no_more(start: str) -> None:
    trials = attack_first(5_000, honest, start)
    assert gaussian_bound(trials, ALARM) <= MU * SHARES[start] ** 0.5
    weak = weaker(0.05, 1.0) if start == "survey" else weaker(1.0, 0.1)
    assert epsilon_bound(attack_first(1_000, weak, start), DELTA, ALARM) > EPSILON
