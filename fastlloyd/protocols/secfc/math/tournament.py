"""The nearest centre of each point by comparisons of two at a time: what a client knows of one iteration.

The clusters in use stand in a row for each point, by number. In each round neighbours are compared, the winners stay,
and one without a neighbour waits: c - 1 comparisons of a point in ceil(log2 c) rounds. The earlier of two always has
the lower number, and wins a tie; so the last one left is the nearest, the lowest number among equals (Alg. 1, lines
21 and 25).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.math.clusters import FilledClusters


def count_rounds(clusters: int) -> int:
    """Return the rounds of an iteration with so many clusters in use; one at least."""
    return max(1, (clusters - 1).bit_length())


class Tournament:
    """One iteration.

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
        """Return who is compared next: places among the clusters in use, earlier and later, shape (pairs, m) each."""
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
