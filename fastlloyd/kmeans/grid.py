"""Points on the integer grid: quantised once, before any computation.

Source: docs/protocol.md, "Arithmetic".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.passes import Passes
from fastlloyd.kmeans.stored import Scratch, StoredPasses

_BLOCK_VALUES = 1 << 18


@dataclass(frozen=True, slots=True)
class GridPoints:
    """A party's own points on the grid of 2^-q.

    Attributes
    ----------
    raw_coordinates : int32 array, shape (d, n)
        Feature-major, so that values of one feature are contiguous.
    raw_squared_norms : float64 array, shape (n,)
        Exact integers below 2^53.
    fraction_bits : int
    passes : Passes
        How to iterate over them; it changes no result.
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
        How to iterate over them later; by default in one thread.

    Returns
    -------
    GridPoints
        Needs 4 bytes per value and 8 per point; blocks keep the temporary small.
    """
    n, d = raw_points.shape
    raw_coordinates = np.empty((d, n), dtype=np.int32)
    raw_squared_norms = np.empty(n, dtype=np.float64)
    height = max(1, _BLOCK_VALUES // d)
    for start in range(0, n, height):
        rows = slice(start, start + height)
        raw_coordinates[:, rows], raw_squared_norms[rows] = _round(raw_points[rows], fraction_bits)
    return GridPoints(raw_coordinates, raw_squared_norms, fraction_bits, passes or Passes())


def quantise_stored(
    raw_blocks: Iterable[tuple[int, NDArray[np.float64]]],
    shape: tuple[int, int],
    fraction_bits: int,
    passes: StoredPasses,
    scratch: Scratch,
) -> GridPoints:
    """Quantise as `quantise` does, into a file.

    Parameters
    ----------
    raw_blocks : iterable of (int, float64 array of shape (b, d))
        Blocks of scaled points that together are all, each with the number of its first point.
    shape : tuple of int
        n and d.
    fraction_bits : int
    passes : StoredPasses
    scratch : Scratch
        Takes 8 bytes for each point and 4 for each value.

    Returns
    -------
    GridPoints
        Maps of the file.
    """
    n, d = shape
    for start, block in raw_blocks:
        coordinates, squared_norms = _round(block, fraction_bits)
        scratch.write(squared_norms, 8 * start)
        for feature, column in enumerate(coordinates.astype(np.int32)):
            scratch.write(column, 8 * n + 4 * (n * feature + start))
    raw_coordinates, raw_squared_norms = scratch.map(np.int32, (d, n), 8 * n), scratch.map(np.float64, (n,))
    passes.watch(raw_coordinates)
    passes.watch(raw_squared_norms)
    return GridPoints(raw_coordinates, raw_squared_norms, fraction_bits, passes)


def _round(raw_block: NDArray[np.float64], fraction_bits: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the coordinates, shape (d, b), and squared norms, shape (b,), of scaled points, shape (b, d)."""
    block = np.clip(raw_block, -1.0, 1.0)
    block *= float(1 << fraction_bits)
    np.rint(block, out=block)
    return block.T, np.einsum("ij,ij->i", block, block)


def round_centers(centers: NDArray[np.float64], fraction_bits: int) -> NDArray[np.int64]:
    """Round centres of the scaled domain to the grid, half to even; shape (k, d)."""
    return np.rint(centers * float(1 << fraction_bits)).astype(np.int64)
