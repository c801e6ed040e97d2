"""Reads parquet files; the one file that imports pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, DataError

_BATCH_ROWS = 1 << 16


def read_parquet_head(path: Path) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """Return all column names of a parquet file and which columns hold numbers.

    Raises
    ------
    ConfigError
        pyarrow is not installed.
    DataError
        The file is not parquet.
    """
    arrow, parquet = _pyarrow()
    try:
        schema = parquet.read_schema(path)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"cannot read {path} as parquet ({error}); save it again") from error
    return tuple(schema.names), tuple(_is_number(arrow, kind) for kind in schema.types)


def read_parquet(path: Path, columns: Sequence[int]) -> NDArray[np.float64]:
    """Read some columns of a parquet file, in the order asked, batch by batch.

    Parameters
    ----------
    path : Path
    columns : sequence of int
        0-based positions.

    Returns
    -------
    float64 array, shape (n, d)
        NaN where a value is null.

    Raises
    ------
    DataError
        A column does not hold numbers, or the file is damaged.
    """
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            names = [schema.names[index] for index in columns]
            for name, kind in zip(names, (schema.types[index] for index in columns), strict=True):
                if not _is_number(arrow, kind):
                    raise DataError(
                        f"{path}, column {name!r}: expected numbers, got {kind}; "
                        "convert it, or leave it out with --columns"
                    )
            values = np.empty((file.metadata.num_rows, len(names)), dtype=np.float64)
            start = 0
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=names):
                for at, name in enumerate(names):
                    column = batch.column(name).cast(arrow.float64(), safe=False)
                    values[start : start + len(batch), at] = column.to_numpy(zero_copy_only=False)
                start += len(batch)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"cannot read {path} as parquet ({error}); save it again") from error
    return values


def read_parquet_texts(path: Path, column: int) -> tuple[str, ...]:
    """Read one column of whole numbers or text of a parquet file as text; empty where a value is null.

    Raises
    ------
    DataError
        The column holds something else, or the file is damaged.
    """
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            name, kind = schema.names[column], schema.types[column]
            types = arrow.types
            if not (types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind)):
                raise DataError(f"{path}, column {name!r}: expected whole numbers or text, got {kind}; convert it")
            cells = file.read(columns=[name]).column(0).cast(arrow.string()).to_pylist()
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"cannot read {path} as parquet ({error}); save it again") from error
    return tuple("" if cell is None else cell.strip() for cell in cells)


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
