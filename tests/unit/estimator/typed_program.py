"""A user's program: `make lint` checks its types, and a test runs it."""

from __future__ import annotations

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

from fastlloyd import Budget, FastLloyd


def main() -> float:
    """Fit, predict and read what a fit leaves."""
    rows = [[2.0, 3.0], [8.0, 7.0]] * 40
    budget = Budget(20.0, 1e-4)
    model = FastLloyd(2, epsilon=5.0, bounds=([0, 0], [10, 10]), n_total=100, budget=budget, missing="midpoint")
    model.fit(rows)
    model.fit({"a": np.array([2.0, 8.0] * 40), "b": [3.0, None] * 40})
    FastLloyd(2, bounds={"a": (0, 10)}, n_total=100).get_params()
    FastLloyd(2, bounds=np.array([[0.0, 0.0, 0.0], [9.0, 9.0, 9.0]]), random_state=np.random.RandomState(0))
    assert_type(model.cluster_centers_, NDArray[np.float64])
    assert_type(model.predict({"a": [1.0], "b": [2.0]}), NDArray[np.int64])
    assert_type(model.epsilon_spent_, float)
    assert_type(budget.remaining(), float)
    assert_type(model.fit(rows), FastLloyd)
    center: NDArray[np.float64] = model.cluster_centers_[0]
    labels: NDArray[np.int64] = model.labels_
    verdict: str = model.quality_.verdict
    return float(center.sum()) + len(labels) + len(verdict) + budget.spent()
