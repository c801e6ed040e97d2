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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.form import (
    Form,
    doubts_thousands,
    guess_encoding,
    name_mark,
    parse_cell,
    readings,
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
_MOST_ROW_CHARS = 1 << 22
_LOOKED_AT = 1 << 11
"""About how many rows of a block are looked at where a column is left out as text."""
_LATE_SHARE = 0.1
"""As many numbers in a column of text are no chance."""


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
    otherwise : tuple of str
        How else that text would be numbers; '' for other columns.
    grouped : tuple of bool
        Where the mark before fractions may stand between thousands.
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
            if lines and lines[0].count("\0") * 3 > len(lines[0]):
                raise FormError(self._other_encoding())
            refuse_other_delimiter(lines, form, path)
            read: list[str] = []
            reader = _Records(_noted(chain(lines, self._file), read), form, path)
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
        columns = [[row[at] for row in sample if at < len(row)] for at in range(len(self.names))]  # short rows: later
        there = [[cell for cell in column if not form.is_missing(cell)] for column in columns]
        self.numeric = tuple(not cells or any(form.number(cell) is not None for cell in cells) for cells in there)
        pairs = list(zip(there, self.numeric, strict=True))
        self.otherwise = tuple("" if number else readings(cells, form) for cells, number in pairs)
        self.grouped = tuple(number and doubts_thousands(cells, form) for cells, number in pairs)
        self.looks = tuple("" if number else _looks(cells, form) for cells, number in pairs)
        # Text in the whole sample: the first row that has any.
        self._text_rows = {
            at: next(row for row, cell in enumerate(columns[at], 1) if not form.is_missing(cell))
            for at, number in enumerate(self.numeric)
            if not number and len(sample) >= SAMPLE_ROWS
        }
        self._watch = _Watch(form, ())

    def watch(self, columns: Sequence[int]) -> None:
        """Look for numbers, while the rows are read, in columns that are left out because they hold text."""
        self._watch = _Watch(self._form, [at for at in columns if at in self._text_rows])

    def chunks(self, numbers: Sequence[int], texts: Sequence[int] = ()) -> Iterator[Cells]:
        """Read some columns, in the given order, some thousand rows at a time; can be called once.

        Parameters
        ----------
        numbers, texts : sequence of int
            0-based positions of the columns that are read as numbers, and as text.

        Raises
        ------
        DataError
            A row has too few or too many cells, a cell of a number is text, or a watched column holds numbers: file,
            row and column are named.
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
                    break
                self._watch.look_at_lines(rows, lines[:end])
                rows, done = rows + end, done + len(lines)
                if done - rows > _MOST_EMPTY_LINES:
                    raise DataError(f"{self._path}: more than {_MOST_EMPTY_LINES:,} empty lines; remove them")
                if end:
                    yield cells
        self._watch.refuse(self._path, self.names, self._text_rows)

    def _block(self, lines: list[str], numbers: Sequence[int], texts: Sequence[int]) -> Cells | None:
        """Parse a whole block of lines; return None if anything in it needs the careful path."""
        mark, marks, form = self._form.delimiter, len(self.names) - 1, self._form
        if any('"' in line or line.count(mark) != marks for line in lines):
            return None
        columns: tuple[list[str], ...] = ()
        if texts:
            columns = tuple([line.split(mark, at + 1)[at].strip() for line in lines] for at in texts)
        if form.thousands not in (None, "none"):
            return None
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
        reader = _Records(lines, self._form, self._path, self._before + done)
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
                above = "remove what stands above the header, " if row == 1 and self._before else ""
                raise DataError(
                    f"{line}: expected {format_count(width, 'cell')} as in the first row, got {len(cells)}; "
                    f"{above}complete the row, or quote the cells that hold {name_mark(form.delimiter)}"
                )
            one_line_each = one_line_each and at == row
            block.append([parse_cell(cells[c], line, names[c], form) for c in numbers])
            for column, c in zip(columns, texts, strict=True):
                column.append(cells[c].strip())
            self._watch.look(row, cells)
            if len(block) == _BLOCK_ROWS:
                yield self._parsed(block, columns, one_line_each)
                block, columns = [], [[] for _ in texts]
        if block:
            yield self._parsed(block, columns, one_line_each)

    def _parsed(self, block: list[list[float]], columns: list[list[str]], one_line_each: bool) -> Cells:
        return Cells(np.array(block, dtype=np.float64), tuple(columns), self._before + 1 if one_line_each else None)

    def _other_encoding(self) -> str:
        """Return the sentence for text of another encoding."""
        name = self._form.encoding.removesuffix("-sig").upper()
        return (
            f"{self._path} is not {name} text; add --encoding {guess_encoding(self._start)}, if that is how it was "
            "saved, or save it again as CSV in UTF-8"
        )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn any failure to read into one sentence."""
        path = self._path
        try:
            yield
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{path} is not a whole gzip file ({error}); copy or compress it again") from error
        except UnicodeError as error:
            raise FormError(self._other_encoding()) from error
        except csv.Error as error:
            raise DataError(f"{path} is not a CSV file ({error}); save it again as comma separated text") from error
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}; check path and rights") from error


class _Records:
    """Rows of cells; a quote that is never closed would swallow all rows after it.

    Parameters
    ----------
    lines : iterable of str
    form : Form
    path : Path
        For errors.
    before : int
        Lines of the file before these.
    """

    def __init__(self, lines: Iterable[str], form: Form, path: Path, before: int = 0) -> None:
        self._path, self._before, self._length, self._first = path, before, 0, 1
        self._mark, self._ended = form.delimiter, False
        self._reader = csv.reader(self._counted(lines), delimiter=form.delimiter, skipinitialspace=True, strict=True)

    @property
    def line_num(self) -> int:
        """How many lines were read."""
        return self._reader.line_num

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        self._length, self._first = 0, self.line_num + 1
        try:
            return next(self._reader)
        except csv.Error as error:
            if self._ended:
                raise self._unclosed("before the file ends") from error
            if f"'{self._mark}' expected after" in str(error):
                raise DataError(
                    f"{self._where}: {name_mark(self._mark)} is expected where a quote closes; write a quote within a "
                    "cell as two, or close a quote that was opened before"
                ) from error
            raise

    @property
    def _where(self) -> str:
        return f"{self._path}, line {self._before + self._first}"

    def _unclosed(self, until: str) -> DataError:
        return DataError(f"{self._where}: a quote is opened and not closed {until}; close it, or remove it")

    def _counted(self, lines: Iterable[str]) -> Iterator[str]:
        """Pass lines on; refuse a row that goes on over too many of them."""
        for line in lines:
            if self._length > _MOST_ROW_CHARS:
                raise self._unclosed(f"in the next {_MOST_ROW_CHARS:,} characters")
            self._length += len(line)
            yield line
        self._ended = True


class _Watch:
    """Counts numbers in columns that the first rows call text: a table may be sorted, with its text first."""

    def __init__(self, form: Form, columns: Sequence[int]) -> None:
        self._form, self._columns = form, columns
        self._seen, self._numbers = dict.fromkeys(columns, 0), dict.fromkeys(columns, 0)
        self._first: dict[int, int] = {}

    def look_at_lines(self, row: int, lines: Sequence[str]) -> None:
        """Look at some lines of a block without quotes, of which `row` rows came before."""
        if self._columns:
            step = max(1, len(lines) // _LOOKED_AT)
            for at in range(0, len(lines), step):
                self.look(row + at + 1, lines[at].split(self._form.delimiter))

    def look(self, row: int, cells: Sequence[str]) -> None:
        """Look at one row."""
        for at in self._columns:
            if not self._form.is_missing(cells[at].strip()):
                self._seen[at] += 1
                if self._form.number(cells[at]) is not None:
                    self._numbers[at] += 1
                    self._first.setdefault(at, row)

    def refuse(self, path: Path, names: Sequence[str], text_rows: Mapping[int, int]) -> None:
        """Refuse a column of which many cells are numbers.

        Raises
        ------
        DataError
        """
        for at, count in self._numbers.items():
            if count > _LATE_SHARE * self._seen[at]:
                share = f"{100 * count / self._seen[at]:.0f} %"
                raise DataError(
                    f"{path}, column {names[at]!r}: text in row {text_rows[at]} and in all of the first "
                    f"{SAMPLE_ROWS:,}, a number in row {self._first[at]:,} and in {share} of its cells; correct the "
                    "text, name with --na what means missing, or name with --columns what is used"
                )


def _noted(lines: Iterable[str], read: list[str]) -> Iterator[str]:
    """Pass lines on, and keep them."""
    for line in lines:
        read.append(line)
        yield line


def _is_header(first: list[str], path: Path, form: Form) -> bool:
    """Return whether row one names the columns."""
    if form.header is not None:
        return form.header
    numbers = [form.number(cell) is not None for cell in first]
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
    numbers = {form.number(cell) for cell in first}
    if len(first) < 2 or len(numbers) < len(first) or not all(n is not None and n % 1 == 0 for n in numbers):
        return ""
    return (
        f"no header: the columns are called x1 to x{len(first)}, and the first row is a record; if its numbers are "
        "names, add --header, otherwise --no-header"
    )


def _looks(cells: list[str], form: Form) -> str:
    """Say what a column of text holds, above all where it would be numbers without a sign; none of it is missing."""
    for sign in "%<>":
        if sum(sign in cell for cell in cells) * 2 > len(cells) and all(
            form.number(cell.strip("%<>=~ ")) is not None for cell in cells
        ):
            return f"numbers with {sign!r}"
    return "text"
