"""The least number of phantoms for which sketches alone stay within epsilon and delta."""

from __future__ import annotations

import dataclasses
import math

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocols.vertical_dp.sketch.level import MAX_PHANTOMS
from fastlloyd.protocols.vertical_dp.sketch.sketch import GRID_PHANTOMS, SketchShape, sketch_release


def solve_phantoms(shape: SketchShape, groups: int, epsilon: float, delta: float) -> int:
    """Find the least n_p for which the sketches alone stay within a share of epsilon and delta.

    Parameters
    ----------
    shape : SketchShape
        Its own number of phantoms does not matter.
    groups : int
    epsilon, delta : float
        The share of the sketches.

    Raises
    ------
    ConfigError
        No number of phantoms in range meets the target.

    Notes
    -----
    Privacy: composed as the ledger does. A whole number of phantoms leaves epsilon up to a part in n_p below it.
    """
    if not (math.isfinite(epsilon) and epsilon > 0.0 and 0.0 <= delta < 1.0):
        raise ConfigError(f"expected a positive epsilon and delta from 0 to below 1, got {epsilon} and {delta}")

    def enough(phantoms: int) -> bool:
        candidate = dataclasses.replace(shape, phantoms=phantoms, scheme=GRID_PHANTOMS)
        return spent([sketch_release(candidate, groups)], delta) <= epsilon

    high = 1
    while not enough(high):
        high *= 2
        if high > MAX_PHANTOMS:
            raise ConfigError(
                f"epsilon {epsilon:g} for {shape.rows * groups} rows needs more than {MAX_PHANTOMS} phantoms per cell; "
                "choose a larger --epsilon or fewer rows (vertical-dp.rows)"
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
