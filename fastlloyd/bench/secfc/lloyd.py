"""SecFC's assignments from pooled records, in exact integers and whole blocks at a time.

The start is the server's own (`protocols/secfc/math/start.py`), given the distances that it would decode; Lloyd's
iterations compare exact scores crosswise, where the parties compare two centres at a time. So the labels are those of
the protocol, and a table of accuracies needs no shares. Tests compare it with the line by line reference and with the
parties.

Source: SecFC, Alg. 1, §5.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastlloyd.field.wide import LIMB_BITS, Wide
from fastlloyd.protocols.secfc.math.clusters import Clusters
from fastlloyd.protocols.secfc.math.start import SeparatedStart, first_labels
from fastlloyd.protocols.secfc.messages import blocks
from fastlloyd.protocols.secfc.plan import Plan

# Sums of coordinates are cut here, so that products with coordinates and their sums stay below 2^53 in float64.
_LOW_BITS = 15


def run_pooled(points: NDArray[np.int64], plan: Plan) -> list[NDArray[np.int64]]:
    """Run the algorithm on pooled records.

    Parameters
    ----------
    points : int64 array, shape (m, d)
        On the grid of 2^-q, in the order of the run.
    plan : Plan

    Returns
    -------
    list of int64 array, shape (m,)
        The first assignment and that of each round; k for a point in no cluster.
    """
    history, start = [first_labels(plan, len(points))], SeparatedStart(plan)
    for _ in range(plan.start_rounds):
        values = _values(points, history[-1], Clusters.of(history[-1], plan.k), distances=True)
        history.append(start.advance(block[0] for block in values))
    for _ in range(plan.iterations):
        clusters = Clusters.of(history[-1], plan.k)
        values = _values(points, history[-1], clusters, distances=False)
        places = np.concatenate([closest(block, clusters.sizes**2) for block in values])
        history.append(clusters.used[places])
        if (history[-1] == history[-2]).all():
            break
    return history


def closest(values: Wide, weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of the least value over its weight for each point, the first among equals.

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


def _values(
    points: NDArray[np.int64], labels: NDArray[np.int64], clusters: Clusters, *, distances: bool
) -> Iterator[Wide]:
    """Return exact values, block by block, shape (c, points): |mu|^2 - 2 |S| mu.x, and |S|^2 |x|^2 with distances."""
    sums = np.stack([points[labels == h].sum(axis=0) for h in clusters.used])
    high, low = sums >> _LOW_BITS, sums & ((1 << _LOW_BITS) - 1)
    norms = _wide([sum(int(value) ** 2 for value in row) for row in sums])
    twice, squares = 2 * clusters.sizes[:, None], clusters.sizes[:, None] ** 2
    for rows in blocks(len(points)):
        x = points[rows].T.astype(np.float64)
        products = ((high.astype(np.float64) @ x).astype(np.int64) << _LOW_BITS) + (low.astype(np.float64) @ x).astype(
            np.int64
        )
        values = Wide.of(-products).times(twice).plus(norms)
        if distances:
            values = values.plus(Wide.of((points[rows] ** 2).sum(axis=1)[None]).times(squares))
        yield values


def _wide(integers: list[int]) -> Wide:
    """Hold non-negative integers, shape (c, 1)."""
    count = max(integers).bit_length() // LIMB_BITS + 1
    mask = (1 << LIMB_BITS) - 1
    limbs = [[[value >> LIMB_BITS * i & mask] for value in integers] for i in range(count)]
    return Wide(np.array(limbs, dtype=np.int64))
