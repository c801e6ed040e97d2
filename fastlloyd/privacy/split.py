"""The split of a round's budget between sums and counts, after published error analyses.

Source: Su et al., "Differentially private k-means clustering" (2016), §4.
"""

from __future__ import annotations

import math

EXPECTED_NORM = 0.225
"""Su et al.'s rho: the norm of a centre that their error analysis expects."""


def laplace_ratio(d: int, rho: float = EXPECTED_NORM) -> float:
    """Return the noise scale of the counts over that of a coordinate of the sums, both Laplace, d features.

    Notes
    -----
    eps_counts = (4 d rho^2)^(1/3) eps_coordinate, so the scales have the inverse ratio.
    """
    return math.pow(4.0 * d * rho**2, -1.0 / 3.0)
