"""Reads parquet files; the one file that imports pyarrow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, DataError

_BATCH_ROWS = 1 << 16


def read_parquet_head(path: Path) -> tuple[tuple[str, ...], tuple[bool, ...], int]:
    """Return all column names of a parquet file, which columns hold numbers, and the number of rows.

    Raises
    ------
    ConfigError
        pyarrow is not installed.
    DataError
        The file is not parquet.
    """
    arrow, parquet = _pyarrow()
    try:
        metadata = parquet.read_metadata(path)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"cannot read {path} as parquet ({error}); save it again") from error
    schema = metadata.schema.to_arrow_schema()
    return tuple(schema.names), tuple(_is_number(arrow, kind) for kind in schema.types), int(metadata.num_rows)


def read_parquet(path: Path, columns: Sequence[int], height: int | None = None) -> Iterator[NDArray[np.float64]]:
    """Read some columns of a parquet file, in the order asked, batch by batch.

    Parameters
    ----------
    path : Path
    columns : sequence of int
        0-based positions.
    height : int, optional
        Rows of a batch, at most.

    Yields
    ------
    float64 array, shape (b, d)
        NaN where a value is null.

    Raises
    ------
    DataError
        A column does not hold numbers, or the file is damaged.
    """
    arrow, _ = _pyarrow()
    with _opened(path) as file:
        schema = file.schema_arrow
        names = [schema.names[index] for index in columns]
        for name, kind in zip(names, (schema.types[index] for index in columns), strict=True):
            if not _is_number(arrow, kind):
                raise DataError(
                    f"{path}, column {name!r}: expected numbers, got {kind}; convert it, or leave it out with --columns"
                )
        for batch in file.iter_batches(batch_size=min(height or _BATCH_ROWS, _BATCH_ROWS), columns=names):
            values = np.empty((len(batch), len(names)), dtype=np.float64)
            for at, name in enumerate(names):
                column = batch.column(name).cast(arrow.float64(), safe=False)
                values[:, at] = column.to_numpy(zero_copy_only=False)
            yield values


def read_parquet_texts(path: Path, column: int) -> Iterator[str]:
    """Read one column of whole numbers or text of a parquet file as text; empty where a value is null.

    Raises
    ------
    DataError
        The column holds something else, or the file is damaged.
    """
    arrow, _ = _pyarrow()
    with _opened(path) as file:
        schema = file.schema_arrow
        name, kind = schema.names[column], schema.types[column]
        types = arrow.types
        if not (types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind)):
            raise DataError(f"{path}, column {name!r}: expected whole numbers or text, got {kind}; convert it")
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=[name]):
            cells = batch.column(0).cast(arrow.string()).to_pylist()
            yield from ("" if cell is None else cell.strip() for cell in cells)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a parquet file and turn what fails while reading into one sentence."""
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"cannot read {path} as parquet ({error}); save it again") from error


def _is_number(arrow: Any, kind: Any) -> bool:
    return bool(arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_decimal(kind))


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            "reading parquet needs pyarrow, which is not installed: run pip install 'fastlloyd[parquet]', "
            "or save the records as csv or npy"
        ) from error
    return pyarrow, pyarrow.parquet
