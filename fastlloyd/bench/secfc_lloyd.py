"""SecFC's assignments from pooled records, in exact integers and whole blocks at a time.

The server's own iteration (`protocols/secfc/start.py`) is given values of the same order, computed here from the
records; so the labels are those of the protocol, and a table of accuracies needs no shares. Tests compare it with the
line by line reference and with the parties.

Source: SecFC, Alg. 1, §5.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.clusters import Clusters
from fastlloyd.protocols.secfc.messages import ValuesFormat
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.protocols.secfc.start import Course
from fastlloyd.ring.wide import LIMB_BITS, Wide

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
    course = Course(plan, len(points))
    history = [course.labels]
    while len(history) <= plan.rounds:
        clusters, lloyd = course.clusters, not course.starting
        course.advance(_values(points, course.labels, clusters, plan, distances=not lloyd), clusters.sizes**2)
        history.append(course.labels)
        if lloyd and (history[-1] == history[-2]).all():
            break
    return history


def _values(
    points: NDArray[np.int64], labels: NDArray[np.int64], clusters: Clusters, plan: Plan, *, distances: bool
) -> Iterator[Wide]:
    """Return exact values, block by block: |mu|^2 - 2 |S| mu.x, and |S|^2 |x|^2 with distances.

    The protocol's server gets masked ones with the same order, and the same distances.
    """
    sums = np.stack([points[labels == h].sum(axis=0) for h in clusters.used])
    high, low = sums >> _LOW_BITS, sums & ((1 << _LOW_BITS) - 1)
    norms = _wide([sum(int(value) ** 2 for value in row) for row in sums])
    twice, squares = 2 * clusters.sizes[:, None], clusters.sizes[:, None] ** 2
    for rows in ValuesFormat(plan.field, len(clusters.used), len(points)).blocks:
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
