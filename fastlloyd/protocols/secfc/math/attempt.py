"""One start's course at a client: its steps, from the first assignment until an assignment repeats.

Source: SecFC, Alg. 1, lines 7 to 25.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.math.clusters import FilledClusters
from fastlloyd.protocols.secfc.math.coded import Coder
from fastlloyd.protocols.secfc.math.differences import Question, ScoreDifferences, Step
from fastlloyd.protocols.secfc.math.memory import NEARER, Memory
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
    memory : Memory
        Of the run.

    Attributes
    ----------
    number : int
    labels : int64 array, shape (m,)
        The assignment that it has come to; k for a point in no cluster.
    state : {'on', 'repeated', 'limit', 'copy'}
        Whether it goes on, or why it ended.
    """

    def __init__(self, plan: Plan, coder: Coder, number: int, memory: Memory) -> None:
        self._plan, self._coder, self._memory, self._done = plan, coder, memory, 0
        self._start = SeparatedStart(plan, coder, number, memory) if plan.start == "separated" else None
        self.number = number
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
            self.labels = yield from iterate(self._coder, before, self._plan.k, self._memory)
            if (self.labels == before).all():
                self.state = "repeated"
        self._done += 1
        if self._done == self._plan.start_rounds:
            self._start = None
        if self.state == "on" and self._done == self._plan.start_rounds + self._plan.iterations:
            self.state = "limit"
        return self.labels

    def clusters(self) -> bytes | None:
        """Return a digest of the clusters that the start has come to, whatever their numbers; None before the first.

        The iterations that follow depend on nothing else, but for ties.
        """
        if self._start is not None:
            return None
        _, first, where = np.unique(self.labels, return_index=True, return_inverse=True)
        # Each point has the first one of its cluster; those in no cluster have none.
        members = np.where(self.labels < self._plan.k, first[where], -1)
        return hashlib.sha256(members.astype("<i8").tobytes()).digest()


def stop_copies(courses: Sequence[Attempt], met: set[bytes]) -> None:
    """End each start that has come to clusters, numbers aside, which a start had before: it would end where that does.

    Parameters
    ----------
    courses : sequence of Attempt
        Those that advance, by number.
    met : set of bytes
        What starts have come to so far; takes up what these have.
    """
    for course in courses:
        clusters = course.clusters()
        if clusters is None or course.state == "repeated":
            continue
        if clusters in met:
            course.state = "copy"
        met.add(clusters)


def iterate(coder: Coder, labels: NDArray[np.int64], k: int, memory: Memory) -> Step:
    """Run one iteration of Lloyd; return the next assignment."""
    clusters = FilledClusters.of(labels, k)
    sets = memory.clusters(labels, clusters.used)
    scores = coder.scores(labels, clusters, k)  # line 11
    tournament, last = Tournament(clusters, len(labels)), False
    while not last:
        last, pairs = tournament.last, tournament.pairs()
        # Lines 12 and 13, two centres at a time.
        differences = ScoreDifferences(coder.field, scores, *pairs)
        numbers = memory.comparisons(NEARER, sets, *pairs)
        first_wins = yield Question(differences, last, numbers=numbers, least_bits=differences.least_bits)
        tournament.settle(first_wins.reshape(pairs[0].shape))  # line 25
    return tournament.labels
