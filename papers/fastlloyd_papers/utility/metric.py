"""Further metrics of App. D on public data: silhouette, Davies-Bouldin, matched centroid error.

Source: FastLloyd, §6.2.1, App. D.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.metrics import SAMPLE
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

_LONE = -1.0


class Metrics:
    """What does not depend on a run: distances within a fixed sample, and centres found without privacy.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        Scaled to [-1, 1].
    k : int
    """

    def __init__(self, points: NDArray[np.float64], k: int) -> None:
        from sklearn.cluster import KMeans

        self._points = points
        self._rows = sample_rows(len(points))
        sample = points[self._rows]
        squared = (sample**2).sum(axis=1)
        products = squared[:, None] + squared[None, :] - 2.0 * sample @ sample.T
        self._distances = np.sqrt(np.maximum(products, 0.0))
        np.fill_diagonal(self._distances, 0.0)
        self._central = KMeans(k, n_init=10, random_state=0).fit(points).cluster_centers_

    def judge(self, centers: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, float | None]:
        """Return silhouette (-1 for a single cluster), Davies-Bouldin (None for one) and matched centroid error."""
        return {
            "silhouette": silhouette(self._distances, labels[self._rows]),
            "davies_bouldin": davies_bouldin(self._points, labels),
            "centroid_mse": matched_error(centers, self._central),
        }


def sample_rows(n: int) -> NDArray[np.int64]:
    """Return the fixed public sample: all rows, or the first 2,000 of a public shuffle."""
    if n <= SAMPLE:
        return np.arange(n)
    return np.sort(np.argsort(PublicStream(0, domains.SILHOUETTE).uint32(n), kind="stable")[:SAMPLE])


def silhouette(distances: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Return the mean silhouette from all distances, shape (n, n); records alone in their cluster count as 0.

    Returns
    -------
    float
        -1 for a single cluster (App. D), or where each record has its own.
    """
    found, own = np.unique(labels, return_inverse=True)
    n = len(labels)
    if not 1 < len(found) < n:
        return _LONE
    member = np.zeros((n, len(found)))
    member[np.arange(n), own] = 1.0
    sizes = member.sum(axis=0)
    sums = distances @ member
    rows = np.arange(n)
    inside = sums[rows, own] / np.maximum(sizes[own] - 1.0, 1.0)
    means = sums / sizes
    means[rows, own] = np.inf
    outside = means.min(axis=1)
    scores = (outside - inside) / np.maximum(np.maximum(inside, outside), np.finfo(np.float64).tiny)
    return float(np.where(sizes[own] > 1.0, scores, 0.0).mean())


def davies_bouldin(points: NDArray[np.float64], labels: NDArray[np.int64]) -> float | None:
    """Return the Davies-Bouldin index; None for a single cluster, where it is infinite."""
    from sklearn.metrics import davies_bouldin_score

    if len(np.unique(labels)) < 2:
        return None
    return float(davies_bouldin_score(points, labels))


def matched_error(centers: NDArray[np.float64], central: NDArray[np.float64]) -> float:
    """Return the mean squared distance between centres matched one to one so that it is smallest."""
    from scipy.optimize import linear_sum_assignment

    cost = ((centers[:, None] - central[None]) ** 2).sum(axis=2)
    rows, columns = linear_sum_assignment(cost)
    return float(cost[rows, columns].mean())
