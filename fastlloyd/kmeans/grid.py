"""Points on the integer grid: quantised once, before anything is computed from them.

Source: docs/protocol.md, "Arithmetic".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.passes import Passes

_BLOCK_VALUES = 1 << 18


@dataclass(frozen=True, slots=True)
class GridPoints:
    """A party's own points on the grid of 2^-q.

    Attributes
    ----------
    raw_coordinates : int32 array, shape (d, n)
        Feature-major, so that blocks of one feature lie together in memory.
    raw_squared_norms : float64 array, shape (n,)
        Exact integers below 2^53.
    fraction_bits : int
    passes : Passes
        How to go through them; it changes no result.
    """

    raw_coordinates: NDArray[np.int32]
    raw_squared_norms: NDArray[np.float64]
    fraction_bits: int
    passes: Passes = field(default_factory=Passes, compare=False, repr=False)

    @property
    def n(self) -> int:
        """Number of points."""
        return int(self.raw_coordinates.shape[1])

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.raw_coordinates.shape[0])


def quantise(raw_points: NDArray[np.float64], fraction_bits: int, passes: Passes | None = None) -> GridPoints:
    """Round points of the scaled domain [-1, 1]^d to the grid, half to even.

    Parameters
    ----------
    raw_points : float64 array, shape (n, d)
        Scaled; values outside [-1, 1] are clipped.
    fraction_bits : int
    passes : Passes, optional
        How to go through them later; one thread if left out.

    Returns
    -------
    GridPoints
        Needs 4 bytes per value and 8 per point; blocks keep the temporary small.
    """
    n, d = raw_points.shape
    raw_coordinates = np.empty((d, n), dtype=np.int32)
    raw_squared_norms = np.empty(n, dtype=np.float64)
    scale = float(1 << fraction_bits)
    height = max(1, _BLOCK_VALUES // d)
    for start in range(0, n, height):
        rows = slice(start, start + height)
        block = np.clip(raw_points[rows], -1.0, 1.0)
        block *= scale
        np.rint(block, out=block)
        raw_coordinates[:, rows] = block.T
        np.einsum("ij,ij->i", block, block, out=raw_squared_norms[rows])
    return GridPoints(raw_coordinates, raw_squared_norms, fraction_bits, passes or Passes())


def round_centers(centers: NDArray[np.float64], fraction_bits: int) -> NDArray[np.int64]:
    """Round centres of the scaled domain to the grid, half to even; shape (k, d)."""
    return np.rint(centers * float(1 << fraction_bits)).astype(np.int64)
