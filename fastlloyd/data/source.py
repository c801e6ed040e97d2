"""Opens tables and reads them once: csv, csv.gz, npy, npz, parquet, Arrow, xlsx and databases.

One pass reads numbers and text, such as ids, of the same rows. A file may change between two passes, and the second
would read the ids of other rows.

Source: docs/guide.md, "Your own data".
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.columnar import ARROW_FILE, ARROW_STREAM, Columnar
from fastlloyd.data.database import Database, Place, place_of
from fastlloyd.data.delimited import Cells, Delimited
from fastlloyd.data.form import ARROW_SUFFIXES, NO_RECORDS, SUFFIXES, TEXT_SUFFIXES, Cap, DataFile, listed
from fastlloyd.data.kinds import ANY, FIX, HALF, IN_QUERY, NUMBERS, SINGLE, ColumnKind, Role, check_kind, name_cells
from fastlloyd.data.spreadsheet import Sheet, split_sheet
from fastlloyd.errors import DataError, FormError, did_you_mean
from fastlloyd.kmeans.stored import release

_SHOWN_CHARACTERS = 300
_START_BYTES = 8
_ONE_PASS = (*TEXT_SUFFIXES, *ARROW_SUFFIXES)
# What a pipe begins with, where its name does not say what it holds.
_STARTS = {
    b"\x1f\x8b": ".csv.gz",
    ARROW_FILE: ".arrow",
    ARROW_STREAM: ".arrows",
    b"PAR1": ".parquet",
    b"PK\3\4": ".zip",
    b"\x93NUMPY": ".npy",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An open file, or the result of a database query: its columns are known, and its cells are not read yet.

    Attributes
    ----------
    place : Place
    names : tuple of str
        Of all columns, used or not.
    kinds : tuple of ColumnKind
        What each column holds.
    numeric : tuple of bool
        Which columns hold numbers.
    indices : frozenset of str
        Columns that the file itself calls row labels.
    otherwise, grouped : tuples of str and bool
        As for `Delimited`; empty for tables with types.
    looks : tuple of str
        Why columns of text are no numbers, in words; empty where their kinds say it.
    doubt : str
        As for `Delimited`.
    read : callable
        What `chunks` calls.
    watch : callable or None
        Takes the columns that are left out as text, where only the first rows have said so; before `chunks`.
    rows : int or None
        None where the number is known only after reading.
    at_once : bool
        Whether all rows are in memory already.
    """

    place: Place
    names: tuple[str, ...]
    kinds: tuple[ColumnKind, ...]
    numeric: tuple[bool, ...]
    indices: frozenset[str] = frozenset()
    otherwise: tuple[str, ...] = ()
    grouped: tuple[bool, ...] = ()
    looks: tuple[str, ...] = ()
    doubt: str = ""
    read: Callable[..., Iterator[Cells]]
    watch: Callable[[Sequence[int]], None] | None = None
    rows: int | None = None
    at_once: bool = False

    def chunks(
        self, numbers: Sequence[int], texts: Sequence[int], height: int | None, *, loose: int = 0
    ) -> Iterator[Cells]:
        """Read some columns, some rows at a time; can be called once.

        Parameters
        ----------
        numbers, texts : sequence of int
            Positions of the columns that are read as numbers, and as text.
        height : int or None
            The most rows of a chunk; None: the fastest.
        loose : int
            How many of the last columns of text may hold any numbers: the others hold names.

        Raises
        ------
        DataError
            A column or a cell does not fit its role.
        """
        fix = IN_QUERY if isinstance(self.place, Database) else FIX
        names = len(texts) - loose
        roles: list[tuple[Role, Sequence[int]]] = [("feature", numbers), ("name", texts[:names])]
        for role, indices in (*roles, ("beside", texts[names:])):
            for index in indices:
                check_kind(self.place, self.names[index], self.kinds[index], role, fix)
        return self.read(numbers, texts, height, loose=loose)

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

    CSV and Arrow may come from a pipe, because they are read once and in order.

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
        yield Source(
            place=place,
            names=answer.names,
            kinds=answer.kinds,
            numeric=answer.numeric,
            indices=answer.indices,
            read=answer.chunks,
            rows=answer.rows,
        )
        return
    with _opened(place) as file:
        source = _read_head(place, file)
        yield replace(source, names=place.form.renamed(source.names, place))


@contextlib.contextmanager
def _opened(place: DataFile) -> Iterator[BinaryIO]:
    """Open a file of records; refuse it if it has changed by the time it is closed."""
    path = place.path
    file = _standard_input() if place.standard_input else _named_file(place)
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


def _named_file(place: DataFile) -> BinaryIO:
    """Open a file by its name."""
    path, _ = split_sheet(place.path)
    if path.exists() and not (path.is_file() or path.is_fifo()):
        raise DataError(f"{path} is not a file; name one file of records")
    suffix = _suffix(path) if path.exists() else ""
    if suffix and suffix not in _ONE_PASS and path.is_fifo():
        raise _no_pipe(path, suffix)
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise DataError(f"no file {path}: expected the records there; check {place.flag}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; check path and rights") from error


def _standard_input() -> BinaryIO:
    """Open what this process gets on its standard input."""
    try:
        file = os.fdopen(os.dup(0), "rb")
    except OSError as error:
        raise DataError("--data -: this process has no standard input; name a file") from error
    if file.isatty():
        file.close()
        raise DataError(
            "--data -: the standard input is a terminal; let a program write the records into it, or name a file"
        )
    return file


def _no_pipe(path: Path, suffix: str) -> DataError:
    """Return the error of a format that needs a file."""
    return DataError(f"{path} is a pipe, and {suffix[1:]} cannot be read from one; write it to a file first")


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
    path, suffix = place.path, _suffix(split_sheet(place.path)[0]) if not place.standard_input else ""
    if not suffix:
        start = file.peek(_START_BYTES)  # type: ignore[attr-defined]
        suffix = next((suffix for begins, suffix in _STARTS.items() if start.startswith(begins)), ".csv")
        if suffix not in _ONE_PASS:
            raise _no_pipe(path, suffix)
        if suffix in ARROW_SUFFIXES and place.cell_form.decimal != ".":
            raise FormError(f"{path} holds an Arrow table, whose numbers have no marks of text; leave out --decimal")
    if suffix in TEXT_SUFFIXES:
        text = Delimited(path, file, place.form, packed=suffix == ".csv.gz")
        return Source(
            place=place,
            names=text.names,
            kinds=(ANY,) * len(text.names),
            numeric=text.numeric,
            otherwise=text.otherwise,
            grouped=text.grouped,
            looks=text.looks,
            doubt=text.doubt,
            read=lambda numbers, texts, _, **__: text.chunks(numbers, texts),
            watch=text.watch,
        )
    if suffix in (".parquet", ".xlsx", *ARROW_SUFFIXES):
        sheet = Sheet(path, file, place.form) if suffix == ".xlsx" else None
        table = sheet or Columnar(path, file, arrow=suffix != ".parquet")
        return Source(
            place=place,
            names=table.names,
            kinds=table.kinds,
            numeric=table.numeric,
            indices=table.indices,
            otherwise=() if sheet is None else sheet.otherwise,
            grouped=() if sheet is None else sheet.grouped,
            read=table.chunks,
            rows=table.rows,
            at_once=sheet is not None,
        )
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
    return Source(
        place=place,
        names=names,
        kinds=(_array_kind(array.dtype),) * len(names),
        numeric=(True,) * len(names),
        read=partial(_read_array, place.path, array),
        rows=len(array),
        at_once=at_once,
    )


def _array_kind(dtype: np.dtype[Any]) -> ColumnKind:
    """Return what the columns of an array hold."""
    return {2: HALF, 4: SINGLE}.get(dtype.itemsize, NUMBERS) if dtype.kind == "f" else NUMBERS


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
    kind = _array_kind(array.dtype)
    for start in range(0, len(array), height or len(array)):
        rows = array[start : start + (height or len(array))]
        values = np.empty((len(rows), len(numbers)), dtype=np.float64)
        for at, index in enumerate(numbers):
            values[:, at] = rows[:, index]
        columns = []
        for at, index in enumerate(texts):
            where, any_number = f"{path}, column 'x{index + 1}'", at >= len(texts) - loose
            columns.append(name_cells(rows[:, index].tolist(), kind, where, FIX, any_number=any_number))
        release(array)
        yield Cells(values, tuple(columns))


def _suffix(path: Path) -> str:
    """Return the suffix that decides how to read; empty for a pipe without one, whose first bytes decide."""
    name = path.name.lower()
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.endswith(suffix):
            return suffix
    if path.is_fifo():
        return ""
    raise DataError(
        f"{path}: cannot tell its format; expected a file name ending in {', '.join(SUFFIXES)}; save another "
        "spreadsheet as CSV, and rename another text table to .csv (--delimiter says what divides its cells)"
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
    return Source(
        place=place,
        names=names,
        kinds=(_array_kind(kind),) * len(names),
        numeric=(True,) * len(names),
        read=chunks,
        rows=shape[0],
        at_once=True,
    )


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
