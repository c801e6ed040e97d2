"""Tables of several parties' columns: reading, splitting, and centres in each party's own units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.dataset import Dataset
from fastlloyd.data.public.mixture import gaussian_mixture
from fastlloyd.data.vertical import (
    PartyFeatures,
    assemble_centers,
    assemble_names,
    check_features,
    read_vertical,
    split_columns,
    split_dataset,
)
from fastlloyd.errors import ConfigError, DataError


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_come_in_the_order_of_their_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'id,age,height\n  zoe,40,1.7\nadam,30,1.8\n"mia, k",20,1.6\n')
    table = read_vertical(path)
    assert table.raw_ids == ("adam", "mia, k", "zoe")
    assert table.names == ("age", "height")
    assert table.raw_values.tolist() == [[30.0, 1.8], [20.0, 1.6], [40.0, 1.7]]
    assert "adam" not in repr(table)


def test_another_column_may_hold_the_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ssn,age\n007,40\n7,30\n")
    table = read_vertical(path, id_column="ssn")
    assert table.raw_ids == ("007", "7") and table.names == ("age",)


@pytest.mark.parametrize("kind", ["csv.gz", "npy", "parquet"])
def test_ids_are_read_from_every_format(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    values = np.array([[3.0, 0.5], [1.0, 0.25], [2.0, 0.125]])
    if kind == "npy":
        np.save(path, values)
    elif kind == "csv.gz":
        import gzip

        with gzip.open(path, "wt") as file:
            file.write("x1,x2\n3,0.5\n1,0.25\n2,0.125\n")
    else:
        arrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet as parquet

        parquet.write_table(arrow.table({"x1": [3, 1, 2], "x2": values[:, 1]}), path)
    table = read_vertical(path, id_column="x1")
    assert table.raw_ids == ("1", "2", "3") and table.names == ("x2",)
    assert table.raw_values.ravel().tolist() == [0.25, 0.125, 0.5]


def test_ids_of_a_parquet_column_of_categories_are_its_values(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    own = arrow.array(["b", "a", "c"])
    columns = {"dictionary": own.dictionary_encode()}
    if hasattr(arrow, "string_view"):  # from pyarrow 16 on
        columns["view"] = own.cast(arrow.string_view())
    for name, ids in columns.items():
        parquet.write_table(arrow.table({"id": ids, "x": [1.0, 2.0, 3.0]}), tmp_path / f"{name}.parquet")
        assert read_vertical(tmp_path / f"{name}.parquet").raw_ids == ("a", "b", "c")


def test_a_parquet_column_of_fractions_names_nobody(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(arrow.table({"id": [0.5, 1.5], "x": [1.0, 2.0]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="expected whole numbers or text"):
        read_vertical(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    "text,message",
    [
        ("id,x\na,1\nb,2\na,3\n", "row 1 and row 3 have the same id"),
        ("id,x\na,1\n ,2\n", "row 2: the id in column 'id' is missing"),
        (
            "name,x\na,1\n",
            "no column 'id' to name the records; it has 'name', 'x'; .* --set vertical.id=COLUMN",
        ),
    ],
)
def test_ids_that_do_not_name_records_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_vertical(write(tmp_path / "a.csv", text))


def test_numbers_that_are_not_whole_name_nobody(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[0.5, 1.0], [1.0, 2.0]]))
    with pytest.raises(DataError, match="expected whole numbers"):
        read_vertical(tmp_path / "a.npy", id_column="x1")


def test_dropping_rows_at_one_party_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,x\na,1\nb,\n")
    with pytest.raises(ConfigError, match="different records"):
        read_vertical(path, missing="drop")
    table = read_vertical(path, missing="midpoint", bounds=Bounds(np.zeros(1), np.full(1, 4.0), ("x",)))
    assert table.raw_values.tolist() == [[1.0], [2.0]]


def test_restrict_keeps_the_common_ids_in_order(tmp_path: Path) -> None:
    table = read_vertical(write(tmp_path / "a.csv", "id,x\na,1\nb,2\nc,3\n"))
    kept = table.restrict(["c", "a"])
    assert kept.raw_ids == ("a", "c") and kept.raw_values.tolist() == [[1.0], [3.0]]
    with pytest.raises(DataError, match="only ids that the table holds"):
        table.restrict(["d"])


@given(st.integers(1, 40), st.integers(1, 40))
def test_even_split_deals_all_columns_once(d: int, parties: int) -> None:
    names = [f"x{i}" for i in range(d)]
    if parties > d:
        with pytest.raises(ConfigError, match="every party needs a column"):
            split_columns(names, parties, "even")
        return
    split = split_columns(names, parties, "even")
    assert [i for part in split for i in part] == list(range(d))
    assert max(map(len, split)) - min(map(len, split)) <= 1


def test_a_file_says_who_owns_which_column(tmp_path: Path) -> None:
    path = write(tmp_path / "s.csv", "feature,party\nb,1\n\n a ,2\nc,1\n")
    assert split_columns(["a", "b", "c"], 2, str(path)) == ((1, 2), (0,))


@pytest.mark.parametrize(
    "text,message",
    [
        ("a,1\nb,3\n", "line 2: expected 'feature,party' with a party from 1 to 2"),
        ("a,1\nb\n", "line 2: expected"),
        ("a,1\na,2\n", "'a' stands twice"),
        ("a,1\nz,2\n", "'z' is not a column"),
        ("a,1\n", "the column 'b' has no party"),
        ("a,1\nb,1\n", "party 2 gets no column"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "s.csv", text)
    with pytest.raises(ConfigError, match=message):
        split_columns(["a", "b"], 2, str(path))


def test_other_words_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="splits columns"):
        split_columns(["a", "b"], 2, "iid")
    with pytest.raises(ConfigError, match="cannot be read"):
        split_columns(["a", "b"], 2, str(tmp_path / "none.csv"))


def test_a_public_set_is_split_by_columns_in_its_own_order() -> None:
    values = np.arange(33.0).reshape(11, 3)
    tables = split_dataset(Dataset("demo", values, ("a", "b", "c")), 2, "even")
    assert [table.names for table in tables] == [("a", "b"), ("c",)]
    assert tables[0].raw_ids == tables[1].raw_ids == tuple(sorted(tables[0].raw_ids))
    assert (np.hstack([table.raw_values for table in tables]) == values).all()


def features(*parties: str) -> list[PartyFeatures]:
    found = []
    for number, names in enumerate(parties, 1):
        lo = np.full(len(names), -float(number))
        found.append(PartyFeatures(names=tuple(names), bounds=Bounds(lo, lo + 4.0 * number, tuple(names))))
    return found


def test_each_party_reads_the_centres_in_its_own_units() -> None:
    own = features("ab", "c")
    centers = np.array([[-1.0, 0.0, 1.0], [1.0, 0.5, 0.0]])
    assert assemble_names(own) == ("a", "b", "c")
    assert assemble_centers(centers, own).tolist() == [[-1.0, 1.0, 6.0], [3.0, 2.0, 2.0]]
    with pytest.raises(ConfigError, match="the bounds are for 3 features"):
        assemble_centers(centers[:, :2], own)


def test_names_that_stand_twice_are_refused() -> None:
    check_features(features("ab", "c"))
    with pytest.raises(ConfigError, match="clients 1 and 2 both have a feature 'a'"):
        check_features(features("ab", "a"))


def test_the_mixture_has_the_papers_shape_and_a_public_seed() -> None:
    first, again, other = gaussian_mixture(500), gaussian_mixture(500), gaussian_mixture(500, seed=1)
    assert first.values.shape == (500, 8) and np.abs(first.values).max() <= 1.0
    assert (first.values == again.values).all() and not (first.values == other.values).all()
    assert first.labels is not None and np.bincount(first.labels).tolist() == [100] * 5
    spread = np.mean([first.values[first.labels == j].std(axis=0).mean() for j in range(5)])
    assert 0.05 < spread < 0.12
    with pytest.raises(ConfigError):
        gaussian_mixture(3, 2, 5)
