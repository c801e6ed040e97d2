"""The empirical audit of a release on the quality of clusters: a canary stays below its epsilon, or shows a wrong one.

The attacker knows all records but the canary, which moves the five numbers by exactly their sensitivity, and is present
by a coin. It compares likelihoods over all five numbers, and by each of them. A trial is one release.

False alarms: each bound lies above the true epsilon with probability at most `ALARM`.
"""

from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.describe.quality import QualityVector
from fastlloyd.privacy.calibration import gaussian_noise_multiplier, gdp_epsilon
from fastlloyd.privacy.noise.sampler import round_normal
from fastlloyd.protocol.sums import SumsPlan
from fastlloyd.protocols.describe.protocol import PROTOCOL
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.config import RunConfig
from tests.privacy.audit import Trials, epsilon_bound, gaussian_bound

ALARM = 1e-6
EPSILON, DELTA = 1.0, 0.05
MU = 1.0 / gaussian_noise_multiplier(EPSILON, DELTA)
# As far from two centres as the bound, and sqrt(d) from the middle.
CENTERS, MIDDLE, CANARY = np.array([[-1.0], [1.0]]), np.array([1.0]), np.zeros((1, 1))


def planned() -> SumsPlan:
    config = RunConfig(
        protocol="describe",
        bounds="0,1",
        k=2,
        n_total=1000,
        epsilon=EPSILON,
        delta=DELTA,
        accept_large_delta=True,
        settings={"describe": {"quality": 1.0, "run": "00"}},
    )
    return PROTOCOL.make_plan(PROTOCOL.public_parameters(config, 2, 1000, 2), ("x1",))


def attack(trials: int, part: float = 1.0) -> Trials:
    """Attack releases whose noise is this part of the planned one."""
    plan, vector = planned(), QualityVector(2, 1)
    moves = vector.add_up(CANARY, CENTERS, MIDDLE, plan.fraction_bits).astype(np.float64)
    scale = part * plan.releases(0)[0].noise_scale
    present = np.random.default_rng(5).random(trials) < 0.5
    drawn = round_normal(scale, trials * len(moves), SecretRandom()).reshape(trials, -1)
    ratios = (present[:, None] * moves + drawn - moves / 2.0) * moves / scale**2
    return Trials(ratios[:, None], present)


def test_the_canary_moves_the_release_by_its_sensitivity() -> None:
    plan = planned()
    moves = QualityVector(2, 1).add_up(CANARY, CENTERS, MIDDLE, plan.fraction_bits)
    assert np.linalg.norm(moves) == pytest.approx(plan.releases(0)[0].sensitivity, rel=1e-4)


def test_attacks_stay_below_its_epsilon() -> None:
    trials = attack(60_000)
    mu = gaussian_bound(trials, ALARM)
    assert 0.5 < gdp_epsilon(mu, DELTA) <= EPSILON and mu <= MU
    assert epsilon_bound(trials, DELTA, ALARM) <= EPSILON


def test_a_sensitivity_without_the_number_of_records_is_caught() -> None:
    """sqrt(3/2) in the place of sqrt(7/4): 0.926 of the noise."""
    assert gaussian_bound(attack(800_000, (1.5 / 1.75) ** 0.5), ALARM) > MU
