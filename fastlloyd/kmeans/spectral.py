"""The exact outer product of integer points, the subspace of its largest eigenvalues, and k-means that starts there.

Source: FedDP-KMeans, Alg. 1 lines 3 to 7, and Appendix C, Algorithm 3, after Awasthi and Sheffet, "Improved
spectral-norm bounds for clustering" (2012); the local step of k-FED.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.kmeans.weighted import Clustering, cluster, refine
from fastlloyd.randomness.prg import PublicStream

_BLOCK_VALUES = 1 << 20
_EXACT = 1 << 53
_NEARER = 3.0
"""A record starts a cluster if its centre is this many times nearer than every other."""


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


def cluster_locally(
    raw_points: GridPoints, k: int, *, seed: int, purpose: str, restarts: int = 10
) -> NDArray[np.float64]:
    """Cluster records of equal weight by Awasthi and Sheffet's algorithm, and return the centres.

    Parameters
    ----------
    raw_points : GridPoints
    k : int
    seed : int
        Public.
    purpose : str
        Keeps the draws of different parties apart.
    restarts : int
        How often the projected records are clustered; the cheapest counts.

    Returns
    -------
    float64 array, shape (up to k, d)
        Scaled domain. Fewer than k where there are fewer different records: centres without records are left out.

    Notes
    -----
    Sees: nobody but the caller; the draws are public, the records decide what comes of them.
    Privacy: none for receivers of the result. A centre may be a single record.
    With fewer than d clusters the last bits depend on the machine's linear algebra.
    """
    points = raw_points.raw_coordinates.T / float(1 << raw_points.fraction_bits)
    if not len(points):
        return points
    k = min(k, len(points))
    projected = _project(points, k)  # part 1 (a)
    # Part 1 (b) asks for the centres nu of any solution whose cost is at most ten times the best.
    near = cluster(projected, k, PublicStream(seed, purpose), restarts=restarts, passes=raw_points.passes)
    found = refine(points, _core_means(points, projected, near), passes=raw_points.passes)  # part 3
    return found.centers[np.unique(found.labels)]


def _project(points: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """Project onto the span of the top right singular vectors; shape (n, rank), in coordinates of that span."""
    n, d = points.shape
    if rank >= min(n, d):
        return points  # the span has them all
    if d <= n:
        return points @ leading_subspace(points.T @ points, rank).T
    # The same from the smaller matrix: X v = s u, and s = |X^T u|.
    left = leading_subspace(points @ points.T, rank)
    projected: NDArray[np.float64] = left.T * np.linalg.norm(left @ points, axis=1)
    return projected


def _core_means(points: NDArray[np.float64], projected: NDArray[np.float64], near: Clustering) -> NDArray[np.float64]:
    """Part 2: return the mean of each S_r, the records at most a third as far from nu_r as from every other nu.

    Differs from the paper: where S_r is empty, which it does not foresee, all records nearest to nu_r take its place.
    """
    best = np.full(len(points), np.inf)
    second = best
    used = np.unique(near.labels)
    for center in near.centers[used]:
        distance = ((projected - center) ** 2).sum(axis=1)
        second = np.minimum(second, np.maximum(best, distance))
        best = np.minimum(best, distance)
    core = _NEARER**2 * best <= second
    groups = [near.labels == r for r in used]
    return np.stack([points[own & core if (own & core).any() else own].mean(axis=0) for own in groups])
