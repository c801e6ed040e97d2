"""The public projection of one run, and points in its space: exact functions of each record alone.

Source: FedDP-KMeans, Alg. 1 lines 7, 10, 12, 17 and 20; `grid.py` for why all of it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.protocols.feddp.math.grid import MATRIX_BITS

_BLOCK_VALUES = 1 << 20


@dataclass(frozen=True, slots=True)
class Projection:
    """What the server makes of the noisy outer product, and its own points seen through it.

    Attributes
    ----------
    matrix : int32 array, shape (r, d)
        Leading eigenvectors as rows, on the grid of 2^-16.
    server_points : int64 array, shape (n_server, r)
        The server's points, projected, on the grid of 2^-bits.
    bits : int
        g of `grid.py`.
    """

    matrix: NDArray[np.int32]
    server_points: NDArray[np.int64]
    bits: int


def project(points: GridPoints, matrix: NDArray[np.int32], bits: int) -> GridPoints:
    """Project points of norm at most Delta to the grid of 2^-bits, half to even.

    Parameters
    ----------
    points : GridPoints
        Shape (n, d).
    matrix : int32 array, shape (r, d)
    bits : int

    Returns
    -------
    GridPoints
        Shape (n, r).

    Notes
    -----
    Sees: nobody but the caller, if the points are private.
    """
    rank = matrix.shape[0]
    rows = matrix.astype(np.float64)
    factor = 2.0 ** (bits - MATRIX_BITS - points.fraction_bits)
    coordinates = np.empty((rank, points.n), dtype=np.int32)
    norms = np.empty(points.n)
    width = max(256, _BLOCK_VALUES // points.d)
    for start in range(0, points.n, width):
        part = slice(start, start + width)
        y = rows @ points.raw_coordinates[:, part].astype(np.float64)
        y *= factor
        np.rint(y, out=y)
        coordinates[:, part] = y
        np.einsum("ij,ij->j", y, y, out=norms[part])
    return GridPoints(coordinates, norms, bits, points.passes)
