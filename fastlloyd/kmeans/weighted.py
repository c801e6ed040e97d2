"""k-means of weighted points in the clear: k-means++ from the public seed, then Lloyd's steps.

For public points: the server's own, or the cells of a released histogram. All draws come from the package's own cipher
stream. With up to 8 features all sums are taken in order by basic operations, so a seed gives the same bits
on every machine; with more, on every machine whose linear algebra rounds the same way.

Source: Arthur and Vassilvitskii (2007), with several candidates per centre as in its §6; FedDP-KMeans, Alg. 1 line 17.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.passes import Passes
from fastlloyd.kmeans.update import total
from fastlloyd.randomness.prg import PublicStream

MOST_STEPS = 100
"""Steps of Lloyd from one start, at most."""
_BLOCK_VALUES = 1 << 22
_ORDERED_FEATURES = 8
# In order, the working set stays in the processor's cache.
_ORDERED_VALUES = 1 << 14
_FEW_CENTERS = 16
# Beyond it the calls of numpy cost less than the sums.
_FEW_VALUES = 1 << 16

_PLAIN = Passes(patience=math.inf)


@dataclass(frozen=True, slots=True)
class Clustering:
    """Centres and their cost.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
    labels : int64 array, shape (n,)
    cost : float
        Sum of weighted squared distances to the nearest centre.
    """

    centers: NDArray[np.float64]
    labels: NDArray[np.int64]
    cost: float


def cluster(
    points: NDArray[np.float64],
    k: int,
    stream: PublicStream,
    *,
    weights: NDArray[np.float64] | None = None,
    restarts: int = 10,
    max_steps: int = MOST_STEPS,
    passes: Passes | None = None,
) -> Clustering:
    """Cluster from several starts; return the cheapest result.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        At least one.
    k : int
    stream : PublicStream
    weights : float64 array, shape (n,), optional
        Not negative; ones by default, or if all are zero.
    restarts, max_steps : int
    passes : Passes, optional
        How to iterate over the points; it changes no bit.

    Returns
    -------
    Clustering
        The first of the cheapest.
    """
    weights = _usable(points, weights)
    held = weights > 0.0
    if points.shape[1] <= _ORDERED_FEATURES and not held.all():
        # All additions are in order, and a point without weight adds 0: left out, it changes no bit of a centre.
        found = cluster(
            points[held], k, stream, weights=weights[held], restarts=restarts, max_steps=max_steps, passes=passes
        )
        return Clustering(found.centers, nearest(points, found.centers, passes)[0], found.cost)
    best: Clustering | None = None
    for _ in range(restarts):
        start = seed_centers(points, k, stream, weights=weights)
        found = refine(points, start, weights=weights, max_steps=max_steps, passes=passes)
        if best is None or found.cost < best.cost:
            best = found
    if best is None:
        raise ValueError(f"expected at least one start, got {restarts}")
    return best


def seed_centers(
    points: NDArray[np.float64], k: int, stream: PublicStream, *, weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Choose k of the points by k-means++: each with probability proportional to its part of the cost so far.

    Parameters as for `cluster`.

    Returns
    -------
    float64 array, shape (k, d)

    Notes
    -----
    Of 2 + ln k candidates the one that lowers the cost most is chosen. If no cost is left (fewer different points than
    centres) all points are equally good.
    """
    weights = _usable(points, weights)
    candidates = 2 + int(math.log(k))
    chosen = np.empty((k, points.shape[1]))
    chosen[0] = points[_draw(weights, 1, stream)[0]]
    nearest = _squared_distances(points, chosen[:1])[:, 0]
    for j in range(1, k):
        mass = weights * nearest
        tries = _draw(mass if mass.sum() > 0.0 else weights, candidates, stream)
        shrunk = np.minimum(nearest[:, None], _squared_distances(points, points[tries]))
        best = int(np.argmin(np.cumsum(weights[:, None] * shrunk, axis=0)[-1]))  # in order, as `total`
        chosen[j], nearest = points[tries[best]], shrunk[:, best]
    return chosen


def refine(
    points: NDArray[np.float64],
    centers: NDArray[np.float64],
    *,
    weights: NDArray[np.float64] | None = None,
    max_steps: int = MOST_STEPS,
    passes: Passes | None = None,
) -> Clustering:
    """Run Lloyd's steps until the labels repeat; a cluster without weight keeps its centre.

    Parameters
    ----------
    points : float64 array, shape (n, d)
    centers : float64 array, shape (k, d)
    weights, max_steps, passes
        As for `cluster`.
    """
    weights = _usable(points, weights)
    centers = centers.copy()
    labels, distances = nearest(points, centers, passes)
    for _ in range(max_steps):
        totals = np.bincount(labels, weights, len(centers))
        held = totals > 0.0
        centers[held] = _sums_by_label(points, labels, weights, len(centers))[held] / totals[held, None]
        before = labels
        labels, distances = nearest(points, centers, passes)
        if (labels == before).all():
            break
    return Clustering(centers, labels, total(weights * distances))


def nearest(
    points: NDArray[np.float64], centers: NDArray[np.float64], passes: Passes | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return labels of the nearest centres, lowest index on ties, and squared distances; shape (n,) each."""
    n, (k, d) = len(points), centers.shape
    labels, distances = np.empty(n, dtype=np.int64), np.empty(n)
    ordered = d <= _ORDERED_FEATURES
    height = max(1, (_ORDERED_VALUES if ordered else _BLOCK_VALUES) // max(k, 1))
    if passes is None or not ordered:  # with linear algebra, a block's height might change a bit
        passes = _PLAIN
    fused = passes.compiled("label_in_order", n, k, d)
    columns = np.ascontiguousarray(points.T) if fused is not None else points.T

    def label(first: int, last: int) -> None:
        if fused is not None:
            fused.label_in_order(columns, first, last, np.ascontiguousarray(centers), labels, distances)
            return
        for start in range(first, last, height):
            rows = slice(start, min(start + height, last))
            squared = _squared_distances(points[rows], centers)
            squared.argmin(axis=1, out=labels[rows])
            squared.min(axis=1, out=distances[rows])

    for _ in passes.over(n, k, d, label):
        pass
    return labels, distances


def _sums_by_label(
    points: NDArray[np.float64], labels: NDArray[np.int64], weights: NDArray[np.float64], k: int
) -> NDArray[np.float64]:
    """Add up weighted points, shape (n, d), of each of k labels, one after the other; shape (k, d)."""
    d = points.shape[1]
    if points.size > _FEW_VALUES:
        return np.stack([np.bincount(labels, weights * column, k) for column in points.T], axis=1)
    # One call in place of d: the same additions in the same order.
    places = (labels[:, None] * d + np.arange(d)).ravel()
    sums = np.bincount(places, (weights[:, None] * points).ravel(), k * d)
    return sums.reshape(k, d).astype(np.float64, copy=False)


def _squared_distances(points: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return squared distances, shape (n, k); never below 0."""
    if points.shape[1] <= _ORDERED_FEATURES:
        return ordered_distances(points, centers)
    own = np.einsum("ij,ij->i", points, points)[:, None]
    theirs = np.einsum("ij,ij->i", centers, centers)
    found: NDArray[np.float64] = np.maximum(own - 2.0 * (points @ centers.T) + theirs, 0.0)
    return found


def ordered_distances(points: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return squared distances, shape (n, k), added feature by feature: the same bits on every machine."""
    # The longer side runs fastest.
    few = len(centers) <= _FEW_CENTERS
    short, long = (centers, points) if few else (points, centers)
    squared = np.zeros((len(short), len(long)))
    difference = np.empty_like(squared)
    for own, theirs in zip(short.T, np.ascontiguousarray(long.T), strict=True):
        np.subtract(own[:, None], theirs, out=difference)
        np.multiply(difference, difference, out=difference)
        squared += difference
    return squared.T if few else squared


def _usable(points: NDArray[np.float64], weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the weights, or ones if there are none."""
    if weights is None or not weights.any():
        return np.ones(len(points))
    return weights


def _draw(mass: NDArray[np.float64], count: int, stream: PublicStream) -> NDArray[np.int64]:
    """Draw indices with probability proportional to mass, from 53-bit uniforms."""
    words = stream.uint32(2 * count).reshape(count, 2)
    uniforms = (((words[:, 0] << np.uint64(32)) | words[:, 1]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    bounds = np.cumsum(mass)
    found: NDArray[np.int64] = np.searchsorted(bounds, uniforms * bounds[-1], side="right").astype(np.int64)
    # The product may round up to the very end; then use the last index with mass.
    return np.minimum(found, int(np.flatnonzero(mass)[-1]))
