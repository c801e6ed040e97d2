"""Which baselines there are: from the name in a benchmark's cell to the function.

Their privacy is that of one record added or removed, the number of records public, as in the protocols; what a
package states is its own.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastlloyd_papers.baselines.evolution import pe_means
from fastlloyd_papers.baselines.grid import eugkm
from fastlloyd_papers.baselines.packages import diffprivlib_kmeans, google_lsh

_STARTS, _FEWER_STARTS, _MANY_VALUES = 100, 20, 4_000_000


class Baseline(Protocol):
    """A function from records in [-1, 1] and a budget to centres; at most k of them."""

    def __call__(
        self,
        points: NDArray[np.float64],
        k: int,
        rng: np.random.Generator,
        *,
        epsilon: float,
        delta: float,
    ) -> NDArray[np.float64]:
        """Return the centres, shape (at most k, d)."""
        ...


def best_of_starts(
    points: NDArray[np.float64],
    k: int,
    rng: np.random.Generator,
    *,
    epsilon: float,
    delta: float,
) -> NDArray[np.float64]:
    """Cluster without privacy: the best of 100 k-means++ starts of Lloyd's method, as a stand-in for the optimum.

    With more than four million values the starts are 20.

    Parameters
    ----------
    points : float64 array, shape (n, d)
    k : int
    rng : numpy Generator
    epsilon, delta : float
        Not used.

    Returns
    -------
    float64 array, shape (k, d)
    """
    from sklearn.cluster import KMeans

    starts = _STARTS if points.size <= _MANY_VALUES else _FEWER_STARTS
    found = KMeans(k, n_init=starts, max_iter=500, tol=1e-6, random_state=int(rng.integers(1 << 31)))
    centers: NDArray[np.float64] = found.fit(points).cluster_centers_
    return centers


OPTIMUM_NAME = "kmeans"
BASELINES: dict[str, Baseline] = {
    OPTIMUM_NAME: best_of_starts,
    "eugkm": eugkm,
    "pe-means": pe_means,
    "diffprivlib": diffprivlib_kmeans,
    "google-lsh": google_lsh,
}
