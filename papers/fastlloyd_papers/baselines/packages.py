"""Adapters for other people's packages: diffprivlib, and the LSH clustering of Google's differential privacy library.

Neither is a dependency. A benchmark leaves out what is not installed, with a note that says how to install it.
"""

from __future__ import annotations

import importlib
import math

import numpy as np
from numpy.typing import NDArray

_MODULES = {"diffprivlib": "diffprivlib.models", "google-lsh": "clustering.clustering_algorithm"}
_WAYS = {
    "diffprivlib": "pip install diffprivlib 'scikit-learn<1.7' (0.6.6 does not import with scikit-learn 1.9)",
    "google-lsh": "put learning/ of a checkout of github.com/google/differential-privacy on PYTHONPATH",
}


def find_problem(name: str) -> str:
    """Say why a package cannot be used and how to install it, or nothing.

    Parameters
    ----------
    name : str
        'diffprivlib' or 'google-lsh'; any other needs no package.
    """
    if name not in _MODULES:
        return ""
    try:
        importlib.import_module(_MODULES[name])
    except ImportError as error:
        return f"{error}; {_WAYS[name]}"
    return ""


def diffprivlib_kmeans(
    points: NDArray[np.float64], k: int, rng: np.random.Generator, *, epsilon: float, delta: float
) -> NDArray[np.float64]:
    """Cluster by diffprivlib's KMeans with the bounds [-1, 1]; shape (k, d).

    Parameters
    ----------
    points : float64 array, shape (n, d)
    k : int
    rng : numpy Generator
    epsilon : float
    delta : float
        Not used: the package states pure epsilon-DP.

    Privacy
    -------
    As the package states it; nothing of it is proved here.
    """
    from diffprivlib.models import KMeans

    d = points.shape[1]
    model = KMeans(
        n_clusters=k, epsilon=epsilon, bounds=(-np.ones(d), np.ones(d)), random_state=int(rng.integers(1 << 31))
    )
    centers: NDArray[np.float64] = model.fit(points).cluster_centers_
    return centers


def google_lsh(
    points: NDArray[np.float64], k: int, rng: np.random.Generator, *, epsilon: float, delta: float
) -> NDArray[np.float64]:
    """Cluster by Google's LSH tree with its defaults and the radius sqrt(d) of the box; at most k rows.

    Parameters
    ----------
    points : float64 array, shape (n, d)
    k : int
    rng : numpy Generator
        Not used: the package draws from numpy's global state, so its figures differ from one time to the next.
    epsilon, delta : float

    Privacy
    -------
    As the package states it; nothing of it is proved here.
    """
    from clustering import clustering_algorithm, clustering_params

    found = clustering_algorithm.private_lsh_clustering(
        k,
        clustering_params.Data(points, radius=math.sqrt(points.shape[1])),
        clustering_params.DifferentialPrivacyParam(epsilon=epsilon, delta=delta),
    )
    return np.asarray(found.centers, dtype=np.float64)
