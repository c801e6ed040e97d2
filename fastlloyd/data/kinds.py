"""One rule of types for every reader: which columns may be features, which may name records, and which are never read.

A reader of typed tables states the `ColumnKind` of each column, and converts only columns that are asked for.
`check_kind` refuses a column that does not fit its role, before a cell is read. Where a format has no types (CSV,
SQLite), the cells decide, each by the same rule.

==================  =============================  ==============================================
role                kinds                          a cell becomes
==================  =============================  ==============================================
feature             numbers                        the nearest float64
id, person,         whole numbers, text,           text: exact digits, `true` or `false`; from
category            truth values                   2^53 on no floating point number is whole
beside (described)  numbers, text, truth values    text that reads back exactly
unused              any                            nothing: never converted
==================  =============================  ==============================================

Source: docs/data-sources.md, "Types".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from fastlloyd.data.form import number_text
from fastlloyd.errors import DataError

EXACT = 2.0**53
"""Below this a float64 holds each whole number."""
MOST_TEXT = 1000
"""The most characters of a name."""
MOST_DIGITS = 100
"""The most digits of a whole number that are kept exactly."""
FIX = "convert it, or leave it out with --columns"
"""What to do about a column of a file that does not fit."""
IN_QUERY = "convert it in --query (CAST), or leave the column out with --columns"
"""What to do about a column of a database that does not fit."""
Role = Literal["feature", "name", "beside"]
_EXPECTED: dict[Role, str] = {"feature": "numbers", "name": "whole numbers or text", "beside": "numbers or text"}


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """What a column of a typed table holds.

    Attributes
    ----------
    words : str
        For errors; empty where each cell decides.
    exact : float
        Below this its floating point numbers hold each whole number.
    """

    words: str
    exact: float = EXACT

    @property
    def is_number(self) -> bool:
        """Whether the column may be a feature."""
        return self.words == NUMBERS.words

    @property
    def is_read(self) -> bool:
        """Whether any role may ask for the column."""
        return not self.words or self.words in (NUMBERS.words, TEXT.words, TRUTH.words)

    def fits(self, role: Role) -> bool:
        """Whether the column may have this role."""
        return self.is_read and (role != "feature" or self.is_number or not self.words)


ANY = ColumnKind("")
NUMBERS = ColumnKind("numbers")
SINGLE = ColumnKind("numbers", 2.0**24)
"""Floating point numbers of 32 bits."""
HALF = ColumnKind("numbers", 2.0**11)
TEXT = ColumnKind("text")
TRUTH = ColumnKind("truth values")


def check_kind(place: object, column: str, kind: ColumnKind, role: Role, fix: str) -> None:
    """Refuse a column that cannot have the role it is asked for.

    Parameters
    ----------
    place : object
        The source, for the error.
    column : str
    kind : ColumnKind
    role : {'feature', 'name', 'beside'}
    fix : str
        What to do.

    Raises
    ------
    DataError
    """
    if not kind.fits(role):
        raise DataError(f"{place}, column {column!r}: expected {_EXPECTED[role]}, got {kind.words}; {fix}")


def pandas_indices(text: bytes) -> frozenset[str]:
    """Return the columns that the metadata of pandas, which anybody may have written, call row labels.

    Examples
    --------
    >>> pandas_indices(b'{"index_columns": ["patient", {"kind": "range"}]}')
    frozenset({'patient'})
    """
    try:
        found = json.loads(text).get("index_columns", ())
        return frozenset(name for name in found if isinstance(name, str))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return frozenset()


def check_length(names: Sequence[str], where: Callable[[int], str], fix: str) -> None:
    """Refuse text that is too long to be a name; `where` names the cell at a place among these, from 0.

    Raises
    ------
    DataError
    """
    if names and max(map(len, names)) > MOST_TEXT:
        long = next(at for at, name in enumerate(names) if len(name) > MOST_TEXT)
        raise DataError(
            f"{where(long)}: expected {_EXPECTED['name']}, got text of more than {MOST_TEXT} characters; {fix}"
        )


def name_cells(cells: Iterable[Any], kind: ColumnKind, where: str, fix: str, *, any_number: bool = False) -> list[str]:
    """Return cells as names, without the spaces around text; empty where one is missing.

    Parameters
    ----------
    cells : iterable of int, float, str, bool or None
    kind : ColumnKind
        Of their column.
    where, fix : str
        For an error: the column, and what to do.
    any_number : bool
        Whether numbers that are not whole are taken.

    Returns
    -------
    list of str
        Equal only where the cells are.

    Raises
    ------
    DataError
        A number is not whole or not exact.
    """
    if any_number:
        return [number_text(cell) if isinstance(cell, float) else _name(cell, kind, where, fix) for cell in cells]
    return [_name(cell, kind, where, fix) for cell in cells]


def plain_number(value: Decimal) -> int | float | None:
    """Return a decimal number exactly where it is whole, else the nearest float; None for NaN."""
    if value.is_nan():
        return None
    # Never int() of a large exponent: 1E+999999999 has as many digits.
    if value.is_finite() and value.adjusted() < MOST_DIGITS and value == value.to_integral_value():
        return int(value)
    return float(value)


def _name(cell: Any, kind: ColumnKind, where: str, fix: str) -> str:
    """Return one cell as a name."""
    if isinstance(cell, str):
        return cell.strip()
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and not cell.is_integer():  # an infinite one neither
        raise DataError(f"{where}: expected {_EXPECTED['name']}, got a number that is not whole; {fix}")
    if isinstance(cell, float) and abs(cell) >= kind.exact:
        raise DataError(
            f"{where}: expected {_EXPECTED['name']}, got a floating point number from {kind.exact:,.0f} on, where "
            "several whole numbers become one; save the column as whole numbers or as text"
        )
    return str(int(cell))
