"""Choosing k where the curve of costs bends.

Source: FedDP-KMeans, App. H.3, which reads the elbow off the plot; our rule for it: Satopää et al., "Finding a kneedle
in a haystack" (2011), without smoothing, on the logarithm of the cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# Costs below this part of the first are as good as nothing: points that lie on their centres.
_NOTHING = 1e-4


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
    last = len(costs) - 1
    if last < 2 or costs[0] <= 0.0:
        return len(costs)
    logs = [math.log(max(cost / costs[0], _NOTHING)) for cost in costs]
    depths = [logs[last] * i / last - value for i, value in enumerate(logs)]
    deepest = max(depths)
    return depths.index(deepest) + 1 if deepest > 1e-12 else len(costs)
