"""Clusters matched with true classes, one to one, so that most points agree.

For public data sets with known classes only.

Source: SecFC, §5 (accuracy); Kuhn (1955), the Hungarian method.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError


def match_classes(labels: NDArray[np.int64], truth: NDArray[np.int64]) -> dict[int, int]:
    """Match clusters with classes.

    Parameters
    ----------
    labels : int64 array, shape (n,)
        Cluster of each point.
    truth : int64 array, shape (n,)
        Class of each point.

    Returns
    -------
    dict from cluster to class
        One to one; the clusters or classes that are more in number than the others stay without a partner.

    Raises
    ------
    ConfigError
        SciPy is not installed.
    """
    clusters, classes, table = _contingency(labels, truth)
    rows, columns = _pair(table)
    return {int(clusters[i]): int(classes[j]) for i, j in zip(rows, columns, strict=True)}


def accuracy(labels: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Give the share of points whose cluster is matched with their class; arrays of shape (n,), n at least 1."""
    *_, table = _contingency(labels, truth)
    rows, columns = _pair(table)
    return float(table[rows, columns].sum() / len(labels))


def _contingency(
    labels: NDArray[np.int64], truth: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Give the clusters, the classes, and how many points each pair has."""
    clusters, own = np.unique(labels, return_inverse=True)
    classes, true = np.unique(truth, return_inverse=True)
    table = np.zeros((len(clusters), len(classes)), dtype=np.int64)
    np.add.at(table, (own, true), 1)
    return clusters, classes, table


def _pair(table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give rows and columns, one to one, with the largest sum."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ConfigError("accuracy needs SciPy: pip install 'fastlloyd[ml]'") from error
    rows, columns = linear_sum_assignment(-table)
    return rows, columns
