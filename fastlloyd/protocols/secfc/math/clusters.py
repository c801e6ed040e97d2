"""The clusters of one assignment that have points; public.

Source: SecFC, Alg. 1, S_h and |S_h| of lines 11, 13 and 21.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FilledClusters:
    """The clusters of one assignment that have points.

    Attributes
    ----------
    used : int64 array, shape (c,)
        Their numbers, ascending.
    sizes : int64 array, shape (c,)
        Their numbers of points; public.
    """

    used: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, labels: NDArray[np.int64], k: int) -> FilledClusters:
        """Count; labels outside 0..k-1 are points in no cluster."""
        counts = np.bincount(labels, minlength=k + 1)[:k].astype(np.int64)
        used = np.flatnonzero(counts)
        return cls(used, counts[used])
