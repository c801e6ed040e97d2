"""Reads comma separated text: fast when nothing is odd, cell by cell when something is.

The fast way hands blocks of whole lines to numpy's parser and accepts a block only when every line has
the right number of cells and every cell parses. Otherwise the file is read again by the careful way,
which knows quotes and missing cells and names the row and column of the first fault.

A header is taken to be there if any cell of row one is not a number. Cells of `MISSING` are neither
numbers nor names: a first row of numbers and missing cells alone is refused, because taking it for a
header would lose a record silently.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.form import DELIMITERS, PLAIN, Form
from fastlloyd.errors import DataError, FormError, format_count

MISSING = frozenset({"", "?", "na", "n/a", "nan", "none", "null"})
SAMPLE_ROWS = 1000

# Groups of three digits: 1,234 or 1.234.567,8.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,'\u2019 \u00a0\u202f])\d{3}(?:\1\d{3})*(?:[.,]\d+)?")
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
        _refuse_other_delimiter(lines, form, path)
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
                f"complete the row, or quote the cells that hold {_shown(head.form.delimiter)}"
            )
        one_line_each = one_line_each and reader.line_num == before + row
        if row > known:
            block.append([_parsed(cells[c], line, head.names[c], head.form) for c in columns])
        if len(block) == _BLOCK_ROWS:
            yield Cells(np.array(block, dtype=np.float64), before + 1 if one_line_each else None)
            block = []
    if block:
        yield Cells(np.array(block, dtype=np.float64), before + 1 if one_line_each else None)


def _parsed(cell: str, line: str, name: str, form: Form) -> float:
    """Return a cell's number, NaN for a missing one."""
    number = _number(cell, form.decimal)
    if number is not None:
        return number
    if cell.strip().lower() in MISSING:
        return float("nan")
    other = _other(form)
    if _THOUSANDS.fullmatch(cell.strip()):
        either = f"; if {other!r} stands before a fraction instead, add --decimal {other!r}"
        raise FormError(
            f"{line}, column {name!r}: the number has marks between its thousands; save the numbers without them"
            f"{either if _number(cell, other) is not None else ''}"
        )
    if _number(cell, other) is not None:
        raise FormError(
            f"{line}, column {name!r}: the number has {other!r} before its fraction; add --decimal {other!r}"
        )
    raise DataError(
        f"{line}, column {name!r}: expected a number, got text; "
        "correct the cell (empty or NA, if its value is missing), or leave the column out with --columns"
    )


def _number(cell: str, decimal: str) -> float | None:
    """Return a number as everybody writes it, without Python's digit separators."""
    if decimal == ",":
        cell = "_" if "." in cell else cell.replace(",", ".")
    try:
        return float(cell) if "_" not in cell else None
    except ValueError:
        return None


def _reader(lines: Iterable[str], form: Form) -> Any:
    """Cut lines into cells."""
    return csv.reader(lines, delimiter=form.delimiter, skipinitialspace=True)


def _holds_names(line: str, head: Head) -> bool:
    """Return whether one line is the whole header."""
    cells: list[str] = next(_reader([line], head.form), [])
    return tuple(cell.strip() for cell in cells) == head.names


def _refuse_other_delimiter(lines: Sequence[str], form: Form, path: Path) -> None:
    """Name the character that divides all lines alike where the one in use does not, or leaves numbers side by side."""
    lines = [line for line in lines if line.strip()]
    whole = form.delimiter not in "".join(lines)
    for mark in DELIMITERS:
        if mark != form.delimiter and (_cuts(lines, mark, form) if whole else _divides(lines, mark, form)):
            raise FormError(
                f"{path}: its cells are divided by {_shown(mark)}, expected {_shown(form.delimiter)}; "
                + _mend(lines, mark, form)
            )


def _divides(lines: Sequence[str], mark: str, form: Form) -> bool:
    """Return whether a mark divides all lines alike where the one in use does not, or leaves numbers side by side."""
    counts = {line.count(mark) for line in lines}
    if len(counts) != 1 or counts == {0} or mark == form.decimal or any('"' in line for line in lines):
        return False
    beside = re.compile(rf"\d{re.escape(mark)}[-+]?\d")
    own = {line.count(form.delimiter) for line in lines}
    return len(own) > 1 or (mark != "," and any(map(beside.search, lines[1:])))


def _cuts(lines: Sequence[str], mark: str, form: Form) -> bool:
    """Return whether a mark cuts all lines into equally many cells, more than one, quotes understood."""
    rows = list(csv.reader(lines, delimiter=mark, skipinitialspace=True))
    if not rows or len(rows[0]) < 2 or len({len(row) for row in rows}) != 1:
        return False
    # A column of decimal commas without a header is cut into equally many cells too.
    return mark != form.decimal or all(_number(cell, ".") is None for cell in rows[0])


def _mend(lines: Sequence[str], mark: str, form: Form) -> str:
    """Name the flags that read cells divided by this mark."""
    decimal = ""
    if mark == form.decimal:
        decimal = " and --decimal '.'"
    elif form.decimal == "." and mark != "," and any(re.search(r"\d,\d", line) for line in lines[1:]):
        decimal = " and --decimal ','"
    return f"add --delimiter {'tab' if mark == chr(9) else repr(mark)}{decimal}"


def _shown(mark: str) -> str:
    """Name a character between cells."""
    return {",": "a comma", "\t": "a tab"}.get(mark, repr(mark))


def _is_header(first: list[str], path: Path, form: Form) -> bool:
    """Return whether row one names the columns."""
    numbers = [_number(cell, form.decimal) is not None for cell in first]
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
        numeric.append(not texts or any(_number(cell, form.decimal) is not None for cell in texts))
    return tuple(numeric)


def _otherwise(sample: list[list[str]], numeric: Sequence[bool], form: Form) -> tuple[bool, ...]:
    """Tell the columns of text that would be numbers with the other decimal mark."""
    other = _other(form)
    found = []
    for index, number in enumerate(numeric):
        cells = (row[index] for row in sample if index < len(row))
        found.append(
            not number and all(_number(c, other) is not None for c in cells if c.strip().lower() not in MISSING)
        )
    return tuple(found)


def _other(form: Form) -> str:
    """Return the decimal mark that is not in use."""
    return "." if form.decimal == "," else ","


def _guess(path: Path) -> str:
    """Name the encoding that a file in another one than it should be is likely to have."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rb") as file:
        start = file.read(4)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8" if start.startswith(codecs.BOM_UTF8) else "cp1252"


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
            f"{path} is not {name} text; add --encoding {_guess(path)}, if that is how it was saved, or save it again "
            "as CSV in UTF-8"
        ) from error
    except csv.Error as error:
        raise DataError(f"{path} is not a CSV file ({error}); save it again as comma separated text") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
