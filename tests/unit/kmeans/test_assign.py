"""Labels, sums and counts: exact, and each record's alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlloyd.kmeans.assign import accumulate, assign
from fastlloyd.kmeans.grid import GridPoints, quantise, round_centers

Q = 4


def grid(coordinates: np.ndarray) -> GridPoints:
    """Points given in grid units."""
    return quantise(np.asarray(coordinates, dtype=np.float64) / 2**Q, Q)


def slow(points: np.ndarray, centers: np.ndarray, radius: int | None, relative: bool):
    """Sums and counts by Python integers."""
    k, d = centers.shape
    sums, counts, labels = np.zeros((k, d), dtype=np.int64), np.zeros(k, dtype=np.int64), []
    for x in points.tolist():
        distances = [sum((a - b) ** 2 for a, b in zip(x, c, strict=True)) for c in centers.tolist()]
        j = distances.index(min(distances))
        labels.append(j)
        if radius is None or distances[j] <= radius**2:
            sums[j] += np.array(x) - (centers[j] if relative else 0)
            counts[j] += 1
    return sums, counts, np.array(labels)


@st.composite
def problems(draw: st.DrawFn):
    d = draw(st.integers(1, 3))
    k = draw(st.integers(1, 5))
    n = draw(st.integers(0, 12))
    coordinate = st.integers(-(2**Q), 2**Q)
    points = np.array(draw(st.lists(st.lists(coordinate, min_size=d, max_size=d), min_size=n, max_size=n)))
    centers = np.array(draw(st.lists(st.lists(coordinate, min_size=d, max_size=d), min_size=k, max_size=k)))
    radius = draw(st.one_of(st.none(), st.integers(0, 30)))
    return points.reshape(n, d).astype(np.int64), centers.astype(np.int64), radius, draw(st.booleans())


@given(problems())
@settings(max_examples=200)
def test_equal_to_python_integers(problem) -> None:
    points, centers, radius, relative = problem
    sums, counts, labels = slow(points, centers, radius, relative)
    got_sums, got_counts = accumulate(grid(points), centers, radius=radius, relative=relative)
    assert (got_sums == sums).all()
    assert (got_counts == counts).all()
    assert (assign(grid(points), centers) == labels).all()


@given(problems(), st.integers(0, 11), st.lists(st.integers(-(2**Q), 2**Q), min_size=3, max_size=3))
@settings(max_examples=200)
def test_removing_or_moving_one_record_moves_the_sums_by_at_most_the_radius(problem, index, new) -> None:
    points, centers, radius, _ = problem
    if radius is None or not len(points):
        return
    index %= len(points)
    sums, counts = accumulate(grid(points), centers, radius=radius, relative=True)
    removed = np.delete(points, index, axis=0)
    fewer_sums, fewer_counts = accumulate(grid(removed), centers, radius=radius, relative=True)
    difference = sums - fewer_sums
    assert (difference.any(axis=1)).sum() <= 1
    assert (difference**2).sum() <= radius**2
    assert np.abs(counts - fewer_counts).sum() <= 1


def test_every_neighbour_of_a_tiny_grid_exhaustively_including_border_and_radius() -> None:
    # One feature, three centres, all 33 grid points: ties at 0 and 8, the radius met exactly.
    centers = np.array([[-16], [0], [16]], dtype=np.int64)
    radius = 6
    largest = 0
    base = np.arange(-16, 17, dtype=np.int64)[:, None]
    sums, counts = accumulate(grid(base), centers, radius=radius, relative=True)
    for i in range(len(base)):
        fewer, fewer_counts = accumulate(grid(np.delete(base, i, 0)), centers, radius=radius, relative=True)
        move = int(np.abs(sums - fewer).sum())
        near = min(abs(int(base[i, 0]) - c) for c in (-16, 0, 16)) <= radius
        assert np.abs(counts - fewer_counts).sum() == int(near)
        largest = max(largest, move)
    assert largest == radius  # the bound is met, so a larger step would be noticed


@pytest.mark.parametrize("k,d,n", [(3, 2, 4000), (40, 2, 4000), (40, 40, 500), (100, 3, 1000), (2, 784, 50)])
def test_block_size_order_and_neighbours_never_change_a_label(k: int, d: int, n: int) -> None:
    rng = np.random.default_rng(7)
    # A coarse grid makes many exact ties, on which BLAS kernels without the grid disagree.
    centers = rng.integers(-2, 3, (k, d)) * 4
    points = rng.integers(-4, 5, (n, d)) * 2
    whole = grid(points)
    labels = assign(whole, centers)
    assert (assign(whole, centers, block=1) == labels).all() if n <= 1000 else True
    assert (assign(whole, centers, block=300) == labels).all()
    order = rng.permutation(n)
    assert (assign(grid(points[order]), centers) == labels[order]).all()
    keep = rng.random(n) < 0.5
    assert (assign(grid(points[keep]), centers) == labels[keep]).all()
    sums, counts = accumulate(whole, centers, radius=None, relative=False)
    assert (counts == np.bincount(labels, minlength=k)).all()
    other, other_counts = accumulate(whole, centers, radius=None, relative=False, block=300)
    assert (sums == other).all()
    assert (counts == other_counts).all()


def test_ties_go_to_the_lowest_index() -> None:
    centers = np.array([[8], [-8], [8]], dtype=np.int64)
    assert assign(grid(np.array([[0], [8], [-8]])), centers).tolist() == [0, 0, 1]


def test_no_points() -> None:
    sums, counts = accumulate(grid(np.zeros((0, 2))), np.zeros((3, 2), dtype=np.int64), radius=5, relative=True)
    assert not sums.any()
    assert not counts.any()


def test_quantising_rounds_half_to_even_and_clips() -> None:
    points = quantise(np.array([[0.5 / 16], [1.5 / 16], [-0.5 / 16], [3.0], [-9.0]]), Q)
    assert points.raw_coordinates.tolist() == [[0, 2, 0, 16, -16]]
    assert points.raw_squared_norms.tolist() == [0, 4, 0, 256, 256]
    assert round_centers(np.array([[2.5 / 16]]), Q).tolist() == [[2]]


@pytest.mark.parametrize("values", [1, 4, 7])
@pytest.mark.parametrize("n", [0, 1, 4, 5])
def test_quantising_in_blocks_changes_nothing(values: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(n).uniform(-1.2, 1.2, (n, 2))
    whole = np.rint(np.clip(data, -1.0, 1.0) * 2**Q)
    monkeypatch.setattr("fastlloyd.kmeans.grid._BLOCK_VALUES", values)
    points = quantise(data, Q)
    assert (points.raw_coordinates == whole.T).all()
    assert (points.raw_squared_norms == (whole**2).sum(axis=1)).all()


def test_memory_stays_within_twice_the_data() -> None:
    import tracemalloc

    data = np.zeros((200_000, 16))
    centers = np.zeros((32, 16), dtype=np.int64)
    tracemalloc.start()
    points = quantise(data, Q)
    accumulate(points, centers, radius=10, relative=True)
    assign(points, centers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < data.nbytes  # besides the data itself
