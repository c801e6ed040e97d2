"""Reading records: every format gives the same matrix, every fault names file, row and column."""

from __future__ import annotations

import gzip
import pickle
import sys

import numpy as np
import pytest

from fastlloyd.data.bounds import Bounds, parse_bounds
from fastlloyd.data.delimited import SAMPLE_ROWS
from fastlloyd.data.form import DataFile, Form, number_text
from fastlloyd.data.merge import Unit
from fastlloyd.data.table import MemoryLimit, read_table, read_table_within
from fastlloyd.describe.columns import DescribedColumn
from fastlloyd.errors import ConfigError, DataError
from tests.reading import column_names


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="records.csv"):
        path = tmp_path / name
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write_file


def assert_table(table, expected, names):
    np.testing.assert_array_equal(table.values, np.array(expected, dtype=float))
    assert table.names == names
    assert table.values.dtype == np.float64
    assert table.values.flags.c_contiguous
    assert table.values.flags.writeable


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3,4\n",
        "a,b\n1,2\n3,4",
        "\ufeffa,b\n1,2\n3,4\n",
        "a,b\r\n1,2\r\n3,4\r\n",
        "a,b\r1,2\r3,4\r",
        "a,b\n1,2\n3,4\n\n\n",
        '"a","b"\n"1","2"\n"3","4"\n',
        '"a","b"\n1,2\n3,4\n',
        " a , b \n 1 , 2 \n3,  4\n",
        ' "a", "b"\n "1", 2\n3,4\n',
        "a,b\n1e0,+2.0\n3.,4\n",
    ],
)
@pytest.mark.parametrize("name", ["r.csv", "r.csv.gz", "R.CSV"])
def test_the_many_ways_to_write_a_csv(write, text, name):
    assert_table(read_table(write(text, name)), [[1, 2], [3, 4]], ("a", "b"))


def test_without_a_header_the_columns_are_numbered(write):
    assert_table(read_table(write("1,2\n3,4\n")), [[1, 2], [3, 4]], ("x1", "x2"))


def test_one_text_cell_makes_row_one_a_header(write):
    assert_table(read_table(write("1,b\n3,4\n")), [[3, 4]], ("1", "b"))


def test_a_first_row_of_numbers_and_gaps_is_refused_as_ambiguous(write):
    with pytest.raises(DataError, match="line 1: numbers and empty cells only"):
        read_table(write("1,,3\n4,5,6\n"))


def test_columns_by_name_come_in_the_order_asked(write):
    table = read_table(write("a,name,b\n1,x,2\n3,y,4\n"), columns=["b", "a"])
    assert_table(table, [[2, 1], [4, 3]], ("b", "a"))
    assert table.ignored == ("name",)


def test_identifiers_and_text_are_left_out_and_named(write):
    table = read_table(write("id,patient_id,ID,a,name,,b,Unnamed: 0,__index_level_0__\n1,2,3,4,x,0,5,6,7\n"))
    assert_table(table, [[4, 5]], ("a", "b"))
    assert table.ignored == ("id", "patient_id", "ID", "name", "(no name)", "Unnamed: 0", "__index_level_0__")


def test_an_identifier_is_used_when_asked_for(write):
    assert_table(read_table(write("id,a\n7,1\n"), columns=["id"]), [[7]], ("id",))


def test_ignored_columns_are_left_out(write):
    table = read_table(write("a,b,c\n1,2,3\n"), ignore=["b"])
    assert_table(table, [[1, 3]], ("a", "c"))


def test_a_quoted_comma_and_line_break_in_a_text_column(write):
    table = read_table(write('note,a\n"x, y",1\n"two\nlines",2\n'))
    assert_table(table, [[1], [2]], ("a",))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("\n\n", "line 1 is empty"),
        ("a,b\n", "has columns but no rows"),
        ("a,b\n1,2\n3\n", r"row 2 \(line 3\): expected 2 cells as in the first row, got 1"),
        ("a,b\n1,2,9\n3,4\n", r"row 1 \(line 2\): expected 2 cells as in the first row, got 3"),
        ("Ward 7\na,b\n1,2\n", r"row 1 \(line 2\): expected 1 cell .*, got 2; remove what stands above the header"),
        ("1,2\n3,4\n5\n", r"row 3 \(line 3\): expected 2 cells"),
        ("a,b\n1,2\n3,oops\n", r"row 2 \(line 3\), column 'b': expected a number, got text"),
        ("a,b\n1,2\n3,1_000\n", r"row 2 \(line 3\), column 'b': expected a number, got text"),
        ('a,b\n1,2\n3,"1,234"\n', r"add --thousands ',' for the first, --decimal ',' --thousands none for the second$"),
        ('a,b\n1,2\n3,"1,234,567.8"\n', r"numbers with ',' between their thousands; add --thousands ','$"),
        ("a,b\n1,2\n3,1'234.50\n", r"""between their thousands; add --thousands "'"$"""),
        ('a,b\n1,2\n3,"0,234"\n', r"numbers with ',' before their fraction; add --decimal ','$"),
        ("a,b\n1,2\n3,\n", r"row 2 \(line 3\), column 'b': the value is missing or NaN"),
        ("a,b\n1,2\nnan,4\n", r"row 2 \(line 3\), column 'a': the value is missing or NaN"),
        ("1,2\n3,NA\n", r"row 2 \(line 2\), column 'x2': the value is missing or NaN"),
        ("a,b\n1,inf\n3,4\n", r"row 1 \(line 2\), column 'b': expected a finite number"),
        ("a,b\n1,1e999\n3,4\n", r"row 1 \(line 2\), column 'b': expected a finite number"),
        ("a,b\n1,2\n\n3,4\n", r"row 2 \(line 4\): an empty line stands before it"),
        ("a,a\n1,2\n", "names the column 'a' twice"),
        ("name\nx\n", "no column of numbers is left"),
        ("a;b\n1;2\n", "separated by ';', expected a comma; add --delimiter"),
        ('note,a\n"two\nlines",1\nx,\n', "row 2, column 'a': the value is missing"),
    ],
)
def test_faults_name_file_row_and_column(write, text, sentence):
    path = write(text)
    with pytest.raises(DataError, match=sentence) as caught:
        read_table(path)
    assert str(path) in str(caught.value)


def test_a_fault_never_quotes_the_value(write):
    with pytest.raises(DataError) as caught:
        read_table(write("a,b\n1,2\n3,diagnosis\n"))
    assert "diagnosis" not in str(caught.value)


def test_rows_of_one_column_too_many_and_too_few_do_not_cancel(write):
    with pytest.raises(DataError, match=r"row 1 .*got 4"):
        read_table(write("n,a,b\nx,1,2,3\ny,1\n"), columns=["a"])


def test_text_that_begins_late_is_a_fault_and_not_a_text_column(write):
    rows = ["1"] * (SAMPLE_ROWS + 5) + ["late"]
    with pytest.raises(DataError, match=rf"row {SAMPLE_ROWS + 6} \(line {SAMPLE_ROWS + 7}\), column 'a'"):
        read_table(write("a\n" + "\n".join(rows) + "\n"))


@pytest.mark.parametrize("quoted", [False, True])
def test_numbers_that_begin_late_are_a_fault_and_not_a_text_column(write, quoted):
    rows = [f"{at},{'<5' if at else ''}" for at in range(SAMPLE_ROWS + 1)]
    note = '"x"' if quoted else "x"
    late = (f"{row},{note}\n" for row in [*rows, *(f"9,{at}.5" for at in range(500))])
    path = write("a,crp,b\n" + "".join(late))
    said = rf"column 'crp': text in row 2 and in all .* 1,000, a number in row {SAMPLE_ROWS + 2:,} and in 33 %"
    with pytest.raises(DataError, match=said):
        read_table(path)
    with pytest.raises(DataError, match=said):
        read_table_within(path, MemoryLimit(1, path.parent))
    assert read_table(path, columns=["a"]).names == read_table(path, ignore=["crp"]).names == ("a",)
    assert read_table(path, texts=["crp"], ignore=["crp"]).raw_texts["crp"][-1] == "499.5"
    few = write("a,note\n" + "\n".join([*rows, *["9,7"] * 50]))  # a chance number among words
    assert read_table(few).names == ("a",)


def test_a_quote_that_is_never_closed_is_named_before_all_is_read(write):
    path = write('a,b\n1,2\n3,"4\n' + "5,6\n" * (1 << 21))
    with pytest.raises(DataError, match="line 3: a quote is opened and not closed in the next 4,194,304 characters"):
        read_table(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('a,b\n1,2\n3,"4\n5,6\n', "line 3: a quote is opened and not closed before the file ends; close it, or remove"),
        ('a,"b\n1,2\n', "line 1: a quote is opened and not closed before the file ends"),
        ("a,b\n" + "1,2\n" * 3000 + '3,"4\n', "line 3002: a quote is opened and not closed before the file ends"),
        ('note,a\n"two\nlines",1\n"x,2\n', "line 4: a quote is opened and not closed before the file ends"),
        ('a,b\n1,"2"3\n4,5\n', "line 2: a comma is expected where a quote closes; write a quote within a cell as two"),
        ('a;b\n1;"2\n3;"4"\n', "line 2: ';' is expected where a quote closes"),
    ],
)
def test_quotes_that_do_not_close_are_named_by_the_line_where_the_row_begins(write, text, sentence):
    path = write(text)
    with pytest.raises(DataError, match=sentence) as caught:
        read_table(DataFile(path, Form(delimiter=";"))) if ";" in text else read_table(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("cell", ["", "NA", "nan", "?", "null", "None", "N/A", " "])
def test_the_rules_for_missing_values(write, cell):
    path = write(f"a,b\n1,2\n3,{cell}\n5,6\n")
    dropped = read_table(path, missing="drop")
    assert_table(dropped, [[1, 2], [5, 6]], ("a", "b"))
    assert dropped.missing_rows == 1
    filled = read_table(path, missing="midpoint", bounds=parse_bounds("0,10"))
    assert_table(filled, [[1, 2], [3, 5], [5, 6]], ("a", "b"))
    assert filled.missing_rows == 1
    with pytest.raises(DataError, match="--missing drop"):
        read_table(path)


def test_midpoint_goes_by_the_name_of_the_feature(write):
    bounds = Bounds(np.array([0.0, 100.0]), np.array([1.0, 200.0]), ("b", "a"))
    table = read_table(write("a,b\n,\n1,0.25\n"), columns=["a", "b"], missing="midpoint", bounds=bounds)
    assert_table(table, [[150, 0.5], [1, 0.25]], ("a", "b"))


def test_named_bounds_choose_the_columns_and_their_order(write):
    bounds = Bounds(np.zeros(2), np.ones(2), ("b", "a"))
    for text in ("a,b,c\n1,2,3\n", "c,b,a\n3,2,1\n"):
        assert_table(read_table(write(text), bounds=bounds), [[2, 1]], ("b", "a"))
    assert_table(read_table(write("a,b,c\n1,2,3\n"), columns=["c"], bounds=bounds), [[3]], ("c",))
    assert_table(read_table(write("a,b,c\n1,2,3\n"), ignore=["b"], bounds=bounds), [[1]], ("a",))
    with pytest.raises(DataError, match="no column 'b'"):
        read_table(write("a,c\n1,2\n"), bounds=bounds)


def test_a_missing_value_in_an_unused_column_does_not_count(write):
    table = read_table(write("a,b\n1,\n2,3\n"), columns=["a"])
    assert_table(table, [[1], [2]], ("a",))


def test_dropping_over_many_blocks_keeps_the_order(tmp_path, monkeypatch):
    monkeypatch.setattr("fastlloyd.data.missing._BLOCK_VALUES", 8)
    values = np.arange(200, dtype=float).reshape(100, 2)
    values[::7, 1] = np.nan
    np.save(tmp_path / "v.npy", values)
    table = read_table(tmp_path / "v.npy", missing="drop")
    np.testing.assert_array_equal(table.values, values[~np.isnan(values[:, 1])])
    assert table.missing_rows == 15


def test_nothing_left_after_dropping(write):
    with pytest.raises(DataError, match="every row lacks a value"):
        read_table(write("a,b\n1,\n,2\n"), missing="drop")


def test_rules_that_do_not_exist_or_lack_bounds(write):
    path = write("a\n1\n")
    with pytest.raises(ConfigError, match="expected one of refuse, drop, midpoint"):
        read_table(path, missing="guess")
    with pytest.raises(ConfigError, match="give --bounds"):
        read_table(path, missing="midpoint")


def test_unknown_and_repeated_columns(write):
    path = write("a,b\n1,2\n")
    with pytest.raises(DataError, match="no column 'c'; it has 'a', 'b'"):
        read_table(path, columns=["a", "c"])
    with pytest.raises(DataError, match="no column 'z'"):
        read_table(path, ignore=["z"])
    with pytest.raises(DataError, match="no column 'a'; it names none, so they are x1 to x2: put a header above"):
        read_table(write("1,2\n3,4\n"), columns=["a"])
    with pytest.raises(DataError, match="--columns names the column 'a' twice"):
        read_table(path, columns=["a", "a"])


def test_files_that_cannot_be_read(write, tmp_path):
    with pytest.raises(DataError, match=r"no file .*gone\.csv"):
        read_table(tmp_path / "gone.csv")
    with pytest.raises(DataError, match="not a file"):
        (tmp_path / "folder.csv").mkdir()
        read_table(tmp_path / "folder.csv")
    with pytest.raises(DataError, match="is not a file; name one file of records"):
        read_table(tmp_path)
    with pytest.raises(DataError, match=r"expected a file name ending in \.csv"):
        read_table(write("a\n1\n", "records.txt"))
    with pytest.raises(DataError, match="not UTF-8"):
        read_table(write("größe\n1\n".encode("latin-1")))
    with pytest.raises(DataError, match="not UTF-8"):
        read_table(write("a\n1\n".encode("utf-16")))
    with pytest.raises(DataError, match="line 2: a quote is opened and not closed"):
        read_table(write('a\n"' + "x" * 200_000 + "\n"))
    path = tmp_path / "plain.csv.gz"
    path.write_text("a\n1\n")
    with pytest.raises(DataError, match="not a whole gzip file"):
        read_table(path)
    whole = gzip.compress(np.random.default_rng(1).bytes(5000).hex().encode())
    path.write_bytes(whole[:2000])
    with pytest.raises(DataError, match="not a whole gzip file"):
        read_table(path)


def test_the_fast_and_the_careful_way_agree(write):
    values = np.random.default_rng(2).normal(size=(20_000, 3))
    lines = [",".join(map(repr, row)) for row in values.tolist()]
    plain = read_table(write("a,b,c\n" + "\n".join(lines) + "\n", "plain.csv"))
    quoted = read_table(write("a,b,c\n" + "\n".join([*lines[:-1], f'"{lines[-1]}"'.replace(",", '","')]), "quoted.csv"))
    np.testing.assert_array_equal(plain.values, values)
    np.testing.assert_array_equal(quoted.values, values)


def test_a_file_of_many_blocks(write, monkeypatch):
    monkeypatch.setattr("fastlloyd.data.delimited._BLOCK_CHARS", 64)
    values = np.arange(600, dtype=float).reshape(200, 3)
    text = "a,b,c\n" + "".join(",".join(map(str, row)) + "\n" for row in values.tolist())
    for ending in ("", "\n" * 200):
        np.testing.assert_array_equal(read_table(write(text + ending)).values, values)
    with pytest.raises(DataError, match=r"row 201 .*an empty line"):
        read_table(write(text + "\n" * 200 + "1,2,3\n"))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.uint8, np.int64, ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_any_real_type_and_memory_order(tmp_path, dtype, order):
    values = np.arange(12).reshape(4, 3)
    path = tmp_path / "v.npy"
    np.save(path, np.array(values, dtype=dtype, order=order))
    assert_table(read_table(path), values, ("x1", "x2", "x3"))
    assert_table(read_table(path, columns=["x3", "x1"]), values[:, [2, 0]], ("x3", "x1"))


def test_the_records_do_not_alias_the_file(tmp_path):
    path = tmp_path / "v.npy"
    np.save(path, np.ones((2, 2)))
    read_table(path).values[:] = 7
    np.testing.assert_array_equal(np.load(path), np.ones((2, 2)))


def test_npz_with_one_array_or_one_named_x(tmp_path):
    values = np.arange(6.0).reshape(3, 2)
    path = tmp_path / "v.npz"
    np.savez(path, anything=values)
    assert_table(read_table(path), values, ("x1", "x2"))
    np.savez_compressed(path, X=values, y=np.arange(3))
    assert_table(read_table(path), values, ("x1", "x2"))
    np.savez(path, a=values, b=values)
    with pytest.raises(DataError, match="one named X, got 2"):
        read_table(path)


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.ones(3), r"shape \(rows, features\), got \(3,\); reshape\(-1, 1\)"),
        (np.float64(1.0), r"got \(\)"),
        (np.ones((2, 2, 2)), r"got \(2, 2, 2\)"),
        (np.ones((2, 2), dtype=complex), "got complex numbers"),
        (np.ones((2, 2), dtype=bool), "got truth values"),
        (np.array([["a"]]), "got text"),
        (np.zeros((2, 2), dtype="M8[D]"), "got datetime64"),
        (np.zeros(2, dtype=[("a", "f8")]), "expected integers or floating"),
        (np.ones((0, 2)), "has no rows"),
        (np.ones((2, 0)), "has no columns"),
    ],
)
def test_arrays_that_are_no_matrix(tmp_path, array, sentence):
    np.save(tmp_path / "v.npy", array)
    np.savez(tmp_path / "v.npz", array)
    for name in ("v.npy", "v.npz"):
        with pytest.raises(DataError, match=sentence):
            read_table(tmp_path / name)


class Trap:
    """Marks the interpreter if anybody unpickles it."""

    def __reduce__(self):
        return (exec, ("import sys; sys._fastlloyd_trap = True",))


def test_pickles_are_refused_and_never_run(tmp_path):
    objects = np.array([[Trap()]], dtype=object)
    np.save(tmp_path / "v.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "v.npz", objects)
    (tmp_path / "bare.npy").write_bytes(pickle.dumps(Trap()))
    for name in ("v.npy", "v.npz", "bare.npy"):
        with pytest.raises(DataError, match="Python objects, which are never loaded"):
            read_table(tmp_path / name)
    assert not hasattr(sys, "_fastlloyd_trap")
    pickle.loads((tmp_path / "bare.npy").read_bytes())
    assert sys._fastlloyd_trap  # the trap works
    del sys._fastlloyd_trap


def test_damaged_arrays(tmp_path):
    path = tmp_path / "v.npy"
    np.save(path, np.ones((100, 4)))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match="cannot read"):
        read_table(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        read_table(path)
    other = tmp_path / "v.npz"
    np.savez(other, np.ones((100, 4)))
    other.write_bytes(other.read_bytes()[:1000])
    with pytest.raises(DataError):
        read_table(other)


@pytest.mark.parametrize(("value", "sentence"), [(np.nan, "missing or NaN"), (-np.inf, "finite number")])
def test_npy_names_the_row_and_column_of_a_bad_value(tmp_path, value, sentence):
    values = np.ones((5, 3))
    values[3, 1] = value
    np.save(tmp_path / "v.npy", values)
    with pytest.raises(DataError, match=f"row 4, column 'x2': .*{sentence}"):
        read_table(tmp_path / "v.npy")


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "v.parquet"
    columns = {"id": [1, 2, 3], "a": [1.0, 2.0, 3.0], "name": ["x", "y", "z"], "b": [4, None, 6], "flag": [True] * 3}
    parquet.write_table(arrow.table(columns), path)
    table = read_table(path, missing="drop")
    assert_table(table, [[1, 4], [3, 6]], ("a", "b"))
    assert table.ignored == ("id", "name", "flag")
    assert_table(read_table(path, columns=["a", "id"]), [[1, 1], [2, 2], [3, 3]], ("a", "id"))
    with pytest.raises(DataError, match="row 2, column 'b': the value is missing"):
        read_table(path)
    with pytest.raises(DataError, match="column 'name': expected numbers, got text"):
        read_table(path, columns=["name"])
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(DataError, match="as parquet"):
        read_table(path)


def test_columns_that_describe_clusters_are_read_by_one_rule_from_each_format(tmp_path):
    """A float, a whole number, a decimal comma, categories and gaps; with one person's rows and without."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    ages, doses, sexes = [40.5, None, 0.1], [3.0, 1e-7, None], ["f", None, "m"]
    array = np.array([[1.0, 2.0, 3.0], ages, doses], dtype=np.float64).T
    rows = [[*map(number_text, row), sex or ""] for row, sex in zip(array.tolist(), sexes, strict=True)]
    (tmp_path / "r.csv").write_text("x1,x2,x3,sex\n" + "".join(",".join(row) + "\n" for row in rows))
    comma = "".join(";".join(row).replace(".", ",") + "\n" for row in rows)
    (tmp_path / "c.csv").write_text("x1;x2;x3;sex\n" + comma)
    columns = {"x1": [1, 2, 3], "x2": ages, "x3": doses, "sex": arrow.array(sexes).dictionary_encode()}
    parquet.write_table(arrow.table(columns), tmp_path / "r.parquet")
    np.save(tmp_path / "r.npy", array)
    np.savez(tmp_path / "r.npz", array)
    form = Form(delimiter=";", decimal=",")
    places = [DataFile(tmp_path / name, form) for name in ("c.csv", "r.parquet", "r.npy", "r.npz")]
    for place in (DataFile(tmp_path / "r.csv"), *places):
        named = place.path.suffix in (".csv", ".parquet")
        table = read_table(place, columns=["x1"], beside=["x2", "x3", *(["sex"] if named else [])])
        for name, expected in (("x2", ages), ("x3", doses)):
            texts = table.raw_texts[name]
            found = DescribedColumn(name=name, lo=0, hi=1).read_numbers(texts, source="x", form=place.cell_form)
            np.testing.assert_array_equal(found, np.array(expected, dtype=np.float64))
        if named:
            assert table.raw_texts["sex"] == ["f", "", "m"]
        assert table.names == ("x1",)
    merged = read_table(tmp_path / "r.parquet", columns=["x2"], unit=Unit("x1", "mean"), beside=["x3"], missing="drop")
    assert merged.raw_texts["x3"] == ["3", "1e-07", ""] and len(merged.values) == 2
    parquet.write_table(arrow.table({"x1": [1.0], "seen": [[1]]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="column 'seen': expected numbers or text, got lists"):
        read_table(tmp_path / "b.parquet", columns=["x1"], beside=["seen"])


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "v.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'fastlloyd\[parquet\]'"):
        read_table(tmp_path / "v.parquet")


def test_records_do_not_show_in_the_repr(write):
    table = read_table(write("a\n123.456\n"))
    assert "123" not in repr(table)
    assert "missing_rows" not in repr(table)


def test_column_names_lists_all_columns(write):
    assert column_names(write("id,a,name\n1,2,x\n")) == ("id", "a", "name")
