"""FedDP-KMeans on pooled data is the reference bit by bit, and one draw of all noise shares is their sum.

False alarms of the statistical tests: below 1e-6 each.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fastlloyd.protocols.feddp.client import draw_share
from fastlloyd.protocols.feddp.plan import StepPlan
from fastlloyd.protocols.feddp.reference import run_reference
from fastlloyd.protocols.feddp.settings import START
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd_papers.feddp.central import draw_total, grids_of, run_central
from tests.privacy.test_feddp_noise import ALARM, noisy_plan
from tests.privacy.test_feddp_sensitivity import bare_plan
from tests.protocols.feddp.support import louder, mixture, plan_for
from tests.protocols.feddp.test_parties import VARIANTS


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_a_pooled_run_equals_the_reference_bit_by_bit_with_the_same_noise(changes: dict[str, Any]) -> None:
    data = mixture(300, 4, 6)
    plan = louder(plan_for(data, 4, **changes), 0.1)
    secret = SecretRandom()
    drawn: dict[tuple[int, int], np.ndarray] = {}

    def total(t: int, k: int) -> np.ndarray:
        return drawn.setdefault((t, k), draw_total(plan, t, k, secret))

    central = run_central(data.points, data.server_points, plan, total, users=data.users)
    expected = run_reference(data.points, data.server_points, plan, total, users=data.users)
    assert central.centers.exact.tobytes() == expected.centers.tobytes()
    assert central.centers.noisy_counts.tobytes() == expected.noisy_counts.tobytes()
    assert central.costs.tobytes() == expected.costs.tobytes()


def test_pools_are_shared_between_plans_of_the_same_grids_only() -> None:
    data = mixture(300, 4, 6)
    plan = plan_for(data, 4)
    assert grids_of(plan) == grids_of(plan_for(data, 4, rounds=1))
    assert grids_of(plan) != grids_of(plan_for(data, 4, settings={"norm_bound": 0.8}))


@pytest.mark.parametrize("m,t", [(2, 1), (5, 2)])
def test_one_draw_of_all_gaussian_shares_has_their_variance(m: int, t: int) -> None:
    plan, secret = noisy_plan(clients=m, known=t, sigma=200.0, scale=50.0), SecretRandom()
    values = np.concatenate([draw_total(plan, 0, 3, secret) for _ in range(600)]).astype(float)
    variance = 200.0**2 * m / (m - t)
    level = stats.chi2(values.size).cdf((values**2).sum() / variance)
    assert ALARM / 2 < level < 1 - ALARM / 2
    assert stats.kstest(values / math.sqrt(variance), "norm").pvalue > ALARM


def test_one_draw_of_all_polya_shares_has_their_distribution() -> None:
    plan, secret = noisy_plan(clients=3, known=1, sigma=200.0, scale=6.0), SecretRandom()
    one = np.concatenate([draw_total(plan, 1, 3, secret) for _ in range(2000)])
    other = np.concatenate([sum(draw_share(plan, 1, 3, secret) for _ in range(3)) for _ in range(2000)])
    edges = [-1000, *range(-24, 25, 3), 1000]
    table = np.stack([np.histogram(sample, edges)[0] for sample in (one, other)])
    assert stats.chi2_contingency(table).pvalue > ALARM


def test_every_part_of_a_step_carries_its_own_noise() -> None:
    plan, secret = noisy_plan(clients=2, known=1, sigma=1e6, scale=5.0), SecretRandom()
    for t in (2, 3):
        noise = draw_total(plan, t, 3, secret)
        assert noise.shape == (plan.elements(t, 3),) == (15,)
        assert np.abs(noise[:12]).max() > 1000  # sums: never this small together
        assert np.abs(noise[12:]).max() < 1000  # counts: never this large


def test_a_start_that_asks_nobody_draws_no_noise() -> None:
    plan = replace(bare_plan(4), rounds=(StepPlan(kind=START, sigma=0.0, scale=0.0),))
    assert draw_total(plan, 0, 3, SecretRandom()).shape == (0,)
