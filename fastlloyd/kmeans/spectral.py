"""The exact outer product of integer points, its upper triangle, and the subspace of its largest eigenvalues.

Source: FedDP-KMeans, Alg. 1 lines 3 to 7.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BLOCK_VALUES = 1 << 20
_EXACT = 1 << 53


def outer_product(coordinates: NDArray[np.int32], largest: int) -> NDArray[np.int64]:
    """Add up x x^T over integer points and give the entries on and above the diagonal, row by row.

    Parameters
    ----------
    coordinates : int32 array, shape (d, n)
    largest : int
        No coordinate is larger in absolute value; the whole sum must stay below 2^63.

    Returns
    -------
    int64 array, shape (d (d + 1) / 2,)

    Notes
    -----
    Sees: nobody but the caller.
    Blocks are narrow enough that every product and partial sum is an integer below 2^53, exact in float64, so the
    result is that of integer arithmetic at the speed of BLAS; blocks are added in int64. Memory: a block and d^2.
    """
    d, n = coordinates.shape
    width = max(1, min(max(256, _BLOCK_VALUES // d), (_EXACT - 1) // max(largest, 1) ** 2))
    total = np.zeros((d, d), dtype=np.int64)
    for start in range(0, n, width):
        x = coordinates[:, start : start + width].astype(np.float64)
        total += (x @ x.T).astype(np.int64)
    return total[np.triu_indices(d)]


def symmetric(upper: NDArray[np.float64], d: int) -> NDArray[np.float64]:
    """Undo the packing of `outer_product`: a symmetric matrix, shape (d, d)."""
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = upper
    return matrix + np.triu(matrix, 1).T


def leading_subspace(matrix: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """Return the eigenvectors of the `rank` largest eigenvalues, largest first, as rows; shape (rank, d).

    Notes
    -----
    Eigenvalues count with their sign: without noise none is negative, so a negative one is noise. Each row's entry of
    largest size is positive, so that the result does not depend on the solver's choice of sign.
    """
    _, vectors = np.linalg.eigh(matrix)
    rows: NDArray[np.float64] = vectors[:, ::-1][:, :rank].T.copy()
    peaks = np.argmax(np.abs(rows), axis=1)
    rows[rows[np.arange(rank), peaks] < 0] *= -1.0
    return rows
