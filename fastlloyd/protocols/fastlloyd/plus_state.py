"""The clients' state in fastlloyd-plus besides the centres, and the noise on the releases.

Source: docs/fastlloyd-plus.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.update import total
from fastlloyd.privacy.release import NORM_OF
from fastlloyd.protocols.fastlloyd.plan import Plan

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class State:
    """What the clients know besides the centres; public among them.

    Attributes
    ----------
    middle, deviation : float64 array, shape (d,)
        Of all records: mean, and standard deviation of each feature.
    records : float
        Number of records.
    counts, count_variance : float64 array, shape (clusters,)
        Records of each cluster of the next round, and the variance of their error.
    variance : float64 array, shape (clusters,)
        Variance of the error of each coordinate of a centre.
    given : bool
        The start was given: a survey does not change it.
    cells : float64 array, shape (g^d,)
        Weights of the histogram's significant cells (`plus_grid`); empty without a histogram.
    """

    middle: Floats
    deviation: Floats
    records: float
    counts: Floats
    count_variance: Floats
    variance: Floats
    given: bool
    cells: Floats

    @property
    def spread(self) -> float:
        """Root mean squared distance of the records from their middle."""
        return math.sqrt(total(self.deviation * self.deviation))


def noise_deviations(plan: Plan, t: int) -> tuple[float, float]:
    """Return the standard deviation of all noise on a sum and on a count, in the units of the domain."""
    planned, grid = plan.rounds[t], float(1 << plan.fraction_bits)
    more = plan.all_noise * (math.sqrt(2.0) if NORM_OF.get(plan.mechanism) == "l1" else 1.0)  # the plan has the scale b
    return planned.sum_scale * more / grid, planned.count_scale * more / grid
