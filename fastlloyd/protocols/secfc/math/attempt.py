"""One start's course at a client: its steps, from the first assignment until an assignment repeats.

Source: SecFC, Alg. 1, lines 7 to 25.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.math.clusters import FilledClusters
from fastlloyd.protocols.secfc.math.coded import Coder
from fastlloyd.protocols.secfc.math.differences import Question, ScoreDifferences, Step
from fastlloyd.protocols.secfc.math.start import SeparatedStart, random_labels
from fastlloyd.protocols.secfc.math.tournament import Tournament
from fastlloyd.protocols.secfc.plan import Plan


class Attempt:
    """One start.

    Parameters
    ----------
    plan : Plan
    coder : Coder
    number : int
        Of the start, from 0.

    Attributes
    ----------
    labels : int64 array, shape (m,)
        The assignment that it has come to; k for a point in no cluster.
    state : {'on', 'repeated', 'limit'}
        Whether it goes on, or why it ended.
    """

    def __init__(self, plan: Plan, coder: Coder, number: int) -> None:
        self._plan, self._coder, self._done = plan, coder, 0
        self._start = SeparatedStart(plan, coder, number) if plan.start == "separated" else None
        self.labels = random_labels(plan, coder.records, number) if self._start is None else self._start.nearest
        self.state = "on"

    def step(self) -> Step:
        """Run a round of the start or an iteration of Lloyd; return the assignment it leads to."""
        before = self.labels
        if self._start is not None:
            self.labels = yield from (
                self._start.seed() if self._done < self._plan.start_rounds - 1 else self._start.groups()
            )
        else:
            self.labels = yield from iterate(self._coder, before, self._plan.k)
            if (self.labels == before).all():
                self.state = "repeated"
        self._done += 1
        if self._done == self._plan.start_rounds:
            self._start = None
        if self.state == "on" and self._done == self._plan.start_rounds + self._plan.iterations:
            self.state = "limit"
        return self.labels


def iterate(coder: Coder, labels: NDArray[np.int64], k: int) -> Step:
    """Run one iteration of Lloyd; return the next assignment."""
    clusters = FilledClusters.of(labels, k)
    scores = coder.scores(labels, clusters, k)  # line 11
    tournament, last = Tournament(clusters, len(labels)), False
    while not last:
        last, pairs = tournament.last, tournament.pairs()
        # Lines 12 and 13, two centres at a time.
        first_wins = yield Question(ScoreDifferences(coder.field, scores, *pairs), last)
        tournament.settle(first_wins.reshape(pairs[0].shape))  # line 25
    return tournament.labels
