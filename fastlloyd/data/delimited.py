"""Reads comma separated text in one pass: in fast blocks, and cell by cell from the first block that needs it.

The fast path passes blocks of whole lines to numpy's parser. It accepts a block only if every line has the right
number of cells and every cell parses. From the first other block on, the careful path reads: it handles quotes and
missing cells, and names the row and column of the first error.

The first row is a header if any of its cells is not a number. Cells of `form.MISSING` are neither
numbers nor names: a first row of only numbers and missing cells is refused, because reading it as a
header would lose a record without notice.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.form import (
    Form,
    Otherwise,
    guess_encoding,
    may_be_thousands,
    name_mark,
    other_decimal,
    parse_cell,
    parse_number,
    refuse_other_delimiter,
)
from fastlloyd.errors import DataError, FormError, format_count

SAMPLE_ROWS = 1000

_SHOWN_LINES = 20
_GZIP = b"\x1f\x8b"
_BLOCK_CHARS = 1 << 22
_BLOCK_ROWS = 1 << 14
_MOST_LINE_BYTES = 1 << 26
_MOST_EMPTY_LINES = 1 << 20


@dataclass(frozen=True, slots=True)
class Cells:
    """Parsed columns of some rows.

    Attributes
    ----------
    values : float64 array, shape (n, d)
        NaN where a cell is missing.
    texts : tuple of lists of str, each of length n
        Columns that are read as text, without the spaces around it.
    first_line : int or None
        Line of the file's first record, if every record up to here is one line.
    people : int64 array, shape (n,), or None
        The person of each row, where `Reading` numbers people.
    """

    values: NDArray[np.float64]
    texts: tuple[list[str], ...] = ()
    first_line: int | None = None
    people: NDArray[np.int64] | None = None


class _Lines(io.RawIOBase):
    """Bytes of a text, of which no line is longer than any table needs: a reader keeps a whole line in memory."""

    def __init__(self, file: Any, path: Path) -> None:
        super().__init__()
        self._file, self._path, self._length = file, path, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes into a buffer.

        Raises
        ------
        DataError
            A line goes on and on.
        """
        data: bytes = self._file.read1(len(buffer))
        end = max(data.rfind(b"\n"), data.rfind(b"\r"))
        self._length = len(data) - end - 1 if end >= 0 else self._length + len(data)
        if self._length > _MOST_LINE_BYTES:
            raise DataError(
                f"{self._path}: a line has more than {_MOST_LINE_BYTES:,} bytes; expected a line for each record: save "
                "it again as CSV"
            )
        buffer[: len(data)] = data
        return len(data)


class Delimited:
    """A .csv or .csv.gz file. Its first rows are read at once, and kept for `chunks`.

    Parameters
    ----------
    path : Path
        For errors.
    file : binary file
        At its first byte; it need not be seekable.
    form : Form
        How its text is written.
    packed : bool
        Whether it is a gzip file.

    Attributes
    ----------
    names : tuple of str
        From the header, or x1..xd without one.
    numeric : tuple of bool
        False where none of the first `SAMPLE_ROWS` cells is a number and one of them is text.
    otherwise : tuple of 'fraction', 'either' or None
        Not None where that text would be numbers with the other decimal mark; 'either' if that mark may also stand
        between thousands in all of them.

    looks : tuple of str
        What a column of text holds.
    doubt : str
        Why row one is perhaps no record; '' if it is one.

    Raises
    ------
    DataError
        The file is empty or unreadable, its header is ambiguous, or its cells are divided otherwise.
    """

    def __init__(self, path: Path, file: BinaryIO, form: Form, *, packed: bool = False) -> None:
        self._path, self._form, self._start = path, form, b""
        # A cell that nobody uses may be as long as a line.
        csv.field_size_limit(max(csv.field_size_limit(), _MOST_LINE_BYTES))
        with self._reading():
            packed = packed or file.peek(2)[:2] == _GZIP  # type: ignore[attr-defined]
            data = gzip.GzipFile(fileobj=file) if packed else file
            self._start = data.peek(4)[:4]  # type: ignore[union-attr]
            self._file = io.TextIOWrapper(io.BufferedReader(_Lines(data, path)), form.encoding)
            lines = list(islice(self._file, _SHOWN_LINES))
            refuse_other_delimiter(lines, form, path)
            read: list[str] = []
            reader = self._reader(_noted(chain(lines, self._file), read))
            first = next(reader, None)
            if first is None:
                raise DataError(f"{path} is empty: expected a header row and at least one row of numbers")
            if not any(map(str.strip, first)):
                raise DataError(f"{path}, line 1 is empty: expected a header row; remove what stands before it")
            has_header = _is_header(first, path, form)
            self._before = reader.line_num if has_header else 0
            sample = list(islice(reader, SAMPLE_ROWS))
        self._ahead = io.StringIO("".join(read[self._before :] + lines[len(read) :]), newline="\n")
        if has_header:
            self.names = tuple(cell.strip() for cell in first)
        else:
            self.names = tuple(f"x{i + 1}" for i in range(len(first)))
            sample.insert(0, first)
        self.doubt = "" if has_header or form.header is False else _doubt(first, form)
        self.numeric = _numeric_columns(sample, len(self.names), form)
        self.otherwise = _otherwise(sample, self.numeric, form)
        self.looks = tuple(
            "" if number else _looks([row[at] for row in sample if at < len(row)], form)
            for at, number in enumerate(self.numeric)
        )

    def chunks(self, numbers: Sequence[int], texts: Sequence[int] = ()) -> Iterator[Cells]:
        """Read some columns, in the given order, some thousand rows at a time; can be called once.

        Parameters
        ----------
        numbers, texts : sequence of int
            0-based positions of the columns that are read as numbers, and as text.

        Raises
        ------
        DataError
            A row has too few or too many cells, or a cell of a number is text: file, row and column are named.
        """
        rows = done = 0
        with self._reading():
            while lines := self._ahead.readlines(_BLOCK_CHARS) or self._file.readlines(_BLOCK_CHARS):
                end = len(lines)
                while end and lines[end - 1] == "\n":
                    end -= 1
                cells = None if end and done > rows else self._block(lines[:end], numbers, texts)
                if cells is None:
                    rest = chain(lines, self._ahead, self._file)
                    yield from self._carefully(rest, numbers, texts, rows, done)
                    return
                rows, done = rows + end, done + len(lines)
                if done - rows > _MOST_EMPTY_LINES:
                    raise DataError(f"{self._path}: more than {_MOST_EMPTY_LINES:,} empty lines; remove them")
                if end:
                    yield cells

    def _block(self, lines: list[str], numbers: Sequence[int], texts: Sequence[int]) -> Cells | None:
        """Parse a whole block of lines; return None if anything in it needs the careful path."""
        mark, marks, form = self._form.delimiter, len(self.names) - 1, self._form
        if any('"' in line or line.count(mark) != marks for line in lines):
            return None
        columns: tuple[list[str], ...] = ()
        if texts:
            columns = tuple([line.split(mark, at + 1)[at].strip() for line in lines] for at in texts)
        if not numbers or not lines:
            return (
                None
                if any(map(str.isspace, lines))
                else Cells(np.empty((len(lines), len(numbers))), columns, self._before + 1)
            )
        if form.decimal == ",":
            if any("." in line for line in lines):
                return None
            lines = [line.replace(",", ".") for line in lines]
        try:
            values = np.loadtxt(lines, np.float64, delimiter=mark, comments=None, usecols=numbers, ndmin=2)
        except ValueError:
            return None
        return Cells(values, columns, self._before + 1) if len(values) == len(lines) else None

    def _carefully(
        self, lines: Iterable[str], numbers: Sequence[int], texts: Sequence[int], row: int, done: int
    ) -> Iterator[Cells]:
        """Parse cell by cell and name the first error; `done` lines with `row` rows came before."""
        reader = self._reader(lines)
        width, names, form = len(self.names), self.names, self._form
        block: list[list[float]] = []
        columns: list[list[str]] = [[] for _ in texts]
        one_line_each, blank = True, done > row
        for cells in reader:
            if not cells or (len(cells) == 1 and width > 1 and not cells[0].strip()):
                blank = True
                continue
            row += 1
            at = done + reader.line_num
            line = f"{self._path}, row {row} (line {self._before + at})"
            if blank:
                raise DataError(f"{line}: an empty line stands before it; remove the empty line")
            if len(cells) != width:
                raise DataError(
                    f"{line}: expected {format_count(width, 'cell')} as in the first row, got {len(cells)}; "
                    f"complete the row, or quote the cells that hold {name_mark(form.delimiter)}"
                )
            one_line_each = one_line_each and at == row
            block.append([parse_cell(cells[c], line, names[c], form) for c in numbers])
            for column, c in zip(columns, texts, strict=True):
                column.append(cells[c].strip())
            if len(block) == _BLOCK_ROWS:
                yield self._parsed(block, columns, one_line_each)
                block, columns = [], [[] for _ in texts]
        if block:
            yield self._parsed(block, columns, one_line_each)

    def _parsed(self, block: list[list[float]], columns: list[list[str]], one_line_each: bool) -> Cells:
        return Cells(np.array(block, dtype=np.float64), tuple(columns), self._before + 1 if one_line_each else None)

    def _reader(self, lines: Iterable[str]) -> Any:
        """Split lines into cells; a quote that is never closed would swallow all rows after it."""
        return csv.reader(lines, delimiter=self._form.delimiter, skipinitialspace=True, strict=True)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn any failure to read into one sentence."""
        path = self._path
        try:
            yield
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{path} is not a whole gzip file ({error}); copy or compress it again") from error
        except UnicodeError as error:
            name = self._form.encoding.removesuffix("-sig").upper()
            raise FormError(
                f"{path} is not {name} text; add --encoding {guess_encoding(self._start)}, if that is how it was "
                "saved, or save it again as CSV in UTF-8"
            ) from error
        except csv.Error as error:
            raise DataError(f"{path} is not a CSV file ({error}); save it again as comma separated text") from error
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}; check path and rights") from error


def _noted(lines: Iterable[str], read: list[str]) -> Iterator[str]:
    """Pass lines on, and keep them."""
    for line in lines:
        read.append(line)
        yield line


def _is_header(first: list[str], path: Path, form: Form) -> bool:
    """Return whether row one names the columns."""
    if form.header is not None:
        return form.header
    numbers = [parse_number(cell, form.decimal) is not None for cell in first]
    if all(numbers):
        return False
    gaps = [form.is_missing(cell) for cell in first]
    if all(number or gap for number, gap in zip(numbers, gaps, strict=True)):
        raise DataError(
            f"{path}, line 1: numbers and empty cells only, so it may be a header or a record with missing "
            "values; add a header row that names every column, or say which with --header or --no-header"
        )
    return True


def _doubt(first: list[str], form: Form) -> str:
    """Return the warning about a first row of numbers that may be names, such as years: whole, and all different."""
    numbers = {parse_number(cell, form.decimal) for cell in first}
    if len(first) < 2 or len(numbers) < len(first) or not all(n is not None and n % 1 == 0 for n in numbers):
        return ""
    return (
        f"no header: the columns are called x1 to x{len(first)}, and the first row is a record; if its numbers are "
        "names, add --header, otherwise --no-header"
    )


def _numeric_columns(sample: list[list[str]], width: int, form: Form) -> tuple[bool, ...]:
    """Return which columns hold numbers, not text; short rows are reported later."""
    numeric = []
    for index in range(width):
        cells = [row[index] for row in sample if index < len(row)]
        texts = [cell for cell in cells if not form.is_missing(cell)]
        numeric.append(not texts or any(parse_number(cell, form.decimal) is not None for cell in texts))
    return tuple(numeric)


def _looks(cells: list[str], form: Form) -> str:
    """Say what a column of text holds, above all where it would be numbers without a sign."""
    there = [cell.strip() for cell in cells if not form.is_missing(cell)]
    for sign in "%<>":
        if (
            there
            and sum(sign in cell for cell in there) * 2 > len(there)
            and all(parse_number(cell.strip("%<>=~ "), form.decimal) is not None for cell in there)
        ):
            return f"numbers with {sign!r}"
    return "text"


def _otherwise(sample: list[list[str]], numeric: Sequence[bool], form: Form) -> tuple[Otherwise | None, ...]:
    """Return which columns of text would be numbers with the other decimal mark."""
    other = other_decimal(form)
    found: list[Otherwise | None] = []
    for index, number in enumerate(numeric):
        cells = [row[index] for row in sample if index < len(row) and not form.is_missing(row[index])]
        if number or not all(parse_number(cell, other) is not None for cell in cells):
            found.append(None)
        else:
            found.append("either" if cells and all(map(may_be_thousands, cells)) else "fraction")
    return tuple(found)
