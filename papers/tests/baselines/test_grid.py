"""EUGkM: the paper's grid, noise of the stated scale, and centres as an exhaustive search finds them."""

from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.metrics import nearest
from fastlloyd_papers.baselines.grid import MAX_CELLS, cell_centers, cells_per_axis, eugkm, noisy_counts
from tests.protocols.support import blobs

NO_NOISE = 1e12


@pytest.mark.parametrize("n,d,epsilon,expected", [(10_000, 2, 1.0, 32), (10_000, 2, 0.1, 10), (1280, 1, 1.0, 25)])
def test_the_number_of_cells_is_the_papers(n: int, d: int, epsilon: float, expected: int) -> None:
    # Two features: sqrt(N epsilon / 10) to an axis. One: (N epsilon / 10)^(2/3).
    assert cells_per_axis(n, d, epsilon) == expected


def test_a_grid_has_two_cells_to_an_axis_at_least() -> None:
    assert cells_per_axis(150, 16, 0.1) == 2


def test_counts_are_numpys_histogram() -> None:
    points = np.vstack([blobs(500, 3, 2), [[1.0, 1.0], [-1.0, -1.0]]])
    expected, _ = np.histogramdd(points, bins=7, range=[(-1.0, 1.0)] * 2)
    got = noisy_counts(points, 7, NO_NOISE, np.random.default_rng(0))
    assert np.rint(got).reshape(7, 7).tolist() == expected.tolist()


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_noise_is_laplaces_of_scale_one_over_epsilon(epsilon: float) -> None:
    noise = noisy_counts(np.empty((0, 2)), 400, epsilon, np.random.default_rng(1))
    # 160,000 draws, fixed seed. Mean absolute value and deviation tell Laplace's from Gauss's.
    assert np.abs(noise).mean() == pytest.approx(1.0 / epsilon, rel=0.01)
    assert noise.std() == pytest.approx(np.sqrt(2.0) / epsilon, rel=0.01)


def test_one_record_changes_one_count_by_one() -> None:
    points = blobs(40, 3, 3)
    whole = noisy_counts(points, 4, 1.0, np.random.default_rng(2))
    for left_out in range(len(points)):
        without = noisy_counts(np.delete(points, left_out, axis=0), 4, 1.0, np.random.default_rng(2))
        assert sorted(np.rint(np.abs(whole - without)))[-2:] == [0.0, 1.0]


def test_the_middle_of_a_cell_lies_in_it() -> None:
    cells = np.arange(5**3)
    counts = noisy_counts(cell_centers(cells, 5, 3), 5, NO_NOISE, np.random.default_rng(0))
    assert np.rint(counts).tolist() == [1.0] * 5**3


def test_a_grid_that_does_not_fit_is_refused_before_it_is_made() -> None:
    with pytest.raises(ConfigError, match=rf"at most {MAX_CELLS} cells, got 2\^40"):
        eugkm(np.zeros((10, 40)), 2, np.random.default_rng(0), epsilon=1.0)


def test_two_clusters_on_a_line_are_the_best_split_of_the_noisy_cells() -> None:
    points = np.concatenate([np.linspace(-0.9, -0.2, 700), np.linspace(0.3, 0.8, 200)])[:, None]
    per_axis = cells_per_axis(900, 1, 1.0)
    weights = np.maximum(noisy_counts(points, per_axis, 1.0, np.random.default_rng(3)), 0.0)
    middles = cell_centers(np.arange(per_axis), per_axis, 1)[:, 0]
    splits = []
    weighed = np.flatnonzero(weights)
    for cut in weighed[1:]:
        halves = [(weights[rows], middles[rows]) for rows in (slice(None, cut), slice(cut, None))]
        means = [float(w @ x / w.sum()) for w, x in halves]
        splits.append((sum(float(w @ (x - m) ** 2) for (w, x), m in zip(halves, means, strict=True)), means))
    got = eugkm(points, 2, np.random.default_rng(3), epsilon=1.0)
    assert sorted(got[:, 0]) == pytest.approx(min(splits)[1])


def test_centres_are_those_of_the_records_where_noise_is_small() -> None:
    points = blobs(3000, 4, 2)
    best = nearest(points, eugkm(points, 4, np.random.default_rng(4), epsilon=100.0))[1]
    noisy = nearest(points, eugkm(points, 4, np.random.default_rng(4), epsilon=1.0))[1]
    assert best <= noisy <= 1.1 * best


def test_fewer_cells_than_clusters_give_fewer_centres() -> None:
    got = eugkm(np.zeros((20, 1)), 5, np.random.default_rng(5), epsilon=0.1)
    assert 1 <= len(got) <= 2
