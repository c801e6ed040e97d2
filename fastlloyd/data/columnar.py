"""Reads tables of Arrow types, such as Parquet files, batch by batch; the only module that imports pyarrow."""

from __future__ import annotations

import contextlib
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
    """An open Parquet file.

    Parameters
    ----------
    path : Path
        For errors.
    file : binary file
        Seekable.

    Attributes
    ----------
    names : tuple of str
    kinds : tuple of ColumnKind
    indices : frozenset of str
        The columns that the file's own metadata call row labels (pandas).
    rows : int

    Raises
    ------
    DataError
        It is no such file.
    ConfigError
        pyarrow is not installed.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._arrow, parquet = _pyarrow()
        self._path = path
        with self._errors():
            self._table = parquet.ParquetFile(file)
        # Each of these properties makes a new list: they are asked once, not for each column.
        schema = self._table.schema_arrow
        names, types = schema.names, schema.types
        self.names = tuple(names)
        self.kinds = tuple(arrow_kind(self._arrow, kind) for kind in types)
        self.indices = pandas_indices((schema.metadata or {}).get(b"pandas", b""))
        self.rows = int(self._table.metadata.num_rows)

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
        except (self._arrow.ArrowException, OSError) as error:
            raise DataError(f"cannot read {self._path} as parquet ({error}); save it again") from error


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


def _pyarrow() -> tuple[Any, Any]:
    with needs("pyarrow", "parquet", "parquet"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet
