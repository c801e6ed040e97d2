"""How good a clustering is, measured on true data: for public data sets only.

All of it is taken on data scaled per feature by the bounds to [-1, 1]. A report that holds any of these
figures is marked "not private".

Source: FastLloyd, §6.2.1 and App. D; docs/report.md, "Evaluation".
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

SAMPLE = 2000
_BLOCK_VALUES = 1 << 22


def nearest(points: NDArray[np.float64], centers: NDArray[np.float64]) -> tuple[NDArray[np.int64], float]:
    """Label points, shape (n, d), by the nearest centre and give the mean squared distance (NICV)."""
    labels = np.empty(len(points), dtype=np.int64)
    total = 0.0
    height = max(1, _BLOCK_VALUES // max(centers.size, 1))
    squared = (centers**2).sum(axis=1)
    twice = 2.0 * centers.T
    for start in range(0, len(points), height):
        block = points[start : start + height]
        found = (squared - block @ twice).argmin(axis=1)
        labels[start : start + height] = found
        apart = centers[found]
        np.subtract(block, apart, out=apart)
        np.multiply(apart, apart, out=apart)
        total += float(apart.sum())
    return labels, total / len(points)


def evaluate(
    points: NDArray[np.float64], centers: NDArray[np.float64], true_labels: NDArray[np.int64] | None = None
) -> dict[str, float | None]:
    """Compare released centres with the true data of a public set.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        Scaled to [-1, 1].
    centers : float64 array, shape (k, d)
        Scaled.
    true_labels : int64 array, shape (n,), optional
        True classes, for `accuracy`.

    Returns
    -------
    dict
        nicv, nicv_central (scikit-learn's KMeans, n_init=10, random_state=0), silhouette (on a fixed public
        sample of at most 2,000 rows) and davies_bouldin (None for a single cluster), centroid_mse (mean
        squared distance to the central centres, matched), accuracy (matched; None without labels).

    Raises
    ------
    ConfigError
        scikit-learn is not installed.
    """
    check_available()
    from scipy.optimize import linear_sum_assignment
    from sklearn import cluster, metrics

    labels, nicv = nearest(points, centers)
    central = cluster.KMeans(len(centers), n_init=10, random_state=0).fit(points)
    rows = _sample(len(points))
    apart = ((centers[:, None] - central.cluster_centers_[None]) ** 2).sum(axis=2)
    several = 1 < len(np.unique(labels[rows])) < len(rows)
    return {
        "nicv": nicv,
        "nicv_central": float(central.inertia_) / len(points),
        "silhouette": float(metrics.silhouette_score(points[rows], labels[rows])) if several else None,
        "davies_bouldin": (float(metrics.davies_bouldin_score(points, labels)) if len(np.unique(labels)) > 1 else None),
        "centroid_mse": float(apart[linear_sum_assignment(apart)].mean()),
        "accuracy": None if true_labels is None else accuracy(labels, true_labels),
    }


def check_available() -> None:
    """Raise before a run the errors that `evaluate` would raise after it, without importing anything.

    Raises
    ------
    ConfigError
        scikit-learn is not installed.
    """
    if find_spec("sklearn") is None:
        raise ConfigError("--evaluate needs scikit-learn: pip install 'fastlloyd[ml]'")


def _sample(n: int) -> NDArray[np.int64]:
    """Return the fixed public sample of rows: the first 2,000 of a public shuffle."""
    if n <= SAMPLE:
        return np.arange(n)
    draws = PublicStream(0, domains.SILHOUETTE).uint32(n)
    return np.sort(np.argsort(draws, kind="stable")[:SAMPLE])


def accuracy(labels: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Return the share of points whose cluster is matched with their class.

    Parameters
    ----------
    labels : int64 array, shape (n,), n at least 1
        Cluster of each point.
    truth : int64 array, shape (n,)
        Class of each point.

    Raises
    ------
    ConfigError
        SciPy is not installed.
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ConfigError("accuracy needs SciPy: pip install 'fastlloyd[ml]'") from error
    clusters, own = np.unique(labels, return_inverse=True)
    classes, true = np.unique(truth, return_inverse=True)
    table = np.zeros((len(clusters), len(classes)), dtype=np.int64)
    np.add.at(table, (own, true), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(labels))
