"""The data of the vertical DP benchmarks: the mixed Gaussian, the letters, and two sets that the user may give.

Taxi and loan are not shipped. Put into --data-dir, as downloaded from Kaggle (ending in .csv or .csv.gz)::

    taxi.csv    'train.csv' of the New York City taxi trip durations
    loan.csv    'application_train.csv' of the home credit default risk

Each column is scaled to [-1, 1] by its least and largest value, which is fit for public data only; the letters have
their own bounds, 0 to 15. Of taxi the first 100,000 rows are taken, times as seconds in the week; of loan the first
60,000 rows in which no value is missing, each column cut at its 95 % quantile. The paper names neither the 16 columns
of loan nor the 8 of taxi: these are ours.

Source: Vertical DP, §6 "Datasets".
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.bench.vertical_dp.baselines import central_kmeans
from fastlloyd.data.bounds import auto_public, scale
from fastlloyd.data.public.named import dataset_bounds, load_named
from fastlloyd.data.public.vertical_mixture import gaussian_mixture
from fastlloyd.data.table import read_table
from fastlloyd.errors import ConfigError, DataError
from fastlloyd.kmeans.metrics import nearest

Array = NDArray[np.float64]

K = 5
MIXTURE, LETTER, TAXI, LOAN = "mixture", "letter", "taxi", "loan"
TITLES: Mapping[str, str] = {
    MIXTURE: "mixed Gaussian",
    LETTER: "letter",
    TAXI: "New York taxi",
    LOAN: "loan",
}
WIDTHS: Mapping[str, int] = {MIXTURE: 8, LETTER: 16, TAXI: 8, LOAN: 16}
_SUFFIXES = (".csv", ".csv.gz")
_TAXI_ROWS, _LOAN_ROWS = 100_000, 60_000
_LOAN_QUANTILE = 0.95
_TAXI_TIMES = ("pickup_datetime", "dropoff_datetime")
_TAXI_NUMBERS = (
    "passenger_count", "pickup_longitude", "pickup_latitude", "dropoff_longitude", "dropoff_latitude", "trip_duration",
)  # fmt: skip
_LOAN_COLUMNS = (
    "AMT_INCOME_TOTAL", "AMT_CREDIT", "AMT_ANNUITY", "AMT_GOODS_PRICE", "APARTMENTS_AVG", "BASEMENTAREA_AVG",
    "YEARS_BEGINEXPLUATATION_AVG", "YEARS_BUILD_AVG", "ELEVATORS_AVG", "ENTRANCES_AVG", "FLOORSMAX_AVG",
    "FLOORSMIN_AVG", "LANDAREA_AVG", "LIVINGAPARTMENTS_AVG", "LIVINGAREA_AVG", "NONLIVINGAREA_AVG",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One data set and how its columns are dealt out.

    Attributes
    ----------
    name : str
        One of `TITLES`.
    sizes : tuple of int
        Columns of each party.
    n : int
        Records of the mixture; other sets have their own.
    """

    name: str
    sizes: tuple[int, ...]
    n: int = 20_000

    @property
    def parties(self) -> int:
        """Paper: S."""
        return len(self.sizes)

    @property
    def label(self) -> str:
        """A name that differs between sources."""
        size = f"-{self.n}" if self.name == MIXTURE else ""
        return f"{self.name}{size}-{'+'.join(map(str, self.sizes))}"

    @property
    def title(self) -> str:
        """What stands above a table."""
        return f"{TITLES[self.name]}, S = {self.parties} ({'+'.join(map(str, self.sizes))} columns)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Records ready to be clustered.

    Attributes
    ----------
    columns : tuple of float64 arrays, shape (n, d_i), scaled to [-1, 1]
    labels : int64 array, shape (n,)
        The mixture's components, else the clusters of central k-means without privacy, as in the paper.
    """

    source: Source
    columns: tuple[Array, ...] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)

    @property
    def n(self) -> int:
        """Records."""
        return len(self.labels)

    @property
    def points(self) -> Array:
        """All columns, party by party; shape (n, d)."""
        return np.hstack(self.columns)


def even(name: str, parties: int) -> Source:
    """Deal a set's columns out evenly."""
    return Source(name=name, sizes=tuple(len(part) for part in np.array_split(np.arange(WIDTHS[name]), parties)))


def missing(source: Source, data_dir: str | None) -> str:
    """Say what is not there, or nothing."""
    if source.name == MIXTURE:
        return ""
    try:
        _find(source.name, data_dir)
    except ConfigError as error:
        return str(error)
    return ""


def load_problem(source: Source, data_dir: str | None, run: int) -> Problem:
    """Generate or read the records.

    Parameters
    ----------
    source : Source
    data_dir : str or None
    run : int
        The mixture is drawn anew for each, and the columns of loan are dealt anew.

    Raises
    ------
    ConfigError
        A file is not there.
    DataError
        It does not fit.

    Notes
    -----
    Columns of letter and taxi that go together are given to different parties, the worst case for this setting; those
    of mixture and loan are dealt at random (the mixture's are alike already).
    """
    labels: NDArray[np.int64] | None = None
    if source.name == MIXTURE:
        made = gaussian_mixture(source.n, seed=run)
        points, labels, order = made.values, made.labels, np.arange(made.values.shape[1])
    else:
        points = _read(source.name, data_dir)
        if source.name == LOAN:
            order = np.random.default_rng([run, 60]).permutation(points.shape[1])
        else:
            order = np.concatenate(part_correlated(points, source.sizes))
    if sum(source.sizes) != points.shape[1]:
        raise DataError(f"{source.name}: expected {sum(source.sizes)} columns, got {points.shape[1]}")
    cuts = np.cumsum(source.sizes)[:-1]
    columns = tuple(np.ascontiguousarray(points[:, part]) for part in np.split(order, cuts))
    if labels is None:
        pooled = np.hstack(columns)
        labels = nearest(pooled, central_kmeans(pooled, K, seed=0))[0]
    return Problem(source=source, columns=columns, labels=labels)


def part_correlated(points: Array, sizes: Sequence[int]) -> list[NDArray[np.int64]]:
    """Deal columns so that those that correlate are apart; column numbers, party by party.

    Notes
    -----
    Columns with the strongest partner come first; each goes to the party with room to whose columns it is least tied.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        tie = np.abs(np.nan_to_num(np.corrcoef(points, rowvar=False)))
    np.fill_diagonal(tie, 0.0)
    parts: list[list[int]] = [[] for _ in sizes]
    for column in np.argsort(-tie.max(axis=1), kind="stable").tolist():
        open_parties = [party for party, size in enumerate(sizes) if len(parts[party]) < size]
        best = min(open_parties, key=lambda party: (tie[column, parts[party]].sum(), len(parts[party])))
        parts[best].append(column)
    return [np.array(sorted(part), dtype=np.int64) for part in parts]


def _read(name: str, data_dir: str | None) -> Array:
    """Read and scale one set; shape (n, d)."""
    path = _find(name, data_dir)
    if name == LETTER:
        dataset = load_named(name, data_dir)
        return scale(dataset.values, dataset_bounds(dataset, None))
    if name == TAXI:
        values = _read_taxi(path)
    else:
        values = read_table(path, columns=_LOAN_COLUMNS, missing="drop").values[:_LOAN_ROWS]
        values = np.minimum(values, np.quantile(values, _LOAN_QUANTILE, axis=0))
    names = tuple(f"x{i + 1}" for i in range(values.shape[1]))
    return scale(values, auto_public(values, names))


def _read_taxi(path: Path) -> Array:
    """Read the trips: times as seconds since Monday, and six numbers."""
    rows = []
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for number, row in enumerate(islice(csv.DictReader(file), _TAXI_ROWS), 2):
            try:
                times = [_second_of_week(row[name]) for name in _TAXI_TIMES]
                rows.append([*times, *(float(row[name]) for name in _TAXI_NUMBERS)])
            except (KeyError, TypeError, ValueError):
                wanted = ", ".join((*_TAXI_TIMES, *_TAXI_NUMBERS))
                raise DataError(f"{path}, line {number}: expected the columns {wanted} with a value each") from None
    if not rows:
        raise DataError(f"{path}: expected trips, got none")
    return np.array(rows)


def _second_of_week(text: str) -> float:
    at = datetime.fromisoformat(text)
    return float(((at.weekday() * 24 + at.hour) * 60 + at.minute) * 60 + at.second)


def _find(name: str, data_dir: str | None) -> Path:
    if data_dir is None:
        raise ConfigError(f"no folder for {name}.csv; give --data-dir")
    for suffix in _SUFFIXES:
        path = Path(data_dir) / f"{name}{suffix}"
        if path.is_file():
            return path
    raise ConfigError(f"no {name}.csv or {name}.csv.gz in --data-dir")
