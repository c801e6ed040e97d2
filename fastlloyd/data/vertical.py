"""Tables with the same records and different columns: reading and splitting them, and assembling centres.

Every party holds some columns of the same records. A column of ids says which row is whose; rows are kept in
the order of their ids, so that parties with the same ids have the same order. Each party's bounds are for its own
columns, and each reads the final centres in its own units.

Source: Vertical DP, §3.1; docs/protocol.md, "Vertical tables".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Self, Unpack

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds, unscale
from fastlloyd.data.database import Place
from fastlloyd.data.dataset import Dataset
from fastlloyd.data.findings import Intake
from fastlloyd.data.form import read_rows
from fastlloyd.data.reading import Wanted, row_cap
from fastlloyd.data.source import open_source
from fastlloyd.data.table import Table, read_table
from fastlloyd.errors import ConfigError, DataError, format_count

ID_COLUMN = "id"
_FORM = "a CSV file with one line 'feature,party' for each column"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerticalTable:
    """One party's columns of the shared records, in the order of the ids.

    Attributes
    ----------
    raw_ids : tuple of str, length n
        Each once, ascending by code points.
    raw_values : float64 array, shape (n, d)
        Original units, finite.
    names : tuple of str, length d
    source : str
    intake : Intake
        As for a `Table`.
    """

    raw_ids: tuple[str, ...] = field(repr=False)
    raw_values: NDArray[np.float64] = field(repr=False)
    names: tuple[str, ...]
    source: str
    intake: Intake = field(default_factory=Intake, repr=False)

    def restrict(self, common_ids: Sequence[str]) -> Self:
        """Keep the records with these ids, in the order of their ids.

        Raises
        ------
        DataError
            An id is not there.
        """
        place = {name: row for row, name in enumerate(self.raw_ids)}
        chosen = sorted(common_ids)
        try:
            rows = np.array([place[name] for name in chosen], dtype=np.int64)
        except KeyError:
            raise DataError(f"{self.source}: expected only ids that the table holds, got another one") from None
        return replace(self, raw_ids=tuple(chosen), raw_values=self.raw_values[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyFeatures:
    """The public facts about one party's columns: names, in their order, and bounds."""

    names: tuple[str, ...]
    bounds: Bounds


def read_vertical(path: str | Path | Place, *, id_column: str = ID_COLUMN, **wanted: Unpack[Wanted]) -> VerticalTable:
    """Read one party's columns; parameters and errors as for `read_sorted`."""
    table = read_sorted(path, id_column=id_column, **wanted)
    return VerticalTable(
        raw_ids=tuple(table.raw_texts[id_column]),
        raw_values=table.values,
        names=table.names,
        source=table.source,
        intake=table.intake,
    )


def read_sorted(path: str | Path | Place, *, id_column: str = ID_COLUMN, **wanted: Unpack[Wanted]) -> Table:
    """Read one party's records, in the order of their ids.

    Parameters
    ----------
    path : str, Path or Place
        As for `read_table`.
    id_column : str
        Names the records, the same at all parties: text is compared exactly, except for spaces around it.
    columns, missing, bounds
        As for `read_table`.

    Raises
    ------
    DataError
        The file does not fit, or an id is missing or stands twice (the row is named, the id is not).
    ConfigError
        `missing` is 'drop': a row that one party drops would be missing at that party alone.
    """
    if wanted.get("missing") == "drop":
        raise ConfigError(
            "--missing drop would leave the parties of a vertical protocol with different records: use --missing "
            "midpoint, or remove the row from every party's file"
        )
    with open_source(path, row_cap(wanted)) as source:
        source.index(id_column)
        wanted["ignore"] = wanted["texts"] = (id_column,)
        table = read_table(source, **wanted)
        raw_ids = table.raw_texts[id_column]
        order = _sorted_rows(raw_ids, table.source, id_column, source.place.row)
    return replace(
        table,
        values=np.ascontiguousarray(table.values[order]),
        raw_texts={id_column: [raw_ids[row] for row in order]},
    )


def _sorted_rows(raw_ids: Sequence[str], source: str, column: str, row: Callable[[int], str]) -> NDArray[np.int64]:
    """Return the rows in the order of their ids, each of which must be there once."""
    order = sorted(range(len(raw_ids)), key=raw_ids.__getitem__)
    if order and not raw_ids[order[0]]:
        raise DataError(f"{source}, {row(order[0])}: the id in column {column!r} is missing; fill it in")
    for before, after in pairwise(order):
        if raw_ids[before] == raw_ids[after]:
            raise DataError(
                f"{source}: {row(before)} and {row(after)} have the same id in column {column!r}; expected one row "
                "per id: merge or remove one of them"
            )
    return np.array(order, dtype=np.int64)


def split_columns(names: Sequence[str], parties: int, how: str) -> tuple[tuple[int, ...], ...]:
    """Split the columns of one public table among the parties of a demonstration.

    Parameters
    ----------
    names : sequence of str, length d
    parties : int
    how : str
        'even': consecutive columns, sizes differ by at most one; else the path of a CSV file of lines
        'feature,party' (a first line with these two words is skipped), party from 1.

    Returns
    -------
    tuple, one per party, of 0-based column numbers in the order of `names`

    Raises
    ------
    ConfigError
        Too few columns, or the file does not give each column to one party and each party a column.
    """
    if parties < 1 or len(names) < parties:
        raise ConfigError(
            f"cannot split {format_count(len(names), 'column')} among {format_count(parties, 'party')}: every party "
            "needs a column; start fewer"
        )
    if how == "even":
        return tuple(tuple(int(i) for i in part) for part in np.array_split(np.arange(len(names)), parties))
    if not how.lower().endswith(".csv"):
        raise ConfigError(f"--split {how}: a vertical protocol splits columns: expected 'even' or {_FORM}")
    owner = _read_owners(Path(how), names, parties)
    lacking = [name for name in names if name not in owner]
    if lacking:
        raise ConfigError(
            f"--split {how}: the column {lacking[0]!r} has no party; add a line '{lacking[0]},1' or leave the column "
            "out with --columns"
        )
    split = tuple(tuple(i for i, name in enumerate(names) if owner[name] == party) for party in range(1, parties + 1))
    idle = [party for party, part in enumerate(split, 1) if not part]
    if idle:
        raise ConfigError(f"--split {how}: party {idle[0]} gets no column; give it one or start fewer parties")
    return split


def _read_owners(path: Path, names: Sequence[str], parties: int) -> dict[str, int]:
    """Read who owns which column."""
    rows = read_rows(path, "--split", f"expected {_FORM}")
    if rows and [cell.lower() for cell in rows[0][1]] == ["feature", "party"]:
        rows = rows[1:]
    owner: dict[str, int] = {}
    known = set(names)
    for number, cells in rows:
        if len(cells) != 2 or not cells[1].isdecimal() or len(cells[1]) > 9 or not 1 <= int(cells[1]) <= parties:
            raise ConfigError(
                f"--split {path}, line {number}: expected 'feature,party' with a party from 1 to {parties}"
            )
        if cells[0] not in known or cells[0] in owner:
            what = "stands twice" if cells[0] in owner else "is not a column of the data"
            raise ConfigError(f"--split {path}, line {number}: {cells[0]!r} {what}; keep one line for each column")
        owner[cells[0]] = int(cells[1])
    return owner


def split_dataset(dataset: Dataset, parties: int, how: str) -> tuple[VerticalTable, ...]:
    """Return each party its columns of a public data set; ids are the row numbers, written with leading zeros."""
    width = len(str(len(dataset.values)))
    raw_ids = tuple(f"{row + 1:0{width}d}" for row in range(len(dataset.values)))
    return tuple(
        VerticalTable(
            raw_ids=raw_ids,
            raw_values=np.ascontiguousarray(dataset.values[:, list(part)]),
            names=tuple(dataset.names[i] for i in part),
            source=f"data set {dataset.name}, columns of party {party}",
        )
        for party, part in enumerate(split_columns(dataset.names, parties, how), 1)
    )


def check_features(features: Sequence[PartyFeatures]) -> None:
    """Check that no two parties give a column the same name.

    Raises
    ------
    ConfigError
        A name stands at two parties (names are public).
    """
    seen: dict[str, int] = {}
    for party, own in enumerate(features, 1):
        for name in own.names:
            if name in seen:
                raise ConfigError(
                    f"clients {seen[name]} and {party} both have a feature {name!r}; expected different columns at "
                    "every party: rename one, or name the features to use with --columns"
                )
            seen[name] = party


def assemble_names(features: Sequence[PartyFeatures]) -> tuple[str, ...]:
    """Name the columns of the whole table: those of party 1, then of party 2, and so on."""
    return tuple(name for own in features for name in own.names)


def assemble_centers(centers: NDArray[np.float64], features: Sequence[PartyFeatures]) -> NDArray[np.float64]:
    """Turn centres into original units, each party's columns by that party's bounds.

    Parameters
    ----------
    centers : float64 array, shape (k, d), scaled to [-1, 1]
        Columns as `assemble_names` names them.
    features : sequence of PartyFeatures

    Returns
    -------
    float64 array, shape (k, d)
    """
    return unscale(centers, whole_bounds(features))


def whole_bounds(features: Sequence[PartyFeatures]) -> Bounds:
    """Return the bounds of all parties' columns, in order."""
    lo = np.concatenate([own.bounds.lo for own in features])
    hi = np.concatenate([own.bounds.hi for own in features])
    return Bounds(lo, hi, assemble_names(features))
