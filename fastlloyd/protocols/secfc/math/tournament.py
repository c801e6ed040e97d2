"""The clusters in use, and each point's nearest centre by comparisons of two at a time.

For each point the clusters in use form a row, by number. In each round neighbours are compared, the winners stay, and
one without a neighbour waits: c - 1 comparisons of a point in ceil(log2 c) rounds. The earlier of two always has the
lower number, and wins a tie. So the last one is the nearest, the lowest number among equals.

Source: SecFC, Alg. 1, S_h and |S_h| of lines 11 and 13; lines 21 and 25.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FilledClusters:
    """The clusters of one assignment that have points; public.

    Attributes
    ----------
    used, sizes : int64 arrays, shape (c,)
        Their numbers, ascending, and how many points each has.
    """

    used: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, labels: NDArray[np.int64], k: int) -> FilledClusters:
        """Count the points of each; labels outside 0..k-1 are points in no cluster."""
        counts = np.bincount(labels, minlength=k + 1)[:k].astype(np.int64)
        used = np.flatnonzero(counts)
        return cls(used, counts[used])


def count_rounds(clusters: int) -> int:
    """Return the rounds of an iteration with this number of clusters in use; at least one."""
    return max(1, (clusters - 1).bit_length())


class Tournament:
    """The tournament of one iteration.

    Parameters
    ----------
    clusters : FilledClusters
        Those in use.
    records : int
        m.
    """

    def __init__(self, clusters: FilledClusters, records: int) -> None:
        self._used = clusters.used
        places = np.arange(len(clusters.used))
        self._left = np.repeat(places[:, None], records, axis=1)

    @property
    def last(self) -> bool:
        """Whether the next round is the last."""
        return len(self._left) <= 2

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the next pairs: places among the clusters in use, earlier and later, shape (pairs, m) each."""
        count = len(self._left) // 2
        return self._left[0 : 2 * count : 2], self._left[1 : 2 * count : 2]

    def settle(self, first_wins: NDArray[np.bool_]) -> None:
        """Take the results of the comparisons, shape (pairs, m)."""
        earlier, later = self.pairs()
        winners = np.where(first_wins, earlier, later)
        waiting = self._left[2 * len(winners) :]
        self._left = np.concatenate([winners, waiting])

    @property
    def labels(self) -> NDArray[np.int64]:
        """The assignment, after the last round; shape (m,)."""
        labels: NDArray[np.int64] = self._used[self._left[0]]
        return labels
