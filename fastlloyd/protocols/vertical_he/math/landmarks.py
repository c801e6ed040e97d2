"""Three or more clusters and encrypted columns: a record counts at the nearest of some public landmarks.

In round t all parties draw M landmarks in the key holder's columns: the centres' own parts there, and points around
them, N(c, 0.3^2) in each column, cut to [-1, 1]. They are made of released centres and a public stream alone. A
record's share is 1 at the nearest landmark v and 0 at all others. The computing party gives each landmark, together
with its own columns of the record, to the nearest centre. So only *which* centre is decided with v in place of the
record's columns b; what `renewed` adds up are the record's own values.

Two records with the same columns at the computing party can have different centres only where b . (c_i - c_j) differs
for some i and j. So the nearest landmark is that with the least sum over i of ((b - v) . (c_i - mean of all c))^2:
along the directions in which the centres differ, weighed by how much they do.

Source: ours; docs/vertical-he.md, docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_he.math import grid
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

WIDTH = 0.3
"""Standard deviation of landmarks around a centre, in each column, scaled domain."""
_FOR_EACH_CENTER = 4
"""The fewest landmarks for each centre."""


def count_landmarks(degree: int, k: int) -> int:
    """Return M, a power of two: with degree 62, 64 for three clusters and 128 for up to 32.

    Three centres differ along two directions only, so fewer landmarks are as near.
    """
    wanted = grid.count_cells(degree, 0) * (1 if k == 3 else 2)
    return max(wanted, 1 << (_FOR_EACH_CENTER * k - 1).bit_length())


def places(plan: Plan, t: int, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the landmarks of round t, float64, shape (M, columns of the key holder), from public numbers alone.

    The last bits of logarithms and cosines depend on the machine. Where two parties' landmarks differ by so little, a
    record near a boundary may go to another centre; its weights are 0 and 1 all the same.
    """
    held = centers[:, list(plan.columns(plan.holder))]
    stream = PublicStream(plan.seed, f"{domains.VERTICAL_HE_LANDMARKS}{t}")
    away = WIDTH * stream.normal((plan.corners, held.shape[1]))
    away[: plan.k] = 0.0
    return np.clip(held[np.arange(plan.corners) % plan.k] + away, -1.0, 1.0)


def shares(plan: Plan, own: NDArray[np.float64], t: int, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 at each record's nearest landmark, the first of several, else 0; see `renewed.Division`.

    Elementwise operations only: the landmark of a record depends on its own columns and on nothing else.
    """
    marks, held = places(plan, t, centers), centers[:, list(plan.columns(plan.holder))]
    squares = np.zeros((len(marks), own.shape[1]))
    for direction in held - held.mean(axis=0):
        apart = grid.along(direction, marks.T)[:, None] - grid.along(direction, own)
        squares += apart * apart
    found: NDArray[np.float64] = np.equal(np.arange(len(marks))[:, None], squares.argmin(axis=0)).astype(np.float64)
    return found


def pulls(plan: Plan, t: int, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the landmarks' pulls; see `renewed.Division`."""
    return grid.pulls(places(plan, t, centers), centers[:, list(plan.columns(plan.holder))])
