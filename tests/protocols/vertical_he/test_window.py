from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fastlloyd.protocols.vertical_he.math.linear import partial_scores
from fastlloyd.protocols.vertical_he.math.window import (
    amplitude,
    features,
    jackson,
    reach,
    step_weights,
    thresholds,
    times_feature,
)
from fastlloyd.protocols.vertical_he.reference import soft_one_hot

UNIT = st.floats(-1, 1, allow_nan=False).map(lambda x: 0.0 if abs(x) < 1e-12 else x)
# Few values, so that centres share coordinates and records tie.
COARSE = st.integers(-4, 4).map(lambda x: x / 4.0)


@pytest.mark.parametrize("degree", [4, 31, 62, 127])
def test_jackson_factors_are_an_autocorrelation(degree: int) -> None:
    window = np.sin(np.pi * (np.arange(degree + 1) + 1) / (degree + 2))
    expected = [(window[: degree + 1 - m] * window[m:]).sum() / (window**2).sum() for m in range(1, degree + 1)]
    np.testing.assert_allclose(jackson(degree), expected, atol=1e-14)


@pytest.mark.parametrize("degree", [4, 31, 62])
def test_the_kernel_is_not_negative(degree: int) -> None:
    angles = np.linspace(0, np.pi, 50_001)
    kernel = 1 + 2 * (jackson(degree)[:, None] * np.cos(np.arange(1, degree + 1)[:, None] * angles)).sum(axis=0)
    assert kernel.min() > -1e-12


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.data())
def test_soft_one_hot_is_a_probability(k: int, data: st.DataObject) -> None:
    element = data.draw(st.sampled_from([UNIT, COARSE]))
    centers = data.draw(arrays(np.float64, (k, 2), elements=element))
    points = data.draw(arrays(np.float64, (5, 2), elements=st.one_of(element, st.sampled_from([-1.0, 1.0]))))
    weights = soft_one_hot(points, centers, hidden=1, degree=62)
    assert weights.min() > -1e-12
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.data())
def test_thresholds_are_where_the_nearest_centre_changes(k: int, data: st.DataObject) -> None:
    element = data.draw(st.sampled_from([UNIT, COARSE]))
    centers = data.draw(arrays(np.float64, (k, 2), elements=element))
    centers = centers[np.argsort(centers[:, 1], kind="stable")]
    own = data.draw(arrays(np.float64, (1, 4), elements=element))
    cuts = thresholds(partial_scores(centers, own, (0,)), centers[:, 1])
    assert cuts.shape == (k - 1, 4)
    assert (np.diff(cuts, axis=0) >= 0).all() and (np.abs(cuts) <= 1).all()
    hidden = np.linspace(-1, 1, 41)
    # A cut at -1 is a step that is 1 everywhere, at the end too.
    chosen = ((hidden[:, None] > cuts.T[:, None]) | (cuts.T[:, None] <= -1)).sum(axis=2)
    distances = (own[0][:, None, None] - centers[:, 0]) ** 2 + (hidden[:, None] - centers[:, 1]) ** 2
    won = np.take_along_axis(distances, chosen[:, :, None], axis=2)[:, :, 0]
    # The centre that the thresholds name is a nearest one, but for rounding.
    assert (won <= distances.min(axis=2) + 1e-9).all()


@settings(max_examples=50, deadline=None)
@given(arrays(np.float64, 5, elements=st.floats(0, np.pi)), arrays(np.float64, 5, elements=UNIT))
def test_a_step_times_the_feature_is_exact(angles: np.ndarray, values: np.ndarray) -> None:
    soft = step_weights(angles, jackson(20))
    series = (soft * features(values, 21)).sum(axis=0)
    product = (times_feature(soft) * features(values, 22)).sum(axis=0)
    np.testing.assert_allclose(product, values * series, atol=1e-12)
    assert ((series > -1e-12) & (series < 1 + 1e-12)).all()


def test_amplitude_bounds_a_cluster_s_weights() -> None:
    rng = np.random.default_rng(0)
    low, high = np.sort(rng.uniform(0, np.pi, (2, 2000)), axis=0)
    cluster = step_weights(high, jackson(62)) - step_weights(low, jackson(62))
    assert np.abs(cluster).sum(axis=0).max() <= amplitude(62)
    assert (cluster**2).sum(axis=0).max() <= 2.0
    assert np.abs(times_feature(cluster)).sum(axis=0).max() <= amplitude(62)


@pytest.mark.parametrize("degree", [4, 62, 510])
def test_reach_bounds_the_largest_weights_of_a_step(degree: int) -> None:
    angles = np.linspace(0, np.pi, 20_001)
    soft = step_weights(angles, jackson(degree))
    for weights in (soft, times_feature(soft), -soft):
        assert np.abs(weights).max(axis=1).sum() <= reach(degree)
    assert np.abs(soft).max(axis=1).sum() >= 0.9 * reach(degree)  # not much too wide either
