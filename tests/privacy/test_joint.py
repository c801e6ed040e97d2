"""The test of independence itself: its rates of false alarms, and what it sees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.privacy.joint import columns, correlation_limit, dependent, determinant_limit, log_determinant

Floats = NDArray[np.float64]
LIVES, NUMBERS = 60, 30


def table(seed: int = 0) -> Floats:
    """Independent standard normals, shape (lives, numbers)."""
    return np.random.default_rng(seed).normal(size=(LIVES, NUMBERS))


def test_correlations_of_independent_noise_have_the_stated_distribution() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 40_000, 12))
    found = np.abs((x * y).sum(axis=1)) / np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    for level in (0.3, 0.05, 0.005):
        above = (found > correlation_limit(12, level)).mean()
        assert above == pytest.approx(level, abs=6.0 * np.sqrt(level / len(found)))


def test_the_bound_on_the_determinant_holds_and_is_not_loose() -> None:
    rng = np.random.default_rng(2)
    found = np.array([log_determinant(rng.normal(size=(20, 6))) for _ in range(20_000)])
    for level in (0.3, 0.05, 0.005):
        below = (found < determinant_limit(20, 6, level)).mean()
        assert 0.02 * level < below <= level


def test_independent_noise_passes() -> None:
    assert all(dependent(columns("x", table(seed))) == set() for seed in range(20))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x[:, [0]], "x[3] follows x[0]"),
        (lambda x: -7.0 * x[:, [0]], "x[3] follows x[0]"),
        (lambda x: np.round(2.0 * x[:, [0]]), "x[3] follows x[0]"),
        (lambda x: np.abs(x[:, [0]]) * np.sign(x[:, [3]]), "x[3] follows x[0] in size"),
        (lambda x: np.roll(x[:, [0]], 1, axis=0), "x[3] follows x[0] of the life before"),
        (lambda x: x[:, 4:20].sum(axis=1, keepdims=True) / 4.0, "some numbers add up to another"),
    ],
)
def test_dependent_noise_of_the_right_size_is_seen(change: Callable[[Floats], Floats], said: str) -> None:
    x = table(3)
    x[:, [3]] = change(x)
    assert said in dependent(columns("x", x))


def test_a_stream_that_begins_again_is_seen() -> None:
    x = table(4)
    x[1::2] = x[::2]
    assert {f"x[{i}] follows x[{i}] of the life before" for i in range(NUMBERS)} & dependent(columns("x", x))
