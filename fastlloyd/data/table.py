"""Reads one party's records into a float64 matrix: csv, csv.gz, npy, npz, parquet and databases.

Everything that depends on records is found here, before the party joins a run. The errors name file,
row (counted from 1, without the header; that of a database by its key) and column, never a value, and stay on the
owner's own standard error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.database import Place
from fastlloyd.data.delimited import Cells, join_cells
from fastlloyd.data.form import NO_RECORDS
from fastlloyd.data.merge import merge_rows, number_people
from fastlloyd.data.missing import count_missing, keep_whole, settle_missing
from fastlloyd.data.reading import Reading, Wanted, begin, check_ended, none_left
from fastlloyd.data.source import read_identifiers
from fastlloyd.errors import DataError


@dataclass(frozen=True, slots=True)
class Table:
    """The records of one party.

    Attributes
    ----------
    values : float64 array, shape (n, d), C-contiguous, finite
    names : tuple of str, length d
    source : str
        The file.
    ignored : tuple of str
        Columns of the file that are not used: not asked for, identifiers or text.
    missing_rows : int
        Records with a missing value that were dropped or filled; stays with the owner.
    raw_records : int64 array, shape (rows,), or None
        The record that each row of the file is part of, from 0; -1 for a row that was dropped. None: row i is record i.
    missing_in : mapping of str to int
        Missing values of each feature that lacks any, as many as the records have; stays with the owner.
    """

    values: NDArray[np.float64] = field(repr=False)
    names: tuple[str, ...]
    source: str
    ignored: tuple[str, ...] = ()
    missing_rows: int = field(default=0, repr=False)
    raw_records: NDArray[np.int64] | None = field(default=None, repr=False)
    missing_in: Mapping[str, int] = field(default_factory=dict, repr=False)


def read_table(path: str | Path | Place, **wanted: Unpack[Wanted]) -> Table:
    """Read the records of one file.

    Parameters
    ----------
    path : str, Path or Place
        Ends in .csv, .csv.gz, .npy, .npz or .parquet, or is a `Database`. A csv file has a header row; where every cell
        of row one is a number there is none and the columns are x1..xd. An npz file holds one array, or one named X.
    columns : sequence of str
        Columns to use, in this order. Empty: the features that `bounds` name, in that order (so that parties
        whose files order them differently agree), else all columns of numbers but identifiers (no name, `id`,
        or a name that ends in `_id`).
    ignore : sequence of str
        Columns to leave out.
    missing : {'refuse', 'drop', 'midpoint'}
        What to do with a record that lacks a value (empty cell, NA, NaN, null): refuse the file, drop the record,
        or fill in the middle of the bounds.
    bounds : Bounds, optional
        Needed for 'midpoint'; see also `columns`.
    unit : Unit, optional
        Makes one record of all rows of a person, before missing values are looked for; its column is no feature.
    categories : Categories, optional
        Columns that become features of 0 and 1, after those of `columns`, which need not name them.

    Returns
    -------
    Table

    Raises
    ------
    DataError
        The file or its records do not fit.
    ConfigError
        An unknown rule, 'midpoint' without bounds, or parquet without pyarrow.

    Sees
    ----
    Nobody but the caller.
    """
    reading = begin(path, **wanted)
    return finish(reading, read_whole(reading))


def read_whole(reading: Reading) -> Cells:
    """Read the cells of all rows."""
    return join_cells(list(reading.origin.chunks(reading.chosen, None)), len(reading.chosen))


def finish(reading: Reading, cells: Cells) -> Table:
    """Make records of all rows."""
    path, origin, unit, features = reading.path, reading.origin, reading.unit, reading.features
    rows = len(cells.values)
    if not rows:
        raise DataError(f"{path} has columns but no rows; {NO_RECORDS}")
    texts = reading.texts()
    values = reading.complete(cells, texts)
    check_ended(reading, texts, rows)
    left_out = set(origin.names) - set(reading.used) - set(reading.categories.columns)
    ignored = tuple(name or "(no name)" for name in origin.names if name in left_out)
    first_rows = people = None
    if unit is not None:
        people = number_people(read_identifiers(path, unit.column), source=str(path), column=unit.column, row=path.row)
        values, first_rows = merge_rows(values, people, unit.rule, source=str(path), row=path.row)

    def place(record: int, column: int) -> str:
        return reading.place(cells, record if first_rows is None else int(first_rows[record]), column)

    missing_in = count_missing(values, features)
    whole, missing_rows = settle_missing(
        values,
        reading.missing,
        reading.middle,
        missing_in=missing_in,
        place=place,
        mean=unit is not None and unit.rule == "mean",
    )
    values, raw_records = keep_whole(values, whole, people)
    if not len(values):
        raise none_left(path)
    return Table(values, features, str(path), ignored, missing_rows, raw_records, missing_in)
