"""The initial centres: sphere packing, from the public seed and without data.

Source: FastLloyd, §5.3.1, after Su et al. (2016), §3.3.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

ATTEMPTS = 100
GRID_BITS = 20
_SEARCH_STEPS = 12
# Numbers that are drawn at a time: more would be drawn in vain, with fewer the calls cost more than the draws.
_DRAWN = 1 << 12
# Coordinates are at most 2^20: sums of this many products are at most 2^53, exact in float64.
_EXACT_FEATURES = 1 << 13


@lru_cache(maxsize=8)  # each party of a process starts from the same centres
def sphere_packing(k: int, d: int, seed: int) -> NDArray[np.int64]:
    """Place k centres in [-1, 1]^d as far from each other and the border as a random search can.

    The radius a is found by binary search: k points are drawn one after the other, each at least a from
    the border and 2a from those before it, with 100 attempts per point; the largest a that worked wins.
    Drawn and compared in integers, so that all parties get the same centres bit by bit.

    Parameters
    ----------
    k, d : int
    seed : int
        Public.

    Returns
    -------
    int64 array, shape (k, d)
        On the grid of 2^-20; see `to_grid`. Read-only.
    """
    stream = PublicStream(seed, domains.SPHERE_PACKING)
    unit = 1 << GRID_BITS
    low, high = 0, unit
    found = _pack(k, d, 0, stream)
    for _ in range(_SEARCH_STEPS):
        radius = (low + high) // 2
        placed = _pack(k, d, radius, stream)
        if placed is None:
            high = radius
        else:
            low, found = radius, placed
    if found is None:  # pragma: no cover - a radius of 0 accepts every point
        raise AssertionError("a radius of 0 always fits")
    found.flags.writeable = False
    return found


def _pack(k: int, d: int, radius: int, stream: PublicStream) -> NDArray[np.int64] | None:
    """Try to place k points for one radius; None when some point fails 100 times."""
    placed, squares = np.empty((k, d)), np.empty(k, dtype=np.int64)
    for j in range(k):
        found = _first_fitting(placed[:j], squares[:j], radius, stream)
        if found is None:
            return None
        placed[j], squares[j] = found
    return placed.astype(np.int64)


def _first_fitting(
    placed: NDArray[np.float64], squares: NDArray[np.int64], radius: int, stream: PublicStream
) -> tuple[NDArray[np.int64], np.int64] | None:
    """Return the first of 100 candidates that is far enough from all placed points, and its square; None: none is.

    The stream moves by 100 candidates, but only those before the first fitting one are drawn: with many features nearly
    all radii fit the first, or none.
    """
    reach, d = (1 << GRID_BITS) - radius, placed.shape[1]
    left, height = ATTEMPTS, max(1, _DRAWN // max(d, len(placed) // 4))
    while left:
        count = min(height, left)
        candidates = stream.integers(-reach, reach, count * d).reshape(count, d)
        left -= count
        # Coordinates stay below 2^21 and d below 2^20, so the squared distances fit 63 bits.
        own = np.einsum("ih,ih->i", candidates, candidates)
        distances = own[:, None] + squares - 2 * _products(candidates.astype(np.float64), placed)
        fitting = np.flatnonzero((distances >= 4 * radius * radius).all(axis=1))
        if fitting.size:
            stream.skip(left * d)
            return candidates[fitting[0]], own[fitting[0]]
    return None


def _products(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.int64]:
    """Multiply integer points, shapes (i, d) and (j, d), exactly, whatever the order of the sums."""
    total = np.zeros((len(one), len(other)), dtype=np.int64)
    for start in range(0, one.shape[1], _EXACT_FEATURES):
        part = slice(start, start + _EXACT_FEATURES)
        total += (one[:, part] @ other[:, part].T).astype(np.int64)
    return total


def packing_units(k: int, d: int) -> float:
    """Return what `sphere_packing` compares in units of 1 to 10 ns: the seed decides how many candidates are drawn."""
    return max(1, min(ATTEMPTS, _DRAWN // max(d, k // 4))) * float(k) * k * (d + 50)


def to_grid(centers: NDArray[np.int64], fraction_bits: int) -> NDArray[np.int64]:
    """Move centres from the grid of 2^-20 to that of 2^-q, rounding half up, in integers."""
    shift = GRID_BITS - fraction_bits
    return (centers + (1 << (shift - 1))) >> shift
