"""Sums and counts of all clusters as one vector: the sums row by row, then the counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def join(sums: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lay sums (k, d) and counts (k,) out as one vector of k (d + 1) elements."""
    return np.concatenate([sums.ravel(), counts])


def split(vector: NDArray[np.float64], k: int, d: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Undo `join`."""
    return vector[: k * d].reshape(k, d), vector[k * d :]
