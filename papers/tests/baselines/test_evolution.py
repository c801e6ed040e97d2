"""PE-means: noise that adds up to the budget, draws that are independent, and centres as computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastlloyd.kmeans.metrics import nearest
from fastlloyd.privacy.accountant import gdp_delta
from fastlloyd_papers.baselines import evolution
from fastlloyd_papers.baselines.evolution import (
    evolve,
    generations_of,
    levy_deviation,
    levy_steps,
    noisy_means,
    noisy_votes,
    pack,
    pe_means,
    threshold,
)
from tests.protocols.support import blobs


def test_the_number_of_generations() -> None:
    assert [generations_of(d, 1.0) for d in (1, 2, 4, 16)] == [4, 5, 8, 16]
    assert [generations_of(4, epsilon) for epsilon in (0.1, 2.0)] == [8, 16]


@pytest.mark.parametrize("d,releases", [(4, 8), (40, 16)])
def test_all_releases_together_spend_the_budget(d: int, releases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sigmas: list[float] = []
    votes, means = noisy_votes, noisy_means

    def noted_votes(points, candidates, sigma, rng):
        sigmas.append(sigma)
        return votes(points, candidates, sigma, rng)

    def noted_means(points, labels, k, sigma, rng):
        sigmas.extend([sigma, sigma])
        return means(points, labels, k, sigma, rng)

    monkeypatch.setattr(evolution, "noisy_votes", noted_votes)
    monkeypatch.setattr(evolution, "noisy_means", noted_means)
    points = np.clip(np.random.default_rng(0).normal(0.0, 0.3, (200, d)), -1.0, 1.0)
    pe_means(points, 2, np.random.default_rng(0), epsilon=1.0, delta=1e-4)
    assert len(sigmas) == releases
    # Gaussian releases of multiplier sigma compose to one of mu = root of the sum of 1 / sigma^2.
    mu = math.sqrt(sum(1.0 / sigma**2 for sigma in sigmas))
    assert gdp_delta(mu, 1.0) == pytest.approx(1e-4, rel=1e-4)


@pytest.mark.parametrize("d", [2, 12])
def test_votes_go_to_the_nearest_candidate(d: int) -> None:
    rng = np.random.default_rng(1)
    points, candidates = rng.uniform(-1.0, 1.0, (300, d)), rng.uniform(-1.0, 1.0, (40, d))
    expected = np.zeros(40)
    for point in points:
        expected[((candidates - point) ** 2).sum(axis=1).argmin()] += 1
    assert noisy_votes(points, candidates, 0.0, rng).tolist() == expected.tolist()


def test_one_record_changes_one_vote_by_one() -> None:
    points, candidates = blobs(40, 3, 3), pack(20, 3, ball=False)
    whole = noisy_votes(points, candidates, 5.0, np.random.default_rng(2))
    for left_out in range(len(points)):
        without = noisy_votes(np.delete(points, left_out, axis=0), candidates, 5.0, np.random.default_rng(2))
        assert sorted(np.rint(np.abs(whole - without)))[-2:] == [0.0, 1.0]


def test_the_noise_of_votes_has_the_stated_deviation() -> None:
    candidates = np.random.default_rng(3).uniform(-1.0, 1.0, (50_000, 1))
    noise = noisy_votes(np.empty((0, 1)), candidates, 7.0, np.random.default_rng(3))
    # 50,000 draws, fixed seed. The mean absolute value tells Gauss's from Laplace's.
    assert noise.std() == pytest.approx(7.0, rel=0.01)
    assert np.abs(noise).mean() == pytest.approx(7.0 * math.sqrt(2.0 / math.pi), rel=0.01)


def test_every_coordinate_of_a_sum_has_its_own_noise() -> None:
    # The published program draws once for all coordinates of a sum: its rows would have no spread.
    k, d, each, sigma = 4, 400, 2000, 3.0
    labels = np.repeat(np.arange(k), each)
    noise = each * noisy_means(np.zeros((k * each, d)), labels, k, sigma, np.random.default_rng(8))
    # 400 draws a row, fixed seed; counts of 2,000 vary by 3.
    assert noise.std(axis=1) == pytest.approx(np.full(k, sigma * math.sqrt(d)), rel=0.1)
    assert np.abs(np.corrcoef(noise)[np.triu_indices(k, 1)]).max() < 0.2


def test_means_are_truncated_and_their_counts_are_noisy() -> None:
    points = np.full((1000, 1), 0.5)
    drawn = [noisy_means(points, np.zeros(1000, dtype=np.int64), 2, 40.0, np.random.default_rng(i)) for i in range(300)]
    assert np.abs(drawn).max() == 1.0
    ratios = np.array([found[0, 0] for found in drawn])
    # The mean of (500 + 40 u) / (1000 + 40 v): deviation 0.04 from the sum, 0.02 from the count.
    assert ratios.mean() == pytest.approx(0.5, abs=0.01)
    assert ratios.std() == pytest.approx(math.hypot(0.04, 0.02), rel=0.1)


def test_steps_are_mantegnas() -> None:
    # sigma_u = 0.6966 at beta = 1.5 is the value that the literature on Levy flights gives.
    assert levy_deviation(1.5) == pytest.approx(0.6966, abs=1e-4)
    steps = levy_steps((100_000, 1), np.random.default_rng(4), beta=1.5)
    # Tails of |x|^-1.5 in the distribution: ten times as far is 10^1.5 = 31.6 times as rare.
    near, far = (float((np.abs(steps) > x).mean()) for x in (5.0, 50.0))
    assert near / far == pytest.approx(31.6, rel=0.25)
    assert np.median(np.abs(steps)) < 1.0


def test_the_threshold_keeps_the_largest_votes_that_reach_the_records() -> None:
    votes = np.array([5.0, -3.0, 40.0, 30.0, 20.0])
    assert threshold(votes, 70) == 30.0
    assert threshold(votes, 71) == 20.0
    assert threshold(votes, 95) == 5.0
    assert threshold(votes, 96) == 0.0


@pytest.mark.parametrize("ball", [True, False])
def test_packed_points_keep_their_distance_from_each_other_and_the_border(ball: bool) -> None:
    points = pack(30, 3, ball=ball)
    half = 1.0 if ball else 1.0 / math.sqrt(3.0)
    reach = np.linalg.norm(points, axis=1) if ball else np.abs(points).max(axis=1)
    distances = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))[np.triu_indices(30, 1)]
    radius = half * 2.0 ** math.floor(math.log2(distances.min() / 2.0 / half))
    assert radius <= half / 2.0
    assert reach.max() <= half - radius + 1e-12
    assert pack(30, 3, ball=ball) is points


def test_one_generation_without_noise_is_the_mean_of_the_nearest_candidates() -> None:
    points = blobs(200, 3, 2)
    offspring = 200 // 5
    candidates = math.sqrt(2.0) * pack(offspring + 1, 2, ball=False)
    expected = np.mean([candidates[((candidates - x) ** 2).sum(axis=1).argmin()] for x in points], axis=0)
    rng = np.random.default_rng(5)
    got = evolve(points, 1, rng, generations=1, sigma=0.0, radius=math.sqrt(2.0), ball=False)
    assert got[0] == pytest.approx(expected)


def test_generations_come_close_to_the_optimum() -> None:
    points = blobs(100, 4, 2)
    costs = []
    for generations in (1, 20):
        rng = np.random.default_rng(6)
        centers = evolve(points, 4, rng, generations=generations, sigma=0.0, radius=math.sqrt(2.0), ball=False)
        assert np.abs(centers).max() <= 1.0
        costs.append(nearest(points, centers)[1])
    best = nearest(points, np.stack([points[nearest(points, centers)[0] == j].mean(axis=0) for j in range(4)]))[1]
    assert costs[1] < 0.9 * costs[0]
    assert costs[1] <= 1.2 * best


def test_candidates_without_votes_give_k_centres_all_the_same() -> None:
    got = evolve(blobs(20, 2, 2), 6, np.random.default_rng(7), generations=3, sigma=0.0, radius=1.0, ball=True)
    assert got.shape == (6, 2)
    assert np.linalg.norm(got, axis=1).max() <= 1.0 + 1e-12
