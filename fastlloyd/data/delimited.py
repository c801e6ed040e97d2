"""Reads comma separated text: fast when nothing is odd, cell by cell when something is.

The fast way hands blocks of whole lines to numpy's parser and accepts a block only when every line has
the right number of cells and every cell parses. Otherwise the file is read again by the careful way,
which knows quotes and missing cells and names the row and column of the first fault.

A header is taken to be there if any cell of row one is not a number. Cells of `MISSING` are neither
numbers nor names: a first row of numbers and missing cells alone is refused, because taking it for a
header would lose a record silently.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import DataError

MISSING = frozenset({"", "?", "na", "n/a", "nan", "none", "null"})
SAMPLE_ROWS = 1000

_BLOCK_CHARS = 1 << 22
_BLOCK_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class Head:
    """What the first rows of a file tell.

    Attributes
    ----------
    names : tuple of str
        From the header, or x1..xd without one.
    has_header : bool
    numeric : tuple of bool
        False where none of the first `SAMPLE_ROWS` cells is a number and one of them is text.
    """

    names: tuple[str, ...]
    has_header: bool
    numeric: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Cells:
    """Parsed columns.

    Attributes
    ----------
    values : float64 array, shape (n, d)
        NaN where a cell is missing.
    first_line : int or None
        Line of the first record, if every record is one line.
    """

    values: NDArray[np.float64]
    first_line: int | None


def read_head(path: Path) -> Head:
    """Read the names and kinds of the columns of a .csv or .csv.gz file.

    Raises
    ------
    DataError
        The file is missing, empty or unreadable, or its header is ambiguous.
    """
    with _opened(path) as file:
        reader = csv.reader(file, skipinitialspace=True)
        first = next(reader, None)
        if first is None:
            raise DataError(f"{path} is empty: expected a header row and at least one row of numbers")
        if not any(map(str.strip, first)):
            raise DataError(f"{path}, line 1 is empty: expected a header row; remove what stands before it")
        has_header = _is_header(first, path)
        sample = list(islice(reader, SAMPLE_ROWS))
    if has_header:
        names = tuple(cell.strip() for cell in first)
    else:
        names = tuple(f"x{i + 1}" for i in range(len(first)))
        sample.insert(0, first)
    return Head(names, has_header, _numeric_columns(sample, len(names)))


def read_cells(path: Path, head: Head, columns: Sequence[int]) -> Cells:
    """Read some columns of a .csv or .csv.gz file, in the order asked.

    Parameters
    ----------
    path : Path
    head : Head
        What `read_head` found.
    columns : sequence of int
        0-based positions.

    Raises
    ------
    DataError
        A row has too few or too many cells, or a cell is text: file, row and column are named.
    """
    with _opened(path) as file:
        values = _read_fast(file, head, list(columns))
    if values is not None:
        return Cells(values, 2 if head.has_header else 1)
    with _opened(path) as file:
        return _read_carefully(file, head, list(columns), path)


def read_texts(path: Path, head: Head, column: int) -> tuple[str, ...]:
    """Read one column of a .csv or .csv.gz file as text, without the spaces around it; rows as for `read_cells`.

    Raises
    ------
    DataError
        A row has too few cells.
    """
    texts = []
    with _opened(path) as file:
        reader = csv.reader(file, skipinitialspace=True)
        if head.has_header:
            next(reader)
        for cells in reader:
            if not cells or (len(cells) == 1 and len(head.names) > 1 and not cells[0].strip()):
                continue
            if len(cells) <= column:
                raise DataError(
                    f"{path} (line {reader.line_num}): expected {len(head.names)} cells as in the first row, got "
                    f"{len(cells)}; complete the row"
                )
            texts.append(cells[column].strip())
    return tuple(texts)


def _read_fast(file: TextIO, head: Head, columns: list[int]) -> NDArray[np.float64] | None:
    """Parse whole blocks of lines; None as soon as anything needs the careful way."""
    if head.has_header and not _holds_names(file.readline(), head.names):
        return None
    commas = len(head.names) - 1
    chunks: list[NDArray[np.float64]] = []
    ended = False
    while lines := file.readlines(_BLOCK_CHARS):
        read = len(lines)
        while lines and lines[-1] == "\n":
            lines.pop()
        if lines:
            if ended or any('"' in line or line.count(",") != commas for line in lines):
                return None
            try:
                chunk = np.loadtxt(lines, np.float64, delimiter=",", comments=None, usecols=columns, ndmin=2)
            except ValueError:
                return None
            if len(chunk) != len(lines):
                return None
            chunks.append(chunk)
        ended = ended or len(lines) < read
    return _joined(chunks, len(columns))


def _read_carefully(file: TextIO, head: Head, columns: list[int], path: Path) -> Cells:
    """Parse cell by cell and name the first fault."""
    reader = csv.reader(file, skipinitialspace=True)
    if head.has_header:
        next(reader)
    before = reader.line_num
    width = len(head.names)
    chunks: list[NDArray[np.float64]] = []
    block: list[list[float]] = []
    row, one_line_each, blank = 0, True, False
    for cells in reader:
        if not cells or (len(cells) == 1 and width > 1 and not cells[0].strip()):
            blank = True
            continue
        row += 1
        line = f"{path}, row {row} (line {reader.line_num})"
        if blank:
            raise DataError(f"{line}: an empty line stands before it; remove the empty line")
        if len(cells) != width:
            raise DataError(
                f"{line}: expected {width} cells as in the first row, got {len(cells)}; "
                "complete the row, or quote the cells that hold a comma"
            )
        one_line_each = one_line_each and reader.line_num == before + row
        block.append([_parsed(cells[c], line, head.names[c]) for c in columns])
        if len(block) == _BLOCK_ROWS:
            chunks.append(np.array(block, dtype=np.float64))
            block = []
    if block:
        chunks.append(np.array(block, dtype=np.float64))
    return Cells(_joined(chunks, len(columns)), before + 1 if one_line_each else None)


def _parsed(cell: str, line: str, name: str) -> float:
    """Give a cell's number, NaN for a missing one."""
    number = _number(cell)
    if number is not None:
        return number
    if cell.strip().lower() in MISSING:
        return float("nan")
    raise DataError(
        f"{line}, column {name!r}: expected a number, got text; "
        "correct the cell, or leave the column out with --columns"
    )


def _number(cell: str) -> float | None:
    """Give a number as everybody writes it, without Python's digit separators."""
    try:
        return float(cell) if "_" not in cell else None
    except ValueError:
        return None


def _holds_names(line: str, names: tuple[str, ...]) -> bool:
    """Tell whether one line is the whole header."""
    cells = next(csv.reader([line], skipinitialspace=True), [])
    return tuple(cell.strip() for cell in cells) == names


def _is_header(first: list[str], path: Path) -> bool:
    """Tell whether row one names the columns."""
    numbers = [_number(cell) is not None for cell in first]
    if all(numbers):
        return False
    gaps = [cell.strip().lower() in MISSING for cell in first]
    if all(number or gap for number, gap in zip(numbers, gaps, strict=True)):
        raise DataError(
            f"{path}, line 1: numbers and empty cells only, so it may be a header or a record with missing "
            "values; add a header row that names every column"
        )
    return True


def _numeric_columns(sample: list[list[str]], width: int) -> tuple[bool, ...]:
    """Tell the columns of numbers from the columns of text; short rows are reported later."""
    numeric = []
    for index in range(width):
        cells = [row[index] for row in sample if index < len(row)]
        texts = [cell for cell in cells if cell.strip().lower() not in MISSING]
        numeric.append(not texts or any(_number(cell) is not None for cell in texts))
    return tuple(numeric)


def _joined(chunks: list[NDArray[np.float64]], width: int) -> NDArray[np.float64]:
    """Stack the chunks, giving each one's memory back as soon as it is copied."""
    if len(chunks) == 1:
        return np.ascontiguousarray(chunks[0])
    values = np.empty((sum(map(len, chunks)), width), dtype=np.float64)
    end = len(values)
    while chunks:
        chunk = chunks.pop()
        values[end - len(chunk) : end] = chunk
        end -= len(chunk)
    return values


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Open plain or gzipped text and turn everything that fails while reading into one sentence."""
    try:
        zipped = path.name.lower().endswith(".gz")
        with gzip.open(path, "rt", encoding="utf-8-sig") if zipped else path.open(encoding="utf-8-sig") as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"no file {path}: expected the records there; check --data") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}); copy or compress it again") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text; save it as CSV in UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{path} is not a CSV file ({error}); save it again as comma separated text") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
