"""How far released centres moved from one round to the next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WIDTH = 2.0
"""Of the scaled domain [-1, 1]: a feature's range."""


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
