from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fastlloyd.protocols.vertical_he.math.grid import corners, count_cells, nearest, shares
from fastlloyd.protocols.vertical_he.math.linear import partial_scores
from fastlloyd.protocols.vertical_he.reference import soft_one_hot, soft_sums

UNIT = st.floats(-1, 1, allow_nan=False).map(lambda x: 0.0 if abs(x) < 1e-12 else x)
# Few values, so that centres share coordinates, records tie and lie on corners.
COARSE = st.integers(-4, 4).map(lambda x: x / 4.0)


@pytest.mark.parametrize(("degree", "cells"), [(62, (32, 16)), (4, (2, 1)), (510, (256, 128)), (61, (16, 8))])
def test_the_grid_is_as_fine_as_is_said(degree: int, cells: tuple[int, int]) -> None:
    assert (count_cells(degree, 1), count_cells(degree, 2)) == cells


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("cells", [1, 2, 8])
def test_corners_are_all_places_of_the_grid_once(axes: int, cells: int) -> None:
    found = corners(cells, axes)
    assert found.shape == ((cells + 1) ** axes, axes)
    assert len(set(map(tuple, found.tolist()))) == len(found) and set(found.flatten()) == set(range(cells + 1))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.sampled_from([1, 2, 4, 8]), st.data())
def test_shares_are_not_negative_sum_to_one_and_keep_the_record_in_its_place(
    axes: int, cells: int, data: st.DataObject
) -> None:
    element = st.one_of(UNIT, COARSE, st.sampled_from([-1.0, 1.0]))
    columns = data.draw(arrays(np.float64, (axes, 5), elements=element))
    found = shares(columns, cells)
    assert found.min() >= 0.0 and ((found > 0.0).sum(axis=0) <= 2**axes).all()
    np.testing.assert_allclose(found.sum(axis=0), 1.0, atol=1e-12)
    places = corners(cells, axes) * (2.0 / cells) - 1.0
    np.testing.assert_allclose(places.T @ found, columns, atol=1e-12)
    assert (np.square(places).T @ found - columns**2).max() <= 1.0 / cells**2 + 1e-12  # D^2 / 4


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), st.data())
def test_every_corner_goes_to_a_nearest_centre(k: int, axes: int, data: st.DataObject) -> None:
    element = data.draw(st.sampled_from([UNIT, COARSE]))
    centers = data.draw(arrays(np.float64, (k, 1 + axes), elements=element))
    own = data.draw(arrays(np.float64, (1, 4), elements=element))
    places = corners(2, axes) - 1.0
    found = nearest(partial_scores(centers, own, (0,)), 2.0 * places @ centers[:, 1:].T)
    assert found.shape == (3**axes, 4)
    for row, place in enumerate(places):
        distances = (own[0][:, None] - centers[:, 0]) ** 2 + ((place - centers[:, 1:]) ** 2).sum(axis=1)
        # But for rounding.
        assert (np.take_along_axis(distances, found[row][:, None], 1)[:, 0] <= distances.min(axis=1) + 1e-9).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.data())
def test_the_soft_one_hot_is_a_probability(k: int, data: st.DataObject) -> None:
    element = data.draw(st.sampled_from([UNIT, COARSE]))
    centers = data.draw(arrays(np.float64, (k, 3), elements=element))
    points = data.draw(arrays(np.float64, (5, 3), elements=st.one_of(element, st.sampled_from([-1.0, 1.0]))))
    weights = soft_one_hot(points, centers, hidden=(1, 2), grid=4)
    assert weights.min() >= 0.0
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-12)


def test_a_record_whose_box_lies_in_one_cluster_counts_there_as_it_is() -> None:
    centers = np.array([[-0.6, -0.6], [0.6, 0.6]])
    points = np.array([[0.51, 0.93], [-0.51, -0.64]])
    np.testing.assert_allclose(
        soft_sums(points, centers, hidden=(1,), grid=8), [[1.0, -0.51, -0.64], [1.0, 0.51, 0.93]], atol=1e-12
    )
