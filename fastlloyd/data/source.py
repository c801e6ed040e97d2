"""Opens places of records, their columns known and their cells not read yet: csv, csv.gz, npy, npz, parquet, databases.

Source: docs/guide.md, "Your own data".
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.columnar import read_parquet, read_parquet_head, read_parquet_texts
from fastlloyd.data.database import Database, Place, place_of
from fastlloyd.data.delimited import Cells, read_chunks, read_head, read_texts
from fastlloyd.data.form import NO_RECORDS, SUFFIXES
from fastlloyd.errors import DataError, did_you_mean
from fastlloyd.kmeans.stored import release

CHUNK_ROWS = 1 << 16


def column_names(path: str | Path | Place) -> tuple[str, ...]:
    """Read the names of all columns of a file, used or not.

    Raises
    ------
    DataError
        The file is missing or unreadable.
    """
    return open_source(place_of(path)).names


def read_identifiers(path: str | Path | Place, column: str) -> tuple[str, ...]:
    """Read the column that names a file's records, as text.

    Parameters
    ----------
    path : str, Path or Place
    column : str

    Returns
    -------
    tuple of str, length n
        In the order of the rows, without the spaces around them; whole numbers as they are written in decimal.

    Raises
    ------
    DataError
        No such column, or numbers that are not whole in an npy or npz file.

    Sees
    ----
    Nobody but the caller.
    """
    return tuple(identifiers(place_of(path), column))


def identifiers(file: Place, column: str) -> Iterator[str]:
    """Read what `read_identifiers` gives, row by row."""
    names = column_names(file)
    if column not in names:
        close = did_you_mean(column, names)
        raise DataError(
            f"{file}: no column {column!r}{close} to name the records; it has {listed(names)}; name one of these "
            "(--id, --unit, or --set vertical.id=COLUMN where tables are split by columns)"
        )
    index = names.index(column)
    if isinstance(file, Database):
        yield from file.answer.texts(index)
        return
    path = file.path
    suffix = _suffix(path)
    if suffix in (".csv", ".csv.gz"):
        yield from read_texts(path, read_head(path, file.form), index)
    elif suffix == ".parquet":
        yield from read_parquet_texts(path, index)
    else:
        array = _load_array(path)
        for start in range(0, len(array), CHUNK_ROWS):
            numbers = array[start : start + CHUNK_ROWS, index]
            if not (np.mod(numbers, 1) == 0).all():
                raise DataError(f"{path}, column {column!r}: expected whole numbers to name the records")
            yield from (str(int(number)) for number in numbers)
            release(array)


def _check_matrix(array: NDArray[Any], source: str) -> None:
    """Refuse everything that is not a non-empty matrix of real numbers."""
    kinds = {"c": "complex numbers", "O": "Python objects", "b": "truth values", "U": "text", "S": "text"}
    if array.dtype.kind not in "iuf":
        raise DataError(
            f"{source}: expected integers or floating point numbers, got "
            f"{kinds.get(array.dtype.kind, str(array.dtype))}; convert it to float64 if that makes sense"
        )
    if array.ndim != 2:
        mend = "; reshape(-1, 1) makes one feature of it" if array.ndim == 1 else ""
        raise DataError(f"{source}: expected an array of shape (rows, features), got {array.shape}{mend}")
    if not array.shape[0]:
        raise DataError(f"{source} has no rows; {NO_RECORDS}")
    if not array.shape[1]:
        raise DataError(f"{source} has no columns; expected at least one feature")


def _suffix(path: Path) -> str:
    """Return the suffix that decides how to read."""
    name = path.name.lower()
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.endswith(suffix):
            return suffix
    raise DataError(
        f"{path}: cannot tell its format; expected a file name ending in {', '.join(SUFFIXES)}; save a spreadsheet as "
        "CSV, and rename another text table to .csv (--delimiter says what divides its cells)"
    )


@dataclass(frozen=True, slots=True)
class Source:
    """A file, or the answer of a database, whose columns are known and whose cells are not read yet."""

    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    otherwise: tuple[bool, ...]
    chunks: Callable[[list[int], int | None], Iterator[Cells]]
    """Columns, and how many rows at a time (None: as is quickest for all); text comes as its reader cuts it."""
    rows: int | None = None
    at_once: bool = False
    """Whether it is in memory already."""


def open_source(file: Place) -> Source:
    """Open a file by its suffix, or ask a database."""
    if isinstance(file, Database):
        answer = file.answer
        return Source(answer.names, answer.numeric, (), answer.chunks, answer.rows)
    path = file.path
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a file; name one file of records")
    if not path.exists():
        raise DataError(f"no file {path}: expected the records there; check --data")
    suffix = _suffix(path)
    if not path.stat().st_size:
        raise DataError(f"{path} is empty; {NO_RECORDS}")
    if suffix in (".csv", ".csv.gz"):
        head = read_head(path, file.form)
        return Source(head.names, head.numeric, head.otherwise, lambda chosen, _: read_chunks(path, head, chosen))
    if suffix == ".parquet":
        names, numeric, rows = read_parquet_head(path)
        return Source(names, numeric, (), lambda chosen, height: map(Cells, read_parquet(path, chosen, height)), rows)
    array = _load_array(path)
    features = array.shape[1]
    names = tuple(f"x{i + 1}" for i in range(features))
    cut = partial(_own_columns, array)
    return Source(names, (True,) * features, (), cut, len(array), suffix == ".npz")


def _own_columns(array: NDArray[Any], chosen: list[int], height: int | None) -> Iterator[Cells]:
    """Copy columns of an array, which may be a map of a file, into memory of our own, so many rows at a time."""
    for start in range(0, len(array), height or len(array)):
        rows = array[start : start + (height or len(array))]
        values = np.empty((len(rows), len(chosen)), dtype=np.float64)
        for at, index in enumerate(chosen):
            values[:, at] = rows[:, index]
        release(array)
        yield Cells(values)


def _load_array(path: Path) -> NDArray[Any]:
    """Open an npy (mapped, not read) or npz file without ever unpickling."""
    try:
        if _suffix(path) == ".npz":
            return _checked(_one_array(path), path)
        try:
            loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            if "mmap" not in str(error):
                raise
            loaded = np.load(path, allow_pickle=False)
        return _checked(loaded, path)
    except (ValueError, EOFError, zipfile.BadZipFile, OSError) as error:
        if "allow_pickle" in str(error) or "object" in str(error).lower():
            raise DataError(
                f"{path} holds Python objects, which are never loaded; save a plain array of numbers"
            ) from error
        raise DataError(f"cannot read {path} as {_suffix(path)[1:]}: {error}; save it again") from error


def _one_array(path: Path) -> NDArray[Any]:
    """Take the array X, or the only one, of an npz file."""
    # Opened here, because numpy leaves the file of a damaged archive open.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        keys = list(archive.files)
        key = "X" if "X" in keys else keys[0] if len(keys) == 1 else None
        if key is None:
            raise DataError(f"{path}: expected one array, or one named X, got {len(keys)}; save the records as X")
        array: NDArray[Any] = archive[key]
        return array


def _checked(array: Any, path: Path) -> NDArray[Any]:
    """Refuse what is not a matrix, without converting anything."""
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path} is a zip archive of arrays; name it .npz")
    _check_matrix(array, str(path))
    return array


def listed(names: Sequence[str], limit: int = 20) -> str:
    """Write the first names in quotes."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(repr, names[:limit])) + more
