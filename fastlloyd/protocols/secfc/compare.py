"""The nearest centre of each point, from decoded integers, exactly (Alg. 1, lines 20 to 25).

Values v_h over public weights w_h order the centres, so v_g / w_g < v_h / w_h is decided as v_g w_h < v_h w_g in wide
integers: no division, no rounding, and equal values go to the lowest index.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.ring.wide import Wide


def closest(values: Wide, weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of the least value over its weight, for each point.

    Parameters
    ----------
    values : Wide, shape (c, m)
    weights : int64 array, shape (c,)
        Positive.

    Returns
    -------
    int64 array, shape (m,)
    """
    best = values[0]
    place = np.zeros(best.shape, dtype=np.int64)
    for h in range(1, len(weights)):
        nearer = values[h].times(weights[place]).less(best.times(weights[h]))
        best = best.replace(nearer, values[h])
        place[nearer] = h
    return place


def with_zeros(values: Wide, row: int) -> Wide:
    """Return the values, shape (c - 1, m), with one more row of zeros; shape (c, m)."""
    return Wide(np.insert(values.limbs, row, 0, axis=1))


def join(blocks: list[Wide]) -> Wide:
    """Lay blocks side by side along their last axis."""
    count = max(len(block.limbs) for block in blocks)
    same = [block.plus(Wide(np.zeros((count, *block.shape), dtype=np.int64))) for block in blocks]
    return Wide(np.concatenate([block.limbs for block in same], axis=-1))
