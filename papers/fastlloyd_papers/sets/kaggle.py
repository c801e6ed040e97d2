"""The taxi and loan sets of the vertical papers, made of the files of two Kaggle competitions.

Taxi: the first 100,000 trips, pick-up and drop-off as seconds since Monday, and six numbers. Loan: the first 60,000
records in which none of 16 columns is missing, each column cut at its 95 % quantile. The paper names neither the 8
columns of taxi nor the 16 of loan: these are ours.

Source: Vertical DP, §6 "Datasets".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import DataError
from fastlloyd_papers.sets.source import Made, MadeSet, PublicTable, locate, open_text, remember, rows_of

TAXI_NEEDS = "train.csv, or train.zip with it, of https://www.kaggle.com/c/nyc-taxi-trip-duration/data"
LOAN_NEEDS = (
    "application_train.csv, or application_train.csv.zip with it, of "
    "https://www.kaggle.com/c/home-credit-default-risk/data"
)
TAXI_TIMES = ("pickup_datetime", "dropoff_datetime")
TAXI_NUMBERS = (
    "passenger_count", "pickup_longitude", "pickup_latitude", "dropoff_longitude", "dropoff_latitude", "trip_duration",
)  # fmt: skip
LOAN_COLUMNS = (
    "AMT_INCOME_TOTAL", "AMT_CREDIT", "AMT_ANNUITY", "AMT_GOODS_PRICE", "APARTMENTS_AVG", "BASEMENTAREA_AVG",
    "YEARS_BEGINEXPLUATATION_AVG", "YEARS_BUILD_AVG", "ELEVATORS_AVG", "ENTRANCES_AVG", "FLOORSMAX_AVG",
    "FLOORSMIN_AVG", "LANDAREA_AVG", "LIVINGAPARTMENTS_AVG", "LIVINGAREA_AVG", "NONLIVINGAREA_AVG",
)  # fmt: skip
_TAXI_ROWS, _LOAN_ROWS = 100_000, 60_000
_LOAN_QUANTILE = 0.95


def make_taxi(folder: Path) -> Made:
    """Make the taxi set.

    Raises
    ------
    ConfigError
        The file is missing.
    DataError
        It is not what it should be.
    """
    path = locate(folder, "train.csv", "train.zip", TAXI_NEEDS)
    names = (*TAXI_TIMES, *TAXI_NUMBERS)
    return _made("taxi", path, names, _table(path, _trips(path), names, _TAXI_ROWS), _TAXI_ROWS)


def make_loan(folder: Path) -> Made:
    """Make the loan set; raises as `make_taxi`."""
    path = locate(folder, "application_train.csv", "application_train.csv.zip", LOAN_NEEDS)
    values = _table(path, _applications(path), LOAN_COLUMNS, _LOAN_ROWS)
    cut = np.minimum(values, np.quantile(values, _LOAN_QUANTILE, axis=0))
    return _made("loan", path, LOAN_COLUMNS, cut, _LOAN_ROWS)


def _made(name: str, path: Path, names: tuple[str, ...], values: NDArray[np.float64], most: int) -> Made:
    notes = () if len(values) == most else (f"{name}: {len(values):,} records; the paper has {most:,}.",)
    return Made((MadeSet((PublicTable(name, names, values),), notes),), (remember(path),))


def _table(path: Path, rows: Iterator[list[float]], names: tuple[str, ...], most: int) -> NDArray[np.float64]:
    found = list(islice(rows, most))
    if not found:
        raise DataError(f"{path}: expected records with {', '.join(names)}, got none")
    return np.array(found, dtype=np.float64)


def _trips(path: Path) -> Iterator[list[float]]:
    names = (*TAXI_TIMES, *TAXI_NUMBERS)
    with open_text(path, "train.csv") as file:
        for line, cells in rows_of(path, file, names):
            try:
                times = [second_of_week(cell) for cell in cells[: len(TAXI_TIMES)]]
                yield [*times, *map(_number, cells[len(TAXI_TIMES) :])]
            except ValueError:
                raise DataError(
                    f"{path}, line {line}: expected two times and six numbers: {', '.join(names)}"
                ) from None


def _applications(path: Path) -> Iterator[list[float]]:
    with open_text(path, "application_train.csv") as file:
        for line, cells in rows_of(path, file, LOAN_COLUMNS):
            if not all(cell.strip() for cell in cells):
                continue
            try:
                yield [_number(cell) for cell in cells]
            except ValueError:
                raise DataError(f"{path}, line {line}: expected numbers: {', '.join(LOAN_COLUMNS)}") from None


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def second_of_week(text: str) -> float:
    """Return the seconds since Monday, 0 o'clock, of a time like 2016-03-14 17:24:55."""
    at = datetime.fromisoformat(text)
    return float(((at.weekday() * 24 + at.hour) * 60 + at.minute) * 60 + at.second)
