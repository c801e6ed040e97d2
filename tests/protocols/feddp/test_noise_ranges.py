"""The 95 % ranges of a result hold the last step's sums and counts without noise as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastlloyd.protocols.feddp.math.stage import make_centers
from fastlloyd.protocols.feddp.plan_lines import expect, noise_of
from fastlloyd.report.outlook import PRIOR_VARIANCE
from tests.protocols.feddp.support import USERS, mixture, plan_for

RUNS = 100


def test_ranges_hold_the_truth() -> None:
    k, d = 3, 2
    plan = plan_for(mixture(900, k, d), k, epsilon=3.0)
    last, grid = len(plan.rounds) - 1, 1 << plan.fraction_bits
    means, counts = np.array([[0.4, -0.3], [-0.5, 0.1], [0.0, 0.3]]), np.array([500.0, 300.0, 100.0])
    exact = np.concatenate([(means * counts[:, None]).ravel(), counts]) * grid
    rng = np.random.default_rng(4)
    step, shares = plan.rounds[last], plan.clients * plan.share  # all shares, over those that count
    sizes, coordinates = [], []
    for _ in range(RUNS):
        sums = rng.normal(0.0, step.sigma * math.sqrt(shares), k * d)
        laplace = step.scale * (rng.gamma(shares, size=k) - rng.gamma(shares, size=k))
        noisy = np.rint(exact + np.concatenate([sums, laplace])).astype(np.int64)
        centers = make_centers(noisy, k, plan)
        told = noise_of(plan, centers, plan.n_total, np.zeros(0))
        assert told.size_ranges is not None and told.centre_deviations is not None
        sizes.append((told.size_ranges[:, 0] <= counts) & (counts <= told.size_ranges[:, 1]))
        coordinates.append(np.abs(centers.exact - means) <= told.tail * told.centre_deviations)
    most = 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / (RUNS * k))
    assert 0.0 < 1.0 - np.mean(sizes) <= most
    assert 0.0 < 1.0 - np.mean(coordinates) <= most


def test_of_users_only_the_least_noise_is_expected() -> None:
    data = mixture(300, 3, 2)
    plan = plan_for(data, 3, settings=USERS)
    found = expect(plan, plan.n_total)
    assert found.centre_noise is None and found.verdict == "unknown" and found.least is not None
    assert "if there are 300 users (each record is of another)" in found.sentence
    # Each client one user: far fewer, and no result to be had.
    few = expect(plan, plan.clients)
    assert few.verdict == "noise" and few.least == pytest.approx(found.least * plan.n_total / plan.clients)
    records = plan_for(data, 3)
    assert expect(records, records.n_total).centre_noise is not None


def test_with_as_many_users_as_there_may_be_the_noise_is_what_is_said() -> None:
    """Users who all count in every cluster that the bound allows: no other users have less noise on their centres."""
    data = mixture(300, 3, 2)
    plan = plan_for(data, 3, settings={**USERS, "count_clip": 1.0})
    step, grid = plan.rounds[-1], float(1 << plan.fraction_bits)
    rng, users = np.random.default_rng(5), 600.0
    shares = plan.clients * plan.share
    sums = rng.normal(0.0, step.sigma / grid * math.sqrt(shares), 4000)
    counts = (rng.gamma(shares, size=4000) - rng.gamma(shares, size=4000)) * step.scale / grid
    middle = rng.normal(0.0, math.sqrt(PRIOR_VARIANCE), 4000)
    off = (middle * users / 3 + sums) / (users / 3 + counts) - middle
    least = expect(plan, int(users)).least
    assert least == pytest.approx(np.std(off) / 2.0, rel=0.1)
