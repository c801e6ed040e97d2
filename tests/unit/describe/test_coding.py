"""The vector that describes clusters: what it holds, and how far one record moves it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastlloyd.describe.coding import CodedRecords, Layout, code
from fastlloyd.describe.columns import DescribedColumn

AGE = DescribedColumn(name="age", lo=0, hi=100, bins=10)
DOSE = DescribedColumn(name="dose", edges=(0.0, 1.0, 10.0))
SEX = DescribedColumn(name="sex", categories=("f", "m"))
COLUMNS = (AGE, SEX, DOSE)
LAYOUT = Layout(COLUMNS)
K, Q = 3, 10


def coded(rows: list[tuple[float, float, float]]) -> CodedRecords:
    """Ages, codes of sex (2 is missing) and doses."""
    values = np.array(rows).reshape(-1, 3)
    sexes = values[:, 1].astype(np.int64), np.zeros(len(values))
    return code(COLUMNS, [AGE.place(values[:, 0]), sexes, DOSE.place(values[:, 2])])


def vector(rows: list[tuple[float, float, float]], labels: list[int]) -> NDArray[np.int64]:
    return LAYOUT.add_up(coded(rows), np.array(labels, dtype=np.int64), K, Q)


def test_the_vector_holds_size_bins_and_half_sums() -> None:
    sums = vector([(0.0, 0, 10.0), (100.0, 1, 5.0), (50.0, 2, math.nan)], [0, 0, 2]) / 2.0**Q
    assert sums.shape == (K, LAYOUT.width) == (3, 1 + 11 + 3 + 3 + 2)
    assert sums[:, 0].tolist() == [2, 0, 1]
    age, sex, dose = LAYOUT.blocks(sums)
    assert age[0].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]
    assert sex.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert dose.tolist() == [[0, 2, 0], [0, 0, 0], [0, 0, 1]]
    assert sums[0, -2:].tolist() == [0.0, 0.5]  # ages at both bounds; the doses 10 and 5 are 1 and 0
    assert sums[2, -2:].tolist() == [0.0, 0.0]


# Values on and beyond the bounds, on edges, missing, and between.
ages = st.sampled_from([-1.0, 0.0, 10.0, 33.3, 100.0, 1e9, math.nan])
doses = st.sampled_from([-1.0, 0.0, 1.0, 5.5, 10.0, 99.0, math.nan])
records = st.tuples(ages, st.integers(0, 2), doses)


@given(st.lists(st.tuples(records, st.integers(0, K - 1)), max_size=6), records, st.integers(0, K - 1))
def test_no_record_moves_the_vector_by_more_than_its_sensitivity(
    others: list[tuple[tuple[float, float, float], int]], record: tuple[float, float, float], label: int
) -> None:
    rows, labels = [row for row, _ in others], [at for _, at in others]
    moved = (vector([*rows, record], [*labels, label]) - vector(rows, labels)) / 2.0**Q
    assert np.linalg.norm(moved) <= LAYOUT.sensitivity * (1 + 1e-12)
    assert (np.flatnonzero(moved.any(axis=1)) == [label]).all()


def test_a_record_on_the_bounds_reaches_the_sensitivity() -> None:
    """So that none smaller would do: sqrt(1 + m + m_num / 4), not sqrt(m), and no column left out of the count."""
    moved = vector([(100.0, 1, 0.0)], [1]) / 2.0**Q
    assert np.linalg.norm(moved) == pytest.approx(LAYOUT.sensitivity) == pytest.approx(math.sqrt(1 + 3 + 2 / 4))
    for wrong in (math.sqrt(3), math.sqrt(1 + 3), math.sqrt(3 + 2 / 4), math.sqrt(1 + 2 + 1 / 4)):
        assert np.linalg.norm(moved) > wrong * 1.01


@given(st.integers(1, 16))
def test_rounding_to_the_grid_keeps_the_sensitivity(bits: int) -> None:
    generator = np.random.default_rng(bits)
    values = generator.uniform(-20.0, 120.0, size=50)
    one = Layout((AGE,))
    for value in (*values, 0.0, 100.0):
        placed = code((AGE,), [AGE.place(np.array([value]))])
        moved = one.add_up(placed, np.zeros(1, dtype=np.int64), 1, bits) / 2.0**bits
        assert np.linalg.norm(moved) <= one.sensitivity * (1 + 1e-12)


def test_columns_of_categories_alone_need_no_half_sums() -> None:
    layout = Layout((SEX,))
    assert (layout.width, layout.sensitivity) == (4, math.sqrt(2.0))
    placed = code((SEX,), [(SEX.read_categories(["f", "m"], source="x"), np.zeros(2))])
    assert layout.add_up(placed, np.array([0, 0]), 1, 8).tolist() == [[512, 256, 256, 0]]
