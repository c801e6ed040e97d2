"""Generated clusters: sizes, separation and outliers are as asked for."""

from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd_papers.utility.cluster_generation import Z, generate_clusters, min_gap, rising_sizes


def largest_gap_by_search(delta: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Try many directions in the plane."""
    angles = np.linspace(0, np.pi, 20_001)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    s1 = np.sqrt(np.einsum("ij,jk,ik->i", directions, first, directions))
    s2 = np.sqrt(np.einsum("ij,jk,ik->i", directions, second, directions))
    return float((np.abs(directions @ delta) / (s1 + s2)).max())


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_is_the_largest_over_directions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(2, 2, 2)) + 2 * np.eye(2)
    centers = rng.normal(size=(2, 2)) * 5
    covariances = roots @ roots.transpose(0, 2, 1)
    expected = largest_gap_by_search(centers[0] - centers[1], *covariances)
    assert min_gap(centers, roots) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("separation", [-0.2, 0.2, 0.6])
@pytest.mark.parametrize("k,d", [(2, 1), (4, 3)])
def test_the_closest_clusters_are_separated_as_asked(k: int, d: int, separation: float) -> None:
    made = generate_clusters([4000] * k, d, separation=separation, seed=4)
    groups = [made.points[made.labels == j] for j in range(k)]
    centers = np.stack([group.mean(axis=0) for group in groups])
    roots = np.stack([np.linalg.cholesky(np.atleast_2d(np.cov(group.T))) for group in groups])
    gap = min_gap(centers, roots)
    # Means and covariances from 4,000 records: three or four per cent.
    assert (gap - Z) / (gap + Z) == pytest.approx(separation, abs=0.04)


def test_sizes_outliers_and_order() -> None:
    sizes = rising_sizes(1000, 4)
    assert sizes == (100, 200, 300, 400)
    assert sum(rising_sizes(10_000, 32)) == 10_000
    made = generate_clusters(sizes, 3, separation=0.3, outliers=25, seed=1)
    assert np.bincount(made.labels + 1).tolist() == [25, *sizes]
    assert (np.diff(made.labels) != 0).sum() > 500  # in random order
    scaled = made.scaled()
    assert np.allclose(scaled.min(axis=0), -1)
    assert np.allclose(scaled.max(axis=0), 1)
    again = generate_clusters(sizes, 3, separation=0.3, outliers=25, seed=1)
    assert (made.points == again.points).all()
    assert (made.points != generate_clusters(sizes, 3, separation=0.3, outliers=25, seed=2).points).any()


@pytest.mark.parametrize("sizes,d,separation", [([], 2, 0.1), ([0, 3], 2, 0.1), ([3], 0, 0.1), ([3], 2, 1.0)])
def test_what_cannot_be_generated_is_refused(sizes: list[int], d: int, separation: float) -> None:
    with pytest.raises(ConfigError, match="expected"):
        generate_clusters(sizes, d, separation=separation)
