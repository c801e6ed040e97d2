"""Every baseline gives centres for the same call; packages run where they are installed."""

from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.kmeans.metrics import nearest
from fastlloyd_papers.baselines.packages import find_problem
from fastlloyd_papers.baselines.table import BASELINES
from fastlloyd_papers.utility.data import Source
from fastlloyd_papers.utility.design import Method, list_cells
from fastlloyd_papers.utility.run import Workbench
from tests.protocols.support import blobs

IRIS = Source(name="iris", kind="named", k=3)


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_gives_centres_of_the_records(name: str) -> None:
    if problem := find_problem(name):
        pytest.skip(problem)
    points = blobs(2000, 4, 2)
    centers = BASELINES[name](points, 4, np.random.default_rng(0), epsilon=4.0, delta=1e-5)
    assert centers.shape[1] == 2
    assert len(centers) <= 4
    assert nearest(points, centers)[1] < 0.5 * nearest(points, points.mean(axis=0, keepdims=True))[1]


@pytest.mark.parametrize("name", ["diffprivlib", "google-lsh"])
def test_a_package_that_is_not_installed_says_how_to_get_it(name: str) -> None:
    problem = find_problem(name)
    assert problem == "" or "pip install" in problem or "PYTHONPATH" in problem
    assert find_problem("eugkm") == ""


def test_the_best_of_many_starts_is_irises_known_optimum() -> None:
    # 6.982 is the known sum of squares for iris scaled to [0, 1]; in [-1, 1] squares are four times as large.
    cell = list_cells(IRIS, [Method("kmeans", "kmeans")], (1.0,), 1)
    assert [c["epsilon"] for c in cell] == [None]
    assert Workbench(None).measure(IRIS, cell[0])["nicv"] == pytest.approx([4.0 * 6.98222 / 150.0], rel=1e-5)


def test_a_workbench_measures_baselines_and_repeats_its_figures() -> None:
    cell = list_cells(IRIS, [Method("eugkm", "eugkm")], (1.0,), 3)[0]
    first, second = (Workbench(None).measure(IRIS, cell) for _ in range(2))
    assert first == second
    assert len(set(first["nicv"])) == 3
