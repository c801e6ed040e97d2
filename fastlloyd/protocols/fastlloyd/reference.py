"""FastLloyd on pooled data, without messages, line by line: what the parties are tested against.

Written from the paper; it calls nothing of `rounds.py`, `client.py` or `server.py`. Rounding to the grid and sphere
packing are the plain ones of `kmeans/reference.py`. It shares with the parties the plan with its numbers, and public
draws. The noise comes from the caller.

Source: FastLloyd, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.reference import on_grid, sphere_packing
from fastlloyd.protocols.fastlloyd.plan import Plan


@dataclass(frozen=True, slots=True)
class ReferenceCenters:
    """The last centres.

    Attributes
    ----------
    exact : float64 array, shape (k, d)
        Scaled domain.
    grid : int64 array, shape (k, d)
        The same on the grid of 2^-q.
    noisy_counts : float64 array, shape (k,)
    """

    exact: NDArray[np.float64]
    grid: NDArray[np.int64]
    noisy_counts: NDArray[np.float64]


def reference(
    points: NDArray[np.float64],
    plan: Plan,
    noise: Callable[[int], NDArray[np.int64]],
    start: NDArray[np.float64] | None = None,
) -> ReferenceCenters:
    """Run the algorithm centrally.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        All records, scaled domain.
    plan : Plan
    noise : callable
        Round number to noise in grid units, shape (k (d + 1),).
    start : float64 array, shape (k, d), optional
        Centres to start from instead of sphere packing.
    """
    grid = 1 << plan.fraction_bits
    x = on_grid(points, plan.fraction_bits)
    if start is None:  # line 3
        mu = np.floor(sphere_packing(plan.k, plan.d, plan.seed) * grid + 0.5).astype(np.int64)
    else:
        mu = np.rint(start * grid).astype(np.int64)
    new, noisy_counts = mu / grid, np.zeros(plan.k)
    for t, planned in enumerate(plan.rounds[: plan.moving]):  # line 4
        distance = ((x[:, None, :] - mu[None]) ** 2).sum(axis=2)
        label = distance.argmin(axis=1)  # line 7
        near = np.ones(len(x), dtype=bool)
        if planned.radius is not None:
            near = distance.min(axis=1) <= planned.radius**2  # line 8, with the bound itself (Eq. 4), on the grid
        sums = np.zeros((plan.k, plan.d), dtype=np.int64)
        counts = np.zeros(plan.k, dtype=np.int64)
        for j in range(plan.k):  # lines 11 to 14
            members = x[near & (label == j)]
            sums[j] = (members - mu[j] if plan.relative else members).sum(axis=0)
            counts[j] = len(members)
        noisy = np.concatenate([sums.ravel(), counts * grid]) + noise(t)  # lines 15 and 16
        noisy_sums = noisy[: plan.k * plan.d].reshape(plan.k, plan.d) / grid
        noisy_counts = noisy[plan.k * plan.d :] / grid
        new = np.empty((plan.k, plan.d))
        for j in range(plan.k):  # lines 18 to 20
            step = noisy_sums[j] / max(noisy_counts[j], 1.0)
            if not plan.relative:
                new[j] = step if plan.private or counts[j] else mu[j] / grid
                continue
            length = np.sqrt(sum(step[h] * step[h] for h in range(plan.d)))
            if plan.clip and planned.radius is not None and length > planned.radius / grid:
                step = step * (planned.radius / grid / length)
            new[j] = mu[j] / grid + step
        new = (
            _fold(new)
            if plan.domain == "fold"
            else np.clip(new, *((-1, 1) if plan.domain == "truncate" else (-16, 16)))
        )
        mu = np.rint(new * grid).astype(np.int64)
    return ReferenceCenters(new, mu, noisy_counts)


def _fold(centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Reflect at the borders until inside."""
    while (np.abs(centers) > 1).any():
        centers = np.where(centers > 1, 2 - centers, centers)
        centers = np.where(centers < -1, -2 - centers, centers)
    return centers
