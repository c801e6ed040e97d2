"""Normal clusters with a stated degree of separation, sizes and outliers: synthetic public data.

A cluster is a normal distribution with a random covariance: eigenvalues uniform in [1, 10] (the squares of ten to
one at most in length) and random axes. Centres start as points drawn apart in a cube; one common factor then moves
them so that the two clusters that are least apart have exactly the separation asked for. Outliers are uniform in the
box of mean +- 4 standard deviations of each feature.

The separation of two clusters along a direction a is

    J = (gap - z (s_1 + s_2)) / (gap + z (s_1 + s_2)),   gap = a.(m_2 - m_1),  s_i = sqrt(a' S_i a),  z = 1.96,

and their degree of separation is its largest value over a. It lies in [-1, 1]: negative where they overlap, 0 where
they touch, 1 where they are infinitely far apart.

numpy's generator is used: another version of numpy may give other records.

Source: Qiu and Joe, "Separation index and partial membership for clustering" (2006) and "Generation of random clusters
with specified degree of separation" (2006), written anew from the papers' definitions; FastLloyd, §6.1.3, App. B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError

Z = 1.959963984540054
"""Quantile that the separation index takes on either side: 95 % of a cluster lie between."""

_EIGENVALUES = (1.0, 10.0)
_CANDIDATES = 32
_STEPS = 64
_TOLERANCE = 1e-4
_OUTLIER_DEVIATIONS = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class ClusterData:
    """Generated records.

    Attributes
    ----------
    points : float64 array, shape (n, d)
        In random order.
    labels : int64 array, shape (n,)
        Cluster of each record; -1 for outliers.
    """

    points: NDArray[np.float64]
    labels: NDArray[np.int64]

    def scaled(self) -> NDArray[np.float64]:
        """Return the points with each feature's smallest and largest value at -1 and 1, shape (n, d)."""
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        width = np.maximum(high - low, np.finfo(np.float64).tiny)
        scaled: NDArray[np.float64] = 2.0 * (self.points - low) / width - 1.0
        return scaled


def generate_clusters(
    sizes: Sequence[int], d: int, *, separation: float, outliers: int = 0, seed: int = 0
) -> ClusterData:
    """Generate clusters.

    Parameters
    ----------
    sizes : sequence of int
        Records of each cluster; their number is k.
    d : int
    separation : float
        Degree of separation of the two clusters that are least apart, in (-1, 1).
    outliers : int
        Further records, uniform.
    seed : int
        Public.

    Returns
    -------
    ClusterData

    Raises
    ------
    ConfigError
        A number is out of range.
    """
    if not sizes or min(sizes) < 1 or d < 1 or outliers < 0:
        raise ConfigError(
            f"expected at least one cluster of at least one record, d from 1 and outliers from 0, got {len(sizes)} "
            f"sizes, d = {d} and {outliers} outliers"
        )
    if not -1.0 < separation < 1.0:
        raise ConfigError(f"expected a degree of separation between -1 and 1, got {separation:g}")
    rng = np.random.default_rng([seed, d, len(sizes)])
    roots = np.stack([_random_root(d, rng) for _ in sizes])
    centers = _spread(len(sizes), d, rng)
    if len(sizes) > 1:
        closest = min_gap(centers, roots)
        centers = centers * (Z * (1.0 + separation) / (1.0 - separation) / closest)
    parts = [
        center + rng.standard_normal((n, d)) @ root.T for center, root, n in zip(centers, roots, sizes, strict=True)
    ]
    points = np.concatenate(parts)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    if outliers:
        middle, reach = points.mean(axis=0), _OUTLIER_DEVIATIONS * points.std(axis=0)
        points = np.concatenate([points, rng.uniform(middle - reach, middle + reach, (outliers, d))])
        labels = np.concatenate([labels, np.full(outliers, -1)])
    order = rng.permutation(len(points))
    return ClusterData(points[order], labels[order].astype(np.int64))


def rising_sizes(n: int, k: int) -> tuple[int, ...]:
    """Return k sizes in the ratio 1:2:...:k that add up to n."""
    edges = [round(n * j * (j + 1) / (k * (k + 1))) for j in range(k + 1)]
    return tuple(high - low for low, high in pairwise(edges))


def min_gap(centers: NDArray[np.float64], roots: NDArray[np.float64]) -> float:
    """Return the smallest over pairs of the largest over directions of gap / (s_1 + s_2).

    Parameters
    ----------
    centers : float64 array, shape (k, d)
    roots : float64 array, shape (k, d, d)
        Square roots of the covariances: S = root root'.
    """
    covariances = roots @ roots.transpose(0, 2, 1)
    smallest = math.inf
    for i in range(1, len(centers)):
        for j in range(i):
            delta = centers[j] - centers[i]
            # No pair beats this bound from the largest eigenvalue: skip those that are far apart anyway.
            if np.linalg.norm(delta) / (2.0 * math.sqrt(_EIGENVALUES[1])) < smallest:
                smallest = min(smallest, _largest_gap(delta, covariances[i], covariances[j]))
    return smallest


def _largest_gap(delta: NDArray[np.float64], first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Maximise a.delta / (sqrt(a' S_1 a) + sqrt(a' S_2 a)) by its fixed point a ~ (S_1 / s_1 + S_2 / s_2)^-1 delta."""
    ratio, best = 1.0, 0.0
    for _ in range(_STEPS):
        a = np.linalg.solve(first + ratio * second, delta)
        s1, s2 = math.sqrt(a @ first @ a), math.sqrt(a @ second @ a)
        value = float(a @ delta) / (s1 + s2)
        if value <= best * (1.0 + _TOLERANCE):
            break
        best, ratio = value, s1 / s2
    return best


def _random_root(d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw a square root of a covariance: random axes, eigenvalues uniform."""
    axes, _ = np.linalg.qr(rng.standard_normal((d, d)))
    return axes * np.sqrt(rng.uniform(*_EIGENVALUES, d))


def _spread(k: int, d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw k points of a cube one after the other, each the farthest from those before out of several."""
    centers = np.empty((k, d))
    centers[0] = rng.uniform(-1.0, 1.0, d)
    for j in range(1, k):
        candidates = rng.uniform(-1.0, 1.0, (_CANDIDATES, d))
        away = ((candidates[:, None] - centers[None, :j]) ** 2).sum(axis=2).min(axis=1)
        centers[j] = candidates[away.argmax()]
    return centers
