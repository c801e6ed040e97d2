"""The attacks on SecFC find everything where a protection is off, and nothing in what the server decodes."""

from __future__ import annotations

import numpy as np

from fastlloyd.data.bounds import auto_public, scale
from fastlloyd.data.public.named import load_named
from fastlloyd.kmeans.grid import quantise
from fastlloyd_papers.secfc.attacks import attack, find_components, make_attacked
from fastlloyd_papers.secfc.geometry import read_lines, rebuild_geometry, similarity_error
from fastlloyd_papers.secfc.lloyd import run_pooled


def iris() -> np.ndarray:
    values = load_named("iris", None).values
    return scale(values, auto_public(values))


def test_lattice_reduction_rebuilds_every_column_of_iris_from_exact_values_alone() -> None:
    assert attack(iris(), 3, rotated=False, masked=False, ordered=True)[0] == 4


def test_lattice_reduction_finds_nothing_where_one_protection_is_on() -> None:
    points = iris()
    ways = ((True, False, True), (False, True, True), (False, False, False), (True, True, False))
    for rotated, masked, ordered in ways:
        assert attack(points, 3, rotated=rotated, masked=masked, ordered=ordered)[0] == 0


def test_one_factor_for_all_scores_of_a_record_would_give_the_geometry_away() -> None:
    points = np.random.default_rng(5).normal(size=(150, 2)) / 5
    grid = quantise(points, 16).raw_coordinates.T.astype(np.int64)
    labels = run_pooled(grid, make_attacked(points, 6))[-1]
    assert len(np.unique(labels)) >= 4
    found = rebuild_geometry(read_lines(grid, labels), labels, 2)
    assert found is not None and similarity_error(found, points) < 1e-4
    assert rebuild_geometry(read_lines(grid, labels % 3), labels % 3, 2) is None


def test_independent_columns_are_found_in_spite_of_a_rotation() -> None:
    assert (find_components(np.random.default_rng(0).uniform(-1, 1, (800, 3))) > 0.98).all()
