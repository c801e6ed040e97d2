"""Makes one record of all rows of a person, as the first step.

A record depends only on its person's rows, so that all rows of one person are one unit of privacy at this client.
The same person at another client is another record there: nobody here knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.form import MISSING, number_row
from fastlloyd.errors import DataError

MERGE_RULES = ("mean", "first", "error")


@dataclass(frozen=True, slots=True)
class Unit:
    """How rows are merged.

    Attributes
    ----------
    column : str
        Names the person behind each row; compared as text.
    rule : {'mean', 'first', 'error'}
        Mean of the values that are there, the first row as it is, or refuse a second row.
    """

    column: str
    rule: str = "mean"


def number_people(
    names: Sequence[str],
    numbers: dict[str, int],
    *,
    source: str,
    column: str,
    done: int = 0,
    row: Callable[[int], str] = number_row,
) -> NDArray[np.int64]:
    """Number the people behind rows, in the order of their first rows.

    Parameters
    ----------
    names : sequence of str, length n
    numbers : dict of str to int
        Those of the rows before these; receives the new ones.
    source, column : str
        For the error.
    done : int
        Rows of the file before these.
    row : callable
        Names a row of the file, from 0, for the error.

    Returns
    -------
    int64 array, shape (n,)
        From 0.

    Raises
    ------
    DataError
        A row names nobody: all such rows would count as one person.
    """
    known = len(numbers)
    for name in dict.fromkeys(names):
        numbers.setdefault(name, len(numbers))
    nobody = [name for name in islice(numbers, known, None) if name.lower() in MISSING]
    if nobody:
        first = done + min(map(names.index, nobody))
        raise DataError(
            f"{source}, {row(first)}, column {column!r}: expected the person's id (--unit), got an empty cell; fill it "
            "in, for all such rows would count as one person"
        )
    return np.fromiter(map(numbers.__getitem__, names), np.int64, len(names))


def merge_rows(
    values: NDArray[np.float64],
    people: NDArray[np.int64],
    rule: str,
    *,
    source: str,
    row: Callable[[int], str] = number_row,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Make one record of the rows of each person.

    Parameters
    ----------
    values : float64 array, shape (n, d)
        NaN where a value is missing.
    people : int64 array, shape (n,)
        As `number_people` gives them.
    rule : {'mean', 'first', 'error'}
    source : str
        For the error.
    row : callable
        Names a row, from 0, for the error.

    Returns
    -------
    merged : float64 array, shape (people, d)
        With 'mean', NaN only where no row of the person has a value.
    first_rows : int64 array, shape (people,)
        Each person's first row, from 0.

    Raises
    ------
    DataError
        A person has two rows and the rule is 'error'; the rows are named, the person is not. Or a mean is too large.

    Notes
    -----
    Sees: nobody but the caller.
    """
    first_rows = np.unique(people, return_index=True)[1].astype(np.int64)
    if rule == "error" and len(first_rows) < len(people):
        again = int(np.setdiff1d(np.arange(len(people)), first_rows)[0])
        raise DataError(
            f"{source}: {row(int(first_rows[people[again]]))} and {row(again)} are of the same person; expected one "
            "row each, for --per-unit error: merge them, or choose --per-unit mean or first"
        )
    if rule != "mean":
        return values[first_rows], first_rows
    merged = np.empty((len(first_rows), values.shape[1]))
    with np.errstate(divide="ignore", invalid="ignore"):
        for column, own in enumerate(values.T):
            there = ~np.isnan(own)
            sums = np.bincount(people[there], weights=own[there], minlength=len(first_rows))
            merged[:, column] = sums / np.bincount(people[there], minlength=len(first_rows))
    if np.isinf(merged).any():
        raise DataError(f"{source}: the values of a person are too large to add up; correct them or the units")
    return merged, first_rows
