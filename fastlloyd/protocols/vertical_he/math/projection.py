"""Two clusters, any number of encrypted columns: the linear scheme on their projection, encrypted for every round.

Which of two centres is nearer depends on the key holder's columns b through one number only, b . (c_1 - c_0). Divided
by the sum of |c_1 - c_0| over these columns it is p in [-1, 1], and p can take the place of b in `linear`: a record is
divided among the corners of a grid over p. `renewed` encrypts these shares.

Source: Vertical HE, §3.1 ("Special Case: k = 2"); docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_he.math import grid
from fastlloyd.protocols.vertical_he.plan import Plan


def shares(plan: Plan, own: NDArray[np.float64], t: int, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the shares of p; see `renewed.Division`."""
    step, spread = difference(centers, plan.columns(plan.holder))
    return grid.shares((grid.along(step, own) / spread if spread else np.zeros(own.shape[1]))[None], plan.grid)


def pulls(plan: Plan, t: int, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the corners' pulls; see `renewed.Division`.

    Centre 1 lies above centre 0 along their difference, by the sum that p was divided by.
    """
    places = grid.places(plan.grid, 1)
    found: NDArray[np.float64] = places * np.array([0.0, 2.0 * difference(centers, plan.columns(plan.holder))[1]])
    return found


def difference(centers: NDArray[np.float64], columns: tuple[int, ...]) -> tuple[NDArray[np.float64], float]:
    """Return c_1 - c_0 on some columns, and the sum of its absolute values."""
    step = (centers[1] - centers[0])[list(columns)]
    return step, float(np.abs(step).sum())
