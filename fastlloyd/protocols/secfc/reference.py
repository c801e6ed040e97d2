"""SecFC on pooled data, without messages or codes: Lloyd's algorithm in integers, line by line.

It calls nothing of `math/` and shares with the parties the plan and the public stream of random words only.

Source: SecFC, Algorithm 1; §5 for the separated start.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream


def reference(points: NDArray[np.int64], plan: Plan) -> list[NDArray[np.int64]]:
    """Run the algorithm centrally.

    Parameters
    ----------
    points : int64 array, shape (m, d)
        All records on the grid of 2^-q, in the order of the run.
    plan : Plan

    Returns
    -------
    list of int64 arrays, shape (m,)
        The first assignment and that of each round; k for a point in no cluster.
    """
    x = points.astype(np.int64)
    if plan.start == "random":
        history = [PublicStream(plan.seed, domains.SECFC_RANDOM).integers(0, plan.k - 1, len(x))]  # line 7
    else:
        history = _separated(x, plan)
    for _ in range(plan.iterations):  # line 9
        history.append(_nearest(x, history[-1], plan.k))
        if (history[-1] == history[-2]).all():
            break
    return history


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


def _separated(x: NDArray[np.int64], plan: Plan) -> list[NDArray[np.int64]]:
    """Choose the seeds, each alone in cluster 0, and give the groups of §5: in the order of the rounds."""
    stream, history = PublicStream(plan.seed, domains.SECFC_FURTHER), []
    columns: list[Any] = []
    chosen = int(PublicStream(plan.seed, domains.SECFC_FIRST).integers(0, len(x) - 1, 1)[0])
    while True:
        history.append(np.where(np.arange(len(x)) == chosen, 0, plan.k))
        columns.append(((x - x[chosen]) ** 2).sum(axis=1).astype(object))
        if len(columns) == plan.k:
            break
        chosen = _draw([min(row) for row in zip(*columns, strict=True)], stream)
    groups = np.full(len(x), plan.k, dtype=np.int64)
    for i in range(len(x)):
        distance = [column[i] for column in columns]
        nearest = distance.index(min(distance))
        if all(9 * distance[nearest] <= other for h, other in enumerate(distance) if h != nearest):
            groups[i] = nearest
    return [*history, groups]


def _draw(weights: list[int], stream: PublicStream) -> int:
    """Draw an index in proportion to its weight, with at least 64 bits more than the sum has; 0 if all are 0."""
    total = sum(weights)
    count = total.bit_length() // 32 + 3
    point = sum(Fraction(int(word), 2 ** (32 * (count - i))) for i, word in enumerate(stream.uint32(count)))
    reached = 0
    for i, weight in enumerate(weights):
        reached += weight
        if reached > point * total:
            return i
    return 0
