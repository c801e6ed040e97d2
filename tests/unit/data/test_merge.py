"""One record of all rows of a person: as a plain reference in Python has it, and whatever else the file holds."""

from __future__ import annotations

import math
from collections import Counter
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.data.bounds import Bounds, parse_bounds
from fastlloyd.data.categories import Categories
from fastlloyd.data.merge import Unit, merge_rows, number_people
from fastlloyd.data.table import read_table
from fastlloyd.errors import DataError

VALUES = st.one_of(st.just(math.nan), st.floats(-1e6, 1e6))
ROWS = st.lists(st.tuples(st.sampled_from("uvwxyz"), VALUES, VALUES), min_size=1, max_size=30)


def reference(rows, rule):
    """People in the order of their first rows, each with one record."""
    people = {}
    for name, *values in rows:
        people.setdefault(name, []).append(values)
    if rule == "first":
        return [of[0] for of in people.values()]
    columns = [[[v for v in column if not math.isnan(v)] for column in zip(*of, strict=True)] for of in people.values()]
    return [[fmean(there) if there else math.nan for there in of] for of in columns]


@given(ROWS, st.sampled_from(["mean", "first"]))
def test_a_plain_reference(rows, rule):
    people = number_people([name for name, *_ in rows], {}, source="f", column="who")
    values = np.array([values for _, *values in rows])
    merged, first_rows = merge_rows(values, people, rule, source="f")
    np.testing.assert_allclose(merged, reference(rows, rule), rtol=1e-12, atol=1e-9)
    names = [name for name, *_ in rows]
    assert [names[row] for row in first_rows] == list(dict.fromkeys(names))
    assert [names.index(names[row]) for row in first_rows] == first_rows.tolist()


@given(ROWS, st.sampled_from("uvwxyz"), st.sampled_from(["mean", "first"]))
def test_a_person_changes_no_other_record(rows, gone, rule):
    others = [row for row in rows if row[0] != gone]
    if not others:
        return
    found = []
    for part in (rows, others):
        names = [name for name, *_ in part]
        people = number_people(names, {}, source="f", column="who")
        merged, first = merge_rows(np.array([values for _, *values in part]), people, rule, source="f")
        found.append({names[row]: record for row, record in zip(first, merged.tolist(), strict=True)})
    found[0].pop(gone, None)
    assert repr(found[0]) == repr(found[1])  # to the last bit


def write(tmp_path, text):
    path = tmp_path / "records.csv"
    path.write_text(text)
    return path


def test_a_file_with_visits(tmp_path):
    path = write(tmp_path, "who,a,b\nP9,1,2\nP1,10,20\nP9,3,6\nP9,,1\n")
    table = read_table(path, unit=Unit("who"))
    assert table.values.tolist() == [[2, 3], [10, 20]]
    assert (table.names, table.ignored, table.raw_records.tolist()) == (("a", "b"), ("who",), [0, 1, 0, 0])
    assert read_table(path, unit=Unit("who", "first")).values.tolist() == [[1, 2], [10, 20]]


def test_numbers_that_name_people_are_no_feature(tmp_path):
    table = read_table(write(tmp_path, "who,a\n7,1\n7,3\n8,5\n"), unit=Unit("who"))
    assert (table.names, table.values.tolist()) == (("a",), [[2], [5]])


def test_missing_values_are_looked_for_in_people(tmp_path):
    path = write(tmp_path, "who,a,b\nx,1,\ny,2,5\nx,,\ny,,7\nz,3,1\n")
    dropped = read_table(path, unit=Unit("who"), missing="drop")
    assert dropped.values.tolist() == [[2, 6], [3, 1]]
    assert dropped.raw_records.tolist() == [-1, 0, -1, 0, 1]
    assert (dropped.missing_rows, dropped.missing_in) == (1, {"b": 1})
    filled = read_table(path, unit=Unit("who"), missing="midpoint", bounds=parse_bounds("0,10"))
    assert filled.values.tolist() == [[1, 5], [2, 6], [3, 1]]
    with pytest.raises(DataError, match=r"row 1 .*column 'b'.* and no other row of this person has one"):
        read_table(path, unit=Unit("who"))


def test_a_second_row_is_refused_where_nobody_may_have_one(tmp_path):
    path = write(tmp_path, "who,a\nAnna,1\nBert,2\nAnna,3\nBert,4\n")
    with pytest.raises(DataError, match="row 1 and row 3 are of the same person") as caught:
        read_table(path, unit=Unit("who", "error"))
    assert "Anna" not in str(caught.value)
    path = write(tmp_path, "who,a\nAnna,1\nBert,2\n")
    assert read_table(path, unit=Unit("who", "error")).values.tolist() == [[1], [2]]


@pytest.mark.parametrize("nobody", ["", "NA", " null "])
def test_a_row_of_nobody_is_refused(tmp_path, nobody):
    with pytest.raises(DataError, match=r"row 2, column 'who': expected the person's id"):
        read_table(write(tmp_path, f"who,a\nx,1\n{nobody},2\n"), unit=Unit("who"))


def test_sums_that_are_too_large(tmp_path):
    with pytest.raises(DataError, match="too large to add up"):
        read_table(write(tmp_path, "who,a\nx,1e308\nx,1e308\n"), unit=Unit("who"))


def test_an_unknown_column(tmp_path):
    with pytest.raises(DataError, match="no column 'whose'"):
        read_table(write(tmp_path, "who,a\nx,1\n"), unit=Unit("whose"))


CELLS = st.tuples(st.sampled_from("uvw"), st.sampled_from(["", "1", "2.5", "-7"]), st.sampled_from(["", "A", "B", "C"]))


@given(
    st.lists(CELLS, min_size=2, max_size=12),
    st.sampled_from("uvw"),
    st.sampled_from(["mean", "first"]),
    st.sampled_from(["drop", "midpoint"]),
)
def test_tables_that_differ_in_a_person_become_tables_that_differ_in_a_record(
    tmp_path_factory, rows, gone, rule, missing
):
    """What the claim with --unit rests on: docs/privacy.md, "One person, several rows"."""
    folder = tmp_path_factory.mktemp("neighbours")
    categories = Categories((("ward", (("A", 0.5), ("other", 1.0))),))
    bounds = categories.bounds(Bounds(np.array([-5.0]), np.array([5.0]), ("a",)))
    found = []
    for part in (rows, [row for row in rows if row[0] != gone]):
        path = write(folder, "who,a,ward\n" + "".join(f"{','.join(row)}\n" for row in part))
        try:
            table = read_table(path, unit=Unit("who", rule), missing=missing, bounds=bounds, categories=categories)
        except DataError:  # nothing is left
            found.append(Counter())
        else:
            found.append(Counter(map(tuple, table.values.tolist())))
    assert found[1] <= found[0]
    assert (found[0] - found[1]).total() <= 1
