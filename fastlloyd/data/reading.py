"""Chooses a file's columns, and makes values of their cells, chunk by chunk: what all readers of a table share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.categories import Categories
from fastlloyd.data.database import Database, Place, place_of
from fastlloyd.data.delimited import Cells
from fastlloyd.data.form import DataFile, is_identifier
from fastlloyd.data.merge import Unit
from fastlloyd.data.missing import MISSING_RULES, refuse_infinite
from fastlloyd.data.source import CHUNK_ROWS, Source, identifiers, listed, open_source
from fastlloyd.errors import ConfigError, DataError, FormError, did_you_mean, format_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A file that is about to be read: what of it is used, and how."""

    path: Place
    origin: Source
    chosen: list[int]
    used: tuple[str, ...]
    categories: Categories
    missing: str
    bounds: Bounds | None
    unit: Unit | None

    @property
    def features(self) -> tuple[str, ...]:
        """The names of all features."""
        return (*self.used, *self.categories.names)

    @property
    def middle(self) -> NDArray[np.float64] | None:
        """What a missing value becomes with 'midpoint'."""
        if self.missing != "midpoint" or self.bounds is None:
            return None
        return self.bounds.match(self.features).middle

    def texts(self) -> list[Iterator[str]]:
        """Open the columns of categories."""
        return [identifiers(self.path, column) for column in self.categories.columns]

    def complete(self, cells: Cells, texts: list[Iterator[str]], done: int = 0) -> NDArray[np.float64]:
        """Refuse infinite values, and put the features of categories behind the others; `done` rows came before."""
        values = cells.values
        refuse_infinite(values, lambda row, column: self.place(cells, done + row, column))
        if not texts:
            return values
        own = [tuple(islice(column, len(values))) for column in texts]
        if len(own[0]) != len(values):
            raise self.uneven(done + len(own[0]), done + len(values))
        made = [
            self.categories.indicate(column, cut, source=str(self.path), done=done, row=self.path.row)
            for column, cut in zip(self.categories.columns, own, strict=True)
        ]
        return np.hstack([values, *made])

    def uneven(self, texts: int, rows: int) -> DataError:
        """Return the error of a file whose columns are not equally long."""
        return DataError(
            f"{self.path}: {format_count(texts, 'row')} with categories, {rows} with numbers; complete every row"
        )

    def place(self, cells: Cells, row: int, column: int) -> str:
        """Name a cell the way its owner finds it."""
        line = f" (line {cells.first_line + row})" if cells.first_line is not None else ""
        return f"{self.path}, {self.path.row(row)}{line}, column {self.features[column]!r}"


class Wanted(TypedDict, total=False):
    """What a table is read with: the keywords of `begin`, and of whatever hands them on to it."""

    columns: Sequence[str]
    ignore: Sequence[str]
    missing: str
    bounds: Bounds | None
    unit: Unit | None
    categories: Categories | None


def begin(
    path: str | Path | Place,
    *,
    columns: Sequence[str] = (),
    ignore: Sequence[str] = (),
    missing: str = "refuse",
    bounds: Bounds | None = None,
    unit: Unit | None = None,
    categories: Categories | None = None,
) -> Reading:
    """Open a file and choose its columns."""
    if missing not in MISSING_RULES:
        raise ConfigError(f"--missing {missing}: expected one of {', '.join(MISSING_RULES)}")
    if missing == "midpoint" and bounds is None:
        raise ConfigError("--missing midpoint fills in the middle of the bounds: give --bounds as well")
    if not columns and bounds is not None and bounds.names is not None:
        columns = [name for name in bounds.names if name not in ignore]
    path, categories = place_of(path), categories or Categories()
    no_numbers = (*ignore, *categories.columns, *(() if unit is None else (unit.column,)))
    origin = open_source(path)
    chosen = _chosen(path, origin, tuple(columns), no_numbers, categories)
    if not chosen:
        origin = replace(origin, chunks=lambda _, height: _no_chunks(path, categories.columns[0]))
    used = tuple(origin.names[index] for index in chosen)
    both = [name for name in used if name in categories.names]
    if both:
        raise DataError(f"{path}: the column {both[0]!r} is called like a feature of --categories; rename it")
    return Reading(
        path=path,
        origin=origin,
        chosen=chosen,
        used=used,
        categories=categories,
        missing=missing,
        bounds=bounds,
        unit=unit,
    )


def check_ended(reading: Reading, texts: list[Iterator[str]], rows: int) -> None:
    """Refuse more rows with categories than with numbers."""
    more = sum(1 for _ in texts[0]) if texts else 0
    if more:
        raise reading.uneven(rows + more, rows)


def none_left(path: Place) -> DataError:
    """Return the error of a file of which --missing drop leaves nothing."""
    return DataError(f"{path}: every row lacks a value, so --missing drop leaves none; fill the values in")


def _chosen(
    path: Place, origin: Source, columns: tuple[str, ...], ignore: tuple[str, ...], categories: Categories
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
            f"{path}: no column {wanted}; it has {listed(names)}; correct the header, or what names the column (the "
            "bounds, --columns, --id)"
        )
    if columns:
        chosen = [names.index(name) for name in columns if name not in (*ignore, *categories.names)]
    else:
        usable = [number and not is_identifier(name) for number, name in zip(origin.numeric, names, strict=True)]
        chosen = [i for i, name in enumerate(names) if usable[i] and name not in ignore]
        _refuse_otherwise(path, origin, ignore)
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


def _refuse_otherwise(path: Place, origin: Source, ignore: tuple[str, ...]) -> None:
    """Refuse to take for text, and so to leave out, a column of numbers with the other decimal mark."""
    pairs = zip(origin.names, origin.otherwise, strict=False)
    wrong = [name for name, other in pairs if other and name not in ignore and not is_identifier(name)]
    if wrong and isinstance(path, DataFile):
        mark = "." if path.form.decimal == "," else ","
        raise FormError(
            f"{path}, column {listed(wrong, 3)}: numbers with {mark!r} before their fraction, expected "
            f"{path.form.decimal!r}; add --decimal {mark!r} (and --delimiter, if need be), or name the columns to use "
            "with --columns"
        )


def _no_chunks(path: Place, column: str) -> Iterator[Cells]:
    """Return as many rows without numbers as the file has."""
    texts = identifiers(path, column)
    while rows := sum(1 for _ in islice(texts, CHUNK_ROWS)):
        yield Cells(np.empty((rows, 0)))


def _refuse_twice(names: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{where} the column {name!r} twice; give every column a name of its own")
        seen.add(name)
