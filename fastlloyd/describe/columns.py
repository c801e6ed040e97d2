"""The public file of columns that describe clusters, and how one cell of a column becomes a bin and a number.

::

    [age]                       # a column of numbers: public bounds
    lo = 0
    hi = 100

    [gain]                      # with its own edges: bins of unequal width
    edges = [0, 1, 1000, 10000, 100000]

    [visits]                    # whole numbers: one bin for each value
    lo = 0
    hi = 20
    whole = true

    [sex]                       # a column of categories: a public list
    categories = ["f", "m", "other"]

The columns need not be features of the clustering. A missing value has its own bin in each column.

Source: docs/privacy.md, "Descriptions of clusters".
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.categories import OTHER
from fastlloyd.data.form import MISSING, PLAIN, Form, number_row
from fastlloyd.errors import ConfigError, DataError, did_you_mean
from fastlloyd.wire.decode import Within, decode
from fastlloyd.wire.toml import read_toml

_NUMBERED = re.compile(r"columns\[(\d+)\]")
_TRUTH = {"true": "true", "1": "true", "false": "false", "0": "false"}
MOST_COLUMNS = 200
LEAST_BINS, MOST_BINS = 6, 32
"""Range of the public rule for the number of bins (`count_bins`)."""
MOST_GIVEN = 100
"""Most bins or categories of one column that a file may ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedColumn:
    """One column that describes clusters: numbers between public bounds, or categories of a public list.

    Attributes
    ----------
    name : str
    lo, hi : float or None
        Bounds of numbers; values beyond them count as the bound.
    bins : int or None
        How many bins of equal width; None: as many as the public rule says.
    edges : tuple of float
        Of the bins, increasing, where they are not of equal width.
    whole : bool
        Numbers are whole, and each has its own bin.
    categories : tuple of str
        The list; empty for numbers. 'other' takes in all that are not listed. A cell that holds a truth value, in
        whatever way its source writes it, is in 'true' or 'false' where they are listed and the cell is not.

    Raises
    ------
    ConfigError
        They do not go together.
    """

    name: Annotated[str, Within(1, 200)]
    lo: float | None = None
    hi: float | None = None
    bins: Annotated[int, Within(2, MOST_GIVEN)] | None = None
    edges: Annotated[tuple[float, ...], Within(0, MOST_GIVEN + 1)] = ()
    whole: bool = False
    categories: Annotated[tuple[Annotated[str, Within(1, 200)], ...], Within(0, MOST_GIVEN)] = ()

    def __post_init__(self) -> None:
        numbers = (self.lo, self.hi, self.bins, self.edges or None, self.whole or None)
        if self.categories:
            if any(value is not None for value in numbers):
                raise ConfigError(f"column {self.name!r}: expected either categories, or numbers with bounds; got both")
            if len(set(self.categories)) < max(2, len(self.categories)):
                raise ConfigError(f"column {self.name!r}: expected two or more categories, each once")
            return
        if self.edges:
            if self.lo is not None or self.hi is not None or self.bins is not None or self.whole:
                raise ConfigError(f"column {self.name!r}: edges say bounds and bins by themselves: give no others")
            if len(self.edges) < 3 or any(one >= other for one, other in pairwise(self.edges)):
                raise ConfigError(f"column {self.name!r}: expected three or more edges in increasing order")
        elif self.lo is None or self.hi is None or not self.lo < self.hi:
            got = ", ".join(
                f"{end} = {value:g}" for end, value in (("lo", self.lo), ("hi", self.hi)) if value is not None
            )
            raise ConfigError(
                f"column {self.name!r}: expected public bounds lo and hi with lo below hi, or edges, or categories; "
                f"got {got or 'none of them'}"
            )
        if not math.isfinite(self.top - self.bottom):
            raise ConfigError(f"column {self.name!r}: expected bounds whose distance float64 can hold")
        if self.whole:
            if not (self.bottom.is_integer() and self.top.is_integer() and self.top - self.bottom < MOST_BINS):
                raise ConfigError(
                    f"column {self.name!r}: whole = true gives each number its own bin: expected whole bounds with at "
                    f"most {MOST_BINS} numbers from lo to hi"
                )
            if self.bins is not None:
                raise ConfigError(f"column {self.name!r}: whole = true says the bins by itself: leave bins out")

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers."""
        return not self.categories

    @property
    def bottom(self) -> float:
        """The lower bound."""
        return self.edges[0] if self.edges else float(self.lo or 0.0)

    @property
    def top(self) -> float:
        """The upper bound."""
        return self.edges[-1] if self.edges else float(self.hi or 0.0)

    def settle(self, bins: int) -> DescribedColumn:
        """Return the column with its number of bins filled in where it names none."""
        fixed = self.categories or self.edges or self.whole or self.bins is not None
        return self if fixed else dataclasses.replace(self, bins=bins)

    @property
    def inner_edges(self) -> NDArray[np.float64]:
        """The edges between the bins of numbers, float64; a value on an edge belongs to the bin above."""
        if self.whole:
            return np.arange(self.bottom + 1.0, self.top + 1.0)
        return self.all_edges[1:-1]

    @property
    def all_edges(self) -> NDArray[np.float64]:
        """The edges of the bins of numbers from the lower bound to the upper one; of whole numbers the numbers.

        Read-only.
        """
        return _all_edges(self)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the bins are called, the one of missing values last."""
        if self.categories:
            return (*self.categories, "missing")
        if self.whole:
            return (*(f"{value:g}" for value in self.all_edges), "missing")
        edges = [f"{edge:.6g}" for edge in self.all_edges]
        if self.edges or len(set(edges)) < len(edges):
            edges = [f"{edge:.12g}" for edge in self.all_edges]
        return (*(f"{one} to {other}" for one, other in pairwise(edges)), "missing")

    @property
    def width(self) -> int:
        """B: how many bins there are, the one of missing values included."""
        if self.categories:
            return len(self.categories) + 1
        return len(self.inner_edges) + 2

    def place(self, raw_values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return bin and scaled value of numbers.

        Parameters
        ----------
        raw_values : float64 array, shape (n,)
            NaN where missing; values beyond the bounds count as the bound.

        Returns
        -------
        raw_bins : int64 array, shape (n,)
            From 0; `width` - 1 where missing.
        raw_scaled : float64 array, shape (n,)
            In [-1, 1]; 0 where missing.
        """
        missing = np.isnan(raw_values)
        clipped = np.clip(np.where(missing, self.bottom, raw_values), self.bottom, self.top)
        raw_bins = np.searchsorted(self.inner_edges, clipped, side="right").astype(np.int64)
        raw_bins[missing] = self.width - 1
        scaled = (clipped - self.bottom) / (self.top - self.bottom) * 2.0 - 1.0
        return raw_bins, np.where(missing, 0.0, np.clip(scaled, -1.0, 1.0))

    def read_numbers(
        self, raw_texts: Sequence[str], *, source: str, form: Form = PLAIN, row: Callable[[int], str] = number_row
    ) -> NDArray[np.float64]:
        """Return the numbers of cells, float64, shape (n,), NaN where missing.

        Parameters
        ----------
        raw_texts : sequence of str, length n
        source : str
            The file, for the error.
        form : Form
            How a number is written.
        row : callable
            Names a row, from 0, for the error.

        Raises
        ------
        DataError
            A cell is no number; names the row, never the value.
        """
        numbers = {text: self._number(text, form) for text in set(raw_texts)}
        if None in numbers.values():
            first = next(at for at, text in enumerate(raw_texts) if numbers[text] is None)
            raise DataError(
                f"{source}, {row(first)}, column {self.name!r}: expected a number, got text; correct the cell, or "
                "leave it empty if its value is missing"
            )
        return np.array([numbers[text] for text in raw_texts], dtype=np.float64)

    def read_categories(
        self, raw_texts: Sequence[str], *, source: str, row: Callable[[int], str] = number_row
    ) -> NDArray[np.int64]:
        """Return the bins of cells of categories, int64, shape (n,); parameters as for `read_numbers`.

        Raises
        ------
        DataError
            A category is not listed, and 'other' neither; names the row, never the value.
        """
        places = {category: at for at, category in enumerate(self.categories)}
        codes = {text: self._code(text, places) for text in set(raw_texts)}
        if None in codes.values():
            first = next(at for at, text in enumerate(raw_texts) if codes[text] is None)
            raise DataError(
                f"{source}, {row(first)}, column {self.name!r}: expected a category of the columns file, got another; "
                f"correct the cell, or agree with the other parties on a list with it, or with {OTHER!r} for the rest"
            )
        return np.array([codes[text] for text in raw_texts], dtype=np.int64)

    @staticmethod
    def _number(text: str, form: Form) -> float | None:
        """Return a cell's number, NaN for a missing one, None for text."""
        return math.nan if text.strip().lower() in MISSING else form.number(text)

    def _code(self, text: str, places: Mapping[str, int]) -> int | None:
        """Return the bin of a category, None if there is none."""
        found = places.get(text)
        if found is None:
            lower = text.lower()
            found = self.width - 1 if lower in MISSING else places.get(_TRUTH.get(lower, OTHER), places.get(OTHER))
        return found

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` is the inverse."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not defaults[name]}


def read_columns(path: str | Path) -> tuple[DescribedColumn, ...]:
    """Read the file of columns.

    Parameters
    ----------
    path : str or Path
        TOML: a table for each column, in the order in which they are shown.

    Raises
    ------
    ConfigError
        It cannot be read, or describes a column that cannot be.
    """
    where = f"--columns {path}"
    tables = read_toml(Path(path), where, "docs/describe.md")
    return columns_from_tables(tables, where)


def columns_from_tables(tables: Mapping[str, object], where: str) -> tuple[DescribedColumn, ...]:
    """Return the columns of a table each, as a file has them; errors call them `where`.

    Raises
    ------
    ConfigError
        A table describes no column.
    """
    return columns_from_json([{"name": name, **_table(name, value, where)} for name, value in tables.items()], where)


def columns_from_json(values: object, where: str) -> tuple[DescribedColumn, ...]:
    """Return the columns that `to_json` wrote; errors call them `where`.

    Raises
    ------
    ConfigError
        The values are no columns.
    """
    try:
        found = decode(_Columns, {"columns": values}, "").columns
    except ValueError as error:
        raise ConfigError(f"{where}: {_by_name(str(error).removeprefix('.'), values)}") from None
    names = [column.name for column in found]
    if len(set(names)) < len(names):
        raise ConfigError(f"{where}: names a column twice; keep one table for each")
    return found


def _by_name(error: str, values: object) -> str:
    """Return an error of decoding with the column's name, if it has one, in place of its number."""
    at = _NUMBERED.match(error)
    table = values[int(at[1])] if at and isinstance(values, list) else None
    name = table.get("name") if isinstance(table, Mapping) else None
    if at is None or not isinstance(name, str):
        return error
    called, rest = f"column {name[:200]!r}", error[at.end() :].removeprefix(".").removeprefix(": ")
    return rest if rest.startswith(called) else f"{called}: {rest}"


@lru_cache(maxsize=1 << 8)
def _all_edges(column: DescribedColumn) -> NDArray[np.float64]:
    """Return a column's edges; cached, because each number of a description asks for them several times."""
    if column.whole:
        edges = np.arange(column.bottom, column.top + 1.0)
    elif column.edges:
        edges = np.array(column.edges)
    elif column.bins is None:
        raise ConfigError(f"column {column.name!r}: its number of bins is not settled yet")
    else:
        edges = np.linspace(column.bottom, column.top, column.bins + 1)
    edges.flags.writeable = False
    return edges


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns, as a report has them."""

    columns: Annotated[tuple[DescribedColumn, ...], Within(1, MOST_COLUMNS)]


def _table(name: str, value: object, where: str) -> Mapping[str, Any]:
    """Return the table of a column."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected a table [{name}] for each column, got a single value for {name!r}")
    if "name" in value:
        raise ConfigError(f"{where}: the table [{name}] has the column's name already: remove its key 'name'")
    keys = [field.name for field in dataclasses.fields(DescribedColumn) if field.name != "name"]
    for key in value:
        if key not in keys:
            raise ConfigError(
                f"{where}: column {name!r}: unknown key {key!r}{did_you_mean(key, keys)}; expected {', '.join(keys)}"
            )
    listed = value.get("categories")
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return {**value, "categories": [_as_written(one) for one in listed]}
    return value


def _as_written(category: object) -> object:
    """Return a category as cells have it: whole numbers and truth values need no quotes in the file."""
    if isinstance(category, bool):
        return str(category).lower()
    return str(category) if isinstance(category, int) else category


def count_bins(*, n_total: int, k: int, noise: float) -> int:
    """Return the public number of bins of a column of numbers: 4 (N / (k s))^(1/3), from 6 to 32.

    Parameters
    ----------
    n_total, k : int
    noise : float
        s, the standard deviation of the noise on a bin where no column holds numbers.

    Notes
    -----
    Source: docs/privacy.md, "Descriptions of clusters"; about the best for medians and quartiles of six shapes.

    Examples
    --------
    >>> count_bins(n_total=30_000, k=5, noise=53.0), count_bins(n_total=600, k=2, noise=60.0)
    (19, 7)
    """
    return int(np.clip(round(4.0 * (n_total / (k * noise)) ** (1.0 / 3.0)), LEAST_BINS, MOST_BINS))
