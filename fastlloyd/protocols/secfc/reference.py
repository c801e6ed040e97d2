"""SecFC on pooled data, without messages or codes: Lloyd's algorithm in integers, line by line.

Source: SecFC, Algorithm 1; §5 for the separated start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.math.start import draw_by_weight, first_labels, seed_stream, single
from fastlloyd.protocols.secfc.plan import Plan


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
    history = [first_labels(plan, len(x))]  # line 7
    if plan.start == "separated":
        history += _separated(x, int(np.flatnonzero(history[0] == 0)[0]), plan)
    for _ in range(plan.iterations):  # line 9
        history.append(_nearest(x, history[-1], plan.k))
        if (history[-1] == history[-2]).all():
            break
    return history


def _nearest(x: NDArray[np.int64], labels: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Give each point's nearest centre in exact integers, ties to the lowest index (lines 11 to 25)."""
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


def _separated(x: NDArray[np.int64], first: int, plan: Plan) -> list[NDArray[np.int64]]:
    """Choose the further seeds and give the groups of §5: each in the order of the rounds."""
    stream, history = seed_stream(plan), []
    columns: list[Any] = [((x - x[first]) ** 2).sum(axis=1).astype(object)]
    while len(columns) < plan.k:
        chosen = draw_by_weight(np.min(columns, axis=0).tolist(), stream)
        history.append(single(chosen, len(x), plan.k))
        columns.append(((x - x[chosen]) ** 2).sum(axis=1).astype(object))
    groups = np.full(len(x), plan.k, dtype=np.int64)
    for i in range(len(x)):
        distance = [column[i] for column in columns]
        nearest = distance.index(min(distance))
        if all(9 * distance[nearest] <= other for h, other in enumerate(distance) if h != nearest):
            groups[i] = nearest
    return [*history, groups]
