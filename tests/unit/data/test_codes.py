"""Values that may stand for a missing one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.data.categories import Categories
from fastlloyd.data.database import Place, find_place
from fastlloyd.data.form import PLAIN, DataFile, Form
from fastlloyd.data.kinds import HALF, NUMBERS
from fastlloyd.data.missing import blank_codes, find_codes
from fastlloyd.data.table import read_table

RNG = np.random.default_rng(3)
TEMPERATURE = np.round(RNG.normal(37.0, 0.7, 4000), 1)
AGE = RNG.integers(17, 91, 4000).astype(float)
COST = np.round(np.exp(RNG.normal(6.0, 1.5, 4000)), 2)


def with_codes(column: np.ndarray, *codes: float, rows: int = 40) -> np.ndarray:
    found = column.copy()
    for at, code in enumerate(codes):
        found[at * rows : (at + 1) * rows] = code
    return found


@pytest.mark.parametrize(
    ("column", "codes"),
    [
        (with_codes(TEMPERATURE, 99.9), [99.9]),
        (with_codes(TEMPERATURE, -999.0, 99.9), [-999.0, 99.9]),
        (with_codes(TEMPERATURE, 998.0, 999.0), [998.0, 999.0]),
        (with_codes(AGE, -999.0), [-999.0]),
        (with_codes(AGE, 999.0, 9999.0), [999.0, 9999.0]),
        (np.append(with_codes(AGE, -999.0), 1e7), [-999.0]),  # beside one slip of the pen
        (np.append(with_codes(AGE, -999.0), np.full(50, np.nan)), [-999.0]),
        (with_codes(COST, -1e6), [-1e6]),
    ],
)
def test_codes_are_found(column: np.ndarray, codes: list[float]) -> None:
    assert [value for value, _ in find_codes(column)] == codes
    assert all(count == 40 for _, count in find_codes(column))


@pytest.mark.parametrize(
    "column",
    [
        TEMPERATURE,
        AGE,
        COST,
        with_codes(AGE, 999.0, rows=4),  # too few rows
        np.append(AGE, 1e9),
        RNG.integers(0, 2, 4000).astype(float),
        RNG.integers(0, 4, 4000).astype(float),
        np.where(RNG.random(4000) < 0.99, 0.0, RNG.integers(1, 4, 4000)),  # mostly 0
        RNG.poisson(0.2, 4000).astype(float),
        np.full(100, 7.0),
        np.full(10, np.nan),
        np.empty(0),
    ],
)
def test_usual_columns_have_none(column: np.ndarray) -> None:
    assert find_codes(column) == []


ROWS = [("a", 1, 36.5, "x"), ("b", -999, 99.9, "-999.0"), ("-999", 3, 37.5, "NA?"), ("d", 4, 38.0, "-9990")]
WITH_CODES = Form(na=("-999", "99.9", "NA?"))


def _csv(folder: Path) -> Place:
    path = folder / "own.csv"
    path.write_text("name,age,heat,kind\n" + "".join(f"{a},{b}.00,{c},{d}\n" for a, b, c, d in ROWS))
    return DataFile(path, WITH_CODES)


def _decimal_comma(folder: Path) -> Place:
    path = folder / "own.csv"
    rows = (f"{a};{b};{c};{d}\n".replace(".", ",") for a, b, c, d in ROWS)
    path.write_text("name;age;heat;kind\n" + "".join(rows))
    return DataFile(path, replace(WITH_CODES, delimiter=";", decimal=","))


def _text_of_numbers(folder: Path) -> Place:
    path = folder / "own.csv"
    path.write_text("name,age,heat,kind\na,1,36.5,x\nb,NA?,NA?,-999.0\n-999,3,37.5,NA?\nd,4,38.0,-9990\n")
    return DataFile(path, WITH_CODES)


def _parquet(folder: Path) -> Place:
    pa = pytest.importorskip("pyarrow")
    columns = list(zip(*ROWS, strict=True))
    kinds = (pa.string(), pa.int16(), pa.float32(), pa.string())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    path = folder / "own.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(pa.table(arrays, ("name", "age", "heat", "kind")), path)
    return DataFile(path, WITH_CODES)


def _sqlite(folder: Path) -> Place:
    with contextlib.closing(sqlite3.connect(folder / "own.db")) as store:
        store.execute("CREATE TABLE own (name TEXT, age, heat, kind TEXT)")
        store.executemany(
            "INSERT INTO own VALUES (?, ?, ?, ?)", [(a, b, "NA?" if c == 99.9 else c, d) for a, b, c, d in ROWS]
        )
        store.commit()
    return find_place(f"sqlite:///{folder / 'own.db'}", replace(WITH_CODES, decimal=",", delimiter=";"), table="own")


@pytest.mark.parametrize("write", [_csv, _decimal_comma, _text_of_numbers, _parquet, _sqlite])
def test_codes_are_missing_in_features_and_text_but_not_in_names(
    write: Callable[[Path], Place], tmp_path: Path
) -> None:
    own = read_table(write(tmp_path), columns=("age", "heat"), missing="gaps", texts=("name",), beside=("kind",))
    order = {name: at for at, name in enumerate(own.raw_texts["name"])}
    rows = own.values[[order[name] for name, *_ in ROWS]]
    np.testing.assert_allclose(rows, [[1, 36.5], [np.nan, np.nan], [3, 37.5], [4, 38]])
    kinds = own.raw_texts["kind"]
    assert [kinds[order[name]] for name, *_ in ROWS] == ["x", "", "", "-9990"]


def test_a_category_that_is_a_code_is_missing(tmp_path: Path) -> None:
    (tmp_path / "lists.csv").write_text("feature,category\nkind,x\nkind,-9990\n")
    own = read_table(
        _csv(tmp_path), columns=("age",), categories=Categories.read(tmp_path / "lists.csv"), missing="drop"
    )
    assert own.values.tolist() == [[1, 1, 0], [4, 0, 1]]


def test_without_na_nothing_is_a_code(tmp_path: Path) -> None:
    own = read_table(replace(_csv(tmp_path), form=PLAIN), columns=("age", "heat"), beside=("kind",))
    assert own.values[1].tolist() == [-999, 99.9]
    assert own.raw_texts["kind"][1] == "-999.0"


def test_a_column_of_text_and_codes_holds_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("age,kind\n1,x\n2,-999\n3,y\n")
    assert read_table(DataFile(path, WITH_CODES)).names == ("age",)


def test_codes_of_half_precision_are_found_and_others_stay() -> None:
    values = np.array([[99.9, 99.9], [99.875, 99.875]]).astype(np.float16).astype(np.float64)
    values[:, 1] = [99.9, 99.875]
    blank = blank_codes(values, [99.9, 1e300], [HALF, NUMBERS])
    np.testing.assert_array_equal(np.isnan(blank), [[True, True], [True, False]])
    assert not np.isnan(values).any()
    assert blank_codes(values, [5.0], [HALF, NUMBERS]) is values
