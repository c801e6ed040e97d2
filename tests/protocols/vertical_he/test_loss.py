"""How good the clusters are: the soft rules in clear from many starts, and (slow) the ciphertexts on S1 and in 4-d."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("tenseal")

from fastlloyd.bench.vertical_he.data import load_points
from fastlloyd.bench.vertical_he.run import Case, plain_lloyd, plan_case, run_case
from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.vertical_he.math.linear import partial_scores
from fastlloyd.protocols.vertical_he.math.window import features, jackson, step_weights, thresholds
from fastlloyd.protocols.vertical_he.reference import soft_one_hot
from fastlloyd.protocols.vertical_he.rounds import first_centers
from fastlloyd.protocols.vertical_he.settings import Settings
from tests.protocols.vertical_he.test_pairwise import one_hot

DATA = os.environ.get("FASTLLOYD_DATA", str(Path(__file__).parents[4] / "shared" / "data"))
STARTS = range(8)
ROUNDS = 10
DEGREE = Settings().degree

Array = NDArray[np.float64]
Weigh = Callable[[Array, Array], Array]


def points_of(name: str) -> Array:
    try:
        return load_points(name, DATA)[0]
    except ConfigError:
        pytest.skip(f"{name} is absent")


def loss(points: Array, centers: Array) -> float:
    return nearest(points, centers)[1] / 4.0


def linear(points: Array, centers: Array) -> Array:
    """Weights of the linear scheme whose last column is encrypted, shape (n, k)."""
    hidden = points.shape[1] - 1
    order = np.argsort(centers[:, hidden], kind="stable")
    known = np.ascontiguousarray(points[:, :hidden].T)
    cuts = thresholds(partial_scores(centers[order], known, range(hidden)), centers[order][:, hidden])
    values, factors = features(points[:, hidden], DEGREE + 1), jackson(DEGREE)
    steps = [np.ones(len(points)), *((step_weights(np.arccos(cut), factors) * values).sum(axis=0) for cut in cuts)]
    weights = np.empty((len(points), len(centers)))
    weights[:, order] = -np.diff([*steps, np.zeros(len(points))], axis=0).T
    return weights


def halves(points: Array, centers: Array) -> Array:
    """Weights of the pairwise circuit whose second half of columns is encrypted, shape (n, k)."""
    return one_hot(points, centers, list(range(points.shape[1] // 2)))


def soft_lloyd(points: Array, start: Array, weigh: Weigh) -> Array:
    centers = start
    for _ in range(ROUNDS):
        weights = weigh(points, centers)
        counts = weights.sum(axis=0)
        centers = np.where((counts >= 1.0)[:, None], weights.T @ points / np.maximum(counts, 1.0)[:, None], centers)
    return centers


def test_the_quick_rule_is_the_reference() -> None:
    points, centers = points_of("synth-40-3-2"), points_of("synth-3-3-2")
    np.testing.assert_allclose(
        linear(points, centers), soft_one_hot(points, centers, hidden=1, degree=DEGREE), atol=1e-9
    )


@pytest.mark.parametrize(
    "name,k,columns,weigh",
    [
        ("s1", 15, (1, 1), linear),
        ("g2_4_30", 2, (3, 1), linear),
        ("g2_4_30", 2, (2, 2), halves),
        ("synth-4000-5-4", 5, (3, 1), linear),
        ("synth-4000-5-4", 5, (2, 2), halves),
    ],
)
def test_ten_soft_rounds_are_within_one_per_cent_of_lloyd_s(
    name: str, k: int, columns: tuple[int, ...], weigh: Weigh
) -> None:
    points = points_of(name)
    for seed in STARTS:
        start = first_centers(plan_case(Case(k=k, widths=columns, noise="flooding", seed=seed), len(points)))
        plain = loss(points, plain_lloyd(points, start, ROUNDS))
        assert loss(points, soft_lloyd(points, start, weigh)) <= 1.01 * plain


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name,k,columns",
    [("s1", 15, (1, 1)), ("g2_4_30", 2, (2, 2)), ("synth-4000-5-4", 5, (3, 1)), ("synth-4000-5-4", 5, (2, 2))],
)
def test_ten_encrypted_rounds_without_dp_noise_are_within_one_per_cent_of_lloyd_s(
    name: str, k: int, columns: tuple[int, ...]
) -> None:
    points = points_of(name)
    for seed in range(3):
        scheme = "pairwise" if columns == (2, 2) else "linear"
        case = Case(k=k, widths=columns, rounds=ROUNDS, noise="flooding", scheme=scheme, seed=seed)
        plain = plain_lloyd(points, first_centers(plan_case(case, len(points))), ROUNDS)
        assert run_case(case, points, 2)["loss"] <= 1.01 * loss(points, plain)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_s1_at_epsilon_1_is_near_the_published_loss() -> None:
    points = points_of("s1")
    losses = [run_case(Case(k=15, widths=(1, 1), rounds=None, seed=seed), points, 2)["loss"] for seed in range(5)]
    # Published: 0.00566. Seen over ten starts: mean 0.0049, deviation about 0.0009, so eight of a mean of five's.
    assert np.mean(losses) <= 1.5 * 0.00566
