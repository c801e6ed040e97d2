"""The fast modules of k-means against plain ones that share no line with them."""

from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.kmeans import initial, merging, reference, weighted
from fastlloyd.kmeans.grid import quantise
from fastlloyd.randomness.prg import PublicStream


def weights_of(kind: str, n: int, rng: np.random.Generator) -> np.ndarray | None:
    drawn = rng.random(n)
    return {"none": None, "zero": np.zeros(n), "some": drawn, "few": drawn * (rng.random(n) > 0.5)}[kind]


@pytest.mark.parametrize("kind", ["none", "zero", "some", "few"])
@pytest.mark.parametrize("n,k,d", [(40, 3, 2), (100, 5, 8), (60, 7, 1), (5, 5, 3), (4, 1, 2), (3, 6, 2)])
def test_weighted_k_means_bit_by_bit(n: int, k: int, d: int, kind: str) -> None:
    rng = np.random.default_rng(n + d)
    points, weights = rng.normal(size=(n, d)), weights_of(kind, n, rng)
    if k == 7:  # equal points, and ties
        points = np.round(points)
    got = weighted.cluster(points, k, PublicStream(1, "a test"), weights=weights, restarts=4)
    expected = reference.cluster(points, k, PublicStream(1, "a test"), weights=weights, restarts=4)
    assert (got.labels.tolist(), got.cost) == (expected.labels, expected.cost)
    assert got.centers.tobytes() == expected.centers.tobytes()


def test_weighted_k_means_of_many_features_but_for_rounding() -> None:
    points = np.random.default_rng(0).normal(size=(100, 12))
    got = weighted.cluster(points, 4, PublicStream(2, "a test"))
    expected = reference.cluster(points, 4, PublicStream(2, "a test"))
    assert got.labels.tolist() == expected.labels
    assert got.cost == pytest.approx(expected.cost, rel=1e-12)
    assert np.abs(got.centers - expected.centers).max() < 1e-12


@pytest.mark.parametrize("k,d", [(1, 1), (3, 2), (8, 1), (6, 20)])
def test_sphere_packing_bit_by_bit(k: int, d: int) -> None:
    for seed in range(3):
        packed = initial.sphere_packing(k, d, seed) / 2.0**initial.GRID_BITS
        assert (packed == reference.sphere_packing(k, d, seed)).all()


def test_rounding_to_the_grid() -> None:
    points = np.random.default_rng(0).normal(size=(300, 3))
    points[0], points[1] = 0.5 / 2**10, 1.5 / 2**10
    assert (reference.on_grid(points, 10) == quantise(points, 10).raw_coordinates.T).all()


@pytest.mark.parametrize("count_noise", [0.0, 20.0, 90.0, 1e6])
@pytest.mark.parametrize("k", [1, 2, 3, 9, 20])
def test_as_many_clusters_are_left(k: int, count_noise: float) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        centers, counts = rng.normal(size=(k, 2)).round(seed % 3), rng.normal(50.0, 40.0, k)
        got = merging.merge(centers, counts, count_noise=count_noise)
        assert len(got.groups) == reference.clusters_left(centers, counts, count_noise=count_noise)
