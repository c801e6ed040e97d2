"""The clusters that the iterations start from, from public randomness and, if asked, decoded distances.

`random`: every point gets a random cluster from the public seed (Alg. 1, line 7).

`separated`: k points are chosen one after the other, each with probability proportional to its squared distance from
the nearest one before it (k-means++, the approximation algorithm here), with the public seed's coins; then group h
holds the points that are at least three times nearer to the h-th than to any other (§5). The other points are in no
group until the first iteration. Each chosen point is a cluster of one in the protocol, so nothing but its distances
to all points is decoded; these the server sees.

Source: SecFC, §4.1, §5; Awasthi and Sheffet (2012); Arthur and Vassilvitskii (2007). Differs from the paper: it does
not say what clustering the separation starts from. A random one would leave all groups empty, since its centres lie
close together and no point is three times nearer to one of them.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.field.wide import Wide
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

_SPARE_WORDS = 3


def first_labels(plan: Plan, records: int) -> NDArray[np.int64]:
    """Return the first assignment, alike on all parties; shape (records,), k for a point in no cluster."""
    if plan.start == "random":
        return PublicStream(plan.seed, domains.SECFC_RANDOM).integers(0, plan.k - 1, records)
    first = PublicStream(plan.seed, domains.SECFC_FIRST).integers(0, records - 1, 1)
    return single(int(first[0]), records, plan.k)


def seed_stream(plan: Plan) -> PublicStream:
    """Return the public coins of the separated start."""
    return PublicStream(plan.seed, domains.SECFC_FURTHER)


def single(point: int, records: int, k: int) -> NDArray[np.int64]:
    """Return the assignment in which one point is cluster 0 and all others are in none."""
    labels = np.full(records, k, dtype=np.int64)
    labels[point] = 0
    return labels


def draw_by_weight(weights: Sequence[int], stream: PublicStream) -> int:
    """Draw an index with probability proportional to its weight; 0 if all weights are 0.

    Notes
    -----
    In Python integers, with 64 bits and more to spare: the same on all machines.
    """
    reached = list(itertools.accumulate(weights))
    total = reached[-1]
    words = total.bit_length() // 32 + _SPARE_WORDS
    draw = int.from_bytes(stream.uint32(words).astype("<u4").tobytes(), "little")
    return bisect.bisect_right(reached, draw * total >> 32 * words) if total else 0


class SeparatedStart:
    """The server's memory during the rounds of the separated start.

    Parameters
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan) -> None:
        self._k = plan.k
        self._stream = seed_stream(plan)
        self._columns: list[Wide] = []
        self._nearest: Wide | None = None

    def advance(self, blocks: Iterable[Wide]) -> NDArray[np.int64]:
        """Take the distances to the newest seed; return the next assignment.

        Parameters
        ----------
        blocks : iterable of Wide, shape (points of the block,)
            If it raises, nothing has changed, and other answers may be tried.
        """
        column = _join(list(blocks))
        self._columns.append(column)
        if len(self._columns) == self._k:
            return self._groups()
        nearest = column if self._nearest is None else self._nearest.replace(column.less(self._nearest), column)
        self._nearest = nearest
        chosen = draw_by_weight(nearest.integers().tolist(), self._stream)
        return single(chosen, column.shape[0], self._k)

    def _groups(self) -> NDArray[np.int64]:
        """Return each point to the seed that it is three times nearer to than to all others, or to none."""
        own = self._columns[0]
        labels = np.zeros(own.shape, dtype=np.int64)
        for h, column in enumerate(self._columns):
            nearer = column.less(own)
            own = own.replace(nearer, column)
            labels[nearer] = h
        bound = own.times(9)
        apart = np.ones(own.shape, dtype=np.bool_)
        for h, column in enumerate(self._columns):
            apart &= (labels == h) | ~column.less(bound)
        return np.where(apart, labels, self._k)


def _join(blocks: list[Wide]) -> Wide:
    """Lay blocks one after the other."""
    count = max(len(block.limbs) for block in blocks)
    same = [block.plus(Wide(np.zeros((count, *block.shape), dtype=np.int64))) for block in blocks]
    return Wide(np.concatenate([block.limbs for block in same], axis=-1))
