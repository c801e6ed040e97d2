"""Reads one party's records into a float64 matrix: csv, csv.gz, npy, npz and parquet.

Everything that depends on records is found here, before the party joins a run. The errors name file,
row (counted from 1, without the header) and column, never a value, and stay on the owner's own
standard error.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.categories import Categories
from fastlloyd.data.columnar import read_parquet, read_parquet_head, read_parquet_texts
from fastlloyd.data.delimited import Cells, read_cells, read_head, read_texts
from fastlloyd.data.form import SUFFIXES, DataFile, data_file
from fastlloyd.data.merge import Unit, merge_rows, number_people
from fastlloyd.data.missing import MISSING_RULES, count_missing, keep_whole, refuse_infinite, settle_missing
from fastlloyd.errors import ConfigError, DataError, FormError, did_you_mean, format_count

_NO_RECORDS = "expected at least one record; a site that has none stays out, and the run has one client fewer"


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


def read_table(
    path: str | Path | DataFile,
    *,
    columns: Sequence[str] = (),
    ignore: Sequence[str] = (),
    missing: str = "refuse",
    bounds: Bounds | None = None,
    unit: Unit | None = None,
    categories: Categories | None = None,
) -> Table:
    """Read the records of one file.

    Parameters
    ----------
    path : str, Path or DataFile
        Ends in .csv, .csv.gz, .npy, .npz or .parquet. A csv file has a header row; where every cell of row
        one is a number there is none and the columns are x1..xd. An npz file holds one array, or one
        named X.
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
    if missing not in MISSING_RULES:
        raise ConfigError(f"--missing {missing}: expected one of {', '.join(MISSING_RULES)}")
    if missing == "midpoint" and bounds is None:
        raise ConfigError("--missing midpoint fills in the middle of the bounds: give --bounds as well")
    if not columns and bounds is not None and bounds.names is not None:
        columns = [name for name in bounds.names if name not in ignore]
    path, categories = data_file(path), categories or Categories()
    no_numbers = (*ignore, *categories.columns, *(() if unit is None else (unit.column,)))
    origin = _source(path)
    chosen = _chosen(path, origin, tuple(columns), no_numbers, categories)
    cells = origin.read(chosen) if chosen else _no_cells(path, categories.columns[0])
    if not len(cells.values):
        raise DataError(f"{path} has columns but no rows; {_NO_RECORDS}")
    used = tuple(origin.names[index] for index in chosen)
    left_out = set(origin.names) - set(used) - set(categories.columns)
    ignored = tuple(name or "(no name)" for name in origin.names if name in left_out)
    refuse_infinite(cells.values, lambda row, column: _place(path, cells, row, used[column]))
    values, features = _with_categories(path, cells.values, used, categories)
    first_rows = people = None
    if unit is not None:
        people = number_people(read_identifiers(path, unit.column), source=str(path), column=unit.column)
        values, first_rows = merge_rows(values, people, unit.rule, source=str(path))

    def place(record: int, column: int) -> str:
        row = record if first_rows is None else int(first_rows[record])
        return _place(path, cells, row, features[column])

    middle = bounds.match(features).middle if missing == "midpoint" and bounds is not None else None
    missing_in = count_missing(values, features)
    whole, missing_rows = settle_missing(
        values, missing, middle, missing_in=missing_in, place=place, mean=unit is not None and unit.rule == "mean"
    )
    values, raw_records = keep_whole(values, whole, people)
    if not len(values):
        raise DataError(f"{path}: every row lacks a value, so --missing drop leaves none; fill the values in")
    return Table(values, features, str(path), ignored, missing_rows, raw_records, missing_in)


def column_names(path: str | Path | DataFile) -> tuple[str, ...]:
    """Read the names of all columns of a file, used or not.

    Raises
    ------
    DataError
        The file is missing or unreadable.
    """
    return _source(data_file(path)).names


def read_identifiers(path: str | Path | DataFile, column: str) -> tuple[str, ...]:
    """Read the column that names a file's records, as text.

    Parameters
    ----------
    path : str, Path or DataFile
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
    file = data_file(path)
    path, names = file.path, column_names(file)
    if column not in names:
        close = did_you_mean(column, names)
        raise DataError(
            f"{path}: no column {column!r}{close} to name the records; it has {_listed(names)}; set the id column"
        )
    index, suffix = names.index(column), _suffix(path)
    if suffix in (".csv", ".csv.gz"):
        return read_texts(path, read_head(path, file.form), index)
    if suffix == ".parquet":
        return read_parquet_texts(path, index)
    numbers = _load_array(path)[:, index]
    if not (np.mod(numbers, 1) == 0).all():
        raise DataError(f"{path}, column {column!r}: expected whole numbers to name the records")
    return tuple(str(int(number)) for number in numbers)


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
        raise DataError(f"{source} has no rows; {_NO_RECORDS}")
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
class _Source:
    """A file whose columns are known and whose cells are not read yet."""

    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    otherwise: tuple[bool, ...]
    read: Callable[[list[int]], Cells]


def _source(file: DataFile) -> _Source:
    """Open a file by its suffix."""
    path = file.path
    suffix = _suffix(path)
    if not path.exists():
        raise DataError(f"no file {path}: expected the records there; check --data")
    if not path.is_file():
        raise DataError(f"{path} is not a file; name one file of records")
    if not path.stat().st_size:
        raise DataError(f"{path} is empty; {_NO_RECORDS}")
    if suffix in (".csv", ".csv.gz"):
        head = read_head(path, file.form)
        return _Source(head.names, head.numeric, head.otherwise, lambda chosen: read_cells(path, head, chosen))
    if suffix == ".parquet":
        names, numeric = read_parquet_head(path)
        return _Source(names, numeric, (), lambda chosen: Cells(read_parquet(path, chosen), None))
    array = _load_array(path)
    features = array.shape[1]
    names = tuple(f"x{i + 1}" for i in range(features))
    return _Source(names, (True,) * features, (), lambda chosen: Cells(_own_columns(array, chosen), None))


def _own_columns(array: NDArray[Any], chosen: list[int]) -> NDArray[np.float64]:
    """Copy columns of an array, which may be a read-only map of a file, into memory of our own."""
    values = np.empty((array.shape[0], len(chosen)), dtype=np.float64)
    for at, index in enumerate(chosen):
        values[:, at] = array[:, index]
    return values


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


def _chosen(
    path: DataFile, origin: _Source, columns: tuple[str, ...], ignore: tuple[str, ...], categories: Categories
) -> list[int]:
    """Decide which columns of numbers to use; none only where others hold categories."""
    names = origin.names
    _refuse_twice([name for name in names if name], f"{path}: its header names")
    _refuse_twice(columns, "--columns names")
    unknown = [name for name in (*columns, *ignore) if name not in (*names, *categories.names)]
    if unknown:
        wanted = ", ".join(f"{name!r}{did_you_mean(name, names)}" for name in unknown)
        if names == tuple(f"x{i + 1}" for i in range(len(names))):
            raise DataError(
                f"{path}: no column {wanted}; it names none, so they are x1 to x{len(names)}: put a header above the "
                "numbers, or name the columns so in the bounds, --columns or --id"
            )
        raise DataError(
            f"{path}: no column {wanted}; it has {_listed(names)}; correct the header, or what names the column (the "
            "bounds, --columns, --id)"
        )
    if columns:
        chosen = [names.index(name) for name in columns if name not in (*ignore, *categories.names)]
    else:
        usable = [number and not _is_identifier(name) for number, name in zip(origin.numeric, names, strict=True)]
        chosen = [i for i, name in enumerate(names) if usable[i] and name not in ignore]
        _refuse_otherwise(path, origin, ignore)
    if not chosen and not categories.columns:
        raise DataError(
            f"{path}: no column of numbers is left to use; --delimiter says what stands between the cells, --decimal "
            "what before a fraction, and --columns names identifiers if they are meant"
        )
    return chosen


def _refuse_otherwise(path: DataFile, origin: _Source, ignore: tuple[str, ...]) -> None:
    """Refuse to take for text, and so to leave out, a column of numbers with the other decimal mark."""
    pairs = zip(origin.names, origin.otherwise, strict=False)
    wrong = [name for name, other in pairs if other and name not in ignore and not _is_identifier(name)]
    if wrong:
        mark = "." if path.form.decimal == "," else ","
        raise FormError(
            f"{path}, column {_listed(wrong, 3)}: numbers with {mark!r} before their fraction, expected "
            f"{path.form.decimal!r}; add --decimal {mark!r} (and --delimiter, if need be), or name the columns to use "
            "with --columns"
        )


def _no_cells(path: DataFile, column: str) -> Cells:
    """Return as many rows without numbers as the file has."""
    return Cells(np.empty((len(read_identifiers(path, column)), 0)), None)


def _with_categories(
    path: DataFile, values: NDArray[np.float64], names: tuple[str, ...], categories: Categories
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Put the features made of categories behind the others."""
    if not categories.columns:
        return values, names
    made = [
        categories.indicate(column, read_identifiers(path, column), source=str(path)) for column in categories.columns
    ]
    both = [name for name in names if name in categories.names]
    if both:
        raise DataError(f"{path}: the column {both[0]!r} is called like a feature of --categories; rename it")
    if len(made[0]) != len(values):
        rows = format_count(len(made[0]), "row")
        raise DataError(f"{path}: {rows} with categories, {len(values)} with numbers; complete every row")
    return np.hstack([values, *made]), (*names, *categories.names)


def _listed(names: Sequence[str], limit: int = 20) -> str:
    """Write the first names in quotes."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(repr, names[:limit])) + more


def _is_identifier(name: str) -> bool:
    """Tell a column that names records: no header cell (an exported index), id, or *_id."""
    return not name or name.lower() == "id" or name.lower().endswith("_id")


def _refuse_twice(names: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{where} the column {name!r} twice; give every column a name of its own")
        seen.add(name)


def _place(path: DataFile, cells: Cells, row: int, name: str) -> str:
    """Name a cell the way its owner finds it."""
    line = f" (line {cells.first_line + row})" if cells.first_line is not None else ""
    return f"{path}, row {row + 1}{line}, column {name!r}"
