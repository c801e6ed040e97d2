"""Public lists of categories: a column of text becomes one feature of 0 and 1 for each category.

A feature of a category with weight w has the bounds 1/2 - 1/(2 w) and 1/2 + 1/(2 w), so that 0 and 1 are -w and w
where all features are scaled to [-1, 1], and a missing value is halfway. Bounds of 0 and w around values of 0 and w
would scale the weight away again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.form import MISSING, number_row, read_rows
from fastlloyd.errors import ConfigError, DataError
from fastlloyd.wire.decode import decode

OTHER = "other"
"""A listed category of this name takes in all that are not listed."""
_FORM = "a CSV file with the row feature,category or feature,category,weight, then one row for each category"
_MISSING, _UNKNOWN, _NO_FEATURE = -1, -2, -3


@dataclass(frozen=True, slots=True)
class Categories:
    """What each column of categories may hold.

    Attributes
    ----------
    lists : tuple of (column, tuple of (category, weight))
        In the order of the file. Weights from 0, which is known but makes no feature, to 1. Empty: no such column.
    """

    lists: tuple[tuple[str, tuple[tuple[str, float], ...]], ...] = ()

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file of lists.

        Raises
        ------
        ConfigError
            It cannot be read, a category stands twice, or a weight is not a number from 0 to 1.
        """
        lists: dict[str, dict[str, float]] = {}
        for number, (column, category, weight) in _read_lists(path):
            where = f"--categories {path}, row {number}"
            if not column or not category:
                raise ConfigError(f"{where}: expected a column and a category, got nothing for one of them")
            if category in lists.setdefault(column, {}):
                raise ConfigError(f"{where}: {category!r} stands twice for {column!r}; keep one row for each category")
            lists[column][category] = _weight(weight, where)
        for column, found in lists.items():
            if not any(found.values()):
                raise ConfigError(f"--categories {path}: no category of {column!r} has a weight above 0; give it one")
        return cls.from_json(lists)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold categories."""
        return tuple(column for column, _ in self.lists)

    @property
    def names(self) -> tuple[str, ...]:
        """The features that they become: COLUMN=CATEGORY, column by column."""
        return tuple(f"{column}={category}" for column, found in self.lists for category, weight in found if weight)

    def bounds(self, numbers: Bounds | None) -> Bounds:
        """Return the bounds of all features: those of the numbers, then those of the categories.

        Parameters
        ----------
        numbers : Bounds or None
            By name; None where there are categories only. May hold those of the categories, if they are the same.

        Raises
        ------
        ConfigError
            They have no names, or other bounds for a feature of a category.
        """
        if not self.lists and numbers is not None:
            return numbers
        if numbers is not None and numbers.names is None:
            raise ConfigError(
                "--bounds: expected a CSV file feature,lo,hi that names the columns of numbers, since --categories "
                "names others, got one pair for all"
            )
        own = self._own_bounds()
        if numbers is None or numbers.names is None:
            return own
        features, columns = set(self.names), set(self.columns)
        both = [name for name in numbers.names if name in features]
        if both:
            given, known = numbers.match(both), own.match(both)
            if (given.lo != known.lo).any() or (given.hi != known.hi).any():
                raise ConfigError(
                    f"--bounds: those of {both[0]!r} follow from its weight in --categories; remove its row"
                )
        mixed = [name for name in numbers.names if name in columns]
        if mixed:
            raise ConfigError(
                f"--bounds names the column {mixed[0]!r}, which --categories lists as one of categories: keep it in "
                "one of the two files"
            )
        rest = [name for name in numbers.names if name not in features]
        if not rest:
            return own
        kept = numbers.match(rest)
        names = (*rest, *self.names)
        return Bounds(np.append(kept.lo, own.lo), np.append(kept.hi, own.hi), names, numbers.about)

    def _own_bounds(self) -> Bounds:
        """Return the bounds of the features made of categories."""
        half = np.array([0.5 / weight for _, found in self.lists for _, weight in found if weight])
        return Bounds(0.5 - half, 0.5 + half, self.names)

    def indicate(
        self, column: str, texts: Sequence[str], *, source: str, done: int = 0, row: Callable[[int], str] = number_row
    ) -> NDArray[np.float64]:
        """Turn one column into its features.

        Parameters
        ----------
        column : str
        texts : sequence of str, length n
        source : str
            The file, for the error.
        done : int
            Rows of the file before these.
        row : callable
            Names a row of the file, from 0, for the error.

        Returns
        -------
        float64 array, shape (n, c)
            1 at the row's category and 0 elsewhere; NaN in a row whose cell is empty, unless that is listed.

        Raises
        ------
        DataError
            A category is not listed, and 'other' neither; the row is named, the category is not.
        """
        found = dict(self.lists)[column]
        features = [category for category, weight in found if weight]
        places = {category: _NO_FEATURE for category, _ in found} | {name: at for at, name in enumerate(features)}
        codes = {text: places.get(text, _MISSING if text.lower() in MISSING else _UNKNOWN) for text in set(texts)}
        if OTHER in places:
            codes = {text: places[OTHER] if code == _UNKNOWN else code for text, code in codes.items()}
        if _UNKNOWN in codes.values():
            first = done + next(at for at, text in enumerate(texts) if codes[text] == _UNKNOWN)
            raise DataError(
                f"{source}, {row(first)}, column {column!r}: expected a category of the list (--categories), got "
                f"another; correct the cell, or agree with the other parties on a list with it, or with {OTHER!r} for "
                "the rest"
            )
        at = np.fromiter(map(codes.__getitem__, texts), np.int64, len(texts))
        indicators: NDArray[np.float64] = (at[:, None] == np.arange(len(features))).astype(np.float64)
        indicators[at == _MISSING] = np.nan
        return indicators

    def to_json(self) -> dict[str, dict[str, float]]:
        """Return weights by column and category."""
        return {column: dict(found) for column, found in self.lists}

    @classmethod
    def from_json(cls, values: object) -> Self:
        """Return the categories that `to_json` wrote.

        Raises
        ------
        ConfigError
            The values are no weights by column and category.
        """
        try:
            lists = decode(_Lists, {"categories": values}, "").categories
        except ValueError as error:
            raise ConfigError(f"expected the weights of categories as a run writes them: {error}") from None
        for found in lists.values():
            for weight in found.values():
                _check_weight(weight, "categories", weight)
        return cls(tuple((column, tuple(found.items())) for column, found in lists.items()))


@dataclass(frozen=True, slots=True)
class _Lists:
    """Weights by column and category, as a report has them."""

    categories: Mapping[str, Mapping[str, float]]


def _read_lists(path: str | Path) -> list[tuple[int, tuple[str, str, str]]]:
    """Read the rows of a file of lists, with their numbers from 1."""
    rows = read_rows(Path(path), "--categories", f"expected {_FORM}")
    header = rows[0][1] if rows else []
    if header not in (["feature", "category"], ["feature", "category", "weight"]) or len(rows) == 1:
        raise ConfigError(f"--categories {path}: expected {_FORM}")
    for number, row in rows:
        if len(row) != len(header):
            raise ConfigError(f"--categories {path}, row {number}: expected {len(header)} cells, got {len(row)}")
    return [(number, (row[0], row[1], row[2] if len(row) > 2 else "1")) for number, row in rows[1:]]


def _weight(text: str, where: str) -> float:
    """Read a weight."""
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    _check_weight(weight, where, text)
    return weight


def _check_weight(weight: float, where: str, shown: object) -> None:
    """Refuse a weight that no feature can have."""
    if not (weight == 0 or 1e-6 <= weight <= 1):
        raise ConfigError(
            f"{where}: expected a weight from 0.000001 to 1, or 0 for no feature, got {shown!r}; to make a category "
            "count more, give the other features smaller weights or wider bounds"
        )
