"""PE-means: records vote for the nearest of many candidate points, and the points with many votes have offspring.

A generation releases one noisy histogram of votes. Weighted k-means on the candidates gives the centres, whose random
changes are the next candidates. With more than 32 features this happens in a random projection to 16, and noisy sums
and counts of the clusters found there lift the centres back.

Source: "PE-means: Improved differentially private k-means clustering through private evolution" (arXiv 2606.00342,
2026). Written anew from the steps and constants of the published program (t3humphries/PE-means, e67d051): the paper's
text was not at hand. What differs:

- That program's lifting adds one draw of noise to all coordinates of a sum, and calibrates noise to two releases fewer
  than there are. Here each coordinate has its own draw, and all releases are counted.
- It centres and scales records by their own mean and largest norm. Here the bounds are public and the same for
  all methods, so the candidates fill the box [-1, 1]^d (the ball of radius sqrt(d) in a projection).
- It packs candidates anew in each run. Here the first ones are the same in all runs: they depend on no record.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.weighted import nearest
from fastlloyd.privacy.calibration import gaussian_noise_multiplier

_GENERATIONS, _VOTES, _LEAST_OFFSPRING = 4.0, 5, 4
_STEP, _LEVY = 0.01, 1.75
_STARTS = 10
_FEW_FEATURES, _PROJECTED = 32, 16
_MOST_MISSES, _BATCH = 100, 256
# Above it, products of matrices find the nearest point sooner than a tree does.
_TREE_FEATURES = 4


def pe_means(
    points: NDArray[np.float64], k: int, rng: np.random.Generator, *, epsilon: float, delta: float
) -> NDArray[np.float64]:
    """Cluster by private evolution.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        In [-1, 1]; n is public.
    k : int
    rng : numpy Generator
    epsilon, delta : float

    Returns
    -------
    float64 array, shape (k, d)

    Privacy
    -------
    Neighbours: one record added or removed. Up to 32 features: T histograms of votes, each of L2 sensitivity 1
    (`noisy_votes`), with noise of deviation sqrt(T) s: together 1/s-GDP, which is (epsilon, delta)-DP by the choice of
    s. More features: T histograms, sums and counts (`noisy_means`), T + 2 releases of multiplier sqrt(T + 2) s. The
    projection is drawn without looking at records.
    """
    d = points.shape[1]
    multiplier = gaussian_noise_multiplier(epsilon, delta)
    if d <= _FEW_FEATURES:
        generations = generations_of(d, epsilon)
        sigma = multiplier * math.sqrt(generations)
        return evolve(points, k, rng, generations=generations, sigma=sigma, radius=math.sqrt(d), ball=False)
    generations = generations_of(_PROJECTED, 1.0) - 2
    sigma = multiplier * math.sqrt(generations + 2)
    projected = points @ (rng.standard_normal((d, _PROJECTED)) / math.sqrt(_PROJECTED))
    centers = evolve(projected, k, rng, generations=generations, sigma=sigma, radius=math.sqrt(d), ball=True)
    return noisy_means(points, nearest(projected, centers)[0], k, sigma, rng)


def generations_of(d: int, epsilon: float) -> int:
    """Return the number of histograms: 4 sqrt(d), times epsilon where it is above 1, rounded down."""
    return max(1, int(max(1.0, epsilon) * int(_GENERATIONS * math.sqrt(d))))


def evolve(
    points: NDArray[np.float64],
    k: int,
    rng: np.random.Generator,
    *,
    generations: int,
    sigma: float,
    radius: float,
    ball: bool,
) -> NDArray[np.float64]:
    """Run all generations and return the last centres, shape (k, d).

    Parameters
    ----------
    points : float64 array, shape (n, d)
    k, generations : int
    rng : numpy Generator
    sigma : float
        Standard deviation of the noise on a vote.
    radius : float
        Of the ball that holds all candidates; its multiple 0.01 is the typical step of offspring.
    ball : bool
        Whether candidates fill that ball, or the box in it.
    """
    n, d = points.shape
    offspring = max(n // (_VOTES * k), _LEAST_OFFSPRING)
    candidates = radius * pack((offspring + 1) * k, d, ball=ball)
    for generation in range(generations):
        votes = noisy_votes(points, candidates, sigma, rng)
        kept = np.where(votes >= threshold(votes, n), votes, 0.0)
        if sigma > 0.0 and (kept**2).sum() < len(kept) * sigma**2:
            offspring = max(offspring // 2, _LEAST_OFFSPRING)
        centers = _heaviest(candidates, kept, k, rng)
        if generation < generations - 1:
            steps = _STEP * radius * levy_steps((len(centers) * offspring, d), rng)
            children = np.repeat(centers, offspring, axis=0) + steps
            candidates = np.vstack([centers, _inside(children, radius, ball=ball)])
    return centers


def noisy_votes(
    points: NDArray[np.float64], candidates: NDArray[np.float64], sigma: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Count for each candidate the records that it is nearest to, with noise.

    Parameters
    ----------
    points : float64 array, shape (n, d)
    candidates : float64 array, shape (m, d)
    sigma : float
    rng : numpy Generator

    Returns
    -------
    float64 array, shape (m,)

    Privacy
    -------
    Neighbours: one record added or removed. Candidates follow from earlier releases. A record's vote depends on that
    record and on them alone, so one count changes by 1: L2 sensitivity 1. Gaussian noise of deviation sigma on each
    count is 1/sigma-GDP.
    """
    if points.shape[1] <= _TREE_FEATURES:
        from scipy.spatial import cKDTree

        own = cKDTree(candidates).query(points)[1]
    else:
        own = nearest(points, candidates)[0]
    noisy: NDArray[np.float64] = np.bincount(own, minlength=len(candidates)) + rng.normal(0.0, sigma, len(candidates))
    return noisy


def noisy_means(
    points: NDArray[np.float64], labels: NDArray[np.int64], k: int, sigma: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return each cluster's noisy sum over its noisy count (at least 1), truncated to [-1, 1]; shape (k, d).

    Parameters
    ----------
    points : float64 array, shape (n, d)
        In [-1, 1].
    labels : int64 array, shape (n,)
        From earlier releases and each record alone.
    k : int
    sigma : float
        Noise multiplier of each of the two releases.
    rng : numpy Generator

    Privacy
    -------
    Neighbours: one record added or removed. It changes one row of the sums by itself, by at most sqrt(d) in L2, and one
    count by 1. Noise of deviation sigma sqrt(d) on every coordinate of every sum, and sigma on every count: two
    releases of 1/sigma-GDP each.
    """
    d = points.shape[1]
    sums = np.zeros((k, d))
    np.add.at(sums, labels, points)
    sums += rng.normal(0.0, sigma * math.sqrt(d), (k, d))
    counts = np.bincount(labels, minlength=k) + rng.normal(0.0, sigma, k)
    return np.clip(sums / np.maximum(counts, 1.0)[:, None], -1.0, 1.0)


def threshold(votes: NDArray[np.float64], n: int) -> float:
    """Return the smallest of the largest votes that together reach n; 0 if the positive ones do not.

    Parameters
    ----------
    votes : float64 array, shape (m,)
    n : int
        Number of records, public.
    """
    falling = np.sort(votes)[::-1]
    enough = np.flatnonzero(np.cumsum(falling) >= n)
    return float(falling[enough[0]]) if len(enough) else 0.0


def levy_steps(shape: tuple[int, int], rng: np.random.Generator, beta: float = _LEVY) -> NDArray[np.float64]:
    """Draw steps whose tails fall as |x|^-(1 + beta), by Mantegna's algorithm (1994)."""
    steps: NDArray[np.float64] = rng.normal(0.0, levy_deviation(beta), shape) / np.abs(rng.standard_normal(shape)) ** (
        1.0 / beta
    )
    return steps


def levy_deviation(beta: float) -> float:
    """Return the standard deviation of the numerator in Mantegna's algorithm."""
    top = math.gamma(1.0 + beta) * math.sin(math.pi * beta / 2.0)
    return float((top / (math.gamma((1.0 + beta) / 2.0) * beta * 2.0 ** ((beta - 1.0) / 2.0))) ** (1.0 / beta))


@lru_cache(maxsize=8)
def pack(count: int, d: int, *, ball: bool) -> NDArray[np.float64]:
    """Pack points in the unit ball, or in the box in it, with balls around them that neither meet nor leave it.

    The radius of these balls is a half, a quarter, ... of the largest: the first for which random throwing finds
    places for all, with at most 100 misses in a row.

    Returns
    -------
    float64 array, shape (count, d)
        Read only, since it is kept for the next call.
    """
    rng = np.random.default_rng([count, d, ball])
    radius = 0.5 * _half_width(d, ball)
    found = _throw(count, d, radius, rng, ball=ball)
    while found is None:
        radius /= 2.0
        found = _throw(count, d, radius, rng, ball=ball)
    found.flags.writeable = False
    return found


def _throw(count: int, d: int, radius: float, rng: np.random.Generator, *, ball: bool) -> NDArray[np.float64] | None:
    """Throw points until all have a place at least two radii from each other; None after too many misses in a row."""
    from scipy.spatial import cKDTree

    placed, size, misses = np.empty((count, d)), 0, 0
    while size < count:
        thrown = (_half_width(d, ball) - radius) * _uniform(_BATCH, d, rng, ball=ball)
        before = size
        far = cKDTree(placed[:size]).query(thrown)[0] >= 2.0 * radius if size else np.ones(_BATCH, dtype=bool)
        for point, fits in zip(thrown, far, strict=True):
            fresh = placed[before:size]
            if fits and (((fresh - point) ** 2).sum(axis=1) >= 4.0 * radius**2).all():
                placed[size], misses = point, 0
                size += 1
            else:
                misses += 1
            if misses >= _MOST_MISSES:
                return None
            if size == count:
                break
    return placed


def _half_width(d: int, ball: bool) -> float:
    """Return the radius of the unit ball, or half the width of the box in it."""
    return 1.0 if ball else 1.0 / math.sqrt(d)


def _uniform(count: int, d: int, rng: np.random.Generator, *, ball: bool) -> NDArray[np.float64]:
    """Draw points of the unit ball, or of [-1, 1]^d, uniformly."""
    if not ball:
        return rng.uniform(-1.0, 1.0, (count, d))
    directions = rng.standard_normal((count, d))
    drawn: NDArray[np.float64] = directions * (
        rng.random((count, 1)) ** (1.0 / d) / np.linalg.norm(directions, axis=1, keepdims=True)
    )
    return drawn


def _inside(points: NDArray[np.float64], radius: float, *, ball: bool) -> NDArray[np.float64]:
    """Move points that left the ball, or the box in it, to its surface."""
    if not ball:
        reach = radius * _half_width(points.shape[1], ball)
        return np.clip(points, -reach, reach)
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    moved: NDArray[np.float64] = points * np.minimum(1.0, radius / np.maximum(norms, np.finfo(np.float64).tiny))
    return moved


def _heaviest(
    candidates: NDArray[np.float64], votes: NDArray[np.float64], k: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Cluster the candidates that have votes; where they are fewer than k, the k with most."""
    from sklearn.cluster import KMeans

    weighed = np.flatnonzero(votes > 0.0)
    if len(weighed) <= k:
        return candidates[np.argsort(-votes, kind="stable")[:k]]
    found = KMeans(k, n_init=_STARTS, random_state=int(rng.integers(1 << 31)))
    centers: NDArray[np.float64] = found.fit(candidates[weighed], sample_weight=votes[weighed]).cluster_centers_
    return centers
