r"""One start's course at a client, until an assignment repeats, and the choice of the start with the least inertia.

The inertia of an assignment is the sum of |x|^2 over all points, which all starts share, minus the sum over its
clusters of |mu_h|^2 / S_h. So with w_h = floor(W / S_h), W = 2^w public, the start with the largest

    Psi = sum_h w_h |mu_h|^2

wins, the first among equals. The clients compare two starts a and b, a before b, by D = Psi_a - Psi_b, in a tournament
of the starts. No total leaves a client, and no point's part of one.

*How exact.* W / S_h - w_h < 1, and |mu_h| <= S_h rho, rho the largest norm of a point: W times the inertia is off by
less than sum_h S_h^2 rho^2 <= N^2 rho^2. As W > 2^24 N, inertia over N is off by less than 2^-24 rho^2. Between two
starts that are closer than that, rounding decides.

*Size.* Psi <= W sum_h S_h rho^2 <= W N rho^2, and no Psi is negative, so abs(D) <= W N rho^2.

Source: SecFC, Alg. 1, lines 7 to 25; the paper has one start, several are ours: docs/secfc.md, "Several starts".
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.field.prime import Elements
from fastlloyd.protocols.secfc.math.coded import Coder
from fastlloyd.protocols.secfc.math.differences import ElementDifferences, Question, ScoreDifferences, Step
from fastlloyd.protocols.secfc.math.memory import NEARER, Memory
from fastlloyd.protocols.secfc.math.start import SeparatedStart, random_labels
from fastlloyd.protocols.secfc.math.tournament import FilledClusters, Tournament
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
        The current assignment; k for a point in no cluster.
    state : {'on', 'repeated', 'limit', 'copy'}
        'on', or why it ended.
    """

    def __init__(self, plan: Plan, coder: Coder, number: int, memory: Memory) -> None:
        self._plan, self._coder, self._memory, self._done = plan, coder, memory, 0
        self._start = SeparatedStart(plan, coder, number, memory) if plan.start == "separated" else None
        self.number = number
        self.labels = random_labels(plan, coder.records, number) if self._start is None else self._start.nearest
        self.state = "on"

    def step(self) -> Step:
        """Run a round of the start or an iteration of Lloyd; return the next assignment."""
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
        """Return a digest of the current clusters, whatever their numbers; None before the first.

        The following iterations depend on nothing else, except for ties.
        """
        if self._start is not None:
            return None
        _, first, where = np.unique(self.labels, return_index=True, return_inverse=True)
        # Each point has the first one of its cluster; those in no cluster have none.
        members = np.where(self.labels < self._plan.k, first[where], -1)
        return hashlib.sha256(members.astype("<i8").tobytes()).digest()


def stop_copies(courses: Sequence[Attempt], met: set[bytes]) -> None:
    """End each start that has the same clusters, numbers aside, as an earlier one had: it would end where that does.

    Parameters
    ----------
    courses : sequence of Attempt
        Those that advance, by number.
    met : set of bytes
        The clusters of all starts so far; those of these courses are added.
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


def least_inertia(plan: Plan, coder: Coder, assignments: list[NDArray[np.int64]]) -> Step:
    """Return the number of the assignment of least inertia, shape (1,)."""
    field, starts = coder.field, np.arange(len(assignments))
    totals = np.stack([_total(plan, coder, labels) for labels in assignments], axis=1)
    # The starts are the clusters of a tournament of one point.
    tournament, last = Tournament(FilledClusters(starts, np.ones_like(starts)), 1), False
    while not last:
        last, (earlier, later) = tournament.last, tournament.pairs()
        differences = field.subtract(totals[:, earlier[:, 0]], totals[:, later[:, 0]])
        first_wins = yield Question(ElementDifferences(differences), last)
        tournament.settle(first_wins[:, None])
    return tournament.labels


def _total(plan: Plan, coder: Coder, labels: NDArray[np.int64]) -> Elements:
    """Return the share of Psi, shape (primes,)."""
    field, clusters = coder.field, FilledClusters.of(labels, plan.k)
    norms = field.squared_norms(coder.sums(labels, clusters, plan.k))
    weighted = field.multiply(norms, field.encode((1 << plan.weight_bits) // clusters.sizes))
    return field.reduce(weighted.sum(axis=1))
