"""An empirical audit of FedDP-KMeans: server and client 1 together tell whether client 2 has one record more.

They know every other record and client 1's shares of noise, so what is left on each noisy sum is one share, which with
two clients carries the whole promise. The canary lies at the norm bound in the direction in which the outer product
moves most. The attackers compute what it would add to each statistic, from the replies that they made themselves, and
compare likelihoods: see `audit.py` for the bounds. The noise and the coins come from fixed keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import quantise
from fastlloyd.protocols.feddp.client import draw_share, noisy_elements, statistics_of
from fastlloyd.protocols.feddp.math.stage import cluster_projected, make_projection
from fastlloyd.protocols.feddp.plan import Plan, StepPlan
from fastlloyd.protocols.feddp.settings import CENTERS, OUTER, WEIGHTS
from tests.privacy.audit import Trials, combined_scores, epsilon_bound, gaussian_bound
from tests.protocols.feddp.support import mixture, plan_for
from tests.protocols.vertical_dp.support import Replay

RUNS, EPSILON, ALARM = 500, 4.0, 1e-3
DATA = mixture(30, 2, 2, seed=4)


@lru_cache
def planned(start: str) -> Plan:
    settings = {"start": start, "norm_bound": 1.0, "proxies": 24}
    return plan_for(DATA, 2, clients=2, epsilon=EPSILON, settings=settings)


Share = Callable[[Plan, int, int, Replay], NDArray[np.int64]]


def attack(plan: Plan, noise: Plan, last: int = 2, share: Share = draw_share) -> Trials:
    """Let the attackers compute what they can tell up to a step, with shares of noise drawn by another plan."""
    assert [step.kind for step in plan.rounds] == [OUTER, WEIGHTS, CENTERS]
    secret, coins = Replay(5), np.random.default_rng(5)
    present = coins.random(RUNS) < 0.5
    with_it = np.concatenate([DATA.points, [[0.0, 1.0]]])
    owners = [statistics_of(quantise(x, plan.fraction_bits), plan) for x in (with_it, DATA.points)]
    first = [own.outer_product() for own in owners]
    told = [_score(plan, noise, bool(one), secret, owners, first, last, share) for one in present]
    scores, combined = (np.array(parts) for parts in zip(*told, strict=True))
    return Trials(scores, present, combined)


def _score(
    plan: Plan, noise: Plan, present: bool, secret: Replay, owners: list[Any], first: list[Any], last: int, share: Share
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the log likelihood ratios of one run, shape (3, 2), and the combined scores of each step.

    Gaussian and Laplace releases of each step have ratios of their own.
    """
    found, projection, xi = np.zeros((3, 2)), None, None
    combined = []
    for t, step in enumerate(plan.rounds[: last + 1]):
        if step.kind == OUTER:
            with_it, known = first
        elif step.kind == WEIGHTS:
            with_it, known = (own.weights(projection) for own in owners)
        else:
            with_it, known = (own.projected_step(projection, xi) for own in owners)
        moved = with_it - known
        seen = present * moved + share(noise, t, plan.k, secret)
        gaussian = noisy_elements(plan, t, plan.elements(t))[0]
        for place, part in ((0, slice(0, gaussian)), (1, slice(gaussian, None))):
            rest, canary = seen[part].astype(float), moved[part].astype(float)
            if place == 0 and gaussian:
                found[t, 0] = (rest @ rest - (rest - canary) @ (rest - canary)) / (2 * step.sigma**2)
            elif rest.size and place == 1:
                found[t, 1] = (np.abs(rest).sum() - np.abs(rest - canary).sum()) / step.scale
        scale = np.full(seen.size, math.sqrt(2.0) * step.scale)
        scale[:gaussian] = step.sigma
        combined.append(combined_scores(seen[None].astype(float), moved[None].astype(float), scale)[0])
        if t == last:
            break
        total = known + seen + draw_share(plan, t, plan.k, secret)
        if step.kind == OUTER:
            projection = make_projection(total, DATA.server_points, plan)
        elif step.kind == WEIGHTS:
            xi = cluster_projected(total, projection, plan, 1).centers
    return found, np.concatenate(combined)


def above_claim(plan: Plan, trials: Trials) -> set[tuple[int, str]]:
    """Return the releases that tell more than their noise allows: of a Gaussian mu is bounded, of a Laplace epsilon."""
    found = set()
    for release in plan.all_releases():
        gaussian = release.norm == "l2"
        t, place = release.round, 0 if gaussian else 1
        alone = Trials(trials.scores[:, t : t + 1, place : place + 1], trials.present)
        told = gaussian_bound(alone, ALARM) if gaussian else epsilon_bound(alone, 0.0, ALARM)
        if told > release.sensitivity / release.noise_scale:
            found.add((release.round, release.name))
    return found


def weaker(plan: Plan, t: int, factor: float) -> Plan:
    steps = list(plan.rounds)
    steps[t] = StepPlan(kind=steps[t].kind, sigma=steps[t].sigma * factor, scale=steps[t].scale * factor)
    return replace(plan, rounds=tuple(steps))


@pytest.mark.parametrize("start", ["feddp", "private"])
def test_an_attack_on_the_real_statistics_stays_below_the_claim(start: str) -> None:
    plan = planned(start)
    trials = attack(plan, plan)
    assert epsilon_bound(trials, plan.delta, ALARM) < EPSILON
    assert above_claim(plan, trials) == set()


@pytest.mark.parametrize("t", [0, 1, 2])
@pytest.mark.parametrize("start", ["feddp", "private"])
def test_a_tenth_of_the_noise_in_one_step_is_caught(start: str, t: int) -> None:
    plan = planned(start)
    caught = above_claim(plan, attack(plan, weaker(plan, t, 0.1), last=t))
    assert caught == {(t, release.name) for release in plan.releases(t)}


def test_shares_of_the_right_size_that_are_one_draw_are_caught() -> None:
    plan = planned("feddp")

    def copied(noise: Plan, t: int, k: int, secret: Replay) -> NDArray[np.int64]:
        """Return a share whose Gaussian coordinates are all the first one."""
        drawn, gaussian = draw_share(noise, t, k, secret), noisy_elements(noise, t, noise.elements(t, k))[0]
        drawn[:gaussian] = drawn[0]
        return drawn

    def told(trials: Trials) -> float:
        """Bound mu by differences and ratios alone."""
        return gaussian_bound(replace(trials, scores=0.0 * trials.scores), ALARM)

    claimed = max(release.sensitivity / release.noise_scale for release in plan.releases(0))
    assert told(attack(plan, plan, last=0)) <= claimed < told(attack(plan, plan, last=0, share=copied))
