"""Clustering of a party's own records."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.local import cluster_locally
from tests.protocols.support import blobs


def test_as_cheap_as_scikit_learn() -> None:
    points = blobs(600, 5, 3, seed=2)
    centers = cluster_locally(quantise(points, 16), 5, seed=0, purpose="test")
    cost = ((points[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1).sum()
    best = KMeans(5, n_init=10, random_state=0).fit(points).inertia_
    assert cost < 1.001 * best


@pytest.mark.parametrize("rows,different", [(1, 1), (2, 2), (40, 3), (0, 0)])
def test_no_more_centres_than_different_records(rows: int, different: int) -> None:
    points = np.array([[0.5, -0.5], [0.25, 0.0], [-0.75, 1.0]])[np.arange(rows) % 3]
    centers = cluster_locally(quantise(points.reshape(-1, 2), 16), 4, seed=0, purpose="test", restarts=2)
    assert {tuple(row) for row in centers} == {tuple(row) for row in points}
    assert len(centers) == different


def test_the_public_seed_and_purpose_decide() -> None:
    points = quantise(np.random.default_rng(0).uniform(-1, 1, (200, 4)), 16)

    def once(seed: int, purpose: str) -> np.ndarray:
        return cluster_locally(points, 8, seed=seed, purpose=purpose, restarts=1)

    assert (once(1, "a") == once(1, "a")).all()
    assert (once(1, "a") != once(2, "a")).any()
    assert (once(1, "a") != once(1, "b")).any()
