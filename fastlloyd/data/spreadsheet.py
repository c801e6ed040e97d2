"""Reads one sheet of an Excel workbook; the only module that imports python_calamine.

Excel has no types of columns: each cell decides, by the rule of `kinds.py`. Text that is a number counts as one, for
spreadsheets often hold numbers that were entered as text; a date, a time or a truth value is no number.

Source: docs/data-sources.md.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from fastlloyd.data.delimited import Cells
from fastlloyd.data.form import Form, doubts_thousands, listed, needs, parse_cell, readings
from fastlloyd.data.kinds import ANY, FIX, NUMBERS, ColumnKind, name_cells
from fastlloyd.errors import DataError, did_you_mean

SUFFIX = ".xlsx"
# A cell that holds something; attributes are bounded, so that no text takes long.
_CELL = re.compile(rb'<(?:\w{1,20}:)?c\s[^<>]{0,500}?\br="([A-Z]{1,3})([0-9]{1,7})"[^<>]{0,500}(?<!/)>\s{0,100}<(?!/)')
_CHUNK_BYTES, _LONGEST_CELL = 1 << 20, 1 << 11
_SPANNED, _SPANNED_OF_A_CELL = 1 << 24, 16
"""Places between the outermost cells of a sheet, all of which take memory: how many there may be, or more cells."""
_UNREADABLE = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError)
_MOMENTS = {
    datetime.datetime: ColumnKind("points in time"),
    datetime.date: ColumnKind("dates"),
    datetime.time: ColumnKind("times of day"),
    datetime.timedelta: ColumnKind("durations"),
}


def split_sheet(path: Path) -> tuple[Path, str | None]:
    """Return the workbook that a path names, and its sheet after '#'; None for the first one.

    Examples
    --------
    >>> split_sheet(Path("ward/records.xlsx#2024"))
    (PosixPath('ward/records.xlsx'), '2024')
    """
    text = str(path)
    at = text.lower().rfind(f"{SUFFIX}#")
    if at < 0 or path.exists():
        return path, None
    end = at + len(SUFFIX)
    return Path(text[:end]), text[end + 1 :]


class Sheet:
    """A sheet of a workbook, all of it in memory. Its first row names the columns, unless it holds numbers only.

    Parameters
    ----------
    path : Path
        With the sheet's name after '#', for errors.
    file : binary file
        The workbook.
    form : Form
        What stands before a fraction in its cells of text.

    Attributes
    ----------
    names : tuple of str
    kinds : tuple of ColumnKind
        What a column holds where all its cells are of one kind; otherwise each cell decides.
    numeric : tuple of bool
        Which columns hold a number, or nothing.
    otherwise, grouped : tuples of str and bool
        As for `Delimited`.
    indices : frozenset of str
        Empty.
    rows : int

    Raises
    ------
    DataError
        It is no such file, has no such sheet, or the sheet is empty; or cells lie so far from the others that what is
        between them does not fit in memory.
    ConfigError
        python-calamine is not installed.
    """

    def __init__(self, path: Path, file: BinaryIO, form: Form) -> None:
        with needs("python-calamine", "Excel files", "excel"):
            import python_calamine as calamine
        self._path, self._form, (_, wanted) = path, form, split_sheet(path)
        _refuse_far_cells(path, file)
        try:
            book = calamine.CalamineWorkbook.from_filelike(file)
            names = [sheet.name for sheet in book.sheets_metadata if sheet.typ == calamine.SheetTypeEnum.WorkSheet]
            if not names or (wanted is not None and wanted not in names):
                raise DataError(
                    f"{path}: no sheet {wanted or ''!r}{did_you_mean(wanted or '', names)}; it has {listed(names)}; "
                    "name one after '#'"
                )
            sheet = book.get_sheet_by_name(names[0] if wanted is None else wanted)
            rows = sheet.to_python()
            self._first = 1 + (sheet.start or (0, 0))[0]
        except calamine.CalamineError as error:
            raise DataError(f"cannot read {path} as xlsx ({error}); save it again, without a password") from error
        while rows and _is_empty(rows[-1]):
            rows.pop()
        if not rows:
            raise DataError(f"{path}: the sheet is empty; expected a header row and at least one row of numbers")
        text = any(isinstance(cell, str) and cell.strip() and not self._is_number(cell) for cell in rows[0])
        header = text if form.header is None else form.header
        self.names = tuple(str(cell).strip() if header else f"x{at + 1}" for at, cell in enumerate(rows[0]))
        self._cells = rows[1:] if header else rows
        self._first += 1 if header else 0
        self.rows, self.indices = len(self._cells), frozenset[str]()
        columns = [
            [cell for cell in column if not (isinstance(cell, str) and form.is_missing(cell))]
            for column in zip(*self._cells, strict=True)
        ]
        self.kinds = tuple(map(_kind, columns or [[]] * len(self.names)))
        columns = columns or [[]] * len(self.names)
        self.numeric = tuple(not column or any(map(self._is_number, column)) for column in columns)
        written = [all(isinstance(cell, str) for cell in column) for column in columns]
        parts = list(zip(columns, self.numeric, written, strict=True))
        self.otherwise = tuple(readings(cells, form) if own and not number else "" for cells, number, own in parts)
        self.grouped = tuple(own and number and doubts_thousands(cells, form) for cells, number, own in parts)

    def chunks(
        self, numbers: Sequence[int], texts: Sequence[int], height: int | None, *, loose: int = 0
    ) -> Iterator[Cells]:
        """Read some columns, some rows at a time. As `Source.chunks`."""
        step = height or max(1, self.rows)
        for start in range(0, self.rows, step):
            rows = self._cells[start : start + step]
            values = np.array(
                [[self._number(start + at, row[index], index) for index in numbers] for at, row in enumerate(rows)],
                dtype=np.float64,
            )
            columns = []
            for at, index in enumerate(texts):
                where = f"{self._path}, column {self.names[index]!r}"
                own = [self._named(start + place, row[index], index) for place, row in enumerate(rows)]
                columns.append(name_cells(own, NUMBERS, where, FIX, any_number=at >= len(texts) - loose))
            yield Cells(values.reshape(len(rows), len(numbers)), tuple(columns), self._first)

    def _is_number(self, cell: Any) -> bool:
        """Whether a cell is a number, or text that is one."""
        if isinstance(cell, str):
            return self._form.number(cell) is not None
        return isinstance(cell, int | float) and not isinstance(cell, bool)

    def _line(self, row: int) -> str:
        """Name a row, counted from 0, as its owner finds it."""
        return f"{self._path}, row {row + 1} (line {self._first + row})"

    def _number(self, row: int, cell: Any, column: int) -> float:
        """Return a cell as a number, NaN for a missing one."""
        if isinstance(cell, str):
            return parse_cell(cell, self._line(row), self.names[column], self._form)
        if self._is_number(cell):
            return float(cell)
        raise self._refused(row, cell, column, "a number")

    def _named(self, row: int, cell: Any, column: int) -> Any:
        """Return a cell that may be a name; a moment is none."""
        if type(cell) in _MOMENTS:
            raise self._refused(row, cell, column, "whole numbers or text")
        return cell

    def _refused(self, row: int, cell: Any, column: int, expected: str) -> DataError:
        """Return the error of a cell that does not fit."""
        got = _MOMENTS[type(cell)].words if type(cell) in _MOMENTS else "a truth value"
        return DataError(f"{self._line(row)}, column {self.names[column]!r}: expected {expected}, got {got}; {FIX}")


def _is_empty(row: Sequence[Any]) -> bool:
    return all(isinstance(cell, str) and not cell.strip() for cell in row)


def _kind(column: Sequence[Any]) -> ColumnKind:
    """Return the kind of a column whose cells are all moments of one kind."""
    types = set(map(type, column))
    return _MOMENTS.get(next(iter(types)), ANY) if len(types) == 1 else ANY


def _refuse_far_cells(path: Path, file: BinaryIO) -> None:
    """Refuse a workbook with a cell far from all others: python-calamine would end the process for lack of memory.

    Raises
    ------
    DataError
    """
    with contextlib.suppress(*_UNREADABLE), zipfile.ZipFile(file) as book:
        for part in book.namelist():
            if part.startswith("xl/worksheets/") and part.endswith(".xml"):
                with book.open(part) as sheet:
                    count, height, width = _extent(sheet)
                if height * width > max(_SPANNED, _SPANNED_OF_A_CELL * count):
                    raise DataError(
                        f"{path}: the {count:,} cells of {part} lie in {height:,} rows and {width:,} columns, too far "
                        "apart to be a table; delete the cells outside of the table, or save it as CSV"
                    )
    file.seek(0)


def _extent(sheet: IO[bytes]) -> tuple[int, int, int]:
    """Return the number of cells that hold something, and of the rows and columns from the first to the last of them.

    Cells where two chunks meet may be counted twice.
    """
    count, rows, columns, rest = 0, set[int](), set[bytes](), b""
    while chunk := sheet.read(_CHUNK_BYTES):
        cells = _CELL.findall(rest + chunk)
        count += len(cells)
        columns.update(column for column, _ in cells)
        numbers = [int(row) for _, row in cells] + [*rows]
        rows = {min(numbers), max(numbers)} if numbers else rows
        rest = chunk[-_LONGEST_CELL:]
    if not count:
        return 0, 0, 0
    letters = [sum((letter - 64) * 26**place for place, letter in enumerate(reversed(name))) for name in columns]
    return count, max(rows) - min(rows) + 1, max(letters) - min(letters) + 1
