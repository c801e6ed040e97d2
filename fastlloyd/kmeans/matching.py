"""Clusters matched with true classes, one to one, so that most points agree.

For public data sets with known classes only.

Source: SecFC, §5 (accuracy); Kuhn (1955), the Hungarian method.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError


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
