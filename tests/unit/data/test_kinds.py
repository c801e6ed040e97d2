"""One rule of types: each type, from each reader, as feature, as category, as id, and unused."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.data.database import find_place, place_of
from fastlloyd.data.form import is_identifier
from fastlloyd.data.kinds import HALF, NUMBERS, TEXT, ColumnKind, name_cells, pandas_indices
from fastlloyd.data.table import read_table
from fastlloyd.errors import DataError
from tests.contracts.databases import Duckdb, Sqlite
from tests.contracts.kinds import FRACTION, INEXACT, LARGE, Expected, arrow_table, check_types, fill
from tests.reading import texts_of


def test_each_type_has_the_same_roles_from_parquet_and_duckdb(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    for name in ("export", "hive/year=2020/month=01"):
        (tmp_path / name).mkdir(parents=True)
    pytest.importorskip("pyarrow.parquet").write_table(arrow_table(), tmp_path / "t.parquet")
    for name in ("export", "hive/year=2020/month=01"):
        shutil.copy(tmp_path / "t.parquet", tmp_path / name / "part.parquet")
    check_types(place_of(tmp_path / "t.parquet"))
    arrow = pytest.importorskip("pyarrow")
    with arrow.ipc.new_stream(tmp_path / "t.arrows", (own := arrow_table()).schema) as stream:
        stream.write_table(own)
    check_types(place_of(tmp_path / "t.arrows"))
    whole: dict[str, Expected] = {"span": ([1, 2], ["1", "2"])}  # Parquet has no durations: Arrow's own note says so
    check_types(find_place(str(tmp_path / "export")), whole)
    hive = find_place(str(tmp_path / "hive"))
    check_types(hive, whole)
    assert texts_of(hive, "year") == ("2020", "2020") and texts_of(hive, "month") == ("01", "01")
    store = Duckdb(tmp_path / "t.duckdb")
    fill(store, bytes=("BLOB", "'0123456789abcdef'", "NULL"), list=("INTEGER[]", "[1, 2]", "NULL"),
         struct=("STRUCT(a INTEGER)", "{'a': 1}", "NULL"))  # fmt: skip
    check_types(find_place(store.address, table="t"))


def test_cells_without_types_follow_the_same_rule(tmp_path: Path) -> None:
    """SQLite and CSV: each cell decides; NumPy: the type of the array."""
    store = Sqlite(tmp_path / "t.db")
    store.run("CREATE TABLE t (whole, big, part, text, bytes, torn)",
              "INSERT INTO t VALUES (1, 9007199254740992.0, 0.5, ' A', x'00', CAST(x'ff' AS TEXT))")  # fmt: skip
    place = find_place(store.address, table="t")
    assert read_table(place, columns=["whole", "big", "part"]).values.tolist() == [[1, 2.0**53, 0.5]]
    assert texts_of(place, "text") == ("A",)
    for column, words in (("big", INEXACT), ("part", FRACTION), ("bytes", "got bytes"), ("torn", "that is not UTF-8")):
        with pytest.raises(DataError, match=rf"column '{column}': expected whole numbers or text, .*{words}"):
            texts_of(place, column)
    for dtype, most in ((np.float64, 2.0**53), (np.float32, 2.0**24), (np.float16, 2.0**11)):
        np.save(tmp_path / "t.npy", np.array([[1, most]], dtype=dtype))
        assert read_table(tmp_path / "t.npy").values.tolist() == [[1, most]]
        assert texts_of(tmp_path / "t.npy", "x1") == ("1",)
        with pytest.raises(DataError, match=rf"column 'x2': .*{INEXACT} {most:,.0f} on"):
            texts_of(tmp_path / "t.npy", "x2")
    np.save(tmp_path / "t.npy", np.array([[1, 2**63]], dtype=np.uint64))
    assert texts_of(tmp_path / "t.npy", "x2") == (str(2**63),)
    (tmp_path / "t.csv").write_text(f"whole,big,huge,novel\n1,9007199254740993,{LARGE},{'x' * 200_000}\n")
    assert read_table(tmp_path / "t.csv", columns=["whole", "huge"]).values.tolist() == [[1, float(LARGE)]]
    assert texts_of(tmp_path / "t.csv", "huge") == (str(LARGE),)
    with pytest.raises(DataError, match=r"row 1 \(line 2\), column 'novel': .*got text of more than 1000 characters"):
        read_table(tmp_path / "t.csv", columns=["whole"], texts=("novel",))


def test_columns_whose_names_say_that_they_number_people() -> None:
    numbers = ("fallnr", "FallNr.", "Fall-Nr", "patient_no", "MRN", "patientId", "caseID", "visit number", "uuid")
    values = ("inr", "acid", "uric_acid", "fluid", "nr", "number", "case_mix", "personal", "Lipid", "index", "plaid")
    assert all(map(is_identifier, numbers)) and not any(map(is_identifier, values))


def test_a_file_that_is_compressed_is_read_whatever_its_name(tmp_path: Path) -> None:
    """It was refused as text of another encoding."""
    (tmp_path / "t.csv").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    assert read_table(tmp_path / "t.csv").values.tolist() == [[1, 2]]


def test_names_are_equal_only_where_the_cells_are() -> None:
    assert name_cells([True, 1, 1.0, " 1 ", None, float("nan")], NUMBERS, "x", "y") == ["true", "1", "1", "1", "", ""]
    assert name_cells([0.1, 2.0, 2.0**60], NUMBERS, "x", "y", any_number=True) == ["0.1", "2", repr(2.0**60)]
    assert ColumnKind("dates").fits("beside") is False and TEXT.fits("feature") is False and HALF.fits("feature")


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"index_columns": 3}', b"\xff", b"[" * 100_000])
def test_metadata_that_anybody_may_have_written(text: bytes) -> None:
    assert pandas_indices(text) == frozenset()


def test_row_labels_of_pandas_are_no_features(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"age": [40.0], "patient": [7], "__index_level_0__": [3]})
    table = table.replace_schema_metadata({"pandas": '{"index_columns": ["patient", "__index_level_0__"]}'})
    (tmp_path / "export").mkdir()
    parquet.write_table(table, tmp_path / "t.parquet")
    parquet.write_table(table, tmp_path / "export/t.parquet")
    for name in ("t.parquet", "export"):
        place = find_place(str(tmp_path / name))
        assert read_table(place).names == ("age",)
        assert read_table(place, columns=["age", "patient"]).values.tolist() == [[40, 7]]


def test_folders_in_folders_are_named(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "one/2024/01").mkdir(parents=True)
    parquet.write_table(arrow.table({"a": [1.0]}), tmp_path / "one/2024/01/t.parquet")
    with pytest.raises(DataError, match=r"got none; they lie deeper, in 2024/01/; check --data"):
        read_table(find_place(str(tmp_path / "one")))
    with pytest.raises(DataError, match=r"each of which is a table; name one with --table \('01'\)"):
        read_table(find_place(str(tmp_path / "one/2024")))
    assert read_table(find_place(str(tmp_path / "one/2024"), table="01")).values.tolist() == [[1]]
