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
    reach = (1 << GRID_BITS) - radius
    centers = np.empty((k, d), dtype=np.int64)
    for j in range(k):
        candidates = stream.integers(-reach, reach, ATTEMPTS * d).reshape(ATTEMPTS, d)
        if j == 0:
            centers[0] = candidates[0]
            continue
        # Coordinates stay below 2^21 and d below 2^20, so the squared distances fit 63 bits.
        difference = candidates[:, None, :] - centers[None, :j, :]
        nearest = np.einsum("ijh,ijh->ij", difference, difference).min(axis=1)
        fitting = np.flatnonzero(nearest >= 4 * radius * radius)
        if fitting.size == 0:
            return None
        centers[j] = candidates[fitting[0]]
    return centers


def to_grid(centers: NDArray[np.int64], fraction_bits: int) -> NDArray[np.int64]:
    """Move centres from the grid of 2^-20 to that of 2^-q, rounding half up, in integers."""
    shift = GRID_BITS - fraction_bits
    return (centers + (1 << (shift - 1))) >> shift
