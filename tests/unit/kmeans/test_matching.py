"""Clusters are matched with classes so that most points agree."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastlloyd.kmeans.metrics import accuracy


def best_by_trying(labels: np.ndarray, truth: np.ndarray, k: int) -> float:
    return max((np.array(order)[labels] == truth).mean() for order in itertools.permutations(range(k)))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_best_of_all_permutations_is_found(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, k, 60)
    labels = np.where(rng.random(60) < 0.6, (truth + 1) % k, rng.integers(0, k, 60))
    assert accuracy(labels, truth) == pytest.approx(best_by_trying(labels, truth, k))


def test_names_do_not_matter_and_numbers_may_differ() -> None:
    truth = np.array([5, 5, 9, 9, -2, -2])
    assert accuracy(np.array([7, 7, 1, 1, 3, 3]), truth) == 1.0
    # One cluster for three classes: one class is right; a cluster for each point: one point of each class.
    assert accuracy(np.zeros(6, dtype=np.int64), truth) == pytest.approx(2 / 6)
    assert accuracy(np.arange(6), truth) == pytest.approx(3 / 6)
