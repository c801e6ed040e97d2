"""New centres from noisy sums and counts: division, radius clipping, fold or truncate; and how far they moved.

Sums and counts are one vector of k (d + 1) elements: the sums row by row, then the counts. All functions work on
released values only, so this is post-processing. They use basic IEEE operations in a fixed order (no BLAS, no
reductions), so that every client computes the same bits.

Source: FastLloyd, Alg. 1 lines 18 to 20, §5.3.5.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Without fold or truncate a centre may leave the domain; beyond this limit exact arithmetic would break.
FREE_LIMIT = 16.0
WIDTH = 2.0
"""Of the scaled domain [-1, 1]: a feature's range."""


def total(values: NDArray[np.float64]) -> float:
    """Add up in order, shape (n,): numpy's own sum may use another order on another machine.

    Examples
    --------
    >>> total(np.array([1e16, 1.0, -1e16]))
    0.0
    """
    return float(np.cumsum(values)[-1])


def join(sums: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lay sums (k, d) and counts (k,) out as one vector of k (d + 1) elements."""
    return np.concatenate([sums.ravel(), counts])


def split(vector: NDArray[np.float64], k: int, d: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Undo `join`."""
    return vector[: k * d].reshape(k, d), vector[k * d :]


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


class Movement(NamedTuple):
    """How far the centres of one round moved, as shares of a feature's range.

    Attributes
    ----------
    largest, mean : float
        Over all centres; the shift of one is the root mean square over its features.
    """

    largest: float
    mean: float


def movements(path: Sequence[NDArray[np.float64] | None]) -> tuple[Movement | None, ...]:
    """Return how far the centres moved in each round.

    Parameters
    ----------
    path : sequence of float64 arrays, shape (k, d), or None
        Scaled centres at the start and after each round; None where there were none yet.

    Returns
    -------
    tuple of Movement or None
        One for each round; None where there were no centres before it or after it, or not as many: a merge is no
        movement.

    Notes
    -----
    Privacy: post-processing, where each array of the path is released or public.

    Examples
    --------
    >>> movements([None, np.array([[0.0], [0.0]]), np.array([[0.5], [1.0]])])
    (None, Movement(largest=0.5, mean=0.375))
    """
    return tuple(itertools.starmap(_between, itertools.pairwise(path)))


def _between(before: NDArray[np.float64] | None, after: NDArray[np.float64] | None) -> Movement | None:
    if before is None or after is None or len(before) != len(after):
        return None
    shifts = np.sqrt(np.mean(((after - before) / WIDTH) ** 2, axis=1))
    return Movement(float(shifts.max()), float(shifts.mean()))
