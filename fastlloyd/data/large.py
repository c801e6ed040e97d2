"""Reads records that are more than memory may hold, chunk by chunk, into a file without a name.

Each chunk is checked and made into features by the code that reads a small table; nothing of it depends on the others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.database import Place
from fastlloyd.data.delimited import Cells, join_cells
from fastlloyd.data.missing import count_missing, keep_whole, missing_value, settle_missing
from fastlloyd.data.reading import Reading, Wanted, begin, check_ended, none_left
from fastlloyd.data.table import Table, finish, read_whole
from fastlloyd.errors import DataError
from fastlloyd.kmeans.stored import StoredRows

# What a record takes in memory at most: each value scaled and on the grid; its squared norm and its label.
_VALUE_BYTES, _RECORD_BYTES = 12, 16
_CHUNK_VALUES = 1 << 19


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """What memory the records of a file may take, and where they go if they need more.

    Attributes
    ----------
    memory : int
        Bytes.
    folder : Path
        On whose disk.
    """

    memory: int
    folder: Path


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The records of one party that are more than memory may hold; see `Table`.

    Attributes
    ----------
    rows : StoredRows
    names : tuple of str, length d
    raw_kept : bool array, shape (rows of the file,), or None
        Which rows are records; None for all.
    """

    rows: StoredRows = field(repr=False)
    names: tuple[str, ...]
    raw_kept: NDArray[np.bool_] | None = field(default=None, repr=False)


def read_table_within(path: str | Path | Place, limit: MemoryLimit, **wanted: Unpack[Wanted]) -> Table | StoredTable:
    """Read the records of one file as `read_table` does, or chunk by chunk into a file if they need too much memory.

    Parameters
    ----------
    path, columns, ignore, missing, bounds, unit, categories
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
    reading = begin(path, **wanted)
    origin = reading.origin
    most = limit.memory // (_VALUE_BYTES * len(reading.features) + _RECORD_BYTES)
    rows = 0 if origin.rows is None else origin.rows
    if 0 < rows <= most:
        return finish(reading, read_whole(reading))
    chunks = origin.chunks(reading.chosen, max(1, _CHUNK_VALUES // len(reading.features)))
    held: deque[Cells] = deque()
    while rows <= most:  # as text is read
        cells = next(chunks, None)
        if cells is None:
            return finish(reading, join_cells(list(held), len(reading.chosen)))
        held.append(cells)
        rows += len(cells.values)
    unit = reading.unit
    needs = "merging the rows of people (--unit)" if unit is not None else "an npz file" if origin.at_once else ""
    if needs:
        raise DataError(
            f"{reading.path}: its records need more memory than --memory allows, and {needs} needs all of "
            "them in memory; give more --memory, or "
            + ("merge the rows beforehand" if unit is not None else "save the array as npy")
        )
    return _store(reading, chain((held.popleft() for _ in range(len(held))), chunks), limit.folder)


def _store(reading: Reading, chunks: Iterator[Cells], folder: Path) -> StoredTable:
    """Make records of the rows, chunk by chunk, into a file; nothing of a chunk depends on others."""
    stored, texts = StoredRows(folder, len(reading.features)), reading.texts()
    kept: list[NDArray[np.bool_]] = []
    missing_in: Counter[str] = Counter()
    first_gap, done = "", 0
    for cells in chunks:
        start, values = done, reading.complete(cells, texts, done)
        done += len(values)
        own = count_missing(values, reading.features)
        missing_in.update(own)
        if own and reading.missing == "refuse":
            row, column = np.argwhere(np.isnan(values))[0]
            first_gap = first_gap or reading.place(cells, start + int(row), int(column))
            continue
        whole, _ = settle_missing(
            values, reading.missing, reading.middle, missing_in=own, place=partial(reading.place, cells)
        )
        stored.append(keep_whole(values, whole, None)[0])
        kept.append(np.ones(len(values), dtype=np.bool_) if whole is None else whole)
    check_ended(reading, texts, done)
    if first_gap:
        raise missing_value(first_gap, {name: missing_in[name] for name in reading.features if name in missing_in})
    if not len(stored):
        raise none_left(reading.path)
    return StoredTable(stored, reading.features, None if len(stored) == done else np.concatenate(kept))
