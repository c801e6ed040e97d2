"""A sum that comes out the same, bit by bit, on every machine: for what several parties compute alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def total(values: NDArray[np.float64]) -> float:
    """Add up in order, shape (n,): numpy's own sum may go another way on another machine.

    Examples
    --------
    >>> total(np.array([1e16, 1.0, -1e16]))
    0.0
    """
    return float(np.cumsum(values)[-1])
