"""Stores the rows that a database returned, checked cell by cell, in a fixed order, outside of memory.

A database may return the same rows in another order each time. Rows are therefore sorted by all their columns, so
that the same rows always make the same records: a run's digest of its data, --resume and the ledger depend on that.
Every later read, of numbers, names or categories, is of these rows.

They are in a temporary SQLite database, which has no name on the disk and uses the disk (TMPDIR) only when it is
larger than its cache. Values from a database are untrusted until they have passed `_cell`.
"""

from __future__ import annotations

import math
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.delimited import Cells
from fastlloyd.data.form import MISSING, is_identifier
from fastlloyd.errors import DataError, format_count

MOST_TEXT = 1000
"""The most characters of a name; longer text is not stored."""
_CACHE_KIB = 1 << 14
_READ_VALUES = 1 << 19
_SHOWN = 60
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_EXACT = 1 << 53
_MOST_COLUMNS = 2000
_PLAIN = {int, float, str, type(None)}
_FIX = "convert it in --query (CAST), or leave the column out with --columns"


class Answer:
    """The rows that a database returned.

    Parameters
    ----------
    source : str
        The database, for errors.
    names : sequence of str, length d
    batches : iterator over sequences of rows, each of d values
    key : str or None
        The column that names rows in errors; None, or no such column: the first that is called like an identifier.

    Attributes
    ----------
    names : tuple of str, length d
    numeric : tuple of bool, length d
        Which columns hold numbers, or nothing at all.
    rows : int

    Raises
    ------
    DataError
        Rows have too few or too many values, there are too many columns, or the disk is full.

    Sees
    ----
    Nobody but the caller.
    """

    def __init__(
        self, source: str, names: Sequence[str], batches: Iterator[Sequence[tuple[Any, ...]]], *, key: str | None = None
    ) -> None:
        self.names = tuple(names)
        if len(self.names) > _MOST_COLUMNS:
            raise DataError(
                f"{source}: {format_count(len(names), 'column')}, expected at most {_MOST_COLUMNS}; name those to use "
                "in --query"
            )
        self._source = source
        named = [name for name in self.names if name == key] or list(filter(is_identifier, self.names))
        self._key = self.names.index(named[0]) if named else None
        self._store = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._store.close)
        self._kinds: list[set[type]] = [set() for _ in self.names]
        try:
            self.rows = self._keep(batches)
        except sqlite3.Error as error:
            raise DataError(
                f"{source}: its rows cannot be kept on the disk ({error}); make room there, or name a folder of "
                "another disk in TMPDIR"
            ) from error
        self.numeric = tuple(kinds <= {type(None)} or bool(kinds & {int, float}) for kinds in self._kinds)

    def _keep(self, batches: Iterator[Sequence[tuple[Any, ...]]]) -> int:
        """Check all rows and store them, sorted."""
        width = len(self.names)
        columns = ", ".join(f"c{at}" for at in range(width))
        self._store.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        for pragma in ("journal_mode = OFF", "synchronous = OFF"):
            self._store.execute(f"PRAGMA {pragma}")
        self._store.execute("BEGIN")  # otherwise each row would be a separate transaction
        self._store.execute(f"CREATE TABLE taken ({columns})")
        insert = f"INSERT INTO taken VALUES ({', '.join('?' * width)})"  # noqa: S608
        for batch in batches:
            if any(len(row) != width for row in batch):
                raise DataError(
                    f"{self._source}: expected {format_count(width, 'value')} in each row, as its columns say, got a "
                    "row with another number of them; try another driver"
                )
            own = [self._checked(at, values) for at, values in enumerate(zip(*batch, strict=True))]
            self._store.executemany(insert, zip(*own, strict=True))
        self._store.execute(f"CREATE TABLE sorted AS SELECT * FROM taken ORDER BY {columns}")  # noqa: S608
        self._store.execute("DROP TABLE taken")
        self._store.execute("COMMIT")
        (rows,) = self._store.execute("SELECT count(*) FROM sorted").fetchone()
        return int(rows)

    def _checked(self, at: int, values: Sequence[Any]) -> Sequence[Any]:
        """Return some values of a column as they are stored, and note their kinds."""
        kinds = set(map(type, values))
        odd = not kinds <= _PLAIN
        if int in kinds:
            whole = values if len(kinds) == 1 else [value for value in values if type(value) is int]
            odd |= min(whole) < _LEAST or max(whole) > _MOST
        if str in kinds:
            odd |= max(len(value) for value in values if type(value) is str) > MOST_TEXT
        kept = list(map(_cell, values)) if odd else values
        self._kinds[at] |= set(map(type, kept))
        return kept

    def chunks(self, numbers: Sequence[int], texts: Sequence[int] = (), height: int | None = None) -> Iterator[Cells]:
        """Read columns of numbers and of text, some rows at a time; NaN where a number is missing.

        Raises
        ------
        DataError
            A value is no number, and its row is named; or one is neither a whole number nor text.
        """
        columns = ", ".join(f"c{at}" for at in numbers) or "rowid"
        most = max(1, _READ_VALUES // max(1, len(numbers)))
        cursor = self._store.execute(f"SELECT {columns} FROM sorted ORDER BY rowid")  # noqa: S608
        names = [self.texts(at) for at in texts]
        odd = any(self._kinds[at] & {str, bytes} for at in numbers)
        done = 0
        while rows := cursor.fetchmany(most if height is None else min(height, most)):
            if odd:
                rows = [self._numbers(done + at, row, numbers) for at, row in enumerate(rows)]
            values: NDArray[np.float64] = np.array(rows, dtype=np.float64)[:, : len(numbers)]
            done += len(rows)
            yield Cells(values, tuple(list(islice(column, len(rows))) for column in names))

    def _numbers(self, row: int, values: Sequence[Any], chosen: Sequence[int]) -> list[float | None]:
        """Return a row's numbers where some columns hold other cells too."""
        numbers: list[float | None] = []
        for at, cell in zip(chosen, values, strict=True):
            value = None if isinstance(cell, str) and cell.strip().lower() in MISSING else cell
            if isinstance(value, str | bytes):
                raise DataError(
                    f"{self._source}, {self.row(row)}, column {self.names[at]!r}: expected a number, got "
                    f"{_described(value)}; {_FIX}"
                )
            numbers.append(value)
        return numbers

    def texts(self, column: int) -> Iterator[str]:
        """Read a column of names as text, without the spaces around it; empty where a value is null.

        Raises
        ------
        DataError
            A value is neither a whole number nor text.
        """
        values = self._store.execute(f"SELECT c{column} FROM sorted ORDER BY rowid")  # noqa: S608
        for (cell,) in values:
            whole = type(cell) is float and cell.is_integer() and abs(cell) < _EXACT
            value = int(cell) if whole else cell
            if isinstance(value, float | bytes):
                raise DataError(
                    f"{self._source}, column {self.names[column]!r}: expected whole numbers or text, got "
                    f"{_described(value)}; {_FIX}"
                )
            yield "" if value is None else str(value).strip()

    def named(self, column: str) -> Names:
        """Return a column of names that can be iterated many times and takes no memory."""
        return Names(self, self.names.index(column))

    def row(self, at: int) -> str:
        """Name a row, counted from 0, by its key; by its number where no column is a key."""
        if self._key is None:
            return f"row {at + 1} in the order of its columns (--id COLUMN names rows)"
        found = self._store.execute(f"SELECT c{self._key} FROM sorted WHERE rowid = ?", (at + 1,))  # noqa: S608
        (value,) = found.fetchone()
        name = self.names[self._key]
        if value is None:
            return f"the row without {name!r}"
        text = repr(value)
        return f"the row of {name!r} {text if len(text) <= _SHOWN else text[:_SHOWN] + '..'}"


@dataclass(frozen=True, slots=True)
class Names:
    """A column of names; each iteration reads the stored rows again."""

    answer: Answer
    column: int

    def __iter__(self) -> Iterator[str]:
        return self.answer.texts(self.column)


def _cell(value: Any) -> int | float | str | bytes | None:
    """Return a value as it is stored; bytes describe what is neither a number nor short text."""
    kind = type(value)
    if value is None or kind is float:
        return value  # type: ignore[no-any-return]
    if kind is int:
        return value if _LEAST <= value <= _MOST else _real(value)
    if kind is Decimal:
        return _decimal(value)
    if kind is UUID:
        return str(value)
    if kind is not str:
        return kind.__name__.encode()[:_SHOWN]
    return value if len(value) <= MOST_TEXT else b"text of more than " + str(MOST_TEXT).encode() + b" characters"


def _real(value: int) -> float:
    """Return the nearest float of a whole number, an infinite one if there is none."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _decimal(value: Decimal) -> int | float | None:
    """Return a decimal number exactly where it is a whole one of 64 bits, else the nearest float."""
    if value.is_nan():
        return None
    # Never int() of a large exponent: 1E+999999999 has as many digits.
    if value.is_finite() and value.adjusted() < 18 and value == value.to_integral_value():
        return int(value)
    return float(value)


def _described(value: object) -> str:
    """Describe a value without showing it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "text" if isinstance(value, str) else "a number that is not whole"
