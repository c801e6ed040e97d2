"""How far apart clusters lie, in the measure in which k-FED's local step assumes it.

Awasthi and Sheffet ask of any two clusters r and s of a matrix A of records, with C the mean of its cluster in
the place of each record and c a large constant that is theirs to choose:

    |mu_r - mu_s| >= c (Delta_r + Delta_s),   Delta_r = min(sqrt(k) |A - C|_2, |A - C|_F) / sqrt(n_r)

Source: Awasthi and Sheffet (2012), as in FedDP-KMeans, Appendix E.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

LEAST = 6.0
"""What the proof cannot do without: each mean lies within 6 Delta of a centre of the start, which then is its alone.

Source: FedDP-KMeans, Appendix E.2, Fact 19.
"""


def separation(points: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    """Return the largest c for which all pairs of clusters are that far apart.

    Parameters
    ----------
    points : float64 array, shape (n, d)
    truth : int64 array, shape (n,)
        The clusters that ought to be found.

    Returns
    -------
    float
        Infinity where there are fewer than two clusters, or none has any spread.
    """
    found, place, sizes = np.unique(truth, return_inverse=True, return_counts=True)
    means = np.stack([points[place == r].mean(axis=0) for r in range(len(found))]) if len(found) else points
    rest = points - means[place]
    least = min(math.sqrt(len(found)) * _spectral_norm(rest), float(np.linalg.norm(rest)))
    deltas = least / np.sqrt(sizes)
    shares = [
        float(np.linalg.norm(means[r] - means[s]) / (deltas[r] + deltas[s])) if least else math.inf
        for r, s in combinations(range(len(found)), 2)
    ]
    return min(shares, default=math.inf)


def local_separation(
    points: NDArray[np.float64], truth: NDArray[np.int64], parts: Sequence[NDArray[np.int64]]
) -> float:
    """Return the least separation at a client, of the clusters that it has; `parts` are the clients' rows."""
    return min(separation(points[rows], truth[rows]) for rows in parts)


def _spectral_norm(matrix: NDArray[np.float64]) -> float:
    """Return the largest singular value."""
    n, d = matrix.shape
    square = matrix.T @ matrix if d <= n else matrix @ matrix.T
    return math.sqrt(max(float(np.linalg.eigvalsh(square)[-1]), 0.0)) if square.size else 0.0
