from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.report.page.chart import discs, label_width, profiles, share_bar, size_bars


def test_bars_share_one_scale_with_zero_on_it():
    small, large = size_bars([-10.0, 90.0], [[-20.0, 0.0], [80.0, 180.0]])
    assert (small.start, small.end, small.low, small.high) == (5.0, 10.0, 0.0, 10.0)
    assert (large.start, large.end, large.low, large.high) == (10.0, 55.0, 50.0, 100.0)
    (nothing,) = size_bars([0.0], None)
    assert (nothing.start, nothing.end, nothing.lo) == (0.0, 0.0, None)


@pytest.mark.parametrize(("share", "end"), [(0.25, 25.0), (0.0, 0.0), (7.0, 100.0), (-1.0, 0.0)])
def test_a_share_fills_its_part(share, end):
    assert share_bar(share).end == end


def test_profiles_stand_between_the_ends_of_all_ranges():
    centres, margins = np.array([[0.0, 5.0], [10.0, 5.0]]), np.array([[2.0, 0.0], [0.0, 0.0]])
    (first, second), columns = profiles(["a", "b"], centres, margins)
    assert columns == [0, 1]
    assert first[0].low == 0.0 and first[0].at == pytest.approx(2 / 12, abs=1e-3)
    assert second[0].at == second[0].high == 1.0
    assert first[1].at == 0.5, "a feature that all share lies in the middle"


def test_profiles_stand_between_bounds_where_these_are_known():
    centres, margins = np.array([[0.0, 5.0], [10.0, 60.0]]), np.array([[2.0, 1.0], [1.0, 1.0]])
    (first, second), _ = profiles(["a", "b"], centres, margins, np.array([[0.0, 0.0], [20.0, 50.0]]))
    assert [(point.low, point.at, point.high) for point in first] == [(0.0, 0.0, 0.1), (0.08, 0.1, 0.12)]
    assert (second[1].low, second[1].high) == (1.0, 1.0)


def test_profiles_draw_the_features_that_tell_clusters_apart():
    rng = np.random.default_rng(1)
    centres = np.zeros((2, 40))
    centres[1, 7::2] = 1.0
    (points, _), columns = profiles([f"f{i}" for i in range(40)], centres, rng.uniform(0.1, 0.2, (2, 40)))
    assert len(columns) == 24 and set(range(7, 40, 2)) <= set(columns) and columns == sorted(columns)
    assert [point.name for point in points] == [f"f{i}" for i in columns]


def test_discs_lie_in_the_plane_the_large_ones_below():
    drawn, ends = discs(np.array([[0.0, 1.0], [4.0, 3.0]]), None, [1.0, 100.0])
    assert [disc.cluster for disc in drawn] == [1, 0] and drawn[0].radius > drawn[1].radius
    assert (drawn[0].x, drawn[0].y) == (1.0, 1.0) and ends.tolist() == [[0.0, 1.0], [4.0, 3.0]]
    drawn, ends = discs(np.array([[2.0, 2.0]]), None, None, np.array([[0.0, 0.0], [4.0, 8.0]]))
    assert (drawn[0].x, drawn[0].y) == (0.5, 0.25) and ends[1].tolist() == [4.0, 8.0]
    drawn, _ = discs(np.array([[2.0, 2.0]]), None, [-5.0])
    assert (drawn[0].x, drawn[0].y) == (0.0, 0.0)


def test_labels_take_their_width():
    assert label_width(["a", "abc"]) < label_width(["abcdefghij"])
