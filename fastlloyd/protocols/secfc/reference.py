"""SecFC on pooled data, without messages or codes: Lloyd's algorithm in integers, line by line, from several starts.

It calls nothing of `math/` and shares with the parties the plan and the public stream of random words only.

Source: SecFC, Algorithm 1; §5 for the separated start.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

Labels = NDArray[np.int64]
"""An assignment, shape (m,); k for a point in no cluster."""


def reference(points: NDArray[np.int64], plan: Plan) -> list[Labels]:
    """Run the algorithm centrally; return the assignments of the start that wins: the first, and that of each round.

    Parameters
    ----------
    points : int64 array, shape (m, d)
        All records on the grid of 2^-q, in the order of the run.
    plan : Plan
    """
    histories = [course(points, plan, number) for number in range(plan.starts)]
    kept = [number for number, last in enumerate(copied_at(histories, plan)) if last is None]
    return histories[max(kept, key=lambda number: _worth(points, histories[number][-1], plan))]


def copied_at(histories: list[list[Labels]], plan: Plan) -> list[int | None]:
    """Return for each start the place in its history where it reaches clusters that a start had before, and ends.

    None: it reaches no such clusters, so it goes on to its own end.
    """
    ends: list[int | None] = [None] * len(histories)
    met: set[tuple[int, ...]] = set()
    for numbers in plan.passes:
        for step in range(plan.start_rounds, max(len(histories[number]) for number in numbers)):
            for number in numbers:
                history = histories[number]
                if ends[number] is not None or step >= len(history):
                    continue
                if step > plan.start_rounds and (history[step] == history[step - 1]).all():
                    continue
                clusters = _partition(history[step], plan.k)
                if clusters in met:
                    ends[number] = step
                met.add(clusters)
    return ends


def _partition(labels: Labels, k: int) -> tuple[int, ...]:
    """Number the clusters by their first points; -1 for points in none."""
    numbers = {k: -1}
    return tuple(numbers.setdefault(label, len(numbers)) for label in labels.tolist())


def course(points: NDArray[np.int64], plan: Plan, number: int) -> list[Labels]:
    """Return the assignments of one start."""
    x = points.astype(np.int64)
    if plan.start == "random":
        stream = PublicStream(plan.seed, domains.SECFC_RANDOM)
        history = [[stream.integers(0, plan.k - 1, len(x)) for _ in range(number + 1)][-1]]  # line 7
    else:
        history = _separated(x, plan, number)
    for _ in range(plan.iterations):  # line 9
        history.append(_nearest(x, history[-1], plan.k))
        if (history[-1] == history[-2]).all():
            break
    return history


def _worth(x: NDArray[np.int64], labels: Labels, plan: Plan) -> int:
    """Return the sum over the clusters of |mu|^2 floor(W / S): the more, the less inertia."""
    members = [x[labels == h] for h in range(plan.k) if (labels == h).any()]
    weight = 2**plan.weight_bits
    return sum(int((own.sum(axis=0).astype(object) ** 2).sum()) * (weight // len(own)) for own in members)


def _nearest(x: NDArray[np.int64], labels: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return each point's nearest centre in exact integers, ties to the lowest index (lines 11 to 25)."""
    used = [h for h in range(k) if (labels == h).any()]
    scores = []
    for h in used:
        members = x[labels == h]
        mu, size = members.sum(axis=0), len(members)
        scores.append(int((mu.astype(object) ** 2).sum()) - 2 * size * (x @ mu).astype(object))
    sizes = [int((labels == h).sum()) for h in used]
    best = np.zeros(len(x), dtype=np.int64)
    for i in range(len(x)):
        for h in range(1, len(used)):
            if scores[h][i] * sizes[best[i]] ** 2 < scores[best[i]][i] * sizes[h] ** 2:
                best[i] = h
    nearest: NDArray[np.int64] = np.array(used, dtype=np.int64)[best]
    return nearest


def _separated(x: NDArray[np.int64], plan: Plan, number: int) -> list[Labels]:
    """Choose seeds; return each point's nearest after each of them, and the groups of §5."""
    stream = PublicStream(plan.seed, domains.SECFC_FIRST)
    chosen = [int(stream.integers(0, len(x) - 1, 1)[0]) for _ in range(number + 1)][-1]
    coins = PublicStream(plan.seed, domains.SECFC_FURTHER)
    drawn = [[_coin(coins, plan.coin_bits) for _ in range(plan.k - 1)] for _ in range(number + 1)][-1]
    distances, history = [((x - x[chosen]) ** 2).sum(axis=1).tolist()], [np.zeros(len(x), dtype=np.int64)]
    for coin in drawn:
        chosen = _draw([min(row) for row in zip(*distances, strict=True)], coin, plan.coin_bits)
        distances.append(((x - x[chosen]) ** 2).sum(axis=1).tolist())
        history.append(np.array([row.index(min(row)) for row in zip(*distances, strict=True)]))
    groups = history[-1].copy()
    for i, row in enumerate(zip(*distances, strict=True)):
        if any(other < 9 * row[groups[i]] for h, other in enumerate(row) if h != groups[i]):
            groups[i] = plan.k
    return [*history, groups]


def _coin(stream: PublicStream, bits: int) -> int:
    """Draw a number below 2^bits: the highest bits of two words, the second one above the first."""
    low, high = stream.uint32(2).tolist()
    return int(low + 2**32 * high >> 64 - bits)


def _draw(weights: list[int], coin: int, bits: int) -> int:
    """Return the first index up to which the weights sum to more than coin / 2^bits of all; the last if all are 0."""
    reached, total = 0, sum(weights)
    for i, weight in enumerate(weights):
        reached += weight
        if 2**bits * reached > coin * total:
            return i
    return len(weights) - 1
