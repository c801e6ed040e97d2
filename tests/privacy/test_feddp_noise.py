"""The shares of FedDP-KMeans add up to the planned noise.

False alarms of the statistical tests: below 1e-6 each.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fastlloyd.protocols.feddp.client import draw_share
from fastlloyd.protocols.feddp.plan import StepPlan
from fastlloyd.protocols.feddp.settings import START
from fastlloyd.randomness.secret import SecretRandom
from tests.privacy.test_feddp_sensitivity import KINDS, bare_plan

# For each comparison, of three at most in a test. Small cells of a chi-square test make it up to three times larger.
ALARM = 1e-7


def noisy_plan(*, clients: int, known: int, sigma: float, scale: float):
    steps = tuple(StepPlan(kind=kind, sigma=sigma, scale=scale) for kind in KINDS)
    return replace(bare_plan(4), clients=clients, known_shares=known, rounds=steps)


@pytest.mark.parametrize("m,t", [(2, 1), (5, 2)])
def test_gaussian_shares_add_up_to_their_variance(m: int, t: int) -> None:
    plan, secret = noisy_plan(clients=m, known=t, sigma=200.0, scale=50.0), SecretRandom()
    whole = [sum(draw_share(plan, 0, 3, secret) for _ in range(m)) for _ in range(600)]
    values = np.concatenate(whole).astype(float)
    variance = 200.0**2 * m / (m - t)
    level = stats.chi2(values.size).cdf((values**2).sum() / variance)
    assert ALARM / 2 < level < 1 - ALARM / 2
    assert stats.kstest(values / math.sqrt(variance), "norm").pvalue > ALARM


@pytest.mark.parametrize("m,t", [(2, 1), (4, 2)])
def test_polya_shares_that_count_are_exactly_discrete_laplace(m: int, t: int) -> None:
    plan, secret = noisy_plan(clients=m, known=t, sigma=200.0, scale=6.0), SecretRandom()
    values = np.concatenate([sum(draw_share(plan, 1, 3, secret) for _ in range(m - t)) for _ in range(2500)])
    reach = 30
    p = math.exp(-1 / 6.0)
    exact = (1 - p) / (1 + p) * p ** np.abs(np.arange(-reach, reach + 1))
    seen = np.array([(values == v).sum() for v in range(-reach, reach + 1)])
    expected = np.append(exact, 1 - exact.sum()) * values.size
    assert stats.chisquare(np.append(seen, values.size - seen.sum()), expected).pvalue > ALARM


def test_every_part_of_a_step_carries_its_own_noise() -> None:
    plan, secret = noisy_plan(clients=2, known=1, sigma=1e6, scale=5.0), SecretRandom()
    for t in (2, 3):
        noise = draw_share(plan, t, 3, secret)
        assert noise.shape == (plan.elements(t, 3),) == (15,)
        assert np.abs(noise[:12]).max() > 1000  # sums: never this small together
        assert np.abs(noise[12:]).max() < 1000  # counts: never this large


def test_a_start_that_asks_nobody_draws_no_noise() -> None:
    plan = replace(bare_plan(4), rounds=(StepPlan(kind=START, sigma=0.0, scale=0.0),))
    assert draw_share(plan, 0, 3, SecretRandom()).shape == (0,)
