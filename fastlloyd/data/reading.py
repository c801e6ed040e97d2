"""Chooses a table's columns, and makes features of their cells, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.categories import Categories
from fastlloyd.data.database import Database
from fastlloyd.data.delimited import Cells
from fastlloyd.data.findings import Intake
from fastlloyd.data.form import Cap, DataFile, is_identifier, listed
from fastlloyd.data.kinds import FIX, check_length
from fastlloyd.data.merge import Unit, number_people
from fastlloyd.data.missing import GAPS, MISSING_RULES, blank_codes, refuse_infinite
from fastlloyd.data.source import Source
from fastlloyd.errors import ConfigError, DataError, FormError, did_you_mean

_NAMED = 8


class Wanted(TypedDict, total=False):
    """What a table is read with: the keywords of `read_table`, and of whatever hands them on to it."""

    columns: Sequence[str]
    ignore: Sequence[str]
    missing: str
    bounds: Bounds | None
    unit: Unit | None
    categories: Categories | None
    texts: Sequence[str]
    beside: Sequence[str]
    cap: Cap | None


def row_cap(wanted: Wanted) -> Cap | None:
    """Return the cap on records that holds for rows too: none where rows are merged or dropped."""
    merged = wanted.get("unit") is not None or wanted.get("missing") == "drop"
    return None if merged else wanted.get("cap")


@dataclass(slots=True, kw_only=True)
class Reading:
    """A table that is about to be read: which columns are used, and how. Parameters as for `read_table`.

    Attributes
    ----------
    chosen : list of int
        The columns of numbers that are used.
    used : tuple of str
        Their names.
    """

    source: Source
    columns: Sequence[str] = ()
    ignore: Sequence[str] = ()
    missing: str = "refuse"
    bounds: Bounds | None = None
    unit: Unit | None = None
    categories: Categories | None = None
    texts: Sequence[str] = ()
    beside: Sequence[str] = ()
    cap: Cap | None = None
    lists: Categories = field(init=False)
    chosen: list[int] = field(init=False)
    used: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        missing, bounds, names = self.missing, self.bounds, self.source.names
        if missing not in (*MISSING_RULES, GAPS):
            raise ConfigError(f"--missing {missing}: expected one of {', '.join(MISSING_RULES)}")
        if missing == "midpoint" and bounds is None:
            raise ConfigError("--missing midpoint fills in the middle of the bounds: give --bounds as well")
        columns = self.columns
        if not columns and bounds is not None and bounds.names is not None:
            ignored = set(self.ignore)
            columns = [name for name in bounds.names if name not in ignored]
        self.lists = self.categories or Categories()
        ignore = (*self.ignore, *self.lists.columns, *self._people)
        self.chosen = _chosen(self.source, tuple(columns), ignore, self.lists)
        self.used = tuple(names[index] for index in self.chosen)
        _refuse_grouped(self.source, self.chosen)
        listed_names = set(self.lists.names)
        both = [name for name in self.used if name in listed_names]
        if both:
            raise DataError(
                f"{self.source.place}: the column {both[0]!r} has the name of a feature of --categories; rename it"
            )

    @property
    def _people(self) -> tuple[str, ...]:
        return () if self.unit is None else (self.unit.column,)

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """The columns of the file that are no features, and why not."""
        read, none = {*self.used, *self.lists.columns}, "(no name)"
        return tuple((name or none, self._why(at)) for at, name in enumerate(self.source.names) if name not in read)

    def _why(self, at: int) -> str:
        """Return why a column is no feature."""
        source, name = self.source, self.source.names[at]
        if name in self.beside:
            return "it describes clusters"
        if name in (*self.ignore, *self.texts, *self._people):
            return "it names rows or people"
        if self.columns or (self.bounds is not None and self.bounds.names is not None):
            return "not named by " + ("--columns" if self.columns else "the bounds")
        if name in source.indices:
            return "row labels of the export"
        if is_identifier(name):
            return "its name says that it names rows"
        return source.looks[at] if source.looks else source.kinds[at].words or "text"

    @property
    def _as_text(self) -> list[int]:
        """The columns that nobody named, and that are no features only because they hold text."""
        if self.columns or (self.bounds is not None and self.bounds.names is not None):
            return []
        named = {*self.ignore, *self.texts, *self.beside, *self._people, *self.source.indices}
        named |= {*self.used, *self.lists.columns}
        return [at for at, name in enumerate(self.source.names) if name not in named and not is_identifier(name)]

    @property
    def unread(self) -> str:
        """The warning about columns that are no features only because they hold text."""
        texts = [f"{self.source.names[at]!r}: {self._why(at)}" for at in self._as_text]
        if not texts:
            return ""
        shown = ", ".join(texts[:_NAMED]) + (f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else "")
        return (
            f"not used, because they hold no numbers: {len(texts)} of the columns ({shown}); correct the cells of one "
            "that is meant, and name with --columns what is used"
        )

    def intake(self, rows: int, missing_rows: int, missing_in: Mapping[str, int]) -> Intake:
        """Return what became of columns and rows."""
        return Intake(
            left_out=self.left_out,
            unread=self.unread,
            doubt="; ".join(filter(None, (self.source.doubt, _grouped_words(self.source, self.chosen)))),
            rows=rows,
            missing_rows=missing_rows,
            missing=self.missing,
            missing_in=missing_in,
        )

    @property
    def features(self) -> tuple[str, ...]:
        """The names of all features."""
        return (*self.used, *self.lists.names)

    @property
    def middle(self) -> NDArray[np.float64] | None:
        """What a missing value becomes with 'midpoint'."""
        if self.missing != "midpoint" or self.bounds is None:
            return None
        return self.bounds.match(self.features).middle

    def chunks(self, height: int | None) -> Iterator[Cells]:
        """Read all rows, some at a time; refuse infinite values."""
        lists, unit, place = self.lists.columns, self.unit, self.source.place
        named = [self.source.index(column) for column in (*lists, *self.texts, *self._people)]
        named += [self._index_beside(column) for column in self.beside]
        first, person, last = len(lists), len(lists) + len(self.texts), len(named) - len(self.beside)
        numbers: dict[str, int] = {}
        done = records = 0
        if self.cap is not None and self.source.rows is not None and unit is None and self.missing != "drop":
            self.cap.check(place, self.source.rows, counted=True)
        if self.source.watch is not None:
            self.source.watch(self._as_text)
        for raw_cells in self.source.chunks(self.chosen, named, height, loose=len(self.beside)):
            cells = self._blanked(raw_cells, first, last)
            refuse_infinite(cells.values, partial(self.place, cells.first_line, done))
            for index, own in zip(named, cells.texts, strict=True):
                check_length(own, partial(self._place_of, cells.first_line, done, self.source.names[index]), FIX)
            where: dict[str, Any] = {"source": str(place), "done": done, "row": place.row}
            made = [self.lists.indicate(column, own, **where) for column, own in zip(lists, cells.texts, strict=False)]
            people = None if unit is None else number_people(cells.texts[person], numbers, column=unit.column, **where)
            values = np.hstack([cells.values, *made]) if made else cells.values
            # Of people, those who lack a value are dropped once all rows are known.
            if self.cap is not None and (unit is None or self.missing != "drop"):
                dropped = int(np.isnan(values).any(axis=1).sum()) if self.missing == "drop" else 0
                records = len(numbers) if unit is not None else records + len(values) - dropped
                self.cap.check(place, records)
            yield Cells(values, (*cells.texts[first:person], *cells.texts[last:]), cells.first_line, people)
            done += len(values)

    def _blanked(self, raw_cells: Cells, first: int, last: int) -> Cells:
        """Empty the cells that --na calls missing, except in columns that name rows or people: `first` to `last`."""
        place = self.source.place
        form = place.cell_form
        if not form.na:
            return raw_cells
        values = blank_codes(raw_cells.values, form.codes, [self.source.kinds[at] for at in self.chosen])
        texts = [
            column if first <= at < last else ["" if form.is_missing(cell) else cell for cell in column]
            for at, column in enumerate(raw_cells.texts)
        ]
        return replace(raw_cells, values=values, texts=tuple(texts))

    def _index_beside(self, column: str) -> int:
        names = self.source.names
        if column not in names:
            raise DataError(
                f"{self.source.place}: no column {column!r}{did_you_mean(column, names)}, which the description of "
                f"clusters names; it has {listed(names)}; correct the header, or agree on columns that all sites have"
            )
        return names.index(column)

    def place(self, first_line: int | None, done: int, row: int, column: int) -> str:
        """Name a cell so that its owner can find it; `done` rows came before."""
        return self._place_of(first_line, done, self.features[column], row)

    def _place_of(self, first_line: int | None, done: int, column: str, row: int) -> str:
        place, row = self.source.place, done + row
        line = f" (line {first_line + row})" if first_line is not None else ""
        return f"{place}, {place.row(row)}{line}, column {column!r}"


def _chosen(source: Source, columns: tuple[str, ...], ignore: tuple[str, ...], categories: Categories) -> list[int]:
    """Return the columns of numbers to use; none is allowed only where others hold categories."""
    path, names = source.place, source.names
    at = {name: index for index, name in enumerate(names)}
    others, left_out = set(categories.names), {*ignore, *categories.names}
    _refuse_twice([name for name in names if name], f"{path}: its header names")
    _refuse_twice(columns, "--columns names")
    unknown = [name for name in (*columns, *ignore) if name not in at and name not in others]
    if unknown:
        # Names may come from another party's bounds: what each is close to is looked up for the first of them only.
        close = [f"{name!r}{did_you_mean(name, names)}" for name in unknown[:_NAMED]]
        wanted = ", ".join(close) + (f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else "")
        if names == tuple(f"x{i + 1}" for i in range(len(names))):
            raise DataError(
                f"{path}: no column {wanted}; it names none, so they are x1 to x{len(names)}: put a header above the "
                "numbers, or name the columns so in the bounds, --columns or --id"
            )
        raise DataError(
            f"{path}: no column {wanted}; it has {listed(names)}; correct the header, or what names the column (the "
            "bounds, --columns, --id)"
        )
    if columns:
        chosen = [at[name] for name in columns if name not in left_out]
    else:
        usable = [number and not is_identifier(name) for number, name in zip(source.numeric, names, strict=True)]
        ignored = {*ignore, *source.indices}
        chosen = [i for i, name in enumerate(names) if usable[i] and name not in ignored]
        _refuse_otherwise(source, ignore)
    if not chosen and not categories.columns:
        if isinstance(path, Database):
            raise DataError(
                f"{path}: no column of numbers is left to use; convert text in --query (CAST), or name identifiers "
                "with --columns if they are meant"
            )
        raise DataError(
            f"{path}: no column of numbers is left to use; --delimiter says what stands between the cells, --decimal "
            "what before a fraction, and --columns names identifiers if they are meant"
        )
    return chosen


def _refuse_otherwise(source: Source, ignore: tuple[str, ...]) -> None:
    """Refuse a column of numbers with other marks: it would be left out as text."""
    pairs, ignored = zip(source.names, source.otherwise, strict=False), set(ignore)
    wrong = {name: how for name, how in pairs if how and name not in ignored and not is_identifier(name)}
    if wrong:
        how = next((how for how in wrong.values() if "--thousands" in how), next(iter(wrong.values())))
        names = [name for name, other in wrong.items() if other == how]
        raise FormError(
            f"{source.place}, column {listed(names, 3)}: {how} (and --delimiter, if need be), or name the columns to "
            "use with --columns"
        )


def _refuse_grouped(source: Source, chosen: Sequence[int]) -> None:
    """Refuse to read 20,000 as 20 on the word of --decimal alone, where no cell shows what the comma is."""
    if isinstance(source.place, DataFile) and source.place.form.decimal == ",":
        grouped = [source.names[at] for at in chosen if source.grouped and source.grouped[at]]
        if grouped:
            raise FormError(
                f"{source.place}, column {listed(grouped, 3)}: each number has three digits after the comma, or no "
                "comma, so it may stand between thousands; add --thousands none if it stands before a fraction, or "
                "--decimal '.' --thousands ',' if it does not"
            )


def _grouped_words(source: Source, chosen: Sequence[int]) -> str:
    """Return the warning about columns of which the points may stand between thousands."""
    grouped = [source.names[at] for at in chosen if source.grouped and source.grouped[at]]
    if not grouped:
        return ""
    return (
        f"the points in column {listed(grouped, 3)} may stand between thousands: if so, add --decimal ',' --thousands "
        "'.', otherwise --thousands none"
    )


def _refuse_twice(names: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{where} the column {name!r} twice; give every column its own name")
        seen.add(name)
