"""Reads tables of Arrow types, Parquet files and Arrow's own, batch by batch; the only module that imports pyarrow.

Arrow's file is its stream between two marks, so both are read as a stream, once and in order: from a pipe, too.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

import numpy as np

from fastlloyd.data.delimited import Cells
from fastlloyd.data.form import needs
from fastlloyd.data.kinds import (
    FIX,
    HALF,
    NUMBERS,
    SINGLE,
    TEXT,
    TRUTH,
    ColumnKind,
    name_cells,
    pandas_indices,
    plain_number,
)
from fastlloyd.errors import DataError

ARROW_FILE, ARROW_STREAM = b"ARROW1", b"\xff\xff\xff\xff"
"""What begins a file of Arrow, and a stream."""
_ARROW_HEAD = 8
_BATCH_ROWS = 1 << 16
_BATCH_VALUES = 1 << 24
_FLOATS = {16: HALF, 32: SINGLE}
_TEXTS = ("is_string", "is_large_string", "is_string_view")
_WORDS = {
    "is_date": "dates",
    "is_time": "times of day",
    "is_timestamp": "points in time",
    "is_duration": "durations",
    "is_interval": "durations",
    "is_binary": "bytes",
    "is_large_binary": "bytes",
    "is_binary_view": "bytes",
    "is_fixed_size_binary": "bytes",
    "is_struct": "structures",
    "is_map": "structures",
    "is_union": "structures",
    "is_nested": "lists",
}


class Columnar:
    """An open Parquet file, or one of Arrow (a stream, or Feather's second version).

    Parameters
    ----------
    path : Path
        For errors.
    file : binary file
        Seekable for Parquet.
    arrow : bool
        Whether it is one of Arrow.

    Attributes
    ----------
    names : tuple of str
    kinds : tuple of ColumnKind
    numeric : tuple of bool
    indices : frozenset of str
        The columns that the file's own metadata call row labels (pandas).
    rows : int or None
        None for Arrow: known at the end.

    Raises
    ------
    DataError
        It is no such file.
    ConfigError
        pyarrow is not installed.
    """

    def __init__(self, path: Path, file: BinaryIO, *, arrow: bool = False) -> None:
        self._arrow, parquet = _pyarrow("Arrow files" if arrow else "parquet")
        self._path, self._name = path, "Arrow" if arrow else "parquet"
        self._table: Any
        with self._errors():
            self._table = _Stream(self._arrow, file, path) if arrow else parquet.ParquetFile(file)
        # Each of these properties makes a new list: they are asked once, not for each column.
        schema = self._table.schema_arrow
        names, types = schema.names, schema.types
        self.names = tuple(names)
        self.kinds = tuple(arrow_kind(self._arrow, kind) for kind in types)
        self.numeric = tuple(kind.is_number for kind in self.kinds)
        self.indices = pandas_indices((schema.metadata or {}).get(b"pandas", b""))
        self.rows = None if arrow else int(self._table.metadata.num_rows)

    def chunks(
        self, numbers: Sequence[int], texts: Sequence[int], height: int | None, *, loose: int = 0
    ) -> Iterator[Cells]:
        """Read some columns, batch by batch; a null is NaN, or empty text. As `Source.chunks`."""
        wanted = list(dict.fromkeys(self.names[index] for index in (*numbers, *texts)))
        most = max(1, _BATCH_VALUES // max(1, len(wanted)))
        size = min(height or _BATCH_ROWS, _BATCH_ROWS, most)
        with self._errors():
            for batch in self._table.iter_batches(batch_size=size, columns=wanted):
                own = dict(zip(batch.schema.names, batch.columns, strict=True))
                values = np.empty((len(batch), len(numbers)), dtype=np.float64)
                for at, index in enumerate(numbers):
                    column = _plain(self._arrow, own[self.names[index]]).cast(self._arrow.float64(), safe=False)
                    values[:, at] = column.to_numpy(zero_copy_only=False)
                columns = []
                for at, index in enumerate(texts):
                    any_number = at >= len(texts) - loose
                    columns.append(self._names(own[self.names[index]], index, any_number=any_number))
                yield Cells(values, tuple(columns))

    def _names(self, column: Any, index: int, *, any_number: bool) -> list[str]:
        """Return the cells of a column as text."""
        plain = _plain(self._arrow, column)
        kind, where = self.kinds[index], f"{self._path}, column {self.names[index]!r}"
        if _is_uuid(self._arrow, plain.type):
            storage = plain.storage if hasattr(plain, "storage") else plain
            cells: list[Any] = [None if cell is None else str(UUID(bytes=cell)) for cell in storage.to_pylist()]
        elif self._arrow.types.is_decimal(plain.type):
            cells = [cell if cell is None else plain_number(cell) for cell in plain.to_pylist()]
        else:
            cells = plain.to_pylist()
        return name_cells(cells, kind, where, FIX, any_number=any_number)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what fails while the file is read into one sentence."""
        try:
            yield
        except (self._arrow.ArrowException, OSError, MemoryError) as error:
            raise DataError(f"cannot read {self._path} as {self._name} ({error}); save it again") from error


class _Stream:
    """The batches of an Arrow file, with the two things that a Parquet file is asked for."""

    def __init__(self, arrow: Any, file: BinaryIO, path: Path) -> None:
        self._path = path
        self._bytes = _Noted(file)
        if file.peek(len(ARROW_FILE)).startswith(ARROW_FILE):  # type: ignore[attr-defined]
            self._bytes.read(_ARROW_HEAD)
        self._reader = arrow.ipc.open_stream(self._bytes)
        self.schema_arrow = self._reader.schema

    def iter_batches(self, batch_size: int, columns: list[str]) -> Iterator[Any]:
        """Read some columns, a few rows at a time; refuse what was cut off, or is not what its head says."""
        for batch in self._reader:
            chosen = batch.select(columns)
            chosen.validate(full=True)  # otherwise a damaged file could make pyarrow read any memory
            for start in range(0, len(chosen), batch_size):
                yield chosen.slice(start, batch_size)
        if self._bytes.ended:
            raise DataError(
                f"{self._path}: the Arrow stream has no end mark, so whoever writes it may have stopped early; write "
                "it again"
            )


class _Noted(io.RawIOBase):
    """Bytes of a file; `ended` says that more was asked for than there is."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file, self.ended = file, False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer."""
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self.ended |= len(data) < len(buffer)
        return len(data)


def arrow_kind(arrow: Any, kind: Any) -> ColumnKind:
    """Return what a column of an Arrow type holds.

    Parameters
    ----------
    arrow : module
        pyarrow.
    kind : pyarrow.DataType
    """
    types = arrow.types
    if types.is_dictionary(kind):
        return arrow_kind(arrow, kind.value_type)
    if types.is_floating(kind):
        return _FLOATS.get(kind.bit_width, NUMBERS)
    if types.is_integer(kind) or types.is_decimal(kind) or types.is_null(kind):
        return NUMBERS
    if types.is_boolean(kind):
        return TRUTH
    asks = partial(_asks, types, kind)  # older releases of pyarrow have fewer types
    if any(map(asks, _TEXTS)) or _is_uuid(arrow, kind):
        return TEXT
    return ColumnKind(next((words for name, words in _WORDS.items() if asks(name)), str(kind)))


def _asks(types: Any, kind: Any, name: str) -> bool:
    """Ask a question about a type, where this release of pyarrow has the question."""
    return hasattr(types, name) and bool(getattr(types, name)(kind))


def _is_uuid(arrow: Any, kind: Any) -> bool:
    return isinstance(kind, arrow.BaseExtensionType) and getattr(kind, "extension_name", "") == "arrow.uuid"


def _plain(arrow: Any, column: Any) -> Any:
    """Write out the values of a column of categories."""
    return column.dictionary_decode() if arrow.types.is_dictionary(column.type) else column


def _pyarrow(what: str) -> tuple[Any, Any]:
    with needs("pyarrow", what, "parquet"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet
