"""Assignment of points to centres, and their sums and counts, in exact integer arithmetic.

The scores |c|^2 - 2 x.c are computed in float64 from integers small enough that every product and
every partial sum is an integer below 2^53 (`ring.fixed.choose_fraction_bits` checks it). So they are
exact whatever the block size, BLAS, thread count or machine, a point's label depends on that point and
the centres alone, and ties go to the lowest index.

Source: FastLloyd, Alg. 1 lines 6 to 13; docs/protocol.md, "Arithmetic".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import GridPoints

BLOCK = 8192
# One-hot GEMM beats bincount while the clusters are few, or the features many.
_ONE_HOT_CLUSTERS = 32
_ONE_HOT_FEATURES = 32
# With more, one pass over all clusters for each record costs less than a pass over the records for each cluster.
_ROW_BY_ROW_CLUSTERS = 256


def assign(points: GridPoints, centers: NDArray[np.int64], *, block: int = BLOCK) -> NDArray[np.int64]:
    """Label each point with its nearest centre.

    Parameters
    ----------
    points : GridPoints
    centers : int64 array, shape (k, d)
        On the same grid.
    block : int
        Points per step; it never changes a label.

    Returns
    -------
    int64 array, shape (n,)

    Notes
    -----
    Sees: nobody but the caller; labels stay at their owner.
    """
    labels = np.empty(points.n, dtype=np.int64)
    for rows, _, best, scores in _blocks(points, centers, block):
        labels[rows] = _first_equal(scores, best)
    return labels


def accumulate(
    points: GridPoints,
    centers: NDArray[np.int64],
    *,
    radius: int | None,
    relative: bool,
    shorten: bool = False,
    block: int = BLOCK,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sum and count the points of each cluster in one pass.

    Parameters
    ----------
    points : GridPoints
    centers : int64 array, shape (k, d)
    radius : int or None
        Points whose exact squared distance from their centre exceeds radius^2 are left out, or shortened.
    relative : bool
        Sum x - c (FastLloyd, line 12) rather than x.
    shorten : bool
        Count all points, and let one beyond the radius enter with x - c shortened to the radius (fastlloyd-plus); needs
        `radius` and `relative`.

    Returns
    -------
    raw_sums : int64 array, shape (k, d)
    raw_counts : int64 array, shape (k,)

    Notes
    -----
    Sees: nobody but the caller, until masked.
    Privacy: adding or removing one point changes one row of `raw_sums` by an integer vector v and that
    cluster's count by 1, all else stays. With `relative` and `radius` |v|_2 <= radius exactly, since the
    point counts only if its integer squared distance is at most radius^2; with `shorten` as well, see
    `_shorten`; without them |v_h| <= 2^q for each coordinate.
    Source: FastLloyd, Alg. 1 lines 6 to 13, Eq. 4 and 5.
    """
    k, d = centers.shape
    limit = np.inf if radius is None else float(radius) * float(radius)
    sums = np.zeros((k, d), dtype=np.float64)
    counts = np.zeros(k, dtype=np.int64)
    far_sums: NDArray[np.float64] | None = None
    far_counts = np.zeros_like(counts)
    one_hot = k <= _ONE_HOT_CLUSTERS or d >= _ONE_HOT_FEATURES
    for rows, x, best, scores in _blocks(points, centers, block):
        if radius is not None:
            kept = best + points.raw_squared_norms[rows] <= limit
        else:
            kept = np.ones(best.shape, dtype=np.bool_)
        if shorten and radius is not None and not kept.all():
            far = np.flatnonzero(~kept)
            squared = best[far] + points.raw_squared_norms[rows][far]
            far_labels = _first_equal(scores[:, far], best[far])
            offset = x[:, far] - centers.T[:, far_labels]
            far_sums = np.zeros((k, d)) if far_sums is None else far_sums
            _add_columns(far_sums, _shorten(offset, squared, radius), far_labels, one_hot=one_hot)
            far_counts += np.bincount(far_labels, minlength=k)
        if one_hot:
            member = _mark_members(scores, best, kept)
            sums += member @ x.T
            counts += member.sum(axis=1).astype(np.int64)
        else:
            labels = np.where(kept, _first_equal(scores, best), k)
            counts += np.bincount(labels, minlength=k + 1)[:k]
            for h in range(d):
                sums[:, h] += np.bincount(labels, weights=x[h], minlength=k + 1)[:k]
    raw_sums = sums.astype(np.int64)
    if relative:
        raw_sums -= counts[:, None] * centers
    if far_sums is None:
        return raw_sums, counts
    return raw_sums + far_sums.astype(np.int64), counts + far_counts


def _shorten(offset: NDArray[np.float64], squared: NDArray[np.float64], radius: int) -> NDArray[np.float64]:
    """Shorten integer vectors, the columns of (d, b) with these squared norms, to integer vectors within the radius.

    Coordinates are rounded toward zero: to the nearest, every other result would be longer than the radius. With
    |v| > radius, |trunc(v_h f)| <= |v_h| f (1 + 2^-52), f = radius / |v| (1 + 3 * 2^-52): the squared norm of the
    result is at most radius^2 (1 + 2^-48), hence, as an integer, at most radius^2 for any radius below 2^24. It is
    compared all the same, and what fails would enter as zero.
    """
    short = np.trunc(offset * (radius / np.sqrt(squared)))
    short[:, np.einsum("hi,hi->i", short, short) > float(radius) * float(radius)] = 0.0
    return short


def _add_columns(
    sums: NDArray[np.float64], columns: NDArray[np.float64], labels: NDArray[np.int64], *, one_hot: bool
) -> None:
    """Add the columns of (d, b) to the rows of (k, d) that they belong to; all integers, so in any order."""
    k, d = sums.shape
    if one_hot:
        member = np.zeros((k, labels.size))
        member[labels, np.arange(labels.size)] = 1.0
        sums += member @ columns.T
        return
    for h in range(d):
        sums[:, h] += np.bincount(labels, weights=columns[h], minlength=k)


def sum_by_label(
    points: GridPoints, labels: NDArray[np.int64], k: int, *, block: int = BLOCK
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sum and count the points of each label, wherever the labels come from.

    Parameters
    ----------
    points : GridPoints
    labels : int64 array, shape (n,)
        From 0 to k - 1.
    k : int
    block : int
        Points per step; it never changes a sum.

    Returns
    -------
    raw_sums : int64 array, shape (k, d)
    raw_counts : int64 array, shape (k,)

    Notes
    -----
    Sees: nobody but the caller, until masked.
    Privacy: if a point's label depends on that point and public values alone, adding or removing one point changes one
    row of `raw_sums` by that point and one count by 1.
    """
    sums = np.zeros((k, points.d), dtype=np.float64)
    width = max(256, min(block, (1 << 20) // max(k, 1)))
    member = np.empty((k, width))
    for start in range(0, points.n, width):
        found = labels[start : start + width]
        part = member[:, : found.size]
        part.fill(0.0)
        part[found, np.arange(found.size)] = 1.0
        sums += part @ points.raw_coordinates[:, start : start + width].T.astype(np.float64)
    return sums.astype(np.int64), np.bincount(labels, minlength=k).astype(np.int64)


def _blocks(
    points: GridPoints, centers: NDArray[np.int64], block: int
) -> Iterator[tuple[slice, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]:
    """Yield per block its rows, coordinates (d, b), best scores (b,) and all scores (k, b)."""
    k = centers.shape[0]
    exact = centers.astype(np.float64)
    minus_two = -2.0 * exact
    squared = (exact * exact).sum(axis=1)[:, None]
    width = min(block, max(points.n, 1))
    # Many clusters: fewer points at a time, so that the scores stay in the cache.
    width = max(256, min(width, (1 << 18) // max(k, 1)))
    x_buffer = np.empty((points.d, width), dtype=np.float64)
    score_buffer = np.empty((k, width), dtype=np.float64)
    for start in range(0, points.n, width):
        rows = slice(start, min(start + width, points.n))
        size = rows.stop - rows.start
        x = x_buffer[:, :size]
        np.copyto(x, points.raw_coordinates[:, rows])
        scores = score_buffer[:, :size]
        if size == width:
            np.matmul(minus_two, x, out=scores)
        else:
            scores[...] = minus_two @ x
        scores += squared
        yield rows, x, scores.min(axis=0), scores


def _mark_members(
    scores: NDArray[np.float64], best: NDArray[np.float64], kept: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Overwrite scores (k, b) with 1 at the lowest index of each kept column's minimum and 0 elsewhere."""
    if len(scores) > _ROW_BY_ROW_CLUSTERS:
        labels = _first_equal(scores, best)
        scores.fill(0.0)
        scores[labels, np.arange(labels.size)] = kept
        return scores
    member = scores == best
    free = kept.copy()
    for row in member:
        np.logical_and(row, free, out=row)
        np.greater(free, row, out=free)  # whom no lower index has taken
    np.copyto(scores, member)
    return scores


def _first_equal(scores: NDArray[np.float64], best: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the lowest index at which a column of (k, b) reaches its minimum."""
    found: NDArray[np.int64] = np.argmax(scores == best, axis=0).astype(np.int64, copy=False)
    return found
