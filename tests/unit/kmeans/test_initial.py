"""Sphere packing: from the public seed only, the same everywhere, well spread."""

from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest

from fastlloyd.kmeans.initial import GRID_BITS, sphere_packing, to_grid
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream


@pytest.mark.parametrize("k,d", [(1, 1), (2, 2), (15, 2), (3, 13), (100, 2), (10, 784)])
def test_centres_lie_inside_and_apart(k: int, d: int) -> None:
    centers = sphere_packing(k, d, seed=1)
    assert centers.shape == (k, d)
    assert np.abs(centers).max() <= 1 << GRID_BITS
    assert len({tuple(row) for row in centers.tolist()}) == k


def test_packing_is_denser_than_chance() -> None:
    def closest(centers: np.ndarray) -> float:
        distance = np.linalg.norm(centers[:, None] - centers[None], axis=2)
        return float(distance[~np.eye(len(centers), dtype=bool)].min() / 2**GRID_BITS)

    random = np.random.default_rng(0).uniform(-1, 1, (15, 2)) * 2**GRID_BITS
    assert closest(sphere_packing(15, 2, 0)) > 0.35 > closest(random)


def test_the_same_bits_on_every_machine() -> None:
    # A vector: another implementation, or another machine, must find these centres.
    digest = hashlib.sha256(sphere_packing(15, 2, 2024).astype("<i8").tobytes()).hexdigest()
    assert digest == "cafaf06710dc76568c8690be691c3731cdc240cb618f11b5f4a93ad3f5b80cb5"
    assert (sphere_packing(4, 3, 5) != sphere_packing(4, 3, 6)).any()


def test_nobody_can_change_the_centres_that_others_get() -> None:
    with pytest.raises(ValueError, match="read-only"):
        sphere_packing(4, 3, 5)[0] = 0


def test_moving_to_the_grid_rounds_half_up() -> None:
    assert to_grid(np.array([[8, 7, -8, -9, 24]]), GRID_BITS - 4).tolist() == [[1, 0, 0, -1, 2]]


def plain_packing(k: int, d: int, seed: int) -> np.ndarray:
    """Draw all candidates, and take differences: what `kmeans.reference` does, in numpy."""
    stream, low, high = PublicStream(seed, domains.SPHERE_PACKING), 0, 1 << GRID_BITS

    def pack(radius: int) -> np.ndarray | None:
        placed, reach = np.empty((0, d), dtype=np.int64), (1 << GRID_BITS) - radius
        for _ in range(k):
            candidates = stream.integers(-reach, reach, 100 * d).reshape(100, d)
            apart = [((candidates - point) ** 2).sum(axis=1) >= 4 * radius * radius for point in placed]
            fitting = np.flatnonzero(np.all(apart, axis=0) if apart else np.ones(100))
            if not fitting.size:
                return None
            placed = np.vstack([placed, candidates[fitting[0]]])
        return placed

    found = pack(0)
    for _ in range(12):
        radius = (low + high) // 2
        placed = pack(radius)
        low, high, found = (low, radius, found) if placed is None else (radius, high, placed)
    return found


@pytest.mark.parametrize("k,d", [(1, 1), (30, 1), (40, 3), (12, 50), (9, 600), (5, 5000), (3, 8193), (2, 20_000)])
def test_candidates_that_are_not_drawn_change_nothing(k: int, d: int) -> None:
    assert (sphere_packing(k, d, seed=7) == plain_packing(k, d, seed=7)).all()


def test_many_centres_of_many_features_need_little_memory() -> None:
    """All 100 candidates and their differences took 670 MB, and 13 s."""
    tracemalloc.start()
    sphere_packing(40, 10_000, seed=3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 40 * 10_000 * 8
