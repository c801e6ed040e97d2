"""Records beyond the radius enter shortened to it: exact integers, and one record moves sums by at most the radius."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlloyd.kmeans.assign import _shorten, accumulate
from fastlloyd.kmeans.grid import GridPoints, quantise

Q = 4


def grid(coordinates: np.ndarray) -> GridPoints:
    return quantise(np.asarray(coordinates, dtype=np.float64) / 2**Q, Q)


def slow(points: np.ndarray, centers: np.ndarray, radius: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums and counts record by record."""
    k, d = centers.shape
    sums, counts = np.zeros((k, d), dtype=np.int64), np.zeros(k, dtype=np.int64)
    for x in points.tolist():
        squared = [sum((a - b) ** 2 for a, b in zip(x, c, strict=True)) for c in centers.tolist()]
        j = squared.index(min(squared))
        offset = [a - int(b) for a, b in zip(x, centers[j], strict=True)]
        if squared[j] > radius * radius:
            offset = [math.trunc(v * (radius / math.sqrt(squared[j]))) for v in offset]
        sums[j] += offset
        counts[j] += 1
    return sums, counts


@st.composite
def problems(draw: st.DrawFn):
    d, k, n = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(0, 12))
    coordinate = st.integers(-(2**Q), 2**Q)
    points = draw(st.lists(st.lists(coordinate, min_size=d, max_size=d), min_size=n, max_size=n))
    centers = draw(st.lists(st.lists(coordinate, min_size=d, max_size=d), min_size=k, max_size=k))
    shape = (n, d)
    return np.array(points, dtype=np.int64).reshape(shape), np.array(centers, dtype=np.int64), draw(st.integers(1, 30))


@given(problems())
@settings(max_examples=200, deadline=None)
def test_equal_to_record_by_record(problem) -> None:
    points, centers, radius = problem
    sums, counts = slow(points, centers, radius)
    got_sums, got_counts = accumulate(grid(points), centers, radius=radius, relative=True, shorten=True)
    assert (got_sums == sums).all()
    assert (got_counts == counts).all()


@given(problems(), st.integers(0, 11))
@settings(max_examples=200, deadline=None)
def test_one_record_moves_the_sums_by_at_most_the_radius_and_one_count_by_one(problem, index) -> None:
    points, centers, radius = problem
    if not len(points):
        return
    sums, counts = accumulate(grid(points), centers, radius=radius, relative=True, shorten=True)
    removed = np.delete(points, index % len(points), axis=0)
    fewer, fewer_counts = accumulate(grid(removed), centers, radius=radius, relative=True, shorten=True)
    assert (sums - fewer).any(axis=1).sum() <= 1
    assert ((sums - fewer) ** 2).sum() <= radius**2
    assert (counts - fewer_counts).sum() == 1


@given(
    st.integers(1, 2**22),
    st.lists(st.integers(-(2**17), 2**17), min_size=1, max_size=40),
)
@settings(max_examples=500, deadline=None)
def test_no_integer_vector_is_longer_than_the_radius_afterwards(radius: int, vector: list[int]) -> None:
    squared = sum(v * v for v in vector)
    if squared <= radius * radius:
        return
    column = np.array(vector, dtype=np.float64)[:, None]
    short = _shorten(column, np.array([float(squared)]), radius)[:, 0]
    assert sum(int(v) ** 2 for v in short) <= radius * radius
    # Nothing is lost but the fractions: no coordinate is off by a whole unit.
    exact = np.array(vector) * (radius / math.sqrt(squared))
    assert (np.abs(short - exact) < 1.0).all()
    assert (np.abs(short) <= np.abs(np.array(vector))).all()


def test_rounding_to_nearest_would_be_longer() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.integers(-1000, 1001, (5, 4000)).astype(np.float64)
    squared = (vectors**2).sum(axis=0)
    far = squared > 300**2
    nearest = np.rint(vectors[:, far] * (300 / np.sqrt(squared[far])))
    assert 0.3 < ((nearest**2).sum(axis=0) > 300**2).mean() < 0.7
    short = _shorten(vectors[:, far], squared[far], 300)
    assert ((short**2).sum(axis=0) <= 300**2).all()


@pytest.mark.parametrize("k,d", [(3, 2), (40, 2), (40, 40)])
def test_blocks_and_order_change_nothing(k: int, d: int) -> None:
    rng = np.random.default_rng(1)
    centers = rng.integers(-16, 17, (k, d))
    points = rng.integers(-16, 17, (900, d))
    whole = accumulate(grid(points), centers, radius=5, relative=True, shorten=True)
    blocks = accumulate(grid(points), centers, radius=5, relative=True, shorten=True, block=300)
    turned = accumulate(grid(points[::-1]), centers, radius=5, relative=True, shorten=True)
    for other in (blocks, turned):
        assert (whole[0] == other[0]).all()
        assert (whole[1] == other[1]).all()
    assert whole[1].sum() == 900
