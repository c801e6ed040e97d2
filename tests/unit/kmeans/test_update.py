"""Post-processing: division, radius clipping, fold and truncate."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.kmeans.update import bring_inside, clip_step, fold, move, truncate

finite = st.floats(-100, 100, allow_nan=False)


@given(finite)
def test_folding_reflects_until_inside(value: float) -> None:
    expected = value
    while abs(expected) > 1:
        expected = 2 - expected if expected > 1 else -2 - expected
    folded = float(fold(np.array([[value]]))[0, 0])
    assert abs(folded) <= 1
    assert abs(folded - expected) < 1e-9


def test_fold_of_known_values() -> None:
    assert np.allclose(fold(np.array([1.2, -1.2, 3.5, 0.3])), [0.8, -0.8, -0.5, 0.3])


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=5), st.floats(1e-3, 50))
def test_clipped_steps_keep_direction_and_length(rows: list[tuple[float, float]], radius: float) -> None:
    step = np.array(rows)
    clipped = clip_step(step, radius)
    assert (np.linalg.norm(clipped, axis=1) <= radius * (1 + 1e-12)).all()
    near = np.linalg.norm(step, axis=1) <= radius
    assert (clipped[near] == step[near]).all()
    cross = step[:, 0] * clipped[:, 1] - step[:, 1] * clipped[:, 0]
    assert (np.abs(cross) <= 1e-9 * (1 + np.abs(step).max() ** 2)).all()


def test_small_and_negative_counts_count_as_one() -> None:
    moved = move(np.array([[4.0], [4.0], [4.0]]), np.array([2.0, 0.25, -3.0]))
    assert moved.tolist() == [[2.0], [4.0], [4.0]]


def test_rules_for_the_domain() -> None:
    centers = np.array([[1.5, -40.0]])
    assert truncate(centers).tolist() == [[1.0, -1.0]]
    assert bring_inside(centers, "none").tolist() == [[1.5, -16.0]]
    assert np.allclose(bring_inside(centers, "fold"), [[0.5, 0.0]])
