"""What the server has at the end: public post-processing of releases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_dp.math.fit import GridCells
from fastlloyd.protocols.vertical_dp.messages import Spread, Told
from fastlloyd.protocols.vertical_dp.plan import Plan


@dataclass(frozen=True, slots=True)
class ServerResult:
    """What the server has at the end; all of it public post-processing of releases.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
        Scaled, columns party by party.
    weights : float64 array, shape (k,)
        Estimated users per centre.
    noisy_total : float
        Paper: n-hat (vertical-plain: n).
    cells : GridCells
        The weighted grid.
    local_centers : tuple of float64 arrays, shape (k', d_i)
        As released, scaled.
    spread : Spread or None
        How far the noise may have moved it; None of vertical-plain, or before it was drawn again.
    """

    centers: NDArray[np.float64]
    weights: NDArray[np.float64]
    noisy_total: float
    cells: GridCells
    local_centers: tuple[NDArray[np.float64], ...]
    spread: Spread | None = None

    @property
    def told(self) -> Told:
        """What parties are told of it where it is shared."""
        return Told(centers=self.centers, weights=self.weights, spread=self.spread)


def possible_total(noisy_total: float, plan: Plan) -> float:
    """Cut the noisy number of users to 1 .. N: post-processing, so that no run ends because of its noise."""
    return min(max(noisy_total, 1.0), float(plan.n_total))
