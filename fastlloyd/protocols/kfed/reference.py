"""k-FED without messages, line by line: what the parties are tested against.

Written from the papers; it calls nothing of `client.py`, `merge.py` or `kmeans/spectral.py`. Its k-means is the plain
one of `kmeans/reference.py`. It shares with the parties the plan, records that are on the grid already, and public
draws.

Source: Dennis, Li, Smith (2021), Algorithm 2; its local step: Awasthi and Sheffet (2012), as in FedDP-KMeans,
Appendix C, Algorithm 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.kmeans.reference import cluster, refine
from fastlloyd.protocols.kfed.plan import Plan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream


def reference(parts: Sequence[GridPoints], plan: Plan) -> NDArray[np.float64]:
    """Run the algorithm centrally.

    Parameters
    ----------
    parts : sequence of GridPoints
        The records of clients 1, 2, ...
    plan : Plan

    Returns
    -------
    float64 array, shape (k, d)
    """
    theta = [_local(z, own, plan) for z, own in enumerate(parts, start=1)]  # Alg. 2, on each device
    every = [center for own in theta for center in own]
    if len(every) < plan.k:
        return np.array([every[r % len(every)] for r in range(plan.k)])
    chosen = list(range(min(plan.k, next(len(own) for own in theta if len(own)))))  # M: one device's
    while len(chosen) < plan.k:  # the centre farthest from M joins it
        free = [i for i in range(len(every)) if i not in chosen]
        chosen.append(max(free, key=lambda i: min(_squared_distance(every[i], every[j]) for j in chosen)))
    groups: list[list[NDArray[np.float64]]] = [[] for _ in range(plan.k)]
    for center in every:  # one round of Lloyd's
        distances = [_squared_distance(center, every[j]) for j in chosen]
        groups[distances.index(min(distances))].append(center)
    return np.array(
        [np.sum(group, axis=0) / len(group) if group else every[chosen[r]] for r, group in enumerate(groups)]
    )


def _local(z: int, own: GridPoints, plan: Plan) -> list[NDArray[np.float64]]:
    """Cluster client z's records; return the centres of non-empty clusters."""
    if own.n == 0:
        return []
    points = own.raw_coordinates.T / 2.0**own.fraction_bits
    k = min(plan.local_k, own.n)
    stream = PublicStream(plan.seed, f"{domains.KFED_LOCAL}{z}")
    _, _, directions = np.linalg.svd(points, full_matrices=False)
    projected = points @ directions[:k].T if k < plan.d else points  # part 1 (a)
    near = cluster(projected, k, stream, restarts=plan.restarts)  # part 1 (b)
    used = [r for r in range(k) if r in near.labels]
    theta = []
    for r in used:  # part 2
        core = [
            near.labels[i] == r
            and all(
                9 * _squared_distance(x, near.centers[r]) <= _squared_distance(x, near.centers[s])
                for s in used
                if s != r
            )
            for i, x in enumerate(projected)
        ]
        theta.append(points[core if any(core) else [label == r for label in near.labels]].mean(axis=0))
    found = refine(points, np.array(theta))  # part 3
    return [center for r, center in enumerate(found.centers) if r in found.labels]


def _squared_distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(((one - other) ** 2).sum())
