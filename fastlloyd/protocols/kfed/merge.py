"""The server's merge of the clients' centres into one set of k.

Source: Dennis, Li, Smith (2021), Algorithm 2; FedDP-KMeans, §5 "Baselines".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def merge_centers(local: Sequence[NDArray[np.float64]], k: int, d: int) -> NDArray[np.float64]:
    """Choose k starting centres farthest first, group all local centres around them once, take the means.

    Parameters
    ----------
    local : sequence of float64 array, shape (up to k', d)
        The clients' centres in the order of their ranks.
    k, d : int

    Returns
    -------
    float64 array, shape (k, d)
        If there are fewer than k local centres, they are repeated in turn; without any, the middle of the domain.

    Notes
    -----
    Sees: the server, all of it. Privacy: none.
    """
    centers = np.concatenate([np.zeros((0, d)), *local])
    if len(centers) < k:
        return np.resize(centers, (k, d)) if len(centers) else np.zeros((k, d))
    first = next(len(own) for own in local if len(own))
    chosen = _farthest_first(centers, min(first, k), k)
    labels = _squared_distances(centers, centers[chosen]).argmin(axis=1)  # Alg. 2: one round of Lloyd's
    merged = np.zeros((k, d))
    np.add.at(merged, labels, centers)
    sizes = np.bincount(labels, minlength=k)
    # Of two equal starting centres the second stays without members: it keeps its place.
    return np.where((sizes > 0)[:, None], merged / np.maximum(sizes, 1)[:, None], centers[chosen])


def _farthest_first(centers: NDArray[np.float64], first: int, k: int) -> list[int]:
    """Take the first client's centres, then k - first times the one farthest from all taken (lowest index on ties)."""
    chosen = list(range(first))  # Alg. 2: M begins as the centres of one device, here the first that has any
    distance = _squared_distances(centers, centers[:first]).min(axis=1)
    while len(chosen) < k:  # Alg. 2: the centre farthest from M joins it, until |M| = k
        distance[chosen] = -1.0
        farthest = int(distance.argmax())
        chosen.append(farthest)
        distance = np.minimum(distance, _squared_distances(centers, centers[farthest][None])[:, 0])
    return chosen


def _squared_distances(points: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return |x - c|^2, shape (n, k), center by center: differences, so that equal points have distance 0."""
    return np.stack([((points - center) ** 2).sum(axis=1) for center in centers], axis=1)
