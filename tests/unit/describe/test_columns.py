"""The file of columns: what is read, what is refused, and which bin a value gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.data.form import Form
from fastlloyd.describe.columns import DescribedColumn, columns_from_json, count_bins, read_columns
from fastlloyd.errors import ConfigError, DataError

COMMA = Form(delimiter=";", decimal=",")

FILE = """
[age]
lo = 0
hi = 100

[gain]
edges = [0, 1, 1000, 100000]

[visits]
lo = 0
hi = 3
whole = true

[sex]
categories = ["f", "m"]

["=dose, mg"]
lo = -1.5
hi = 1.5
bins = 4
"""


def read(tmp_path: Path, text: str) -> tuple[DescribedColumn, ...]:
    path = tmp_path / "columns.toml"
    path.write_text(text)
    return read_columns(path)


def test_the_file_is_read_in_its_order(tmp_path: Path) -> None:
    columns = read(tmp_path, FILE)
    assert [column.name for column in columns] == ["age", "gain", "visits", "sex", "=dose, mg"]
    settled = [column.settle(8) for column in columns]
    assert [column.width for column in settled] == [9, 4, 5, 3, 5]
    assert settled[2].labels == ("0", "1", "2", "3", "missing")
    assert settled[1].labels == ("0 to 1", "1 to 1000", "1000 to 100000", "missing")
    assert columns_from_json([column.to_json() for column in settled], "x") == tuple(settled)


def test_a_truth_value_is_one_category_however_a_source_writes_it(tmp_path: Path) -> None:
    """CSV files have True or 1, Parquet and databases have types: sites with other sources must count the same."""
    died, flag = read(tmp_path, '[died]\ncategories = [true, false]\n[flag]\ncategories = [0, 1, "other"]\n')
    assert died.labels == ("true", "false", "missing") and flag.labels == ("0", "1", "other", "missing")
    cells = ["true", "True", "TRUE", "1", "false", "False", "0", "", "NA"]
    assert died.read_categories(cells, source="x").tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2]
    assert flag.read_categories(["0", "1", "true", ""], source="x").tolist() == [0, 1, 2, 3]
    for cell in ("yes", "t", "2", "1.0"):
        with pytest.raises(DataError, match="column 'died': expected a category"):
            died.read_categories([cell], source="x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "1 to 200 entries"),
        ("age = 3", "expected a table"),
        ("[age]", "lo below hi"),
        ("[age]\nlo = 0", "lo below hi"),
        ("[age]\nlo = 1\nhi = 1", "lo below hi"),
        ("[age]\nlo = 0\nhi = inf", "a number"),
        ("[age]\nlo = -1e308\nhi = 1e308", "float64"),
        ("[age]\nlo = 0\nhi = 1\nbins = 1", "bins"),
        ("[age]\nlo = 0\nhi = 1\nbins = 101", "bins"),
        ("[age]\nlo = 0\nhi = 1\nbin = 10", "(did you mean 'bins'?)"),
        ("[age]\nlo = 0\nhi = 1\nname = 'b'", "name"),
        ("[age]\nlo = 0\nhi = 1\nedges = [0, 1, 2]", "edges say bounds"),
        ("[age]\nedges = [0, 1]", "three or more"),
        ("[age]\nedges = [0, 2, 2]", "increasing"),
        ("[age]\nlo = 0.5\nhi = 3\nwhole = true", "whole bounds"),
        ("[age]\nlo = 0\nhi = 32\nwhole = true", "at most 32 numbers"),
        ("[age]\nlo = 0\nhi = 9\nwhole = true\nbins = 3", "leave bins out"),
        ("[sex]\ncategories = ['f']", "two or more"),
        ("[sex]\ncategories = ['f', 'f', 'm']", "each once"),
        ("[sex]\ncategories = ['f', 'm']\nlo = 0", "got both"),
        ("[sex]\ncategories = 'fm'", "categories"),
        ("[age", "docs/describe.md shows how to write it"),
        ("[age]\nlo = 30\nhi = 0", "column 'age': expected public bounds lo and hi with lo below hi"),
        ("[age]\nlo = 30\nhi = 0", "got lo = 30, hi = 0"),
        ("[sex]\ncategories = ['f', 'm']\n[age]\nhigh = 0", "column 'age': unknown key 'high' (did you mean 'hi'?)"),
        ("[sex]\ncategories = 'f'", "column 'sex': categories: expected a list"),
    ],
)
def test_a_file_that_describes_no_column_is_refused_in_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=r"^--columns ") as caught:
        read(tmp_path, text)
    assert words in str(caught.value)


def test_a_name_twice_is_refused() -> None:
    column = {"name": "age", "lo": 0, "hi": 1}
    with pytest.raises(ConfigError, match="twice"):
        columns_from_json([column, column], "--columns x")


def test_a_value_gets_the_bin_that_it_lies_in() -> None:
    gain = DescribedColumn(name="gain", edges=(0.0, 1.0, 1000.0, 100_000.0))
    values = np.array([-5.0, 0.0, 0.999, 1.0, 1000.0, 1e5, 1e9, np.inf, -np.inf, np.nan])
    raw_bins, scaled = gain.place(values)
    assert raw_bins.tolist() == [0, 0, 0, 1, 2, 2, 2, 2, 0, 3]
    assert scaled[[0, 5, 6, 7, 8, 9]].tolist() == [-1, 1, 1, 1, -1, 0]
    visits = DescribedColumn(name="visits", lo=0, hi=3, whole=True)
    assert visits.place(np.array([0.0, 1.0, 2.0, 3.0, 4.0]))[0].tolist() == [0, 1, 2, 3, 3]


def test_cells_are_read_with_the_mark_of_their_file() -> None:
    age = DescribedColumn(name="age", lo=0, hi=100, bins=10)
    raw_bins, scaled = age.place(age.read_numbers(["15,5", "", "NA", " 99 "], source="own.csv", form=COMMA))
    assert raw_bins.tolist() == [1, 10, 10, 9]
    assert scaled.tolist() == pytest.approx([-0.69, 0.0, 0.0, 0.98])


def test_a_cell_that_does_not_fit_names_its_row_and_never_the_value() -> None:
    age = DescribedColumn(name="age", lo=0, hi=100, bins=10)
    with pytest.raises(DataError, match="own.csv, row 2, column 'age': expected a number") as caught:
        age.read_numbers(["1", "secret"], source="own.csv")
    assert "secret" not in str(caught.value)
    sex = DescribedColumn(name="sex", categories=("f", "m"))
    with pytest.raises(DataError, match="own.csv, row 3, column 'sex'") as caught:
        sex.read_categories(["f", "", "secret"], source="own.csv")
    assert "secret" not in str(caught.value)


def test_other_takes_in_what_is_not_listed_and_missing_has_its_own_bin() -> None:
    sex = DescribedColumn(name="sex", categories=("f", "other"))
    assert sex.read_categories(["f", "x", "", "n/a", "other"], source="own.csv").tolist() == [0, 1, 2, 2, 1]
    listed = DescribedColumn(name="sex", categories=("f", "n/a"))
    assert listed.read_categories(["n/a", ""], source="own.csv").tolist() == [1, 2]


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=20, unique=True).map(sorted),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=20),
)
def test_each_value_has_one_bin_and_a_scaled_value_within_its_bounds(edges: list[float], values: list[float]) -> None:
    column = DescribedColumn(name="x", edges=tuple(edges))
    raw_bins, scaled = column.place(np.array(values))
    assert ((raw_bins >= 0) & (raw_bins < column.width)).all()
    assert (np.abs(scaled) <= 1.0).all()
    for value, at in zip(values, raw_bins.tolist(), strict=True):
        if np.isnan(value):
            assert at == column.width - 1
        else:
            clipped = min(max(value, edges[0]), edges[-1])
            assert edges[at] <= clipped <= edges[at + 1]


def test_the_number_of_bins_grows_with_records_and_falls_with_noise() -> None:
    assert count_bins(n_total=30_000, k=5, noise=1.0) == 32
    assert count_bins(n_total=100, k=5, noise=100.0) == 6
    counts = [count_bins(n_total=n, k=4, noise=40.0) for n in (1_000, 10_000, 40_000)]
    assert counts == sorted(counts)


def test_bins_are_named_short_and_never_the_same() -> None:
    third = DescribedColumn(name="x", lo=0, hi=1, bins=3)
    assert third.labels == ("0 to 0.333333", "0.333333 to 0.666667", "0.666667 to 1", "missing")
    near = DescribedColumn(name="x", lo=1_000_000, hi=1_000_001, bins=4)
    assert len(set(near.labels)) == 5 and near.labels[0] == "1000000 to 1000000.25"
    own = DescribedColumn(name="x", edges=(0.0, 1_234_567.0, 2e6))
    assert own.labels[0] == "0 to 1234567"
