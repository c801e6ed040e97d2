"""How data files are named and formatted, and how one cell becomes a number.

Text that needs another delimiter, decimal mark or encoding is refused, and the error names the flag for it.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fastlloyd.errors import ConfigError, DataError, FormError, did_you_mean, format_count
from fastlloyd.wire.regular import read_regular

TEXT_SUFFIXES = (".csv", ".csv.gz")
ARROW_SUFFIXES = (".arrow", ".arrows", ".feather")
SUFFIXES = (*TEXT_SUFFIXES, ".npy", ".npz", ".parquet", *ARROW_SUFFIXES, ".xlsx")
DATA_DIR_VARIABLE = "FASTLLOYD_DATA"
"""Names a folder of public data sets: NAME.csv.gz and NAME.labels.csv.gz."""
DELIMITERS = (",", ";", "\t", "|")
"""The usual characters between cells."""
MISSING = frozenset({"", "?", "na", "n/a", "nan", "none", "null"})
# Up to here a float64 holds each whole number.
_EXACT = 2.0**53
# Spreadsheets write these apostrophes and spaces.
_BETWEEN: dict[str, str] = {".": ".", ",": ",", "'": "'\u2019", "space": " \u00a0\u202f"}
# What pandas calls an index that it writes to Parquet, and one that it reads from a CSV file.
_INDEX = re.compile(r"__index_level_\d+__|Unnamed: \d+")
# What else names people and stays: fallnr, Patient-No., MRN, patientId; a number alone, such as INR, is a value.
_NUMBER = re.compile(
    r"(?i:mrn|uuid|guid|(?:fall|pat|patienten|patient|case|aufnahme|subject|person|visit|encounter)[-_ ]?"
    r"(?:nr|no|num|number|nummer)[.]?)|[a-z]+I[Dd]"
)
# Groups of three digits: 1,234 or 1.234.567,8.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,'\u2019 \u00a0\u202f])\d{3}(?:\1\d{3})*(?:(?!\1)[.,]\d+)?")
_SMALL = re.compile(r"[+-]?\d{1,3}")
_LEAST_GROUPED = 10
_MARKS: tuple[str, ...] = ("none", *_BETWEEN)
NO_RECORDS = "expected at least one record; a site that has none stays out of a run, which has one client fewer then"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The text format of a table.

    Parameters
    ----------
    delimiter : str
        The one character between cells, or 'tab'.
    decimal : {'.', ','}
        The mark before the fraction of a number.
    thousands : {'none', '.', ',', "'", 'space'} or None
        The mark between the thousands of a number; None is 'none' that nobody has stated.
    encoding : str
        As Python names it; a byte order mark of UTF-8 is skipped.
    na : tuple of str
        Cells that stand for a missing value, besides those of `MISSING`. Numbers are compared as numbers; of any table.
    header : bool or None
        Whether row one names the columns; None: it does if one of its cells is text.
    rename : tuple of str
        'OLD=NEW' for each column that gets another name; of any table.

    Raises
    ------
    ConfigError
        One is invalid, or they conflict.
    """

    delimiter: str = ","
    decimal: str = "."
    thousands: str | None = None
    encoding: str = "utf-8"
    na: tuple[str, ...] = ()
    header: bool | None = None
    rename: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.delimiter in ("tab", "\\t"):
            object.__setattr__(self, "delimiter", "\t")
        mark = self.delimiter
        if len(mark) != 1 or mark.isalnum() or mark in "\"'+-. \r\n":
            raise ConfigError(f"--delimiter: expected one character between cells, such as ';' or 'tab', got {mark!r}")
        if self.decimal == mark:
            raise ConfigError(
                f"--decimal {mark!r}: it stands between the cells already; name what does with --delimiter (often ';')"
            )
        if self.decimal == self.thousands:
            raise ConfigError(
                f"--thousands {self.thousands!r}: it stands before a fraction already; name that mark with --decimal"
            )
        try:
            name = codecs.lookup(self.encoding).name
            "a".encode(name)  # some codecs are of bytes or of text alone, such as hex and rot13
        except (LookupError, ValueError):
            raise ConfigError(
                f"--encoding: expected a name such as utf-8, cp1252 or utf-16, got {self.encoding!r}"
            ) from None
        object.__setattr__(self, "encoding", "utf-8-sig" if name == "utf-8" else name)

        if wrong := [pair for pair in self.rename if not all(map(str.strip, pair.partition("=")))]:
            raise ConfigError(
                f"--rename: expected OLD=NEW, a column's name and what it is called here, got {wrong[0]!r}"
            )

    def renamed(self, names: tuple[str, ...], place: object) -> tuple[str, ...]:
        """Return the names of a table's columns with those of `rename` in place; `place` is the table, for errors.

        Raises
        ------
        DataError
            A column to rename is not there, or two columns would have one name.
        """
        parts = [pair.partition("=") for pair in self.rename]
        new = {old.strip(): name.strip() for old, _, name in parts}
        known = set(names)
        if lacking := [old for old in new if old not in known]:
            raise DataError(
                f"{place}: no column {lacking[0]!r}{did_you_mean(lacking[0], names)} to rename; correct --rename"
            )
        result = tuple(new.get(name, name) for name in names)
        count = Counter(result)
        if twice := [name for name in new.values() if count[name] > 1]:
            raise DataError(
                f"{place}: --rename would make two columns {twice[0]!r}; choose another name, or rename both"
            )
        return result

    @property
    def codes(self) -> tuple[float, ...]:
        """The numbers that stand for a missing value."""
        return tuple(code for code in (parse_number(text, ".") for text in self.na) if code is not None)

    def number(self, cell: str) -> float | None:
        """Return the number of a cell of text; None for other text."""
        return parse_number(cell, self.decimal, self.thousands)

    def is_missing(self, cell: str) -> bool:
        """Whether a cell of text stands for a missing value.

        Examples
        --------
        >>> [cell for cell in ("NA", "-999.0", "NA?", "-9990") if Form(na=("-999", "NA?")).is_missing(cell)]
        ['NA', '-999.0', 'NA?']
        """
        cell = cell.strip()
        if not self.na:
            return cell.lower() in MISSING
        return cell.lower() in MISSING or cell in self.na or self.number(cell) in self.codes


PLAIN = Form()


@dataclass(frozen=True, slots=True)
class Cap:
    """The most records that a party may have; a source with more is refused before all of it is read.

    Attributes
    ----------
    records : int
    why : str
        Whose number it is, and what to do.
    """

    records: int
    why: str

    def check(self, place: object, records: int, *, counted: bool = False) -> None:
        """Refuse more records than these; `counted` says that all of them were.

        Raises
        ------
        DataError
        """
        if records > self.records:
            got = f"{format_count(records, 'record')}, expected at most {self.records}"
            raise DataError(f"{place} has {got if counted else f'more than {self.records} records'}, {self.why}")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of records, its text format, and the flag that names it; or the standard input of this process."""

    path: Path
    form: Form = PLAIN
    flag: str = "--data"
    standard_input: bool = False

    def __str__(self) -> str:
        return str(self.path)

    def row(self, at: int) -> str:
        """Name a row, counted from 0, so that its owner can find it."""
        return number_row(at)

    @property
    def cell_form(self) -> Form:
        """How a number stands in its columns as text: only text files have the marks of their form."""
        name = self.path.name.lower()
        typed = any(suffix in name for suffix in SUFFIXES if suffix not in TEXT_SUFFIXES)
        plain = typed and not name.endswith(TEXT_SUFFIXES)
        return replace(self.form, decimal=".", thousands=None) if plain else self.form


@contextlib.contextmanager
def needs(name: str, what: str, extra: str) -> Iterator[None]:
    """Import a library that an extra brings.

    Raises
    ------
    ConfigError
        It is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"reading {what} needs {name}, which is not installed: run pip install 'fastlloyd[{extra}]', or save the "
            "records as csv or npy"
        ) from error


def number_row(at: int) -> str:
    """Name a row, from 0, by its number."""
    return f"row {at + 1}"


def is_identifier(name: str) -> bool:
    """Whether a column names records: no header cell or pandas' name for one (an index), id, *_id, or a number."""
    known = _INDEX.fullmatch(name) or _NUMBER.fullmatch(name)
    return not name or name.lower() == "id" or name.lower().endswith("_id") or known is not None


def names_file(text: str) -> bool:
    """Whether a text names a file of records, not a data set or a way to split one.

    Examples
    --------
    >>> names_file("iris"), names_file("data/iris.csv")
    (False, True)
    """
    return "/" in text or text.lower().endswith(SUFFIXES) or ".xlsx#" in text.lower()


def parse_cell(cell: str, line: str, name: str, form: Form) -> float:
    """Return a cell's number, NaN for a missing one.

    Raises
    ------
    DataError
        It is text, or a number in another format (FormError).
    """
    number = form.number(cell)
    if number is not None:
        return number
    if form.is_missing(cell):
        return float("nan")
    if found := readings([cell], form):
        raise FormError(f"{line}, column {name!r}: {found}")
    raise DataError(
        f"{line}, column {name!r}: expected a number, got text; "
        "correct the cell (empty or NA, if its value is missing), name with --na what means missing, or leave the "
        "column out with --columns"
    )


def parse_number(cell: str, decimal: str, thousands: str | None = None) -> float | None:
    """Return a number, without Python's digit separators; None for other text. Marks as `Form` has them.

    Examples
    --------
    >>> parse_number("1.234,5", ",", "."), parse_number("12.34,5", ",", "."), parse_number("20,000", ",")
    (1234.5, None, 20.0)
    """
    marks = _BETWEEN.get(thousands or "none", "")
    if any(mark in cell for mark in marks):
        group = _THOUSANDS.fullmatch(cell.strip())
        if group is not None and group[1] in marks:
            cell = cell.replace(group[1], "")
        elif any(mark in cell.strip() for mark in marks):
            return None
    if decimal == ",":
        cell = "_" if "." in cell else cell.replace(",", ".")
    try:
        return float(cell) if "_" not in cell else None
    except ValueError:
        return None


def number_text(number: float) -> str:
    """Return a number as text that `parse_number` reads back exactly; empty where it is missing.

    Examples
    --------
    >>> number_text(3.0), number_text(0.1), number_text(float("nan"))
    ('3', '0.1', '')
    """
    if math.isnan(number):
        return ""
    return str(int(number)) if abs(number) < _EXACT and number == int(number) else repr(float(number))


def readings(cells: Sequence[str], form: Form) -> str:
    """Say how else cells are written that are no numbers in this form; '' if they are none in any.

    Examples
    --------
    >>> readings(["1.234,5", "7"], PLAIN)
    "numbers with ',' before their fraction and '.' between their thousands; add --decimal ',' --thousands '.'"
    """
    found = []
    for decimal in (form.decimal, "," if form.decimal == "." else "."):
        for thousands in _MARKS:
            if thousands != decimal and all(parse_number(cell, decimal, thousands) is not None for cell in cells):
                found.append((decimal, thousands))
                break
    if not cells or not found:
        return ""
    grouped = form.thousands not in (None, "none") or any(thousands != "none" for _, thousands in found)
    pairs = []
    for decimal, thousands in found:
        words, flags = [], []
        if decimal != form.decimal:
            words, flags = [f"{decimal!r} before their fraction"], [f"--decimal {decimal!r}"]
        if thousands != "none":
            words.append(f"{name_thousands(thousands)} between their thousands")
        if grouped:
            flags.append(f"--thousands {thousands if thousands in ('none', 'space') else repr(thousands)}")
        pairs.append((" and ".join(words), " ".join(flags)))
    if len(pairs) == 1:
        return f"numbers with {pairs[0][0]}; add {pairs[0][1]}"
    return f"numbers with {pairs[0][0]} or {pairs[1][0]}; add {pairs[0][1]} for the first, {pairs[1][1]} for the second"


def name_thousands(mark: str) -> str:
    """Name a mark between thousands."""
    return "a space" if mark == "space" else repr(mark)


def doubts_thousands(cells: Sequence[str], form: Form) -> bool:
    """Whether the mark before a fraction may stand between thousands: each cell is 20,000, say, or has no mark.

    The point is the usual mark of fractions, and many tables have three digits after it: there, at least 10 cells with
    a mark are needed, and cells without one, or nothing but zeros at the end.
    """
    if form.thousands:
        return False
    grouped = [cell for cell in cells if form.decimal in cell]
    if not grouped or not all(
        may_be_thousands(cell) if form.decimal in cell else _SMALL.fullmatch(cell.strip()) for cell in cells
    ):
        return False
    if form.decimal == ",":
        return True
    mixed = len(grouped) < len(cells) or all(cell.rstrip().endswith("0") for cell in grouped)
    return mixed and len(grouped) >= _LEAST_GROUPED


def refuse_other_delimiter(lines: Sequence[str], form: Form, path: Path) -> None:
    """Refuse lines that another character splits evenly, where the one in use does not or leaves numbers side by side.

    Raises
    ------
    FormError
        Names that character, and the flags for it.
    """
    lines = [line for line in lines if line.strip()]
    whole = form.delimiter not in "".join(lines)
    for mark in DELIMITERS:
        if mark != form.delimiter and (_cuts(lines, mark, form) if whole else _divides(lines, mark, form)):
            raise FormError(
                f"{path}: its cells are separated by {name_mark(mark)}, expected {name_mark(form.delimiter)}; "
                + _fix(lines, mark, form)
            )


def _divides(lines: Sequence[str], mark: str, form: Form) -> bool:
    """Return whether a mark splits all lines evenly, where the one in use does not or leaves numbers side by side."""
    counts = {line.count(mark) for line in lines}
    if len(counts) != 1 or counts == {0} or mark == form.decimal or any('"' in line for line in lines):
        return False
    beside = re.compile(rf"\d{re.escape(mark)}[-+]?\d")
    own = {line.count(form.delimiter) for line in lines}
    return len(own) > 1 or (mark != "," and any(map(beside.search, lines[1:])))


def _cuts(lines: Sequence[str], mark: str, form: Form) -> bool:
    """Return whether a mark splits all lines into the same number of cells, at least two, with quotes understood."""
    rows = list(csv.reader(lines, delimiter=mark, skipinitialspace=True))
    if not rows or len(rows[0]) < 2 or len({len(row) for row in rows}) != 1:
        return False
    # Commas also split a column of decimal commas without a header into the same number of cells.
    return mark != form.decimal or all(parse_number(cell, ".") is None for cell in rows[0])


def _fix(lines: Sequence[str], mark: str, form: Form) -> str:
    """Name the flags that read cells separated by this mark."""
    decimal = ""
    if mark == form.decimal:
        decimal = " and --decimal '.'"
    elif form.decimal == "." and mark != "," and any(map(_has_fraction, mark.join(lines[1:]).split(mark))):
        decimal = " and --decimal ','"
    return f"add --delimiter {'tab' if mark == chr(9) else repr(mark)}{decimal}"


def _has_fraction(cell: str) -> bool:
    """Return whether a cell has a comma before its fraction, and not between its thousands."""
    return re.search(r"\d,\d", cell) is not None and not may_be_thousands(cell)


def may_be_thousands(cell: str) -> bool:
    """Return whether the marks in a number may stand between its thousands."""
    return _THOUSANDS.fullmatch(cell.strip()) is not None


def name_mark(mark: str) -> str:
    """Name a character between cells."""
    return {",": "a comma", "\t": "a tab"}.get(mark, repr(mark))


def guess_encoding(start: bytes) -> str:
    """Name the encoding that a file with these first bytes is likely to have, where it is not the one it should be."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in start[:2]:
        return "utf-16-le" if start[0] else "utf-16-be"
    return "utf-8" if start.startswith(codecs.BOM_UTF8) else "cp1252"


def read_rows(path: Path, what: str, expected: str) -> list[tuple[int, list[str]]]:
    """Read the rows of a small public CSV file, with their numbers from 1; without empty rows and spaces around cells.

    Parameters
    ----------
    path : Path
    what, expected : str
        For the error: what the file is, and what it should hold.

    Raises
    ------
    ConfigError
        It cannot be read.
    """
    try:
        text = io.StringIO(read_regular(path).removeprefix("\ufeff"), newline="")
        rows = [[cell.strip() for cell in row] for row in csv.reader(text, skipinitialspace=True)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{what} {path}: cannot be read ({error}); {expected}") from error
    return [(number, row) for number, row in enumerate(rows, 1) if any(row)]


def listed(names: Sequence[str], limit: int = 20) -> str:
    """Write the first names in quotes."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(repr, names[:limit])) + more
