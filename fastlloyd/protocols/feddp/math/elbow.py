"""Choosing k where the curve of costs bends.

Source: FedDP-KMeans, App. H.3, which reads the elbow off the plot; our rule for it: Satopää et al., "Finding a kneedle
in a haystack" (2011), without smoothing, on the logarithm of the cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# Costs below this part of the first are as good as nothing: points that lie on their centres.
_NOTHING = 1e-4
# A curve no deeper than this is a line.
_FLAT = 1e-12


CLEAR = 0.045
"""An elbow deeper than any other number by this much is right as good as always, see docs/feddp.md."""


def elbow(costs: Sequence[float]) -> int:
    """Return the number of clusters at which the curve lies deepest below the line between its ends.

    Parameters
    ----------
    costs : sequence of float
        Cost for 1, 2, ... clusters.

    Returns
    -------
    int
        The smallest such number; with fewer than three costs, or a curve that never lies below, their number.

    Notes
    -----
    In logarithms a cluster more counts by the part of the cost that it takes away. On the cost itself the first few
    clusters, which always take away much, pull the elbow to the left.
    """
    depths = _depths(costs)
    deepest = max(depths, default=0.0)
    return depths.index(deepest) + 1 if deepest > _FLAT else len(costs)


def margin(costs: Sequence[float]) -> float:
    """Return how much deeper the curve lies at the elbow than at any other number; 0 without an elbow."""
    ordered = sorted(_depths(costs), reverse=True)
    return ordered[0] - ordered[1] if ordered and ordered[0] > _FLAT else 0.0


def _depths(costs: Sequence[float]) -> list[float]:
    """Return how far the logarithms of the costs lie below the line between their ends; none where nothing can."""
    last = len(costs) - 1
    if last < 2 or costs[0] <= 0.0:
        return []
    logs = [math.log(max(cost / costs[0], _NOTHING)) for cost in costs]
    return [logs[last] * i / last - value for i, value in enumerate(logs)]
