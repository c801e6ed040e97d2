"""Reads comma separated text: fast when nothing is odd, cell by cell when something is.

The fast way hands blocks of whole lines to numpy's parser and accepts a block only when every line has
the right number of cells and every cell parses. Otherwise the file is read again by the careful way,
which knows quotes and missing cells and names the row and column of the first fault.

A header is taken to be there if any cell of row one is not a number. Cells of `cell.MISSING` are neither
numbers nor names: a first row of numbers and missing cells alone is refused, because taking it for a
header would lose a record silently.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.cell import (
    MISSING,
    guess_encoding,
    name_mark,
    other_decimal,
    parse_cell,
    parse_number,
    refuse_other_delimiter,
)
from fastlloyd.data.form import PLAIN, Form
from fastlloyd.errors import DataError, FormError, format_count

SAMPLE_ROWS = 1000

_SHOWN_LINES = 20
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
    otherwise : tuple of bool
        True where that text would be numbers with the other decimal mark.
    form : Form
        How the file is read.
    """

    names: tuple[str, ...]
    has_header: bool
    numeric: tuple[bool, ...]
    otherwise: tuple[bool, ...] = ()
    form: Form = PLAIN


@dataclass(frozen=True, slots=True)
class Cells:
    """Parsed columns.

    Attributes
    ----------
    values : float64 array, shape (n, d)
        NaN where a cell is missing.
    first_line : int or None
        Line of the file's first record, if every record up to here is one line.
    """

    values: NDArray[np.float64]
    first_line: int | None = None


class _OddError(Exception):
    """Something needs the careful way."""


def read_head(path: Path, form: Form = PLAIN) -> Head:
    """Read the names and kinds of the columns of a .csv or .csv.gz file.

    Raises
    ------
    DataError
        The file is missing, empty or unreadable, its header is ambiguous, or its cells are divided otherwise.
    """
    with _opened(path, form) as file:
        lines = list(islice(file, _SHOWN_LINES))
        refuse_other_delimiter(lines, form, path)
        reader = _reader(chain(lines, file), form)
        first = next(reader, None)
        if first is None:
            raise DataError(f"{path} is empty: expected a header row and at least one row of numbers")
        if not any(map(str.strip, first)):
            raise DataError(f"{path}, line 1 is empty: expected a header row; remove what stands before it")
        has_header = _is_header(first, path, form)
        sample = list(islice(reader, SAMPLE_ROWS))
    if has_header:
        names = tuple(cell.strip() for cell in first)
    else:
        names = tuple(f"x{i + 1}" for i in range(len(first)))
        sample.insert(0, first)
    numeric = _numeric_columns(sample, len(names), form)
    return Head(names, has_header, numeric, _otherwise(sample, numeric, form), form)


def read_chunks(path: Path, head: Head, columns: Sequence[int]) -> Iterator[Cells]:
    """Read some columns of a .csv or .csv.gz file, in the order asked, some thousand rows at a time.

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
    rows = 0
    try:
        with _opened(path, head.form) as file:
            for values in _read_fast(file, head, list(columns)):
                rows += len(values)
                yield Cells(values, 2 if head.has_header else 1)
        return
    except _OddError:
        pass
    with _opened(path, head.form) as file:
        yield from _read_carefully(file, head, list(columns), path, rows)


def join_cells(chunks: list[Cells], width: int) -> Cells:
    """Stack chunks of `width` columns, giving each one's memory back as soon as it is copied."""
    first_line = chunks[-1].first_line if chunks else None
    if len(chunks) == 1:
        return Cells(np.ascontiguousarray(chunks[0].values), first_line)
    values = np.empty((sum(len(chunk.values) for chunk in chunks), width), dtype=np.float64)
    end = len(values)
    while chunks:
        chunk = chunks.pop().values
        values[end - len(chunk) : end] = chunk
        end -= len(chunk)
    return Cells(values, first_line)


def read_texts(path: Path, head: Head, column: int) -> Iterator[str]:
    """Read one column of a .csv or .csv.gz file as text, without the spaces around it; rows as for `read_chunks`.

    Raises
    ------
    DataError
        A row has too few or too many cells, or an empty line before it.
    """
    blank = False
    with _opened(path, head.form) as file:
        reader = _reader(file, head.form)
        if head.has_header:
            next(reader)
        for cells in reader:
            if not cells or (len(cells) == 1 and len(head.names) > 1 and not cells[0].strip()):
                blank = True
                continue
            if blank:
                raise DataError(
                    f"{path} (line {reader.line_num}): an empty line stands before it; remove the empty line"
                )
            if len(cells) != len(head.names):
                raise DataError(
                    f"{path} (line {reader.line_num}): expected {format_count(len(head.names), 'cell')} as in the "
                    f"first row, got {len(cells)}; complete the row"
                )
            yield cells[column].strip()


def _read_fast(file: TextIO, head: Head, columns: list[int]) -> Iterator[NDArray[np.float64]]:
    """Parse whole blocks of lines; raise `_OddError` as soon as anything needs the careful way."""
    form = head.form
    if head.has_header and not _holds_names(file.readline(), head):
        raise _OddError
    marks = len(head.names) - 1
    ended = False
    while lines := file.readlines(_BLOCK_CHARS):
        read = len(lines)
        while lines and lines[-1] == "\n":
            lines.pop()
        if lines:
            if ended or any('"' in line or line.count(form.delimiter) != marks for line in lines):
                raise _OddError
            if form.decimal == ",":
                if any("." in line for line in lines):
                    raise _OddError
                lines = [line.replace(",", ".") for line in lines]
            try:
                chunk = np.loadtxt(lines, np.float64, delimiter=form.delimiter, comments=None, usecols=columns, ndmin=2)
            except ValueError as error:
                raise _OddError from error
            if len(chunk) != len(lines):
                raise _OddError
            yield chunk
        ended = ended or len(lines) < read


def _read_carefully(file: TextIO, head: Head, columns: list[int], path: Path, known: int) -> Iterator[Cells]:
    """Parse cell by cell and name the first fault; leave out rows that are `known`."""
    reader = _reader(file, head.form)
    if head.has_header:
        next(reader)
    before = reader.line_num
    width = len(head.names)
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
                f"{line}: expected {format_count(width, 'cell')} as in the first row, got {len(cells)}; "
                f"complete the row, or quote the cells that hold {name_mark(head.form.delimiter)}"
            )
        one_line_each = one_line_each and reader.line_num == before + row
        if row > known:
            block.append([parse_cell(cells[c], line, head.names[c], head.form) for c in columns])
        if len(block) == _BLOCK_ROWS:
            yield Cells(np.array(block, dtype=np.float64), before + 1 if one_line_each else None)
            block = []
    if block:
        yield Cells(np.array(block, dtype=np.float64), before + 1 if one_line_each else None)


def _reader(lines: Iterable[str], form: Form) -> Any:
    """Cut lines into cells."""
    return csv.reader(lines, delimiter=form.delimiter, skipinitialspace=True)


def _holds_names(line: str, head: Head) -> bool:
    """Return whether one line is the whole header."""
    cells: list[str] = next(_reader([line], head.form), [])
    return tuple(cell.strip() for cell in cells) == head.names


def _is_header(first: list[str], path: Path, form: Form) -> bool:
    """Return whether row one names the columns."""
    numbers = [parse_number(cell, form.decimal) is not None for cell in first]
    if all(numbers):
        return False
    gaps = [cell.strip().lower() in MISSING for cell in first]
    if all(number or gap for number, gap in zip(numbers, gaps, strict=True)):
        raise DataError(
            f"{path}, line 1: numbers and empty cells only, so it may be a header or a record with missing "
            "values; add a header row that names every column"
        )
    return True


def _numeric_columns(sample: list[list[str]], width: int, form: Form) -> tuple[bool, ...]:
    """Tell the columns of numbers from the columns of text; short rows are reported later."""
    numeric = []
    for index in range(width):
        cells = [row[index] for row in sample if index < len(row)]
        texts = [cell for cell in cells if cell.strip().lower() not in MISSING]
        numeric.append(not texts or any(parse_number(cell, form.decimal) is not None for cell in texts))
    return tuple(numeric)


def _otherwise(sample: list[list[str]], numeric: Sequence[bool], form: Form) -> tuple[bool, ...]:
    """Tell the columns of text that would be numbers with the other decimal mark."""
    other = other_decimal(form)
    found = []
    for index, number in enumerate(numeric):
        cells = (row[index] for row in sample if index < len(row))
        found.append(
            not number and all(parse_number(c, other) is not None for c in cells if c.strip().lower() not in MISSING)
        )
    return tuple(found)


@contextlib.contextmanager
def _opened(path: Path, form: Form) -> Iterator[TextIO]:
    """Open plain or gzipped text and turn everything that fails while reading into one sentence."""
    try:
        zipped = path.name.lower().endswith(".gz")
        encoding = form.encoding
        with gzip.open(path, "rt", encoding=encoding) if zipped else path.open(encoding=encoding) as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"no file {path}: expected the records there; check --data") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}); copy or compress it again") from error
    except UnicodeError as error:
        name = form.encoding.removesuffix("-sig").upper()
        raise FormError(
            f"{path} is not {name} text; add --encoding {guess_encoding(path)}, if that is how it was saved, or save "
            "it again as CSV in UTF-8"
        ) from error
    except csv.Error as error:
        raise DataError(f"{path} is not a CSV file ({error}); save it again as comma separated text") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; check path and rights") from error
