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

The first clusters come from public randomness and, in the separated start, from comparisons.

`random`: every point gets a random cluster from the public seed (Alg. 1, line 7).

`separated`: k seeds are chosen among the points, each with probability proportional to its squared distance from the
nearest one before it (k-means++, the approximation algorithm here), with the public seed's coins. Group h then holds
the points that are at least three times nearer to the h-th seed than to any other (§5). The other points are in no
group until the first iteration. All steps are comparisons as in Lloyd's iterations: the server learns no distance, no
group, and no seed but each start's first, which is public.

- **A seed.** Let d_i be point i's squared distance from its nearest seed, P_j = d_0 + .. + d_j, T the sum of all, u a
  coin in 0..2^b - 1. The chosen point is the first j with 2^b P_j > u T. D_j = u T - 2^b P_j falls with j, so the signs
  of D_0..D_(m-2) show which one it is and nothing else. It is point j with probability d_j / T, except for m / 2^b <
  2^-16 in all. A point at a seed's place is chosen only if all points are at seeds: then it is the last.
- **The nearest seed** of each point: the new one wins where D = |x - new|^2 - |x - nearest|^2 < 0.
- **The groups**: point i is in that of its nearest seed where |x - other|^2 - 9 |x - nearest|^2 >= 0 for all others.

*Size of these.* abs(D) <= 2^b N 4 rho^2 for a seed, 36 rho^2 for a group, rho the largest norm of a point.

Source: SecFC, Alg. 1, lines 7 to 25; the paper has one start, several are ours: docs/secfc.md, "Several starts".
Of the first clusters: §4.1, §5; Awasthi and Sheffet (2012); Arthur and Vassilvitskii (2007). Differs from the paper: it
does not say what clustering the separation starts from. A random one would leave all groups empty, since its centres
lie close together and no point is three times nearer to one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import PeerError
from fastlloyd.protocols.secfc.field.prime import Elements
from fastlloyd.protocols.secfc.math.coded import Coder
from fastlloyd.protocols.secfc.math.differences import ElementDifferences, Question, ScoreDifferences, Step
from fastlloyd.protocols.secfc.math.memory import NEARER, SETTLED, THREE_TIMES, Memory
from fastlloyd.protocols.secfc.math.tournament import FilledClusters, Tournament
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream
from fastlloyd.wire.header import SERVER

_APART = 9
"""Three times, squared."""


def random_labels(plan: Plan, records: int, number: int) -> NDArray[np.int64]:
    """Return the random clusters of one start, 0..k-1, the same at all clients; shape (records,)."""
    return PublicStream(plan.seed, domains.SECFC_RANDOM).integers(0, plan.k - 1, (number + 1) * records)[-records:]


def first_seed(plan: Plan, records: int, number: int) -> int:
    """Return the first seed of one separated start, the same at all clients."""
    return int(PublicStream(plan.seed, domains.SECFC_FIRST).integers(0, records - 1, number + 1)[number])


def coins(plan: Plan, number: int) -> list[int]:
    """Return the coins u of one separated start's further seeds, the same at all clients; below 2^b."""
    count = plan.k - 1
    words = PublicStream(plan.seed, domains.SECFC_FURTHER).uint32(2 * count * (number + 1))[2 * count * number :]
    return [(int(low) | int(high) << 32) >> (64 - plan.coin_bits) for low, high in words.reshape(count, 2)]


class SeparatedStart:
    """One separated start, from a client's side.

    Parameters
    ----------
    plan : Plan
    coder : Coder
    number : int
        Of the start, from 0.
    memory : Memory
        Of the run.
    """

    def __init__(self, plan: Plan, coder: Coder, number: int, memory: Memory) -> None:
        self._plan, self._coder, self._memory, self._number = plan, coder, memory, number
        self._columns = np.empty((len(coder.field.primes), plan.k, coder.records), dtype=np.float32)
        self._seeds = [first_seed(plan, coder.records, number)]
        self._columns[:, 0] = coder.distances(self._seeds[0])
        self._coins, self._chosen = coins(plan, number), 1
        self._nearest = np.zeros(coder.records, dtype=np.int64)

    @property
    def nearest(self) -> NDArray[np.int64]:
        """Each point's nearest seed, by number; shape (m,)."""
        return self._nearest

    def seed(self) -> Step:
        """Choose one more seed; return each point's nearest.

        Raises
        ------
        PeerError
            The signs fit no choice.
        """
        field, near = self._coder.field, self._distances(self._nearest)
        sums = field.reduce(np.cumsum(near, axis=1))
        scale = field.encode(np.array([1 << self._plan.coin_bits]))
        drawn = field.multiply(sums[:, -1:], field.encode(np.array([self._coins[self._chosen - 1]])))
        differences = ElementDifferences(field.subtract(drawn, field.multiply(sums[:, :-1], scale)))
        numbers = self._memory.draws(self._number, self._seeds, differences.count)
        passed = yield Question(differences, last=False, numbers=numbers, least_bits=np.zeros_like(numbers))
        chosen = int(passed.sum())
        if not passed[:chosen].all():
            raise PeerError(
                "the signs fit no choice of a seed: the server sent wrong ones, or a client's answer was wrong; look "
                "at their versions, or start with --set secfc.extra_answers=2, which names a client that is wrong",
                rank=SERVER.rank,
            )
        column = self._coder.distances(chosen).astype(np.float64)
        before = list(self._seeds)
        self._seeds.append(chosen)
        # Two clusters of one point each.
        numbers = self._numbers(NEARER, self._nearest[None], np.full_like(self._nearest, self._chosen)[None], before)
        differences = ElementDifferences(field.subtract(column, near))
        stays = yield Question(differences, last=True, numbers=numbers, least_bits=np.zeros_like(numbers))
        self._nearest = np.where(stays, self._nearest, self._chosen)
        self._columns[:, self._chosen] = column
        self._chosen += 1
        return self._nearest

    def groups(self) -> Step:
        """Return each point's nearest seed if it is three times nearer than all others, else k."""
        field, k = self._coder.field, self._plan.k
        nine = field.multiply(self._distances(self._nearest), field.encode(np.array([_APART])))
        apart = np.ones(self._coder.records, dtype=np.bool_)
        width = self._plan.most_values
        for first in range(0, max(1, k - 1), width):
            # The other seeds of each point, ascending.
            places = np.arange(first, min(first + width, k - 1))[:, None]
            others = places + (places >= self._nearest)
            elements = [field.subtract(self._distances(other), nine) for other in others]
            joined = np.concatenate([field.zeros((0,)), *elements], axis=1)
            numbers = self._numbers(THREE_TIMES, others, np.broadcast_to(self._nearest, others.shape), self._seeds)
            last, none = first + width >= k - 1, np.zeros_like(numbers)
            passed = yield Question(ElementDifferences(joined), last=last, numbers=numbers, least_bits=none)
            apart &= passed.reshape(len(others), len(apart)).all(axis=0)
        return np.where(apart, self._nearest, k)

    def _numbers(
        self, kind: str, earlier: NDArray[np.int64], later: NDArray[np.int64], seeds: list[int]
    ) -> NDArray[np.int64]:
        """Return the numbers of comparisons of seeds; a point that is a seed is at distance 0 from its nearest one."""
        numbers = self._memory.comparisons(kind, self._memory.points(self._seeds), earlier, later)
        numbers.reshape(len(earlier), -1)[:, seeds] = SETTLED
        return numbers

    def _distances(self, seeds: NDArray[np.int64]) -> Elements:
        """Return the shares of each point's squared distance from one of the seeds, shape (primes, m)."""
        return self._columns[:, seeds, np.arange(len(seeds))].astype(np.float64)


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
