"""The forms of bounds: names are matched, and what can be read in two ways is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from fastlloyd.data.bounds import Bounds
from fastlloyd.errors import ConfigError
from fastlloyd.estimator.parameter import match_bounds
from fastlloyd.estimator.words import ParameterError

NAMES = np.array(["bmi", "weight"], dtype=object)
MEANT = [[10.0, 60.0], [30.0, 200.0]]


def pairs(bounds: Any, names: Any = NAMES, d: int = 2) -> list[list[float]]:
    matched = match_bounds(bounds, d, names)
    assert matched.names == (tuple(f"x{i + 1}" for i in range(d)) if names is None else tuple(names))
    return np.column_stack([matched.lo, matched.hi]).tolist()


@pytest.mark.parametrize(
    "bounds",
    [
        [(0, 100), (80, 200)],
        ((0, 100), (80, 200)),
        np.array([[0.0, 100.0], [80.0, 200.0]]),
        (np.array([0, 100]), np.array([80, 200])),
    ],
)
@pytest.mark.parametrize("names", [NAMES, None])
def test_two_pairs_for_two_features_are_refused_with_both_meanings(bounds: Any, names: Any) -> None:
    first, second = ("x1", "x2") if names is None else names
    with pytest.raises(ParameterError) as caught:
        match_bounds(bounds, 2, names)
    text = str(caught.value)
    assert f"bounds={{{first!r}: (0, 80), {second!r}: (100, 200)}}" in text
    assert f"bounds={{{first!r}: (0, 100), {second!r}: (80, 200)}}" in text
    # Each meaning can be given as the error spells it.
    for meaning in (((0, 80), (100, 200)), ((0, 100), (80, 200))):
        given = dict(zip((first, second), meaning, strict=True))
        assert repr(given) in text
        assert pairs(given, names) == [list(map(float, pair)) for pair in meaning]


def test_two_pairs_with_one_meaning_are_taken() -> None:
    assert pairs(([0, -5000], [120, 5000])) == [[0.0, 120.0], [-5000.0, 5000.0]]
    assert pairs([[0, 1], [1, 2]]) == [[0.0, 1.0], [1.0, 2.0]]  # both readings are this one
    assert pairs({"lo": (0, 100), "hi": (80, 200)}) == [[0.0, 80.0], [100.0, 200.0]]
    assert pairs(Bounds(np.array([0, 100]), np.array([80, 200]))) == [[0.0, 80.0], [100.0, 200.0]]
    assert pairs((0, 1)) == [[0.0, 1.0]] * 2
    assert pairs(([0, 1], 5)) == [[0.0, 5.0], [1.0, 5.0]]
    assert pairs(([0, 1, 2], [10, 20, 30]), None, 3) == [[0.0, 10.0], [1.0, 20.0], [2.0, 30.0]]


def test_a_pair_for_each_feature_is_named_where_nothing_else_fits() -> None:
    with pytest.raises(ParameterError, match=r"a pair for each feature: for that give bounds=.*'bmi': \(0, 100\)"):
        match_bounds([(0, 100), (0, 200)], 2, NAMES)
    with pytest.raises(ParameterError, match="bounds: expected .lo, hi."):
        match_bounds([(0, 100), (0, 200), (0, 300)], 3, None)


def test_a_mapping_is_matched_by_name() -> None:
    assert pairs({"weight": (30, 200), "bmi": (10, 60)}) == MEANT
    assert pairs({"weight": [30, 200], "bmi": np.array([10, 60])}) == MEANT
    assert pairs(({"weight": 30, "bmi": 10}, {"bmi": 60, "weight": 200})) == MEANT
    assert pairs(({"weight": 30, "bmi": 10}, 200)) == [[10.0, 200.0], [30.0, 200.0]]
    assert pairs({"x2": (30, 200), "x1": (10, 60)}, None) == MEANT
    columns = np.array(["lo", "hi"], dtype=object)
    assert pairs({"hi": (1, 2), "lo": (3, 4)}, columns) == [[3.0, 4.0], [1.0, 2.0]]


@pytest.mark.parametrize(
    "bounds,words",
    [
        ({"bmi": (10, 60)}, "the columns are bmi, weight, got bmi"),
        ({"bmi": (10, 60), "wieght": (30, 200)}, "did you mean 'weight'"),
        ({"bmi": (10, 60), "weight": (30, 200), "age": (0, 120)}, "an entry for each column and no other"),
        ({"bmi": 10, "weight": 30}, "bounds: expected .lo, hi."),
        ({"bmi": (10, 60, 70), "weight": (30, 200)}, "bounds: expected .lo, hi."),
        ({"bmi": ("a", "b"), "weight": (30, 200)}, "bounds: expected .lo, hi."),
        (({"weight": 30, "bmi": 10}, [60, 200]), "names on both sides or on none"),
        (({"weight": 30}, {"bmi": 60, "weight": 200}), "the columns are bmi, weight, got weight"),
        ({"lo": (0, 0, 0), "hi": (1, 1, 1)}, "bounds: expected .lo, hi."),
    ],
)
def test_names_that_do_not_match_are_refused(bounds: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        match_bounds(bounds, 2, NAMES)


def test_names_for_columns_without_names_are_refused() -> None:
    with pytest.raises(ParameterError, match="where X has no names its columns are x1, x2"):
        match_bounds({"weight": (30, 200), "bmi": (10, 60)}, 2, None)


def test_series_and_frames_are_matched_by_name() -> None:
    pandas = pytest.importorskip("pandas")
    lo, hi = pandas.Series({"weight": 30.0, "bmi": 10.0}), pandas.Series({"bmi": 60.0, "weight": 200.0})
    assert pairs((lo, hi)) == pairs([lo, 200.0])[:0] + MEANT
    assert pairs(pandas.Series({"weight": (30, 200), "bmi": (10, 60)})) == MEANT
    assert pairs(pandas.Series({"hi": 9, "lo": 1})) == [[1.0, 9.0]] * 2
    by_row = pandas.DataFrame({"hi": hi, "lo": lo})
    assert pairs(by_row) == pairs(by_row.T) == pairs(by_row.iloc[::-1]) == MEANT
    assert pairs(by_row.rename_axis("feature").reset_index()) == MEANT
    # Without names the order counts, as it does for arrays.
    assert pairs((pandas.Series([0, -9]), pandas.Series([1, 9])), None) == [[0.0, 1.0], [-9.0, 9.0]]
    assert pairs(pandas.DataFrame({"hi": [1, 9], "lo": [0, -9]}), None) == [[0.0, 1.0], [-9.0, 9.0]]
    with pytest.raises(ParameterError, match="two ways"):
        match_bounds((pandas.Series([0, 100]), pandas.Series([80, 200])), 2, None)
    for wrong in (lo.rename({"bmi": "age"}), pandas.Series([1.0, 2.0], index=["bmi", "bmi"])):
        with pytest.raises(ParameterError):
            match_bounds((wrong, hi), 2, NAMES)
    with pytest.raises(ParameterError, match="expected a DataFrame with the columns feature, lo and hi"):
        match_bounds(pandas.DataFrame({0: [1.0, 2.0], 1: [3.0, 4.0]}), 2, NAMES)
    with pytest.raises(ConfigError, match="LO < HI"):
        match_bounds((hi, lo), 2, NAMES)
