"""The oracles beside fastlloyd-plus: noise as theory has it, no error without noise, and tables that add up."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def bound() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "plus_bound.py"
    spec = importlib.util.spec_from_file_location("plus_bound", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _told(bound: ModuleType, *, n: int, k: int, d: int, deviation: float):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(5)
    places, labels = rng.uniform(-0.5, 0.5, (k, d)), np.arange(n) % k
    points = places[labels] + deviation * rng.standard_normal((n, d))
    centers = np.stack([points[labels == j].mean(axis=0) for j in range(k)])
    return bound.Told(points, labels, np.bincount(labels).astype(float), centers)


def test_without_noise_both_oracles_find_the_centres(bound: ModuleType) -> None:
    told, rng = _told(bound, n=600, k=3, d=4, deviation=0.05), np.random.default_rng(1)
    assert np.allclose(bound.with_places(told, 1e9, rng), told.centers, atol=1e-6)
    assert np.allclose(bound.with_labels(told, 1e9, rng, rounds=2, radius=9.0), told.centers, atol=1e-6)


@pytest.mark.parametrize("d", [1, 2, 8])
def test_noise_on_a_known_place_is_of_the_order_of_theory(bound: ModuleType, d: int) -> None:
    told, rng, mu = _told(bound, n=3000, k=3, d=d, deviation=0.1), np.random.default_rng(2), 0.5
    squares = [float(((bound.with_places(told, mu, rng) - told.centers) ** 2).sum()) for _ in range(200)]
    theory = 3 * (0.1 * d / (mu * 1000)) ** 2  # deviation^2 d^2 / (mu n)^2 for each cluster
    assert 0.7 < np.mean(squares) / theory < 2.5


def test_more_budget_is_never_worse_and_labels_are_worth_less_than_places(bound: ModuleType) -> None:
    told = _told(bound, n=150, k=3, d=4, deviation=0.2)
    errors = []
    for mu in (0.05, 0.2, 1.0):
        rng = np.random.default_rng(3)
        errors.append(
            [
                np.mean([((draw() - told.centers) ** 2).sum() for _ in range(200)])
                for draw in (
                    lambda mu=mu, rng=rng: bound.with_places(told, mu, rng),
                    lambda mu=mu, rng=rng: bound.with_labels(told, mu, rng, rounds=3, radius=0.75),
                )
            ]
        )
    found = np.array(errors)
    assert (np.diff(found, axis=0) < 0).all()
    assert (found[:, 0] < found[:, 1]).all()


def test_steps_are_weighed_as_by_hand(bound: ModuleType) -> None:
    step, left = bound._weigh(np.array([[2.0, 2.0]]), np.array([[[1.0]], [[3.0]]]), np.array([1.0]))
    assert np.allclose(step, [[1.0, 1.5]])
    assert np.allclose(left.ravel(), [0.5, 0.75])


def test_a_mean_takes_the_protocol_where_an_oracle_was_not_measured(bound: ModuleType) -> None:
    rows = [("iris", 0.1, "fastlloyd-plus", 3.0, ""), ("adult", 0.1, "fastlloyd-plus", 1.0, "")]
    rows += [(name, 0.1, method, 1.5, "x") for name in ("iris", "adult") for method in ("labels free", "places free")]
    rows.append(("iris", 0.1, "settings", 2.0, "swap=False"))
    text = bound.report(rows)
    assert "| mean | 1.000 | 0.500 | 0.500 | 0.500 |" in text
    assert "| adult | 0.000 |  | 0.500 | 0.500 |" in text
