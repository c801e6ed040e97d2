"""The data of the vertical HE benchmarks: S1, clusters made here, small public sets, and four that the user may give.

HAR, taxi, bank and loan are not shipped. `fastlloyd datasets make taxi` (`loan`) makes two of Kaggle's files. Put into
--data-dir, ending in .csv or .csv.gz::

    har.csv     the 561 features of the UCI set, train and test; labels, if wanted, as one column in har.labels.csv
    bank.csv    'bank-additional-full.csv' of the UCI set, as it is (separated by semicolons)

HAR is reduced to its 10 first principal components. The paper names neither the 7 columns of bank nor how its 30,090
records were chosen: here are seven numeric ones of the kinds that it names, each cut at its 95 % quantile, all records.
Taxi and loan are as in the benchmarks of vertical-dp. Each column is scaled to [-1, 1] by its least and largest value,
which is fit for public data only.

Source: Vertical HE, §5.2.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import auto_public, scale
from fastlloyd.data.public.named import dataset_bounds, load_named
from fastlloyd.errors import ConfigError, DataError
from fastlloyd_papers.vertical_dp.data import LOAN, TAXI, even, load_problem
from fastlloyd_papers.vertical_he.run import synthetic

Array = NDArray[np.float64]
Labelled = tuple[Array, NDArray[np.int64] | None]

HAR, BANK = "har", "bank"
GIVEN = (HAR, BANK)
_COMPONENTS = 10
_QUANTILE = 0.95
_BANK_COLUMNS = ("age", "duration", "emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed")


@dataclass(frozen=True, slots=True)
class Missing:
    """A set that is not there, and why."""

    reason: str


def load_points(name: str, data_dir: str | None) -> Labelled:
    """Return a set's points, scaled to [-1, 1], and its classes; made here for 'synth-N-K-D'.

    Raises
    ------
    ConfigError
        The set is not there.
    DataError
        It does not fit.
    """
    if name.startswith("synth-"):
        n, k, d = (int(part) for part in name.split("-")[1:])
        return synthetic(n, k, d)
    if name in (TAXI, LOAN):
        return np.hstack(load_problem(even(name, 2), data_dir, 0).columns), None
    if name in GIVEN:
        values, classes = _read_given(name, data_dir)
        if name == BANK:
            values = np.minimum(values, np.quantile(values, _QUANTILE, axis=0))
        return _scaled(components(values, _COMPONENTS)), classes
    data = load_named(name, data_dir)
    return scale(data.values, dataset_bounds(data, None)), data.labels


def describe_given(name: str, data_dir: str | None) -> str:
    """Say which values a set of the user's has, so that another copy of it can be compared; for pages of results.

    Raises
    ------
    ConfigError, DataError
        As `load_points`.
    """
    values, _ = _read_given(name, data_dir)
    rows, columns = values.shape
    digest = hashlib.sha256(values.astype("<f8").tobytes()).hexdigest()
    return f"{name}: given by the user, {rows:,} x {columns}; SHA-256 of these values as float64, row by row: {digest}"


def try_points(name: str, data_dir: str | None) -> Labelled | Missing:
    """Load a set, or say why it is left out."""
    try:
        return load_points(name, data_dir)
    except ConfigError as error:
        return Missing(f"{name} is left out: {error}")


def split_widths(d: int, parties: int) -> tuple[int, ...]:
    """Deal d columns out evenly, the first owners getting one more."""
    return tuple(len(part) for part in np.array_split(np.arange(d), parties))


def components(values: Array, most: int) -> Array:
    """Project on the first principal components, shape (n, most); narrower data stay as they are."""
    if values.shape[1] <= most:
        return values
    centred = values - values.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    projected: Array = centred @ directions[:, ::-1][:, :most]
    return projected


def _scaled(values: Array) -> Array:
    return scale(values, auto_public(values, tuple(f"x{i + 1}" for i in range(values.shape[1]))))


def _find(name: str, data_dir: str | None) -> Path:
    if data_dir is None:
        raise ConfigError(f"no folder for {name}.csv; give --data-dir")
    for suffix in (".csv", ".csv.gz"):
        path = Path(data_dir) / f"{name}{suffix}"
        if path.is_file():
            return path
    raise ConfigError(f"no {name}.csv or {name}.csv.gz in --data-dir")


def _read_given(name: str, data_dir: str | None) -> Labelled:
    path = _find(name, data_dir)
    if name == BANK:
        return _read_bank(path), None
    data = load_named(str(path))
    return data.values, data.labels


def _read_bank(path: Path) -> Array:
    """Read the seven columns; shape (n, 7)."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        values = np.array(list(_numbers(path, file, _BANK_COLUMNS)))
    if not len(values):
        raise DataError(f"{path}: expected clients, got none")
    return values


def _numbers(path: Path, lines: Iterable[str], columns: Sequence[str]) -> Iterable[list[float]]:
    for number, row in enumerate(csv.DictReader(lines, delimiter=";"), 2):
        try:
            yield [float(row[name]) for name in columns]
        except (KeyError, TypeError, ValueError):
            wanted = ", ".join(columns)
            raise DataError(f"{path}, line {number}: expected the columns {wanted} with a number each") from None
