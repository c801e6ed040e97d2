"""k-means of a party's own records, for protocols that send the centres themselves.

Source: FedDP-KMeans, §5 "Baselines"; SecFC, §3.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.kmeans.weighted import cluster
from fastlloyd.randomness.prg import PublicStream


def cluster_locally(
    raw_points: GridPoints, k: int, *, seed: int, purpose: str, restarts: int = 10
) -> NDArray[np.float64]:
    """Cluster records by k-means++ and Lloyd, each counting alike, and give the centres.

    Parameters
    ----------
    raw_points : GridPoints
    k : int
    seed : int
        Public.
    purpose : str
        Keeps the draws of different parties apart.
    restarts : int

    Returns
    -------
    float64 array, shape (up to k, d)
        Scaled domain. Fewer than k where there are fewer different records: centres without records are left out.

    Notes
    -----
    Sees: nobody but the caller; the draws are public, the records decide what comes of them.
    Privacy: none for whoever is sent the result. A centre may be a single record.
    """
    points = raw_points.raw_coordinates.T / float(1 << raw_points.fraction_bits)
    if not len(points):
        return points
    stream = PublicStream(seed, purpose)
    found = cluster(points, min(k, len(points)), stream, restarts=restarts, passes=raw_points.passes)
    return found.centers[np.unique(found.labels)]
