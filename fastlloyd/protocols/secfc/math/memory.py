"""Comparisons that the server has settled, so that none is sent twice; the same at all clients.

A comparison has a number, which identifies the point, the kind, and the members of the two clusters. Two starts, or two
iterations, in which both clusters have the same members have the same comparison. Known comparisons are answered from
here, and a dummy value takes their place (`signs.dummy_bits`), so that the length of a message does not show the server
how many were known.

If h does not win against g in the order (h, g), then g wins in the order (g, h). If h wins, it may be a tie, which g
would win in the other order: then both are asked, D >= 0 and -D >= 0, as they are where both orders are in one message.

Source: none in the paper; docs/secfc.md, "What the server learns".
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

# Comparisons that are kept, of 9 bytes each; the oldest go first.
_MOST = 1 << 24
_FEW_PAIRS = 1 << 14

NEARER = "nearer"
"""The nearer one of two clusters' centres."""
THREE_TIMES = "three times nearer"
"""Whether a point is at least three times as far from the first of two clusters as from the second."""
DRAW = "draw"
"""The point up to which the sum of squared distances exceeds a share of all."""
UNNUMBERED = -1
"""The number of a comparison that is never asked twice."""
SETTLED = -2
"""The number of a comparison that the earlier one wins whatever the points are."""


class Memory:
    """The known comparisons.

    Parameters
    ----------
    records : int
        m.
    """

    def __init__(self, records: int) -> None:
        self._records = records
        self._sets: dict[bytes, int] = {}
        self._pairs: dict[tuple[str, int, int], int] = {}
        self._reverse: list[int] = []
        self._numbers = np.empty(0, dtype=np.int64)
        self._won = np.empty(0, dtype=np.bool_)

    def points(self, chosen: list[int]) -> NDArray[np.int64]:
        """Return the numbers of clusters of one point each."""
        return np.array([self._set(np.array([point])) for point in chosen], dtype=np.int64)

    def clusters(self, labels: NDArray[np.int64], used: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of an assignment's clusters, shape (c,)."""
        order = np.argsort(labels, kind="stable")
        first, last = (np.searchsorted(labels[order], used, side=side) for side in ("left", "right"))
        return np.array([self._set(order[i:j]) for i, j in zip(first, last, strict=True)], dtype=np.int64)

    def comparisons(
        self, kind: str, sets: NDArray[np.int64], earlier: NDArray[np.int64], later: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the numbers of comparisons, pair by pair, then point by point.

        Parameters
        ----------
        kind : str
            Of comparison.
        sets : int64 array, shape (c,)
            Numbers of clusters.
        earlier, later : int64 arrays, shape (pairs, m)
            Places among them.
        """
        local = earlier * len(sets) + later
        if len(sets) ** 2 <= _FEW_PAIRS:
            there = np.zeros(len(sets) ** 2, dtype=np.bool_)
            there[local] = True
            met, where = np.flatnonzero(there), np.cumsum(there)[local] - 1
        else:
            met, where = np.unique(local, return_inverse=True)
        pairs = [self._pair(kind, int(sets[one // len(sets)]), int(sets[one % len(sets)])) for one in met.tolist()]
        named = np.array(pairs, dtype=np.int64)[where.reshape(local.shape)]
        numbers: NDArray[np.int64] = (named * self._records + np.arange(self._records)).reshape(-1)
        return numbers

    def draws(self, start: int, seeds: list[int], count: int) -> NDArray[np.int64]:
        """Return the numbers of the comparisons that draw another seed: a point at distance 0 adds nothing to a sum.

        Parameters
        ----------
        start : int
        seeds : list of int
            Points that are seeds: the comparison at each is that at the point before; the first sum is 0.
        count : int
        """
        places = np.arange(count)
        places[[seed for seed in seeds if seed < count]] = -1
        places = np.maximum.accumulate(places)
        return np.where(places < 0, SETTLED, self._pair(DRAW, start, len(seeds)) * self._records + places)

    def unknown(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which comparisons of a message to ask: the first of equal ones that are not known."""
        asked: NDArray[np.bool_] = numbers == UNNUMBERED
        fresh = np.flatnonzero(numbers >= 0)
        if len(fresh):
            self._turn_round(numbers[fresh])
            fresh = fresh[~self._find(numbers[fresh])[0]]
            asked[fresh[np.unique(numbers[fresh], return_index=True)[1]]] = True
        return asked

    def settle(self, numbers: NDArray[np.int64], asked: NDArray[np.bool_], won: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Take the results of the comparisons that were asked; return those of all."""
        fresh = np.flatnonzero(asked & (numbers >= 0))
        self._add(numbers[fresh], won[fresh])
        answers: NDArray[np.bool_] = won | (numbers == SETTLED)
        rest = np.flatnonzero(~asked & (numbers >= 0))
        answers[rest] = self._won[self._find(numbers[rest])[1]]
        self._numbers, self._won = self._numbers[-_MOST:], self._won[-_MOST:]
        return answers

    def _turn_round(self, numbers: NDArray[np.int64]) -> None:
        """Add the comparisons that follow from known ones in the other order."""
        pairs, points = np.divmod(numbers, self._records)
        reverse = np.array(self._reverse, dtype=np.int64)[pairs]
        there = np.flatnonzero(reverse >= 0)
        known, places = self._find(reverse[there] * self._records + points[there])
        lost = there[known][~self._won[places[known]]]
        missing = np.unique(numbers[lost])
        missing = missing[~self._find(missing)[0]]
        self._add(missing, np.ones(len(missing), dtype=np.bool_))

    def _find(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return which are known, and where."""
        if not len(self._numbers):
            return np.zeros(len(numbers), dtype=np.bool_), np.zeros(len(numbers), dtype=np.int64)
        places = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return self._numbers[places] == numbers, places

    def _add(self, numbers: NDArray[np.int64], won: NDArray[np.bool_]) -> None:
        """Keep distinct comparisons that are not known."""
        if not len(numbers):
            return
        order = np.argsort(numbers)
        places = np.searchsorted(self._numbers, numbers[order])
        self._numbers = np.insert(self._numbers, places, numbers[order])
        self._won = np.insert(self._won, places, won[order])

    def _set(self, members: NDArray[np.int64]) -> int:
        """Return the number of a cluster, given its points in ascending order."""
        return self._sets.setdefault(hashlib.sha256(members.astype("<i8").tobytes()).digest(), len(self._sets))

    def _pair(self, kind: str, first: int, second: int) -> int:
        """Return the number of a pair of clusters."""
        number = self._pairs.setdefault((kind, first, second), len(self._pairs))
        if number == len(self._reverse):
            reverse = self._pairs.get((kind, second, first), -1) if kind == NEARER and first != second else -1
            self._reverse.append(reverse)
            if reverse >= 0:
                self._reverse[reverse] = number
        return number
