"""The 95 % ranges of a result hold the last step's sums and counts without noise as often as they say."""

from __future__ import annotations

import math

import numpy as np

from fastlloyd.protocols.feddp.face_noise import expect, noise_of
from fastlloyd.protocols.feddp.math.stage import make_centers
from tests.protocols.feddp.support import USERS, mixture, plan_for

RUNS = 100


def test_ranges_hold_the_truth() -> None:
    k, d = 3, 2
    plan = plan_for(mixture(900, k, d), k, epsilon=3.0)
    last, grid = len(plan.rounds) - 1, 1 << plan.fraction_bits
    means, counts = np.array([[0.4, -0.3], [-0.5, 0.1], [0.0, 0.3]]), np.array([500.0, 300.0, 100.0])
    exact = np.concatenate([(means * counts[:, None]).ravel(), counts]) * grid
    rng = np.random.default_rng(4)
    step, shares = plan.rounds[last], plan.clients / plan.shares  # all shares, over those that count
    sizes, coordinates = [], []
    for _ in range(RUNS):
        sums = rng.normal(0.0, step.sigma * math.sqrt(shares), k * d)
        laplace = step.scale * (rng.gamma(shares, size=k) - rng.gamma(shares, size=k))
        noisy = np.rint(exact + np.concatenate([sums, laplace])).astype(np.int64)
        centers = make_centers(noisy, k, plan)
        told = noise_of(plan, centers)
        assert told.size_ranges is not None and told.centre_deviations is not None
        sizes.append((told.size_ranges[:, 0] <= counts) & (counts <= told.size_ranges[:, 1]))
        coordinates.append(np.abs(centers.exact - means) <= told.tail * told.centre_deviations)
    most = 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / (RUNS * k))
    assert 0.0 < 1.0 - np.mean(sizes) <= most
    assert 0.0 < 1.0 - np.mean(coordinates) <= most


def test_of_users_nothing_is_expected_before() -> None:
    data = mixture(300, 3, 2)
    assert expect(plan_for(data, 3, settings=USERS)).verdict == "unknown"
    assert expect(plan_for(data, 3)).centre_noise is not None
