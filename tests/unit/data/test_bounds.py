"""Public bounds: parsing, matching by name, and the map to [-1, 1]."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.data.bounds import Bounds, auto_public, count_outside, parse_bounds, scale, unscale
from fastlloyd.errors import ConfigError, DataError


def pair(lo, hi):
    return Bounds(np.array([lo], dtype=float), np.array([hi], dtype=float))


@pytest.mark.parametrize("text", ["-1,1", " -1 , 1.0 ", "-1e0,+1"])
def test_a_pair_holds_for_all_features(text):
    bounds = parse_bounds(text).match(("a", "b"))
    np.testing.assert_array_equal(bounds.lo, [-1, -1])
    np.testing.assert_array_equal(bounds.hi, [1, 1])
    assert bounds.names == ("a", "b")


@pytest.mark.parametrize(
    "text",
    [
        "feature,lo,hi\na,0,1\nb,-5,5\n",
        "\ufeffhi,Feature, LO\r\n1,a,0\r\n\r\n5,b,-5\r\n",
        '"feature","lo","hi"\n"a",0,1\nb,-5,5',
    ],
)
def test_a_file_goes_by_name(tmp_path, text):
    path = tmp_path / "bounds.csv"
    path.write_bytes(text.encode())
    bounds = parse_bounds(str(path)).match(("b", "a"))
    np.testing.assert_array_equal(bounds.lo, [-5, 0])
    np.testing.assert_array_equal(bounds.hi, [5, 1])
    assert bounds.names == ("b", "a")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1,-1", "expected LO < HI, got 1,-1"),
        ("1,1", "expected LO < HI"),
        ("0,inf", "expected finite numbers"),
        ("nan,1", "expected finite numbers"),
        ("0,5e-324", "too close"),
        ("0,9e-101", "too close"),
        ("-1e308,1e308", "expected numbers from -1e\\+100 to 1e\\+100, got -1e\\+308,1e\\+308; use another unit"),
        ("0,1.1e100", "expected numbers from"),
        ("1,2,3", "neither two numbers nor an existing file"),
        ("no-such-file.csv", "neither two numbers nor an existing file"),
        ("private", "a run cannot find its own: `fastlloyd bounds --share SHARE` finds them"),
        ("private:0.1", "a run cannot find its own"),
        ("a,b", "neither two numbers nor an existing file"),
        ("x" * 5000, "neither two numbers nor an existing file"),
        ("a\0b", "neither two numbers nor an existing file"),
        ("auto-public", "public --dataset only"),
    ],
)
def test_bounds_that_cannot_be_meant(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_bounds(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "begins with the row feature,lo,hi"),
        ("a,0,1\n", "begins with the row feature,lo,hi"),
        ("feature,lo,hi\n", "holds no feature"),
        ("feature,lo,hi\na,0\n", "row 2: expected a name and two numbers"),
        ("feature,lo,hi\na,0,1\nb,zero,1\n", "row 3: expected a name and two numbers"),
        ("feature,lo,hi\na,0,1\na,0,2\n", "'a' more than once"),
        ("feature,lo,hi\na,0,1\nb,3,2\n", "feature 'b': expected LO < HI, got 3,2"),
        ("feature,lo,hi\na,0,inf\n", "feature 'a': expected finite numbers"),
    ],
)
def test_bounds_files_that_do_not_fit(tmp_path, text, sentence):
    path = tmp_path / "bounds.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=sentence) as caught:
        parse_bounds(str(path))
    assert str(path) in str(caught.value)


def test_a_bounds_file_that_is_no_text(tmp_path):
    path = tmp_path / "bounds.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"bounds file .*: cannot be read \("):
        parse_bounds(str(path))


def test_match_refuses_what_does_not_fit():
    named = Bounds(np.zeros(2), np.ones(2), ("a", "b"))
    with pytest.raises(ConfigError, match="name no feature 'c'"):
        named.match(("a", "c"))
    with pytest.raises(ConfigError, match="hold 2 features but the data have 3"):
        Bounds(np.zeros(2), np.ones(2)).match(("a", "b", "c"))
    assert Bounds(np.zeros(2), np.ones(2)).match(("a", "b")).names == ("a", "b")
    with pytest.raises(ConfigError, match="come with 1 name"):
        Bounds(np.zeros(2), np.ones(2), ("a",))
    with pytest.raises(ConfigError, match="one lo and one hi per feature"):
        Bounds(np.zeros(2), np.ones(3))


def test_bounds_cannot_be_changed_from_outside():
    lo = np.zeros(2)
    bounds = Bounds(lo, np.ones(2))
    lo[0] = 9.0
    assert bounds.lo[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        bounds.lo[0] = 5.0


def test_scale_by_hand():
    bounds = Bounds(np.array([0.0, -10.0]), np.array([4.0, 10.0]))
    values = np.array([[0.0, -10.0], [1.0, 0.0], [4.0, 5.0], [9.0, -99.0]])
    np.testing.assert_array_equal(scale(values, bounds), [[-1, -1], [-0.5, 0], [1, 0.5], [1, -1]])
    np.testing.assert_array_equal(count_outside(values, bounds), [1, 1])
    np.testing.assert_array_equal(unscale(np.array([[-1.0, 1.0], [0.0, 0.0]]), bounds), [[0, 10], [2, 0]])


def test_scale_keeps_its_input_unless_told_to_write_there():
    values = np.array([[0.0], [8.0]])
    scale(values, pair(0, 4))
    np.testing.assert_array_equal(values, [[0], [8]])
    assert scale(values, pair(0, 4), out=values) is values
    np.testing.assert_array_equal(values, [[-1], [1]])


def test_scale_over_many_blocks(monkeypatch):
    values = np.random.default_rng(3).normal(size=(1001, 3))
    bounds = pair(-1, 2)
    whole, outside = scale(values, bounds), count_outside(values, bounds)
    monkeypatch.setattr("fastlloyd.data.bounds._BLOCK_VALUES", 10)
    np.testing.assert_array_equal(scale(values, bounds), whole)
    np.testing.assert_array_equal(count_outside(values, bounds), outside)
    np.testing.assert_array_equal(outside, ((values < -1) | (values > 2)).sum(axis=0))


def test_scale_refuses_nan_and_another_width():
    with pytest.raises(DataError, match="row 2 holds a NaN"):
        scale(np.array([[1.0], [np.nan]]), pair(0, 1))
    with pytest.raises(ConfigError, match="bounds are for 2 features"):
        scale(np.zeros((2, 3)), Bounds(np.zeros(2), np.ones(2)))


finite = st.floats(-1e100, 1e100, allow_nan=False)


@given(finite, finite, st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_scaled_values_never_leave_the_cube(first, second, values):
    lo, hi = min(first, second), max(first, second)
    if hi - lo < 1e-100:
        return
    scaled = scale(np.array(values)[:, None], pair(lo, hi))
    assert (np.abs(scaled) <= 1).all()


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_unscale_undoes_scale(lo, width, points):
    bounds = pair(lo, lo + width)
    back = scale(unscale(np.array(points)[:, None], bounds), bounds)
    tolerance = 8 * np.finfo(float).eps * (abs(lo) + width) / width
    np.testing.assert_allclose(back[:, 0], points, rtol=0, atol=tolerance)


def test_auto_public_takes_min_and_max_and_widens_constants():
    values = np.array([[1.0, 7.0, 1e17], [3.0, 7.0, 1e17]])
    bounds = auto_public(values, ("a", "b", "c"))
    np.testing.assert_array_equal(bounds.lo[:2], [1, 6.5])
    np.testing.assert_array_equal(bounds.hi[:2], [3, 7.5])
    assert bounds.lo[2] < 1e17 < bounds.hi[2]
    np.testing.assert_array_equal(scale(values, bounds), [[-1, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(count_outside(values, bounds), [0, 0, 0])
