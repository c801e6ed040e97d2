"""The public projection of one run, and points in its space: exact functions of each record alone.

The grids of a run are chosen from public quantities so that nothing wraps and every label is exact. Records
lie on the grid of 2^-q (`choose_fraction_bits`). Two more are needed:

* The outer product works on records cut to 2^-p, p <= q, so that N * C * 2^(2p) and its noise fit Z_2^64, C the most
  that one neighbour adds to an entry, and that the noise stays within what the sampler draws.
* Projected points lie on the grid of 2^-g. The projection's entries are whole multiples of 2^-16, its rows have norm
  at most 17/16. A record has norm at most Delta, so by Cauchy and Schwarz every partial sum of a projected coordinate
  is at most 17/16 * 2^16 * Delta 2^q, far below 2^53: exact in float64. Scaling it by a power of two and rounding is
  then a function of the record and the projection alone. With r rows a projected vector has norm at most
  L = 17/16 sqrt(r) Delta 2^g + sqrt(r), rounding included; the scores |c|^2 - 2 y.c and all partial sums of them are
  integers of at most 3 L^2, and g is chosen so that this stays below 2^53.

Source: FedDP-KMeans, Alg. 1 lines 7, 10, 12, 17 and 20; docs/protocol.md, "Arithmetic".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import RangeError
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.masking.fixed import EXACT_FLOAT_BITS, MAX_FRACTION_BITS

_BLOCK_VALUES = 1 << 20

MATRIX_BITS = 16
ROW_NORM = 17.0 / 16.0
MIN_OUTER_BITS = 6
MIN_PROJECTED_BITS = 6
# The sampler draws up to standard deviations of 2^44; all shares together are at most twice what one draws.
_MAX_NOISE = 2.0**43


def choose_outer_bits(*, n_total: int, largest: float, noise: float, tail: float, most: int) -> int:
    """Choose the largest p <= `most` for which sums of outer products fit the 64-bit ring.

    Parameters
    ----------
    n_total : int
        Public N.
    largest : float
        Largest value that one neighbour adds to an entry, scaled domain.
    noise : float
        Standard deviation of all noise together, scaled domain.
    tail : float
        Largest noise allowed for.
    most : int
        q: the records are on that grid already.

    Raises
    ------
    RangeError
        Fewer than 6 bits are left; the error says how to fix it.
    """
    for bits in range(most, MIN_OUTER_BITS - 1, -1):
        unit = 4.0**bits
        if (n_total * max(largest, 1.0) + tail) * unit < 2.0**63 and noise * unit < _MAX_NOISE:
            return bits
    raise RangeError(
        f"outer products of up to {n_total} records and their noise need more than 64 bits; lower --n-total, the norm "
        "bound or outer_clip, or raise --epsilon"
    )


def projected_limit(norm_bound: float, rank: int, bits: int) -> int:
    """Return L: the largest norm of a projected point or centre, in units of 2^-bits."""
    return math.ceil(ROW_NORM * math.sqrt(rank) * norm_bound * 2.0**bits + math.sqrt(rank))


def choose_projected_bits(norm_bound: float, rank: int) -> int:
    """Choose the largest g <= 16 for which scores in the projected space are exact.

    Raises
    ------
    RangeError
        Fewer than 6 bits are left.
    """
    for bits in range(MAX_FRACTION_BITS, MIN_PROJECTED_BITS - 1, -1):
        if 3 * projected_limit(norm_bound, rank, bits) ** 2 < 1 << EXACT_FLOAT_BITS:
            return bits
    raise RangeError(
        f"norm bound {norm_bound:g} and {rank} dimensions are too many for exact scores in the projected space; lower "
        "norm_bound or --k"
    )


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
        g of this module.
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
