"""New centres from noisy sums and counts: division, radius clipping, fold or truncate.

All of it works on released values only, so it is post-processing. It uses basic IEEE operations in a
fixed order (no BLAS, no reductions), so that every client computes the same bits.

Source: FastLloyd, Alg. 1 lines 18 to 20, §5.3.5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Without fold or truncate a centre may leave the domain; beyond this it only breaks exact arithmetic.
FREE_LIMIT = 16.0


def move(noisy_sums: NDArray[np.float64], noisy_counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide sums by counts, row by row.

    A noisy count below 1 is taken as 1: such a cluster is probably empty, and dividing by a number near
    zero or below it would throw the centre anywhere.

    # Differs from the paper: it divides by whatever count comes (their code adds a phantom point to
    empty clusters on each client, which biases the counts).

    Parameters
    ----------
    noisy_sums : float64 array, shape (k, d)
    noisy_counts : float64 array, shape (k,)
    """
    return noisy_sums / np.maximum(noisy_counts, 1.0)[:, None]


def clip_step(step: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Shorten each row of `step`, shape (k, d), to at most `radius` (radius clipping, §5.1)."""
    squares = step * step
    squared = np.zeros(step.shape[0])
    for column in squares.T:  # in order: a reduction may differ between machines
        squared += column
    length = np.sqrt(squared)
    factor = np.where(length > radius, radius / np.maximum(length, radius), 1.0)
    return step * factor[:, None]


def fold(centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Reflect coordinates at the borders until they lie in [-1, 1] (§5.3.5)."""
    shifted = np.mod(centers + 1.0, 4.0)
    return np.where(shifted > 2.0, 4.0 - shifted, shifted) - 1.0


def truncate(centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Clip coordinates to [-1, 1]."""
    return np.clip(centers, -1.0, 1.0)


def bring_inside(centers: NDArray[np.float64], rule: str) -> NDArray[np.float64]:
    """Apply 'fold', 'truncate' or 'none' (clipped to +-16 only, for exact arithmetic)."""
    if rule == "fold":
        return fold(centers)
    if rule == "truncate":
        return truncate(centers)
    return np.clip(centers, -FREE_LIMIT, FREE_LIMIT)
