"""Values that may stand for a missing one."""

from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.data.missing import find_codes

RNG = np.random.default_rng(3)
TEMPERATURE = np.round(RNG.normal(37.0, 0.7, 4000), 1)
AGE = RNG.integers(17, 91, 4000).astype(float)
COST = np.round(np.exp(RNG.normal(6.0, 1.5, 4000)), 2)


def with_codes(column: np.ndarray, *codes: float, rows: int = 40) -> np.ndarray:
    found = column.copy()
    for at, code in enumerate(codes):
        found[at * rows : (at + 1) * rows] = code
    return found


@pytest.mark.parametrize(
    ("column", "codes"),
    [
        (with_codes(TEMPERATURE, 99.9), [99.9]),
        (with_codes(TEMPERATURE, -999.0, 99.9), [-999.0, 99.9]),
        (with_codes(TEMPERATURE, 998.0, 999.0), [998.0, 999.0]),
        (with_codes(AGE, -999.0), [-999.0]),
        (with_codes(AGE, 999.0, 9999.0), [999.0, 9999.0]),
        (np.append(with_codes(AGE, -999.0), 1e7), [-999.0]),  # beside one slip of the pen
        (np.append(with_codes(AGE, -999.0), np.full(50, np.nan)), [-999.0]),
        (with_codes(COST, -1e6), [-1e6]),
    ],
)
def test_codes_are_found(column: np.ndarray, codes: list[float]) -> None:
    assert [value for value, _ in find_codes(column)] == codes
    assert all(count == 40 for _, count in find_codes(column))


@pytest.mark.parametrize(
    "column",
    [
        TEMPERATURE,
        AGE,
        COST,
        with_codes(AGE, 999.0, rows=4),  # too few rows
        np.append(AGE, 1e9),
        RNG.integers(0, 2, 4000).astype(float),
        RNG.integers(0, 4, 4000).astype(float),
        np.where(RNG.random(4000) < 0.99, 0.0, RNG.integers(1, 4, 4000)),  # mostly 0
        RNG.poisson(0.2, 4000).astype(float),
        np.full(100, 7.0),
        np.full(10, np.nan),
        np.empty(0),
    ],
)
def test_usual_columns_have_none(column: np.ndarray) -> None:
    assert find_codes(column) == []
