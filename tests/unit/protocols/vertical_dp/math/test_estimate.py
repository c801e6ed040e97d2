"""Estimates from sketches: unbiased, with the standard errors that are stated.

Sums of many independent estimates are compared with normal quantiles at 6 standard errors (two-sided 2e-9) and their
squares with the same distance of a chi-square variable, so the file as a whole fails by chance once in some 10^7 runs.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlloyd.errors import ConfigError, DataError, RangeError
from fastlloyd.protocols.vertical_dp.math import pair
from fastlloyd.protocols.vertical_dp.math.estimate import (
    basic_error,
    basic_table,
    cardinality,
    cluster_sizes,
    nearest_table,
    raw_basic_table,
    relative_error,
    union_phantoms,
    without_one,
)
from fastlloyd.protocols.vertical_dp.math.pair import likelihood_error, likelihood_table
from fastlloyd.protocols.vertical_dp.math.weights import estimate_weights, groups_of
from fastlloyd.protocols.vertical_dp.sketch.sketch import SketchShape, make_sketch
from tests.unit.protocols.vertical_dp.math.weights import correlated_labels, count_cells, draw_sketches

SIGMAS = 6.0
KEY = bytes(range(32))


def check_unbiased(found: np.ndarray, truth: float, error: float) -> None:
    """Compare the mean and the spread of independent estimates with what is stated."""
    scores = (found - truth) / error
    count = scores.size
    assert abs(scores.sum()) <= SIGMAS * math.sqrt(count)
    # Nearly normal scores; a little is added for the skew of estimates from few rows.
    assert abs((scores**2).sum() - count) <= SIGMAS * math.sqrt(2.0 * count) * 1.1


@pytest.mark.parametrize("gamma", [2.0**-11, 0.1, 1.0])
@pytest.mark.parametrize("size", [100, 1000, 10_000, 100_000, 1_000_000])
def test_cardinality_is_unbiased_within_its_stated_error(size: int, gamma: float) -> None:
    shape = SketchShape(rows=512, clusters=1, gamma=gamma, phantoms=20)
    rng = np.random.default_rng([size, int(1000 * gamma)])
    uniform = rng.random((512, 200)) ** (1.0 / size)
    levels = np.searchsorted(shape.user_levels.cumulative()[1:-1], uniform, side="right") + 1
    found = cardinality(np.maximum(levels, shape.floor), shape)
    check_unbiased(found, size, size * relative_error(size, shape))


@pytest.mark.parametrize("n", [100, 3_000])
def test_cluster_sizes_are_found_from_real_sketches(n: int) -> None:
    shape = SketchShape(rows=4096, clusters=2, phantoms=50)
    labels = (np.arange(n) % 4 == 0).astype(np.int64)
    found = cluster_sizes(make_sketch(labels, 0, KEY, shape), shape)
    for size, estimate in zip(np.bincount(labels), found, strict=True):
        error = (size + 100) * relative_error(size + 100, shape)
        assert abs(estimate - size) <= SIGMAS * error


@pytest.mark.slow
@pytest.mark.parametrize("n", [100_000, 1_000_000])
def test_large_clusters_are_found_from_real_sketches(n: int) -> None:
    shape = SketchShape(rows=4096, clusters=1, phantoms=50)
    found = cluster_sizes(make_sketch(np.zeros(n, dtype=np.int64), 0, KEY, shape), shape)[0]
    assert abs(found - n) <= SIGMAS * (n + 50) * relative_error(n + 50, shape)


def test_the_relative_error_is_that_of_maxima() -> None:
    fine, coarse = (SketchShape(rows=4096, clusters=1, gamma=gamma, phantoms=1) for gamma in (2.0**-11, 1.0))
    assert relative_error(1e4, fine) * 64.0 == pytest.approx(1.0, abs=1e-3)
    # LogLog counting with levels a factor 2 apart: some 4 % more.
    assert 1.02 < relative_error(1e4, coarse) * 64.0 < 1.06


def test_a_set_that_never_rises_above_the_floor_is_empty() -> None:
    shape = SketchShape(rows=16, clusters=1, phantoms=3)
    assert cardinality(np.full((16, 1), shape.floor), shape).tolist() == [0.0]


def test_a_set_beyond_the_words_is_refused() -> None:
    shape = SketchShape(rows=16, clusters=1, phantoms=3)
    with pytest.raises(RangeError, match="too large"):
        cardinality(np.full((16, 1), shape.top), shape)


@pytest.mark.parametrize("scheme", ["grid", "paper"])
def test_intersections_follow_theorem_6_with_the_phantoms_in_the_union(scheme: str) -> None:
    table = np.array([[900, 30, 0], [10, 400, 60], [0, 0, 1600]])
    shape = SketchShape(rows=256, clusters=3, gamma=0.01, phantoms=40)
    rng = np.random.default_rng(7)
    if scheme == "grid":
        runs = [raw_basic_table(draw_sketches(table, shape, rng), shape, 3000.0) for _ in range(150)]
    else:
        shape = dataclasses.replace(shape, scheme="paper")
        runs = []
        for _ in range(150):
            sketches = draw_sketches(table, dataclasses.replace(shape, phantoms=1), rng)
            own = rng.random((2, 256, 3)) ** (1.0 / 40)
            steps = shape.user_levels.cumulative()[1:-1]
            sketches = [
                np.maximum(np.maximum(levels, np.searchsorted(steps, u, side="right") + 1), shape.floor)
                for levels, u in zip(sketches, own, strict=True)
            ]
            runs.append(raw_basic_table(sketches, shape, 3000.0))
        # The generator's own phantom per cell: 8 in the complement of each.
        runs = [run + 8 for run in runs]
    found = np.array(runs)
    assert union_phantoms(shape) == (8 * 40 if scheme == "grid" else 4 * 40)
    for place, weight in np.ndenumerate(table):
        check_unbiased(found[:, *place], float(weight), basic_error(3000.0, float(weight), shape))


def test_three_parties_in_one_sketch_are_unbiased() -> None:
    table = np.array([[[300, 20], [40, 0]], [[0, 100], [60, 480]]])
    shape = SketchShape(rows=256, clusters=2, parties=3, gamma=0.01, phantoms=10)
    rng = np.random.default_rng(8)
    found = np.array([raw_basic_table(draw_sketches(table, shape, rng), shape, 1000.0) for _ in range(150)])
    assert union_phantoms(shape) == 70
    for place, weight in np.ndenumerate(table):
        check_unbiased(found[:, *place], float(weight), basic_error(1000.0, float(weight), shape))


def test_estimates_from_real_sketches_are_within_their_errors() -> None:
    labels = correlated_labels(4000, 2, 3, 1)
    table = count_cells(labels, 3)
    shape = SketchShape(rows=2048, clusters=3, phantoms=30)
    sketches = [make_sketch(own, place, KEY, shape) for place, own in enumerate(labels)]
    basic, likely = raw_basic_table(sketches, shape, 4000.0), likelihood_table(sketches, shape, 4000.0)
    for place, weight in np.ndenumerate(table):
        assert abs(basic[place] - weight) <= SIGMAS * basic_error(4000.0, float(weight), shape)
        assert abs(likely[place] - weight) <= SIGMAS * 1.5 * likelihood_error(4000.0, float(weight), shape)


def test_the_likelihood_of_whole_rows_is_unbiased_where_weights_are_well_above_nothing() -> None:
    table = np.array([[900, 300, 500], [250, 400, 350], [700, 200, 1600]])
    shape = SketchShape(rows=512, clusters=3, phantoms=40)
    rng = np.random.default_rng(9)
    found = np.array([likelihood_table(draw_sketches(table, shape, rng), shape, 5200.0) for _ in range(100)])
    error = found.std(axis=0, ddof=1)
    # 100 estimates each, so Student's distribution: 7 in place of 6 for the same chance.
    assert (np.abs(found.mean(axis=0) - table) <= 7.0 * error / 10.0).all()
    stated = np.vectorize(lambda weight: likelihood_error(5200.0, weight, shape))(table)
    assert (error < 1.6 * stated).all() and (error > 0.4 * stated).all()
    np.testing.assert_allclose(found.sum(axis=(1, 2)), 5200.0)


def test_the_likelihood_of_whole_rows_has_a_fifth_of_the_error_of_unions() -> None:
    table = count_cells(correlated_labels(20_000, 2, 5, 2), 5)
    shape = SketchShape(rows=4096, clusters=5, phantoms=490)
    sketches = draw_sketches(table, shape, np.random.default_rng(3))
    basic, likely = basic_table(sketches, shape, 2e4), likelihood_table(sketches, shape, 2e4)
    errors = [float(np.abs(found - table).sum()) / 2e4 for found in (basic, likely)]
    assert errors[1] < 0.06 and errors[0] > 2.0 * errors[1]
    raw = raw_basic_table(sketches, shape, 2e4)
    assert np.abs(raw - table).mean() > 5.0 * np.abs(likely - table).mean()


@pytest.mark.parametrize("changes", [{"gamma": 0.1}, {"scheme": "paper"}, {"parties": 3}])
def test_the_likelihood_refuses_sketches_it_is_not_for(changes: dict[str, object]) -> None:
    shape = dataclasses.replace(SketchShape(rows=16, clusters=2, phantoms=3), **changes)
    with pytest.raises(ConfigError, match="basic"):
        likelihood_table([np.full((16, 2), shape.floor)] * 2, shape, 10.0)


def test_a_cell_is_watched_until_the_middle_of_its_level_and_at_the_floor_until_its_end() -> None:
    shape = SketchShape(rows=3, clusters=1, gamma=0.5, phantoms=3)
    below, floor, top = shape.user_levels.cumulative(), shape.floor, shape.user_levels.top
    expected = below[floor], (below[floor] + below[floor + 1]) / 2.0, (below[top - 1] + 1.0) / 2.0
    found = pair._times(np.array([[floor], [floor + 1], [top]]), np.array([[top]] * 3), shape)
    assert found == pytest.approx(-np.log(expected).sum(), rel=1e-12)


def test_sketches_without_any_user_give_the_total_back() -> None:
    shape = SketchShape(rows=16, clusters=2, phantoms=3)
    empty = [np.full((16, 2), shape.floor)] * 2
    assert basic_table(empty, shape, 12.0).sum() == pytest.approx(12.0)
    assert likelihood_table(empty, shape, 12.0).sum() == pytest.approx(12.0)
    assert likelihood_table(empty, shape, -1.0).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_sketches_that_do_not_fit_are_refused() -> None:
    shape = SketchShape(rows=16, clusters=2, phantoms=3)
    good = np.full((16, 2), shape.floor)
    for sketches in ([good], [good, good[:3]], [good, good - 1], [good, good + shape.top]):
        with pytest.raises(DataError):
            basic_table(sketches, shape, 10.0)


@given(st.integers(1, 6), st.integers(1, 9))
def test_leaving_one_out_is_the_highest_of_the_others(rows: int, clusters: int) -> None:
    levels = np.random.default_rng([rows, clusters]).integers(1, 6, (rows, clusters))
    found = without_one(levels)
    for a in range(clusters):
        others = np.delete(levels, a, axis=1)
        assert (found[:, a] == (others.max(axis=1) if clusters > 1 else 1)).all()


@settings(max_examples=60)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=12), st.floats(0.1, 100))
def test_the_nearest_table_is_nearer_than_any_other(values: list[float], total: float) -> None:
    table = np.array(values)
    found = nearest_table(table, total)
    assert (found >= 0.0).all() and found.sum() == pytest.approx(total)
    rng = np.random.default_rng(len(values))
    for other in rng.dirichlet(np.ones(len(values)), 20) * total:
        # On a convex set the nearest point makes an obtuse angle with every other point.
        assert (table - found) @ (other - found) <= 1e-6 * total * (1.0 + np.abs(table).max())


@pytest.mark.slow
@pytest.mark.parametrize(("clusters", "limit_s"), [(5, 1.0), (8, 5.0)])
@pytest.mark.parametrize("method", ["basic", "2pest", "likelihood"])
def test_the_estimate_of_four_parties_is_fast(method: str, clusters: int, limit_s: float) -> None:
    labels = correlated_labels(20_000, 4, clusters, 1)
    groups = groups_of(4, "basic" if method == "basic" else "2pest")
    shape = SketchShape(rows=4096, clusters=clusters, parties=len(groups[0]), phantoms=100)
    sketches = {
        group: [make_sketch(labels[party], place, KEY, shape) for place, party in enumerate(group)] for group in groups
    }
    start = time.process_time()
    estimate_weights(sketches, shape, 2e4, estimator="likelihood" if method == "likelihood" else "basic")
    assert time.process_time() - start <= limit_s


def test_a_cell_is_watched_up_to_the_larger_value_and_no_longer_than_the_floor_shows() -> None:
    shape = SketchShape(rows=3, clusters=1, gamma=2.0**-9, phantoms=3)
    cumulative, floor = shape.user_levels.cumulative(), shape.floor

    def levels(*above: int) -> np.ndarray:
        return floor + np.array(above)[:, None]

    # A level above the floor lies somewhere in its step; at the floor all that is known is that no level was higher.
    steps = [-math.log(cumulative[floor])]
    steps += [-math.log((cumulative[floor + i] + cumulative[floor + i - 1]) / 2.0) for i in (1, 2)]
    found = pair._times(levels(0, 1, 2), levels(0, 2, 1), shape)
    assert found == pytest.approx(np.array([[steps[0] + 2 * steps[1]]]), rel=1e-12)


def test_the_weights_add_up_also_where_cells_have_no_events() -> None:
    events = np.array([[[0.0, 0.5], [2.0, 3.0]], [[1.0, 0.5], [2.0, 3.0]], [[0.0, 0.0], [0.0, 0.0]]])
    times = np.array([[[1.0, 2.0], [3.0, 4.0]]] * 3)
    for total in (0.1, 7.0, 1e6):
        found = pair._rescaled(events, times, total)
        assert (found[events > 0.0] > 0.0).all() and (found[events == 0.0] == 0.0).all()
        assert found.sum(axis=(1, 2)) == pytest.approx(np.array([total, total, 0.0]), rel=1e-9)


def test_pairs_that_take_their_steps_together_have_the_bits_of_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = SketchShape(rows=256, clusters=4, phantoms=5)
    labels = correlated_labels(2_000, 4, 4, 3)
    # One pair without users, whose steps end at once; one whose second party has users in two clusters alone.
    users = [*itertools.combinations(labels, 2), (np.full(9, -1), np.full(9, -1)), (labels[0], labels[1] % 2)]
    sketches = [[make_sketch(own, place, KEY, shape) for place, own in enumerate(pair_of)] for pair_of in users]
    alone = [likelihood_table(own, shape, 2_000.0) for own in sketches]
    for most in (1 << 21, 3_000):  # all at once, some at a time
        monkeypatch.setattr(pair, "_TOGETHER", most)
        together = pair.likelihood_tables(sketches, shape, 2_000.0)
        assert all((one == other).all() for one, other in zip(alone, together, strict=True))
