r"""The first clusters of a start, from public randomness and, in the separated start, from comparisons.

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

*Size.* abs(D) <= 2^b N 4 rho^2 for a seed, 36 rho^2 for a group, rho the largest norm of a point.

Source: SecFC, §4.1, §5; Awasthi and Sheffet (2012); Arthur and Vassilvitskii (2007). Differs from the paper: it does
not say what clustering the separation starts from. A random one would leave all groups empty, since its centres lie
close together and no point is three times nearer to one of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import PeerError
from fastlloyd.protocols.secfc.field.prime import Elements
from fastlloyd.protocols.secfc.math.coded import Coder
from fastlloyd.protocols.secfc.math.differences import ElementDifferences, Question, Step
from fastlloyd.protocols.secfc.math.memory import NEARER, SETTLED, THREE_TIMES, Memory
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
