"""Plain and slow code of this subpackage for the protocols' references and for tests of the fast modules.

It calls nothing else of the subpackage. It uses the same stream of public random words, so both draw the same; sums are
taken in order, term by term, so with up to 8 features both yield the same bits.

Source: Arthur and Vassilvitskii (2007) for `cluster`; FastLloyd, §5.3.1, after Su et al. (2016), §3.3, for
`sphere_packing`; Ward (1963) and docs/fastlloyd-plus.md, "Choosing k", for `clusters_left`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PlainClustering:
    """Centres and their cost.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
    labels : list of int
        Of each point, its nearest centre.
    cost : float
        Sum of weighted squared distances to the nearest centre.
    """

    centers: Floats
    labels: list[int]
    cost: float


def on_grid(points: Floats, fraction_bits: int) -> NDArray[np.int64]:
    """Round scaled points, shape (n, d), to the grid of 2^-q, half to even; values outside [-1, 1] are clipped."""
    return np.rint(np.clip(points, -1.0, 1.0) * 2.0**fraction_bits).astype(np.int64)


def sphere_packing(k: int, d: int, seed: int) -> Floats:
    """Place k centres in [-1, 1]^d, at multiples of 2^-20: the last packing of a binary search for the radius."""
    stream, unit = PublicStream(seed, domains.SPHERE_PACKING), 2**20
    found, low, high = _packed(k, d, 0, stream), 0, unit
    for _ in range(12):
        radius = (low + high) // 2
        placed = _packed(k, d, radius, stream)
        if len(placed) == k:
            found, low = placed, radius
        else:
            high = radius
    return np.array(found) / unit


def _packed(k: int, d: int, radius: int, stream: PublicStream) -> list[list[int]]:
    """Draw k points, each at least a from the border and 2 a from those before it; fewer if 100 tries fail."""
    placed: list[list[int]] = []
    reach = 2**20 - radius
    for _ in range(k):
        drawn = stream.integers(-reach, reach, 100 * d).tolist()
        tries = [drawn[d * i : d * (i + 1)] for i in range(100)]
        fitting = (
            point
            for point in tries
            if all(sum((x - y) ** 2 for x, y in zip(point, other, strict=True)) >= 4 * radius**2 for other in placed)
        )
        point = next(fitting, None)
        if point is None:
            break
        placed.append(point)
    return placed


def cluster(
    points: Floats, k: int, stream: PublicStream, *, weights: Floats | None = None, restarts: int = 10
) -> PlainClustering:
    """Run k-means of weighted points, shape (n, d), from several starts; the first of the cheapest.

    Without weights, shape (n,), or where all of them are zero, each point counts 1.
    """
    found = []
    for _ in range(restarts):
        found.append(refine(points, seed_centers(points, k, stream, weights=weights), weights=weights))
    return min(found, key=lambda one: one.cost)


def seed_centers(points: Floats, k: int, stream: PublicStream, *, weights: Floats | None = None) -> Floats:
    """Choose k of the points by k-means++, each the best of 2 + ln k candidates; shape (k, d)."""
    held = _held(points, weights)
    chosen = [_drawn(held, stream)]
    while len(chosen) < k:
        near = squared_distances(points, points[chosen]).min(axis=1).tolist()
        mass = [w * far for w, far in zip(held, near, strict=True)]
        candidates = [_drawn(mass if any(mass) else held, stream) for _ in range(2 + int(math.log(k)))]
        costs = []
        for candidate in candidates:
            away = squared_distances(points, points[[candidate]])[:, 0].tolist()
            costs.append(in_order(w * min(a, b) for w, a, b in zip(held, near, away, strict=True)))
        chosen.append(candidates[costs.index(min(costs))])
    return points[chosen]


def refine(points: Floats, centers: Floats, *, weights: Floats | None = None) -> PlainClustering:
    """Run Lloyd's steps until the labels repeat, at most 100; a cluster without weight keeps its centre."""
    held, centers = _held(points, weights), centers.copy()
    squares = squared_distances(points, centers)
    labels = squares.argmin(axis=1).tolist()
    for _ in range(100):
        sums, sizes = np.zeros(centers.shape), [0.0] * len(centers)
        for point, weight, label in zip(points, held, labels, strict=True):
            sums[label] += weight * point
            sizes[label] += weight
        for j, size in enumerate(sizes):
            if size > 0.0:
                centers[j] = sums[j] / size
        before, squares = labels, squared_distances(points, centers)
        labels = squares.argmin(axis=1).tolist()
        if labels == before:
            break
    nearest = squares.min(axis=1).tolist()
    return PlainClustering(centers, labels, in_order(w * s for w, s in zip(held, nearest, strict=True)))


def squared_distances(points: Floats, centers: Floats) -> Floats:
    """Return |x - c|^2, shape (n, k), feature by feature."""
    squares = np.zeros((len(points), len(centers)))
    for h in range(points.shape[1]):
        squares += (points[:, h, None] - centers[None, :, h]) ** 2
    return squares


def in_order(values: Iterable[float]) -> float:
    """Add up in order."""
    total = 0.0
    for value in values:
        total += value
    return total


def clusters_left(centers: Floats, counts: Floats, *, count_noise: float) -> int:
    """Merge the two clusters that add least to the cost, repeatedly; return the number before the largest rise.

    Parameters
    ----------
    centers : float64 array, shape (k, d)
    counts : float64 array, shape (k,)
        Clusters of at most one record, or half the noise's deviation, are left out.
    count_noise : float
    """
    least = max(0.5 * count_noise, 1.0)
    kept = [j for j, count in enumerate(counts) if count > least] or [int(np.argmax(counts))]
    groups = [(centers[j], max(float(counts[j]), 1.0)) for j in kept]
    steps = []
    while len(groups) > 1:
        costs = {(i, j): _cost_of_merge(*groups[i], *groups[j]) for i, j in combinations(range(len(groups)), 2)}
        i, j = min(costs, key=lambda pair: costs[pair])
        steps.append(costs[i, j])
        (one, n), (other, m) = groups[i], groups.pop(j)
        groups[i] = ((n * one + m * other) / (n + m), n + m)
    if len(kept) < 3:
        return len(kept)
    if sum(steps) <= 0.0:
        return 1
    rising = [max(step, 2.0**-40 * sum(steps)) for step in steps]
    ratios = [after / before for before, after in pairwise(rising)]
    last = max(i for i, ratio in enumerate(ratios) if ratio == max(ratios))
    return len(kept) - 1 - last


def _cost_of_merge(one: Floats, n: float, other: Floats, m: float) -> float:
    return n * m / (n + m) * float(((one - other) ** 2).sum())


def _held(points: Floats, weights: Floats | None) -> list[float]:
    """Return the weight of each point."""
    held: list[float] = [] if weights is None else weights.tolist()
    return held if any(held) else [1.0] * len(points)


def _drawn(mass: list[float], stream: PublicStream) -> int:
    """Draw an index in proportion to its mass, by 53 bits of two words; the last one with mass if they round up."""
    high, low = stream.uint32(2).tolist()
    target = ((high << 32 | low) >> 11) * 2.0**-53 * in_order(mass)
    reached = 0.0
    for i, part in enumerate(mass):
        reached += part
        if reached > target:
            return i
    return max(i for i, part in enumerate(mass) if part > 0.0)
