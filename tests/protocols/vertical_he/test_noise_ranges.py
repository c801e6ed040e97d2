"""The 95 % ranges of a result hold the last round's sums and counts without noise as often as they say."""

from __future__ import annotations

import math

import numpy as np

from fastlloyd.protocols.vertical_he.face_noise import noise_of
from fastlloyd.protocols.vertical_he.rounds import Result, post_process
from tests.protocols.vertical_he.support import linear_plan

RUNS = 100


def test_ranges_hold_the_truth() -> None:
    plan = linear_plan(4000, 3)
    k, d = plan.k, plan.d
    rng = np.random.default_rng(1)
    means, counts = rng.uniform(-0.6, 0.6, (k, d)), np.array([2000.0, 1500.0, 500.0])
    exact = np.rint(np.column_stack([counts, means * counts[:, None]]).reshape(-1) * plan.unit).astype(np.int64)
    sizes, coordinates = [], []
    for _ in range(RUNS):
        sides = rng.normal(0.0, np.tile([plan.count_scale] + [plan.sum_scale] * d, (2, k)))  # both add their own
        noisy = exact + np.rint(sides.sum(axis=0)).astype(np.int64)
        centers, noisy_counts = post_process(noisy, np.zeros((k, d)), plan)
        told = noise_of(plan, Result(centers, noisy_counts, 1))
        assert told.size_ranges is not None and told.centre_deviations is not None
        sizes.append((told.size_ranges[:, 0] <= counts) & (counts <= told.size_ranges[:, 1]))
        coordinates.append(np.abs(centers - means) <= told.tail * told.centre_deviations)
    most = 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / (RUNS * k))
    assert 0.0 < 1.0 - np.mean(sizes) <= most
    assert 0.0 < 1.0 - np.mean(coordinates) <= most
