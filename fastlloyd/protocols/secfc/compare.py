"""The nearest centre of each point, from decoded integers, exactly (Alg. 1, lines 20 to 25).

s_h / |S_h|^2 orders the centres, so s_g / |S_g|^2 < s_h / |S_h|^2 is decided as s_g |S_h|^2 < s_h |S_g|^2 in wide
integers: no division, no rounding, and ties go to the lowest index. Distances are compared in the same way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.coded import Clusters
from fastlloyd.ring.wide import Wide


def closest(values: Wide, clusters: Clusters) -> NDArray[np.int64]:
    """Give the number of the nearest cluster of each point.

    Parameters
    ----------
    values : Wide, shape (c, m)
        Scores or distances times |S_h|^2, in the order of `clusters.used`.
    clusters : Clusters
        At least one.

    Returns
    -------
    int64 array, shape (m,)
    """
    squares = clusters.sizes**2
    best = values[0]
    place = np.zeros(best.shape, dtype=np.int64)
    for h in range(1, len(squares)):
        nearer = values[h].times(squares[place]).less(best.times(squares[h]))
        best = best.replace(nearer, values[h])
        place[nearer] = h
    nearest: NDArray[np.int64] = clusters.used[place]
    return nearest


def join(blocks: list[Wide]) -> Wide:
    """Lay blocks side by side along their last axis."""
    count = max(len(block.limbs) for block in blocks)
    same = [block.plus(Wide(np.zeros((count, *block.shape), dtype=np.int64))) for block in blocks]
    return Wide(np.concatenate([block.limbs for block in same], axis=-1))
