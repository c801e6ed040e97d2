"""Clustering of a party's own records."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.spectral import _core_means, _project, cluster_locally
from fastlloyd.kmeans.weighted import Clustering
from tests.protocols.support import blobs


def test_as_cheap_as_scikit_learn() -> None:
    points = blobs(600, 5, 3, seed=2)
    centers = cluster_locally(quantise(points, 16), 5, seed=0, purpose="test")
    cost = ((points[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1).sum()
    best = KMeans(5, n_init=10, random_state=0).fit(points).inertia_
    assert cost < 1.001 * best


@pytest.mark.parametrize("rows", [900, 90])
def test_separated_clusters_are_found_among_many_features(rows: int) -> None:
    generator = np.random.default_rng(rows)
    truth, means = np.arange(rows) % 6, generator.uniform(-0.6, 0.6, (6, 200))
    points = np.clip(means[truth] + generator.normal(0, 0.1, (rows, 200)), -1, 1)
    centers = cluster_locally(quantise(points, 16), 6, seed=1, purpose="test", restarts=3)
    expected = np.stack([points[truth == h].mean(axis=0) for h in range(6)])
    distance = np.linalg.norm(expected[:, None] - centers[None], axis=2)
    assert sorted(distance.argmin(axis=1)) == list(range(6))
    assert distance.min(axis=1).max() < 1e-3


@pytest.mark.parametrize("rows,features", [(50, 8), (8, 50), (4, 3), (3, 4)])
def test_the_projection_keeps_the_part_in_the_leading_directions(rows: int, features: int) -> None:
    points = np.random.default_rng(0).normal(size=(rows, features))
    left, values, right = np.linalg.svd(points, full_matrices=False)
    for rank in (1, 3):
        projected = _project(points, rank)
        best = (left[:, :rank] * values[:rank]) @ right[:rank]
        assert projected @ projected.T == pytest.approx(best @ best.T)


def test_a_cluster_starts_from_records_three_times_nearer_to_it() -> None:
    projected = np.array([[0.0], [2.4], [2.6], [10.0], [7.6], [7.4]])
    near = Clustering(np.array([[0.0], [10.0], [99.0]]), np.array([0, 0, 0, 1, 1, 1]), 0.0)
    points = np.arange(12.0).reshape(6, 2)
    assert _core_means(points, projected, near).tolist() == [
        points[[0, 1]].mean(0).tolist(),
        points[[3, 4]].mean(0).tolist(),
    ]
    # None of the first cluster's is near enough: all of them start it.
    near = Clustering(np.array([[-5.0], [10.0], [99.0]]), near.labels, 0.0)
    assert _core_means(points, projected + 1.0, near)[0].tolist() == points[:3].mean(0).tolist()


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
