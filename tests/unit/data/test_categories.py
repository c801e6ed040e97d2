"""Public lists of categories, and the features and bounds that follow from them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.data.bounds import Bounds, parse_bounds, scale
from fastlloyd.data.categories import Categories
from fastlloyd.data.merge import Unit
from fastlloyd.data.table import read_table
from fastlloyd.errors import ConfigError, DataError

LISTS = "feature,category,weight\nward,A,0.5\nward,B,0.5\nsex,f,1\nsex,m,0\n"


@pytest.fixture
def lists(tmp_path):
    (tmp_path / "lists.csv").write_text(LISTS)
    return Categories.read(tmp_path / "lists.csv")


def write(tmp_path, text, name="records.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_features_behind_those_of_numbers(tmp_path, lists):
    path = write(tmp_path, "sex,age,ward,note\nf,30,B,x\nm,40,A,y\n")
    table = read_table(path, categories=lists)
    assert table.names == ("age", "ward=A", "ward=B", "sex=f")
    assert table.values.tolist() == [[30, 0, 1, 1], [40, 1, 0, 0]]
    assert table.ignored == ("note",)
    assert table.values.flags.c_contiguous


def test_the_weight_is_the_distance_in_the_scaled_domain(lists):
    bounds = lists.bounds(Bounds(np.array([0.0]), np.array([100.0]), ("age",)))
    assert bounds.names == ("age", "ward=A", "ward=B", "sex=f")
    points = scale(np.array([[0, 0, 1, 1], [100, 1, 0, 0.5]], dtype=float), bounds)
    np.testing.assert_allclose(points, [[-1, -0.5, 0.5, 1], [1, 0.5, -0.5, 0]])


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=5))
def test_every_weight_keeps_its_indicators_inside_the_bounds(weights):
    made = Categories((("c", tuple((str(i), weight) for i, weight in enumerate(weights))),))
    scaled = scale(np.vstack([np.zeros(len(weights)), np.ones(len(weights))]), made.bounds(None))
    np.testing.assert_allclose(scaled, [[-w for w in weights], weights], rtol=1e-9)


def test_columns_and_bounds_need_not_name_them(tmp_path, lists):
    path = write(tmp_path, "sex,age,ward,size\nf,30,B,9\n")
    bounds = lists.bounds(Bounds(np.array([0.0, 0.0]), np.array([9.0, 100.0]), ("size", "age")))
    assert read_table(path, bounds=bounds, categories=lists).names == ("size", "age", "ward=A", "ward=B", "sex=f")
    named = read_table(path, columns=("age",), bounds=bounds, categories=lists)
    assert named.names == ("age", "ward=A", "ward=B", "sex=f")
    both = read_table(path, columns=("ward", "age"), bounds=bounds, categories=lists)
    assert (both.names, both.values.tolist()) == (named.names, named.values.tolist())


def test_a_table_of_categories_alone(tmp_path, lists):
    path = write(tmp_path, "ward,sex\nA,m\nB,f\n")
    table = read_table(path, bounds=lists.bounds(None), categories=lists)
    assert table.values.tolist() == [[1, 0, 0], [0, 1, 1]]


def test_missing_cells_follow_the_rule(tmp_path, lists):
    path = write(tmp_path, "ward,sex,a\nA,f,1\n,m,2\nB,NA,3\n")
    with pytest.raises(DataError, match="row 2.*column 'ward=A'.*missing"):
        read_table(path, categories=lists)
    dropped = read_table(path, categories=lists, missing="drop")
    assert (dropped.values.tolist(), dropped.raw_records.tolist()) == ([[1, 1, 0, 1]], [0, -1, -1])
    bounds = lists.bounds(Bounds(np.array([0.0]), np.array([9.0]), ("a",)))
    filled = read_table(path, categories=lists, missing="midpoint", bounds=bounds)
    assert filled.values.tolist() == [[1, 1, 0, 1], [2, 0.5, 0.5, 0], [3, 0, 1, 0.5]]


def test_a_listed_word_for_nothing_is_a_category(tmp_path):
    lists = Categories.read(write(tmp_path, "feature,category\nallergy,none\nallergy,nuts\n", "lists.csv"))
    table = read_table(write(tmp_path, "allergy,a\nnone,1\nnuts,2\n"), categories=lists)
    assert table.values.tolist() == [[1, 1, 0], [2, 0, 1]]


def test_an_unknown_category_names_its_row_and_not_itself(tmp_path, lists):
    path = write(tmp_path, "ward,sex,a\nA,f,1\nSecretWard,m,2\nZ,m,2\n")
    with pytest.raises(DataError, match="row 2, column 'ward': expected a category of the list") as caught:
        read_table(path, categories=lists)
    assert "Secret" not in str(caught.value)


def test_other_takes_in_the_rest_and_not_the_missing(tmp_path):
    lists = Categories.read(write(tmp_path, "feature,category\nward,A\nward,other\n", "lists.csv"))
    table = read_table(write(tmp_path, "ward,a\nA,1\nZ,2\nother,3\n,4\n"), categories=lists, missing="drop")
    assert table.values.tolist() == [[1, 1, 0], [2, 0, 1], [3, 0, 1]]


def test_numbers_as_categories_are_text(tmp_path):
    lists = Categories.read(write(tmp_path, "feature,category\nstage,1\nstage,2\n", "lists.csv"))
    assert read_table(write(tmp_path, "stage,a\n2,5\n"), categories=lists).names == ("a", "stage=1", "stage=2")
    np.save(tmp_path / "v.npy", np.array([[1.0, 7.0], [2.0, 8.0]]))
    (tmp_path / "lists.csv").write_text("feature,category\nx1,1\nx1,2\n")
    table = read_table(tmp_path / "v.npy", categories=Categories.read(tmp_path / "lists.csv"))
    assert table.values.tolist() == [[7, 1, 0], [8, 0, 1]]


def test_a_person_in_two_wards_has_half_of_each(tmp_path, lists):
    path = write(tmp_path, "who,ward,sex,a\nx,A,f,1\ny,B,m,5\nx,B,f,3\n")
    table = read_table(path, categories=lists, unit=Unit("who"))
    assert table.values.tolist() == [[2, 0.5, 0.5, 1], [5, 0, 1, 0]]


def test_lists_read_back(lists):
    assert Categories.from_json(json.loads(json.dumps(lists.to_json()))) == lists


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "expected a CSV file"),
        ("feature,category\n", "expected a CSV file"),
        ("column,value\nward,A\n", "expected a CSV file"),
        ("feature,category\nward,A,1\n", "row 2: expected 2 cells, got 3"),
        ("feature,category\nward,\n", "expected a column and a category"),
        ("feature,category\nward,A\nward,A\n", "row 3: 'A' stands twice"),
        ("feature,category,weight\nward,A,2\n", "a weight from 0.000001 to 1"),
        ("feature,category,weight\nward,A,nan\n", "a weight from"),
        ("feature,category,weight\nward,A,x\n", "a weight from"),
        ("feature,category,weight\nward,A,0\n", "no category of 'ward' has a weight above 0"),
    ],
)
def test_files_that_are_none(tmp_path, text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Categories.read(write(tmp_path, text, "lists.csv"))
    with pytest.raises(ConfigError, match="cannot be read"):
        Categories.read(tmp_path / "gone.csv")
    with pytest.raises(ConfigError, match="cannot be read .*no file can have such a name"):
        Categories.read(tmp_path / "a\0b")


def test_bounds_that_do_not_fit(tmp_path, lists):
    with pytest.raises(ConfigError, match="expected a CSV file feature,lo,hi"):
        lists.bounds(parse_bounds("0,1"))
    with pytest.raises(ConfigError, match="names the column 'ward'"):
        lists.bounds(Bounds(np.array([0.0]), np.array([1.0]), ("ward",)))
    with pytest.raises(ConfigError, match="'ward=A' follow from its weight"):
        lists.bounds(Bounds(np.array([0.0]), np.array([1.0]), ("ward=A",)))
    stored = lists.bounds(Bounds(np.array([0.0]), np.array([1.0]), ("age",)))
    again = lists.bounds(stored)
    assert again.names == stored.names
    assert (again.lo == stored.lo).all() and (again.hi == stored.hi).all()
    assert Categories().bounds(stored) is stored


def test_a_column_that_is_called_like_a_feature(tmp_path, lists):
    with pytest.raises(DataError, match="'ward=A' has the name of a feature"):
        read_table(write(tmp_path, "ward,sex,ward=A\nA,f,1\n"), categories=lists)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ward\nA\n\nB\n", "line 4.: an empty line stands before it"),
        ("who,ward\nx,A\n\ny,B\n", "line 4.: an empty line stands before it"),
        ("who,ward\nSmith, John,A\n", "line 2.: expected 2 cells as in the first row, got 3"),
        ("who,ward\nx\n", "line 2.: expected 2 cells as in the first row, got 1"),
    ],
)
def test_rows_of_categories_alone_are_read_as_strictly_as_numbers(tmp_path, text, words):
    wards = Categories.from_json({"ward": {"A": 1.0, "other": 1.0}})
    with pytest.raises(DataError, match=words):
        read_table(write(tmp_path, text), categories=wards)
