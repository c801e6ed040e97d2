"""Wide integers against Python's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.errors import RangeError
from fastlloyd_papers.secfc.wide import MAX_FACTOR, Wide

INT64 = st.integers(-(2**63), 2**63 - 1)
FACTOR = st.integers(0, MAX_FACTOR)


def wide(rows: list[tuple[int, list[int], int]]) -> tuple[Wide, list[int]]:
    """first * factor * factor * .. + addend, in limbs and in Python integers."""
    value = Wide.of(np.array([first for first, _, _ in rows], dtype=np.int64))
    for factors in zip(*(factors for _, factors, _ in rows), strict=True):
        value = value.times(np.array(factors, dtype=np.int64))
    value = value.plus(np.array([addend for _, _, addend in rows], dtype=np.int64))
    exact = []
    for first, factors, addend in rows:
        for factor in factors:
            first *= factor
        exact.append(first + addend)
    return value, exact


ROW = st.tuples(INT64, st.lists(FACTOR, min_size=2, max_size=2), INT64)


@given(st.lists(ROW, min_size=1, max_size=6))
def test_products_and_sums_are_those_of_python(rows: list[tuple[int, list[int], int]]) -> None:
    value, exact = wide(rows)
    assert value.integers().tolist() == exact
    assert value.plus(value).integers().tolist() == [2 * v for v in exact]


@given(st.lists(st.tuples(ROW, ROW), min_size=1, max_size=6), st.booleans())
def test_comparisons_are_those_of_python(pairs: list[tuple[tuple[int, list[int], int], ...]], same: bool) -> None:
    left, a = wide([pair[0] for pair in pairs])
    right, b = wide([pair[0 if same else 1] for pair in pairs])
    less = left.less(right)
    assert less.tolist() == [x < y for x, y in zip(a, b, strict=True)]
    assert left.replace(less, right).integers().tolist() == [max(x, y) for x, y in zip(a, b, strict=True)]
    small = Wide.of(np.zeros(len(a), dtype=np.int64))
    assert left.less(small).tolist() == [x < 0 for x in a]
    assert small.less(left).tolist() == [x > 0 for x in a]


@given(st.lists(INT64, min_size=1, max_size=6))
def test_int64_goes_in_and_out(values: list[int]) -> None:
    array = np.array(values, dtype=np.int64)
    assert (Wide.of(array).integers() == array).all()
    assert (Wide.of(array).times(1).times(1).integers() == array).all()


def test_neighbours_of_a_limb_s_edge_compare() -> None:
    values = np.array([e * 2**s + c for s in (29, 30, 31, 59, 60, 61) for e in (-1, 1) for c in (-1, 0, 1)])
    table = Wide.of(values[:, None]).less(Wide.of(values[None, :]))
    assert (table == (values[:, None] < values[None, :])).all()


def test_what_does_not_fit_is_refused() -> None:
    for factor in (-1, MAX_FACTOR + 1):
        with pytest.raises(RangeError, match="expected factors"):
            Wide.of(np.array([1])).times(factor)


def test_indexing_takes_integers_not_limbs() -> None:
    value = Wide.of(np.arange(6).reshape(2, 3)).times(2**50).times(2**50)
    assert value[:, 1].integers().tolist() == [2**100, 4 * 2**100]
    assert value[1].shape == (3,)
    assert value[np.array([[True, False, False], [False, True, False]])].integers().tolist() == [0, 4 * 2**100]
