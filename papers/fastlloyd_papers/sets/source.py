"""What makers of public sets share: the user's files, opened and remembered, and the tables that come out."""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, DataError

_MOST_COLUMNS = 4096


@dataclass(frozen=True, slots=True)
class Read:
    """A file that a maker has read: its name, its length in bytes, its SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PublicTable:
    """A table of a set: its name, column names, and rows, shape (n, d)."""

    name: str
    names: tuple[str, ...]
    values: NDArray[Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class MadeSet:
    """One set: its table first, then the server's if it has one, and what is to be known of it, in sentences."""

    tables: tuple[PublicTable, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """What a maker made, and of what."""

    sets: tuple[MadeSet, ...]
    sources: tuple[Read, ...]


def remember(path: Path) -> Read:
    """Take the checksum of a file that was read."""
    with path.open("rb") as file:
        return Read(path.name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def locate(folder: Path, name: str, archive: str, needs: str) -> Path:
    """Find a file, or the archive that holds it.

    Raises
    ------
    ConfigError
        Neither is there; says what is needed.
    """
    for candidate in (name, archive):
        if (folder / candidate).is_file():
            return folder / candidate
    raise ConfigError(f"--from {folder}: no {name} or {archive} in it; expected {needs}")


@contextmanager
def open_text(path: Path, name: str) -> Iterator[TextIO]:
    """Open a text file, or the file of that name in a zip archive.

    Raises
    ------
    DataError
        It is broken off, is no archive, holds no such file, or is no UTF-8.
    """
    try:
        if path.suffix != ".zip":
            with path.open(encoding="utf-8-sig", newline="") as file:
                yield file
            return
        with zipfile.ZipFile(path) as archive:
            if name not in archive.namelist():
                raise DataError(f"{path}: expected an archive with {name} in it; fetch it again")
            with archive.open(name) as packed:
                yield io.TextIOWrapper(packed, encoding="utf-8-sig", newline="")
    except (zipfile.BadZipFile, EOFError, UnicodeDecodeError, NotImplementedError) as error:
        raise DataError(f"{path}: is not whole, or no such file ({error}); fetch it again") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check path and rights") from error


def rows_of(path: Path, file: TextIO, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Read some columns of a CSV by their names; the number of the line, and the cells in the order asked for.

    Raises
    ------
    DataError
        A column is missing or stands twice, or a row has more or fewer cells than the header.
    """
    reader = csv.reader(file, strict=True)
    try:
        header = next(reader, [])
        if not 0 < len(header) <= _MOST_COLUMNS or any(header.count(name) != 1 for name in columns):
            raise DataError(f"{path}: expected the columns {', '.join(columns)}, each once; is this another file?")
        places = [header.index(name) for name in columns]
        for row in reader:
            if len(row) != len(header):
                raise DataError(
                    f"{path}, line {reader.line_num}: expected {len(header)} cells, got {len(row)}; fetch the file "
                    "again"
                )
            yield reader.line_num, [row[place] for place in places]
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: expected CSV ({error}); fetch the file again") from error
