"""Handles records that lack a value: refuses them, drops them, or fills in the middle of the bounds.

An infinite value is always refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.kinds import HALF, SINGLE, ColumnKind
from fastlloyd.errors import DataError, format_count

Missing = Literal["refuse", "drop", "midpoint"]
GAPS = "gaps"
"""The rule that leaves missing values as they are; for a caller that counts them nowhere, no option of a run."""

MISSING_RULES: tuple[Missing, ...] = ("refuse", "drop", "midpoint")

_BLOCK_VALUES = 1 << 20
_LEAST_CODES, _CODE_SHARE, _RARE_SHARE = 5, 0.001, 0.005
_MOST_CODES, _LEAST_OTHERS = 3, 3


def row_blocks(values: NDArray[np.float64], most: int = _BLOCK_VALUES) -> Iterator[slice]:
    """Split the rows of a matrix into blocks of at most that number of values."""
    step = max(1, most // max(1, values.shape[1]))
    for start in range(0, len(values), step):
        yield slice(start, start + step)


def refuse_infinite(values: NDArray[np.float64], place: Callable[[int, int], str]) -> None:
    """Refuse values, shape (n, d), of which one is infinite; `place` names the cell at row and column, from 0.

    Raises
    ------
    DataError
        Names the first one.
    """
    for rows in row_blocks(values):
        infinite = np.isinf(values[rows])
        if infinite.any():
            row, column = (int(i) for i in np.argwhere(infinite)[0])
            raise DataError(
                f"{place(rows.start + row, column)}: expected a finite number, got an infinite one; correct the cell"
            )


def count_missing(values: NDArray[np.float64], names: Sequence[str]) -> dict[str, int]:
    """Count the missing values of each feature that lacks any; `values` has shape (n, d)."""
    counts = np.zeros(len(names), dtype=np.int64)
    for rows in row_blocks(values):
        counts += np.count_nonzero(np.isnan(values[rows]), axis=0)
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}


def blank_codes(
    values: NDArray[np.float64], codes: Sequence[float], kinds: Sequence[ColumnKind]
) -> NDArray[np.float64]:
    """Return values with NaN in place of codes for a missing one.

    Parameters
    ----------
    values : float64 array, shape (n, d)
        Not changed.
    codes : sequence of float
    kinds : sequence of ColumnKind, length d
        A column of fewer than 64 bits holds the nearest number to a code, such as 99.9.

    Returns
    -------
    float64 array, shape (n, d)
        `values` itself where it holds no code.
    """
    blank = values
    for at, kind in enumerate(kinds):
        narrow = {HALF.exact: np.float16, SINGLE.exact: np.float32}.get(kind.exact, np.float64)
        with np.errstate(over="ignore"):
            held = np.array(codes, dtype=np.float64).astype(narrow).astype(np.float64)
        found = np.isin(values[:, at], np.where(np.isinf(held), codes, held))
        if found.any():
            blank = values.copy() if blank is values else blank
            blank[found, at] = np.nan
    return blank


def find_codes(raw_column: NDArray[np.float64]) -> list[tuple[float, int]]:
    """Find values that may stand for a missing one, such as -999: frequent, and far from all others.

    Up to three values of one side count if each stands in 5 rows and 0.1 % of them, and the gap to the others is wider
    than the range of these. Rare values at the ends, 0.5 % of the rows, are left out of that range. There must be three
    other values.

    Parameters
    ----------
    raw_column : float64 array, shape (n,)
        NaN where a value is missing.

    Returns
    -------
    list of (float, int)
        Each value and its number of rows, in increasing order.

    Examples
    --------
    >>> find_codes(np.array([36.5, 37.0, 38.2] * 4 + [99.9] * 6))
    [(99.9, 6)]
    """
    values, counts = np.unique(raw_column[~np.isnan(raw_column)], return_counts=True)
    often = counts >= max(_LEAST_CODES, _CODE_SHARE * counts.sum())
    first, end = 0, len(values)
    while codes := _codes_at_an_end(values[first:end], counts[first:end], often[first:end]):
        first, end = (first + codes, end) if codes > 0 else (first, end + codes)
    outside = [*range(first), *range(end, len(values))]
    return [(float(values[at]), int(counts[at])) for at in outside]


def _codes_at_an_end(values: NDArray[np.float64], counts: NDArray[np.int64], often: NDArray[np.bool_]) -> int:
    """Return how many of the first values are codes, or minus how many of the last; 0 for none."""
    if len(values) <= _LEAST_OTHERS:
        return 0
    rare = _RARE_SHARE * counts.sum()
    usual = np.flatnonzero(often | ((np.cumsum(counts) > rare) & (np.cumsum(counts[::-1])[::-1] > rare)))
    for codes in range(1, min(_MOST_CODES, len(values) - _LEAST_OTHERS) + 1):
        for sign, own, near, other in (
            (1, slice(codes), codes - 1, codes),
            (-1, slice(-codes, None), -codes, -codes - 1),
        ):
            if not often[own].all():
                continue
            rest = usual[usual >= codes] if sign > 0 else usual[usual < len(values) - codes]
            if len(rest) and abs(values[near] - values[other]) > values[rest[-1]] - values[rest[0]]:
                return sign * codes
    return 0


def missing_words(missing_in: Mapping[str, int], limit: int = 20) -> str:
    """Say which columns lack how many values.

    Examples
    --------
    >>> missing_words({"age": 2, "dose": 11})
    "2 in 'age', 11 in 'dose'"
    """
    shown = [f"{count:,} in {name!r}" for name, count in list(missing_in.items())[:limit]]
    rest = len(missing_in) - limit
    return ", ".join(shown) + (f" and more in {format_count(rest, 'other column')}" if rest > 0 else "")


def missing_value(place: str, missing_in: Mapping[str, int], *, mean: bool = False) -> DataError:
    """Return the error that names the first missing value's place, and how many each column lacks."""
    whose = ", and no other row of this person has one" if mean else ""
    return DataError(
        f"{place}: the value is missing or NaN{whose} (missing values: {missing_words(missing_in)}); fill them in, or "
        "choose --missing drop (the row) or --missing midpoint (of the bounds)"
    )


def settle_missing(
    values: NDArray[np.float64],
    rule: str,
    middle: NDArray[np.float64] | None,
    *,
    missing_in: Mapping[str, int],
    place: Callable[[int, int], str],
    mean: bool = False,
) -> tuple[NDArray[np.bool_] | None, int]:
    """Apply the rule for missing values; fill them in place.

    Parameters
    ----------
    values : float64 array, shape (n, d)
        NaN where a value is missing.
    rule : {'refuse', 'drop', 'midpoint'}, or `GAPS`
    middle : float64 array, shape (d,), or None
        For 'midpoint'.
    missing_in : mapping of str to int
        As `count_missing` gives it.
    place : callable
        Takes a record and a column, both from 0, and returns their owner's names for them.
    mean : bool
        Whether a record is the mean of all rows of a person.

    Returns
    -------
    whole : bool array, shape (n,), or None
        Which records lack nothing; None where all are to be kept.
    missing_rows : int
        How many records lacked a value.

    Raises
    ------
    DataError
        A value is missing and the rule is 'refuse'.
    """
    if not missing_in or rule == GAPS:
        return None, 0
    whole: NDArray[np.bool_] | None = None
    missing_rows = 0
    for rows in row_blocks(values):
        block = values[rows]
        gaps = np.isnan(block)
        incomplete = gaps.any(axis=1)
        if not incomplete.any():
            continue
        missing_rows += int(incomplete.sum())
        if rule == "refuse":
            record, column = (int(i) for i in np.argwhere(gaps)[0])
            raise missing_value(place(rows.start + record, column), missing_in, mean=mean)
        if middle is not None:
            np.copyto(block, middle, where=gaps)
            continue
        whole = np.ones(len(values), dtype=np.bool_) if whole is None else whole
        whole[rows] = ~incomplete
    return whole, missing_rows


def keep_whole(
    values: NDArray[np.float64], whole: NDArray[np.bool_] | None, people: NDArray[np.int64] | None
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    """Drop records in place, and say which record each row of the file is part of.

    Parameters
    ----------
    values : float64 array, shape (n, d)
        Overwritten.
    whole : bool array, shape (n,), or None
        What `settle_missing` gave.
    people : int64 array, shape (rows,), or None
        The record of each row before any was dropped; None: row i is record i.

    Returns
    -------
    values : float64 array, shape (kept, d)
    raw_records : int64 array, shape (rows,), or None
        -1 for a row whose record was dropped; None: row i is record i.
    """
    if whole is None:
        return values, people
    end = 0
    for rows in row_blocks(values):
        block = values[rows][whole[rows]]
        values[end : end + len(block)] = block
        end += len(block)
    numbers = np.where(whole, np.cumsum(whole) - 1, -1)
    return values[:end], numbers if people is None else numbers[people]
