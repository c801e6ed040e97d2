"""The table of types that every reader of typed tables must meet: each type as feature, category and id, and unused."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fastlloyd.data.categories import Categories
from fastlloyd.data.database import Place
from fastlloyd.data.table import read_table
from fastlloyd.errors import DataError
from tests.reading import texts_of

Expected = tuple[list[float] | str, list[str] | str]
"""What a column is as a feature, and as a name (category, id): values of two rows, or what is refused."""
LARGE = 10**28 + 1
KEY = "6e7f2f0a-0000-4000-8000-000000000001"
FRACTION = "got a number that is not whole"
INEXACT = "got a floating point number from"

NUMBER_TABLE: dict[str, Expected] = {
    "whole": ([1, 2], ["1", "2"]),
    "long": ([2**53 + 1, 7], [str(2**53 + 1), "7"]),
    "gap": ([1, np.nan], ["1", ""]),
    "double": ([1, 2], ["1", "2"]),
    "part": ([0.5, 2], FRACTION),
    "big": ([2.0**53, 2], INEXACT),
    "single": ([2.0**24, 2], INEXACT),
    "endless": ("expected a finite number", FRACTION),
    "decimal": ([1, 2], ["1", "2"]),
    "huge": ([float(LARGE), 2], [str(LARGE), "2"]),
    "empty": ([np.nan, np.nan], ["", ""]),
}
TEXT_TABLE: dict[str, Expected] = {
    "text": ("got text", ["A", "B"]),
    "category": ("got text", ["A", "B"]),
    "view": ("got text", ["A", ""]),
    "uuid": ("got text", [KEY, KEY]),
    "truth": ("got truth values", ["true", "false"]),
    "digits": ([1, 2], ["1", "2"]),
    "novel": ("got text", "text of more than"),
}
OTHER_TABLE: dict[str, Expected] = {
    "date": ("got dates", "got dates"),
    "far": ("got dates", "got dates"),
    "stamp": ("got points in time", "got points in time"),
    "zone": ("got points in time", "got points in time"),
    "clock": ("got times of day", "got times of day"),
    "span": ("got durations", "got durations"),
    "bytes": ("got bytes", "got bytes"),
    "list": ("got lists", "got lists"),
    "struct": ("got structures", "got structures"),
}
ALL = NUMBER_TABLE | TEXT_TABLE | OTHER_TABLE


def arrow_table() -> Any:
    arrow = pytest.importorskip("pyarrow")
    text = arrow.string_view() if hasattr(arrow, "string_view") else arrow.string()
    moments = [datetime.datetime(2020, 1, 1), None]
    return arrow.table({
        "n": arrow.array([1.0, 2.0]),
        "whole": arrow.array([1, 2], arrow.int64()),
        "long": arrow.array([2**53 + 1, 7], arrow.uint64()),
        "gap": arrow.array([1, None], arrow.int32()),
        "double": arrow.array([1.0, 2.0]),
        "part": arrow.array([0.5, 2.0]),
        "big": arrow.array([2.0**53, 2.0]),
        "single": arrow.array([2.0**24, 2.0], arrow.float32()),
        "endless": arrow.array([np.inf, 2.0]),
        "decimal": arrow.array([decimal.Decimal("1.00"), decimal.Decimal("2.00")], arrow.decimal128(12, 2)),
        "huge": arrow.array([decimal.Decimal(LARGE), decimal.Decimal(2)], arrow.decimal128(38, 0)),
        "empty": arrow.nulls(2),
        "text": arrow.array([" A", "B "]),
        "category": arrow.array(["A", "B"]).dictionary_encode(),
        "view": arrow.array(["A", None], text),
        "uuid": arrow.array([uuid.UUID(KEY).bytes] * 2, arrow.uuid()) if hasattr(arrow, "uuid") else [KEY] * 2,
        "truth": arrow.array([True, False]),
        "digits": arrow.array([1, 2]).dictionary_encode(),
        "novel": arrow.array(["x" * 2000, "y"]),
        "date": arrow.array([datetime.date(2020, 1, 1), None]),
        "far": arrow.array([2**31 - 1, None], arrow.int32()).cast(arrow.date32()),
        "stamp": arrow.array(moments, arrow.timestamp("us")),
        "zone": arrow.array(moments, arrow.timestamp("us", tz="Europe/Berlin")),
        "clock": arrow.array([datetime.time(23, 59), None], arrow.time64("us")),
        "span": arrow.array([1, 2], arrow.duration("us")),
        "bytes": arrow.array([b"0" * 16, b"1" * 16], arrow.binary(16)),
        "list": arrow.array([[1, 2], []]),
        "struct": arrow.array([{"a": 1}, {"a": 2}]),
    })  # fmt: skip


SQL_TYPES = {
    "n": ("DOUBLE PRECISION", "1", "2"),
    "whole": ("BIGINT", "1", "2"),
    "long": ("BIGINT", f"{2**53 + 1}", "7"),
    "gap": ("INTEGER", "1", "NULL"),
    "double": ("DOUBLE PRECISION", "1", "2"),
    "part": ("DOUBLE PRECISION", "0.5", "2"),
    "big": ("DOUBLE PRECISION", "9007199254740992", "2"),
    "single": ("REAL", "16777216", "2"),
    "endless": ("DOUBLE PRECISION", "'infinity'", "2"),
    "decimal": ("NUMERIC(12, 2)", "1", "2"),
    "huge": ("NUMERIC(38, 0)", f"{LARGE}", "2"),
    "empty": ("INTEGER", "NULL", "NULL"),
    "text": ("TEXT", "' A'", "'B '"),
    "category": ("ward", "'A'", "'B'"),
    "view": ("VARCHAR(10)", "'A'", "NULL"),
    "uuid": ("UUID", f"'{KEY}'", f"'{KEY}'"),
    "truth": ("BOOLEAN", "true", "false"),
    "digits": ("SMALLINT", "1", "2"),
    "novel": ("TEXT", "repeat('x', 2000)", "'y'"),
    "date": ("DATE", "'infinity'", "NULL"),
    "far": ("DATE", "'0044-03-15 (BC)'", "'200000-01-01'"),
    "stamp": ("TIMESTAMP", "'-infinity'", "NULL"),
    "zone": ("TIMESTAMPTZ", "'infinity'", "'2020-01-01 00:00:00+02'"),
    "clock": ("TIME", "'24:00:00'", "NULL"),
    "span": ("INTERVAL", "'3 days'", "NULL"),
    "bytes": ("BYTEA", "'0123456789abcdef'", "NULL"),
    "list": ("INTEGER[]", "'{1,2}'", "NULL"),
    "struct": ("JSONB", "'{\"a\": 1}'", "NULL"),
}


def fill(store: Any, **other: tuple[str, str, str]) -> None:
    columns = SQL_TYPES | other
    store.run("CREATE TYPE ward AS ENUM ('A', 'B')")
    store.run(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, (kind, _, _) in columns.items())})")
    for row in (1, 2):
        store.run(f"INSERT INTO t VALUES ({', '.join(cells[row] for cells in columns.values())})")


def check_types(place: Place, other: Mapping[str, Expected] = {}) -> None:
    """Read each column of a table in each role.

    Parameters
    ----------
    place : Place
        A table with the columns of `ALL` and a column of numbers `n`.
    other : mapping of str to Expected
        What is another type at this place.
    """
    assert read_table(place, columns=["n"]).values.tolist() == [[1], [2]]  # all others are not used
    for column, (feature, name) in (ALL | dict(other)).items():
        if isinstance(feature, str):
            with pytest.raises(DataError, match=rf"column '{column}': .*{feature}"):
                read_table(place, columns=["n", column], missing="gaps")
        else:
            table = read_table(place, columns=["n", column], missing="gaps")
            np.testing.assert_array_equal(table.values, np.array([[1, 2], feature]).T, column)
        if isinstance(name, str):
            for wanted in ({"texts": (column,)}, {"categories": Categories(((column, (("A", 1.0),)),))}):
                with pytest.raises(DataError, match=rf"column '{column}': expected whole numbers or text, .*{name}"):
                    read_table(place, columns=["n"], **wanted)
            continue
        assert texts_of(place, column) == tuple(name), column
        lists = tuple((cell, 1.0) for cell in dict.fromkeys(name) if cell)
        if lists:
            table = read_table(place, columns=["n"], categories=Categories(((column, lists),)), missing="gaps")
            expected = [[own == cell if own else np.nan for cell, _ in lists] for own in name]
            np.testing.assert_array_equal(table.values[:, 1:], np.array(expected, dtype=np.float64), column)
