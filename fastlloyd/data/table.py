"""Reads one party's records into a float64 matrix, or chunk by chunk into a file if they need too much memory.

Every problem with records is found here, before the party joins a run. Errors name the file, the row (from 1, without
the header; a row of a database by its key) and the column, never a value. They stay on the owner's standard error.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.database import Database, Place
from fastlloyd.data.delimited import Cells
from fastlloyd.data.findings import Intake
from fastlloyd.data.form import NO_RECORDS
from fastlloyd.data.merge import merge_rows
from fastlloyd.data.missing import (
    count_missing,
    keep_whole,
    missing_value,
    settle_missing,
)
from fastlloyd.data.reading import Reading, Wanted, row_cap
from fastlloyd.data.source import Source, open_source
from fastlloyd.errors import DataError
from fastlloyd.kmeans.stored import StoredRows

# The memory of a record: each value, scaled and on the grid; its squared norm and its label.
_VALUE_BYTES, _RECORD_BYTES = 12, 16
_CHUNK_VALUES = 1 << 19


@dataclass(frozen=True, slots=True)
class Table:
    """The records of one party.

    Attributes
    ----------
    values : float64 array, shape (n, d), C-contiguous, finite
    names : tuple of str, length d
    source : str
        The file.
    intake : Intake
        What became of its columns and rows; stays with the owner.
    raw_records : int64 array, shape (rows,), or None
        The record that each row of the file is part of, from 0; -1 for a row that was dropped. None: row i is record i.
    raw_texts : mapping of str to sequence of str
        The columns that were read as text: a value for each row of the file.
    """

    values: NDArray[np.float64] = field(repr=False)
    names: tuple[str, ...]
    source: str
    intake: Intake = field(default_factory=Intake, repr=False)
    raw_records: NDArray[np.int64] | None = field(default=None, repr=False)
    raw_texts: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)

    @property
    def ignored(self) -> tuple[str, ...]:
        """The columns of the file that are no features."""
        return tuple(name for name, _ in self.intake.left_out)

    @property
    def missing_rows(self) -> int:
        """Records with a missing value that were dropped or filled; stays with the owner."""
        return self.intake.missing_rows

    @property
    def missing_in(self) -> Mapping[str, int]:
        """Missing values of each feature that lacks any; stays with the owner."""
        return self.intake.missing_in


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """How much memory the records of a file may take, and where they go if they need more.

    Attributes
    ----------
    memory : int
        Bytes.
    folder : Path
        Where the file goes.
    """

    memory: int
    folder: Path


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The records of one party that exceed the memory limit; see `Table`.

    Attributes
    ----------
    rows : StoredRows
    names : tuple of str, length d
    raw_kept : bool array, shape (rows of the file,), or None
        Which rows are records; None for all.
    raw_texts : mapping of str to iterable of str
        As a `Table` has them; of a database alone.
    intake : Intake
        As for a `Table`.
    """

    rows: StoredRows = field(repr=False)
    names: tuple[str, ...]
    raw_kept: NDArray[np.bool_] | None = field(default=None, repr=False)
    raw_texts: Mapping[str, Iterable[str]] = field(default_factory=dict, repr=False)
    intake: Intake = field(default_factory=Intake, repr=False)


def read_table(path: str | Path | Place | Source, **wanted: Unpack[Wanted]) -> Table:
    """Read the records of one file.

    Parameters
    ----------
    path : str, Path, Place or Source
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
    texts : sequence of str
        Columns to read as text as well, such as ids, in the same pass: whole numbers or text.
    beside : sequence of str
        The same, of any numbers or text.
    cap : Cap, optional
        The most records; as soon as there are more, nothing more is read.

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
    with open_source(path, row_cap(wanted)) as source:
        reading = Reading(source=source, **wanted)
        return _finish(reading, list(reading.chunks(None)))


def read_table_within(path: str | Path | Place, limit: MemoryLimit, **wanted: Unpack[Wanted]) -> Table | StoredTable:
    """Read the records of one file as `read_table` does, or chunk by chunk into a file if they need too much memory.

    Parameters
    ----------
    path, columns, ignore, missing, bounds, unit, categories, texts, cap
        As for `read_table`.
    limit : MemoryLimit

    Raises
    ------
    DataError
        As for `read_table`, or what is asked needs all records in memory.
    ConfigError
        As for `read_table`, or the disk is full.

    Sees
    ----
    Nobody but the caller.
    """
    with open_source(path, row_cap(wanted)) as source:
        reading = Reading(source=source, **wanted)
        most = limit.memory // (_VALUE_BYTES * len(reading.features) + _RECORD_BYTES)
        if 0 < (source.rows or 0) <= most:
            return _finish(reading, list(reading.chunks(None)))
        chunks = reading.chunks(max(1, _CHUNK_VALUES // len(reading.features)))
        held: deque[Cells] = deque()
        rows = source.rows or 0
        while rows <= most:  # as text is read
            cells = next(chunks, None)
            if cells is None:
                return _finish(reading, list(held))
            held.append(cells)
            rows += len(cells.values)
        _refuse_large(reading)
        return _store(reading, chain((held.popleft() for _ in range(len(held))), chunks), limit.folder)


def _join(chunks: list[Cells], width: int) -> Cells:
    """Stack chunks of `width` features; free each one as soon as it is copied."""
    if len(chunks) == 1:
        return replace(chunks[0], values=np.ascontiguousarray(chunks[0].values))
    first_line = chunks[-1].first_line if chunks else None
    people = [chunk.people for chunk in chunks if chunk.people is not None]
    texts = chunks[0].texts if chunks else ()
    for at, own in enumerate(texts):
        own.extend(chain.from_iterable(chunk.texts[at] for chunk in chunks[1:]))
    values = np.empty((sum(len(chunk.values) for chunk in chunks), width), dtype=np.float64)
    end = len(values)
    while chunks:
        chunk = chunks.pop().values
        values[end - len(chunk) : end] = chunk
        end -= len(chunk)
    return Cells(values, texts, first_line, np.concatenate(people) if people else None)


def _finish(reading: Reading, chunks: list[Cells]) -> Table:
    """Make records of all rows; uses the chunks up."""
    source, unit, features = reading.source, reading.unit, reading.features
    rows, path = _join(chunks, len(features)), source.place
    values, people = rows.values, rows.people
    if not len(values):
        raise DataError(f"{path} has columns but no rows; {NO_RECORDS}")
    first_rows = None
    if unit is not None and people is not None:
        values, first_rows = merge_rows(values, people, unit.rule, source=str(path), row=path.row)

    def place(record: int, column: int) -> str:
        return reading.place(rows.first_line, 0, record if first_rows is None else int(first_rows[record]), column)

    missing_in = count_missing(values, features)
    whole, missing_rows = settle_missing(
        values,
        reading.missing,
        reading.middle,
        missing_in=missing_in,
        place=place,
        mean=unit is not None and unit.rule == "mean",
    )
    seen = len(values) if people is None else len(people)
    values, raw_records = keep_whole(values, whole, people)
    if not len(values):
        raise _none_left(path)
    raw_texts = dict(zip((*reading.texts, *reading.beside), rows.texts, strict=True))
    return Table(
        values,
        features,
        str(path),
        reading.intake(seen, missing_rows, missing_in),
        raw_records,
        raw_texts,
    )


def _refuse_large(reading: Reading) -> None:
    """Refuse what needs all records in memory, if they exceed the limit."""
    if reading.unit is not None:
        why = "merging the rows of people (--unit) needs all of them in memory", "merge the rows beforehand"
    elif reading.source.at_once:
        why = "an npz file needs all of them in memory", "save the array as npy"
    elif reading.texts and not isinstance(reading.source.place, Database):
        why = (
            "--id needs the names of all rows in memory",
            "leave --id out (labels come with the number of their row)",
        )
    else:
        return
    raise DataError(
        f"{reading.source.place}: its records need more memory than --memory allows, and {why[0]}; give more "
        f"--memory, or {why[1]}"
    )


def _store(reading: Reading, chunks: Iterator[Cells], folder: Path) -> StoredTable:
    """Write the records of all rows to a file, chunk by chunk; chunks do not depend on each other."""
    stored, place = StoredRows(folder, len(reading.features)), reading.source.place
    kept: list[NDArray[np.bool_]] = []
    missing_in: Counter[str] = Counter()
    first_gap, done, lacking = "", 0, 0
    for cells in chunks:
        values, named = cells.values, partial(reading.place, cells.first_line, done)
        done += len(values)
        own = count_missing(values, reading.features)
        missing_in.update(own)
        if own and reading.missing == "refuse":
            row, column = np.argwhere(np.isnan(values))[0]
            first_gap = first_gap or named(int(row), int(column))
            continue
        whole, missing_rows = settle_missing(values, reading.missing, reading.middle, missing_in=own, place=named)
        lacking += missing_rows
        stored.append(keep_whole(values, whole, None)[0])
        kept.append(np.ones(len(values), dtype=np.bool_) if whole is None else whole)
    if first_gap:
        raise missing_value(first_gap, {name: missing_in[name] for name in reading.features if name in missing_in})
    if not len(stored):
        raise _none_left(place)
    raw_kept = None if len(stored) == done else np.concatenate(kept)
    raw_texts = {name: place.answer.named(name) for name in reading.texts} if isinstance(place, Database) else {}
    return StoredTable(stored, reading.features, raw_kept, raw_texts, reading.intake(done, lacking, missing_in))


def _none_left(path: Place) -> DataError:
    """Return the error of a file whose rows --missing drop removes all."""
    return DataError(f"{path}: every row lacks a value, so --missing drop leaves none; fill the values in")
