"""Opens tables and reads them once: csv, csv.gz, npy, npz, parquet and databases.

One pass reads numbers and text, such as ids, of the same rows. A file may change between two passes, and the second
would read the ids of other rows. This is the only module that imports pyarrow.

Source: docs/guide.md, "Your own data".
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.database import Database, Place, place_of
from fastlloyd.data.delimited import Cells, Delimited
from fastlloyd.data.form import NO_RECORDS, SUFFIXES, Cap, DataFile, Otherwise, listed, needs, number_text
from fastlloyd.errors import DataError, did_you_mean
from fastlloyd.kmeans.stored import release

_BATCH_ROWS = 1 << 16
_SHOWN_CHARACTERS = 300
_BATCH_VALUES = 1 << 24
_ONE_PASS = (".csv", ".csv.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An open file, or the result of a database query: its columns are known, and its cells are not read yet.

    Attributes
    ----------
    place : Place
    names : tuple of str
        Of all columns, used or not.
    numeric : tuple of bool
        Which columns hold numbers.
    otherwise : tuple of 'fraction', 'either' or None
        As for `Delimited`; empty for other files.
    chunks : callable
        Takes the columns of numbers, the columns of text, the most rows of a chunk (None: the fastest), and `loose`,
        how many of the last columns of text may hold any numbers (default 0: the others hold names, which are whole
        numbers or text). Returns an iterator over `Cells`. Can be called once.
    rows : int or None
        None where the number is known only after reading.
    at_once : bool
        Whether all rows are in memory already.
    """

    place: Place
    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    otherwise: tuple[Otherwise | None, ...] = ()
    chunks: Callable[..., Iterator[Cells]]
    rows: int | None = None
    at_once: bool = False

    def index(self, column: str) -> int:
        """Return the position of a column that names records.

        Raises
        ------
        DataError
            There is none.
        """
        if column not in self.names:
            raise DataError(
                f"{self.place}: no column {column!r}{did_you_mean(column, self.names)} to name the records; it has "
                f"{listed(self.names)}; name one of these (--id, --unit, or --set vertical.id=COLUMN where tables are "
                "split by columns)"
            )
        return self.names.index(column)


@contextlib.contextmanager
def open_source(path: str | Path | Place | Source, cap: Cap | None = None) -> Iterator[Source]:
    """Open a file by its suffix, or query a database; an open source is returned unchanged.

    CSV may come from a pipe, because it is read once and in order.

    Parameters
    ----------
    path : str, Path, Place or Source
    cap : Cap, optional
        The most rows that a database may return; those of a file are counted as they are read.

    Raises
    ------
    DataError
        The file is missing or unreadable, or changed while it was read.
    ConfigError
        What reads it is not installed.
    """
    if isinstance(path, Source):
        yield path
        return
    place = place_of(path)
    if isinstance(place, Database):
        answer = place.answer_within(cap)
        yield Source(place=place, names=answer.names, numeric=answer.numeric, chunks=answer.chunks, rows=answer.rows)
        return
    with _opened(place) as file:
        yield _read_head(place, file)


@contextlib.contextmanager
def _opened(place: DataFile) -> Iterator[BinaryIO]:
    """Open a file of records; refuse it if it has changed by the time it is closed."""
    path = place.path
    if path.exists() and not (path.is_file() or path.is_fifo()):
        raise DataError(f"{path} is not a file; name one file of records")
    suffix = _suffix(path) if path.exists() else ""
    if suffix not in _ONE_PASS and path.is_fifo():
        raise DataError(f"{path} is a pipe, and {suffix[1:]} cannot be read from one; write it to a file first")
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise DataError(f"no file {path}: expected the records there; check {place.flag}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; check path and rights") from error
    with file:
        before = os.fstat(file.fileno())
        if stat.S_ISREG(before.st_mode) and not before.st_size:
            raise DataError(f"{path} is empty; {NO_RECORDS}")
        try:
            yield file
        except DataError:  # perhaps a row that is half written
            _refuse_changed(path, before, os.fstat(file.fileno()))
            raise
        _refuse_changed(path, before, os.fstat(file.fileno()))


def _refuse_changed(path: Path, before: os.stat_result, after: os.stat_result) -> None:
    """Refuse a file that changed: some rows may be from before the change, and some from after it."""
    what = []
    if after.st_size != before.st_size:
        what.append(f"its size was {before.st_size:,} bytes and is {after.st_size:,}")
    if after.st_mtime_ns != before.st_mtime_ns:
        what.append("its time of change is another")
    if what and stat.S_ISREG(before.st_mode):
        raise DataError(
            f"{path} changed while it was read ({' and '.join(what)}); wait until nothing writes to it, and start again"
        )


def _read_head(place: DataFile, file: BinaryIO) -> Source:
    """Read the columns of an open file."""
    path, suffix = place.path, _suffix(place.path)
    if suffix in _ONE_PASS:
        text = Delimited(path, file, place.form)
        return Source(
            place=place,
            names=text.names,
            numeric=text.numeric,
            otherwise=text.otherwise,
            chunks=lambda numbers, texts, _, **__: text.chunks(numbers, texts),
        )
    if suffix == ".parquet":
        return _read_parquet_head(place, file)
    if suffix == ".npz":
        return _read_npz_head(place, file)
    array = _map_array(path)
    return array_source(place, array, _numbered(array.shape[1]), at_once=False)


def _numbered(count: int) -> tuple[str, ...]:
    """Name columns that have no names."""
    return tuple(f"x{i + 1}" for i in range(count))


def array_source(place: DataFile, array: NDArray[Any], names: tuple[str, ...], *, at_once: bool = True) -> Source:
    """Return the source of an array, shape (rows, features), or of a map of a file.

    Parameters
    ----------
    place : DataFile
        Where it comes from.
    array : array of integers or floats, shape (n, d)
    names : tuple of str, length d
    at_once : bool
        Whether all of it is in memory.
    """
    numeric, chunks = (True,) * len(names), partial(_read_array, place.path, array)
    return Source(place=place, names=names, numeric=numeric, chunks=chunks, rows=len(array), at_once=at_once)


def _read_array(
    path: Path,
    array: NDArray[Any],
    numbers: Sequence[int],
    texts: Sequence[int],
    height: int | None,
    *,
    loose: int = 0,
) -> Iterator[Cells]:
    """Copy columns of an array, which may be a map of a file, some rows at a time; `texts` become text."""
    for start in range(0, len(array), height or len(array)):
        rows = array[start : start + (height or len(array))]
        values = np.empty((len(rows), len(numbers)), dtype=np.float64)
        for at, index in enumerate(numbers):
            values[:, at] = rows[:, index]
        columns = []
        for at, index in enumerate(texts):
            names = rows[:, index]
            if at >= len(texts) - loose:
                columns.append([*map(number_text, names.tolist())])
                continue
            if not (np.mod(names, 1) == 0).all():
                raise DataError(f"{path}, column 'x{index + 1}': expected whole numbers to name the records")
            columns.append([str(int(name)) for name in names])
        release(array)
        yield Cells(values, tuple(columns))


def _suffix(path: Path) -> str:
    """Return the suffix that decides how to read; a pipe without one holds CSV."""
    name = path.name.lower()
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.endswith(suffix):
            return suffix
    if path.is_fifo():
        return ".csv"
    raise DataError(
        f"{path}: cannot tell its format; expected a file name ending in {', '.join(SUFFIXES)}; save a spreadsheet as "
        "CSV, and rename another text table to .csv (--delimiter says what divides its cells)"
    )


@contextlib.contextmanager
def _array_errors(path: Path) -> Iterator[None]:
    """Turn what fails while an array is read into one sentence."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # a damaged file may make NumPy and zipfile raise almost anything
        if "allow_pickle" in str(error) or "object" in str(error).lower():
            raise DataError(
                f"{path} holds Python objects, which are never loaded; save a plain array of numbers"
            ) from error
        if isinstance(error, MemoryError):
            raise DataError(
                f"{path} needs more memory than this machine has ({error}); give fewer rows, or save it again if that "
                "is wrong"
            ) from error
        why = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise DataError(
            f"cannot read {path} as {_suffix(path)[1:]}: {why[:_SHOWN_CHARACTERS]}; save it again"
        ) from error


def _map_array(path: Path) -> NDArray[Any]:
    """Map an npy file without ever unpickling."""
    with _array_errors(path):
        try:
            loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            # An array without values cannot be mapped; one that is longer than its file must not be made.
            if "mmap" not in str(error) or "greater than file" in str(error):
                raise
            loaded = np.load(path, allow_pickle=False)
    if not isinstance(loaded, np.ndarray):
        raise DataError(f"{path} is a zip archive of arrays; name it .npz")
    _check_matrix(loaded.shape, loaded.dtype, path)
    return loaded


def _read_npz_head(place: DataFile, file: BinaryIO) -> Source:
    """Open an npz file by the head of the array X, or of the only one: a small file may unpack to any length."""
    path = place.path
    with _array_errors(path):
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise DataError(f"{path} is an array, no archive of them; name it .npy")
        keys = list(archive.files)
        key = "X" if "X" in keys else keys[0] if len(keys) == 1 else None
        if key is None:
            raise DataError(f"{path}: expected one array, or one named X, got {len(keys)}; save the records as X")
        name = key if key in archive.zip.namelist() else f"{key}.npy"
        with archive.zip.open(name) as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, kind = read(member)
        if kind.hasobject:
            raise ValueError("object")
        if min(shape, default=0) < 0:
            raise ValueError("negative dimensions are not allowed")
        if math.prod(shape) * kind.itemsize > archive.zip.getinfo(name).file_size:
            raise ValueError(f"the head of {key} says {shape}, which is longer than the array")
    _check_matrix(shape, kind, path)

    def chunks(numbers: Sequence[int], texts: Sequence[int], height: int | None, *, loose: int = 0) -> Iterator[Cells]:
        with _array_errors(path):
            array = archive[key]
        yield from _read_array(path, array, numbers, texts, height, loose=loose)

    names = _numbered(shape[1])
    return Source(place=place, names=names, numeric=(True,) * len(names), chunks=chunks, rows=shape[0], at_once=True)


def _check_matrix(shape: tuple[int, ...], kind: np.dtype[Any], path: Path) -> None:
    """Refuse everything that is not a non-empty matrix of real numbers."""
    kinds = {"c": "complex numbers", "O": "Python objects", "b": "truth values", "U": "text", "S": "text"}
    if kind.kind not in "iuf":
        raise DataError(
            f"{path}: expected integers or floating point numbers, got "
            f"{kinds.get(kind.kind, str(kind))}; convert it to float64 if that makes sense"
        )
    if len(shape) != 2:
        fix = "; reshape(-1, 1) makes one feature of it" if len(shape) == 1 else ""
        raise DataError(f"{path}: expected an array of shape (rows, features), got {shape}{fix}")
    if not shape[0]:
        raise DataError(f"{path} has no rows; {NO_RECORDS}")
    if not shape[1]:
        raise DataError(f"{path} has no columns; expected at least one feature")


def _read_parquet_head(place: DataFile, file: BinaryIO) -> Source:
    """Open a parquet file by its footer."""
    arrow, parquet = _pyarrow()
    with _parquet_errors(place.path):
        table = parquet.ParquetFile(file)
    schema = table.schema_arrow
    return Source(
        place=place,
        names=tuple(schema.names),
        numeric=tuple(_is_number(arrow, kind) for kind in schema.types),
        chunks=partial(_read_parquet, place.path, table),
        rows=int(table.metadata.num_rows),
    )


def _read_parquet(
    path: Path, table: Any, numbers: Sequence[int], texts: Sequence[int], height: int | None, *, loose: int = 0
) -> Iterator[Cells]:
    """Read some columns of a parquet file, batch by batch; a null is NaN, or empty text."""
    arrow, _ = _pyarrow()
    types = arrow.types
    # Each of these properties makes a new list: they are asked once, not for each column.
    names, kinds = table.schema_arrow.names, table.schema_arrow.types
    for index in numbers:
        if not _is_number(arrow, kinds[index]):
            raise DataError(
                f"{path}, column {names[index]!r}: expected numbers, got {kinds[index]}; convert it, or leave it out "
                "with --columns"
            )
    for at, index in enumerate(texts):
        kind = kinds[index].value_type if types.is_dictionary(kinds[index]) else kinds[index]
        any_number = at >= len(texts) - loose
        number = _is_number(arrow, kind) if any_number else types.is_integer(kind)
        if not (number or any(is_text(kind) for is_text in _texts(types))):
            expected = "numbers or text" if any_number else "whole numbers or text"
            raise DataError(f"{path}, column {names[index]!r}: expected {expected}, got {kind}; convert it")
    wanted = list(dict.fromkeys(names[index] for index in (*numbers, *texts)))
    most = max(1, _BATCH_VALUES // max(1, len(wanted)))
    with _parquet_errors(path):
        for batch in table.iter_batches(batch_size=min(height or _BATCH_ROWS, _BATCH_ROWS, most), columns=wanted):
            own = dict(zip(batch.schema.names, batch.columns, strict=True))
            values = np.empty((len(batch), len(numbers)), dtype=np.float64)
            for at, index in enumerate(numbers):
                column = own[names[index]].cast(arrow.float64(), safe=False)
                values[:, at] = column.to_numpy(zero_copy_only=False)
            yield Cells(values, tuple(_as_text(arrow, own[names[index]]) for index in texts))


def _texts(types: Any) -> tuple[Callable[[Any], bool], ...]:
    """Return the questions whether a type is text; older releases of pyarrow have fewer types."""
    names = ("is_string", "is_large_string", "is_string_view")
    return tuple(getattr(types, name) for name in names if hasattr(types, name))


def _as_text(arrow: Any, column: Any) -> list[str]:
    """Return the cells of a column as text, without the spaces around it; empty where a value is null."""
    plain = _plain(arrow, column)
    if _is_number(arrow, plain.type) and not arrow.types.is_integer(plain.type):
        cells = plain.cast(arrow.float64(), safe=False).to_pylist()
        return ["" if cell is None else number_text(cell) for cell in cells]
    return ["" if cell is None else cell.strip() for cell in plain.cast(arrow.string()).to_pylist()]


def _plain(arrow: Any, column: Any) -> Any:
    """Write out the values of a column of categories."""
    return column.dictionary_decode() if arrow.types.is_dictionary(column.type) else column


@contextlib.contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    """Turn what fails while a parquet file is read into one sentence."""
    try:
        yield
    except (_pyarrow()[0].ArrowException, OSError) as error:
        raise DataError(f"cannot read {path} as parquet ({error}); save it again") from error


def _is_number(arrow: Any, kind: Any) -> bool:
    return bool(arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_decimal(kind))


def _pyarrow() -> tuple[Any, Any]:
    with needs("pyarrow", "parquet", "parquet"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet
