"""Assignment of points to centres, and their sums and counts, in exact integer arithmetic.

The scores |c|^2 - 2 x.c are computed in float64 from integers small enough that every product and
every partial sum is an integer below 2^53 (`masking.fixed.choose_fraction_bits` checks it). So they are exact for any
block size, BLAS, thread count and machine, a point's label depends only on that point and the centres, and ties go to
the lowest index. If it is worthwhile (`passes.py`), `fused.py` computes the same results in compiled code; this module
works without numba, and tests compare the two.

Source: FastLloyd, Alg. 1 lines 6 to 13; docs/protocol.md, "Arithmetic".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import GridPoints

BLOCK = 8192
# Sums and counts of the points within the radius, sums and counts of the shortened ones.
_Totals = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

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
    k, d = centers.shape
    labels = points.passes.new_labels(points.n)
    fused = points.passes.compiled("sweep", points.n, k, d)

    def label(start: int, stop: int) -> None:
        if fused is not None:
            _sweep(fused, points, centers, start, stop, found=labels)
            return
        for rows, _, best, scores in _blocks(points, centers, block, start, stop):
            labels[rows] = _first_equal(scores, best)

    for _ in points.passes.over(points.n, k, d, label):
        pass
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
    fused = points.passes.compiled("sweep", points.n, k, d)

    def add(start: int, stop: int) -> _Totals:
        if fused is not None:
            return _sweep(fused, points, centers, start, stop, radius=radius, shorten=shorten)
        return _accumulate_blocks(points, centers, start, stop, radius=radius, shorten=shorten, block=block)

    sums, counts, far_sums, far_counts = add_up(points.passes.over(points.n, k, d, add))
    if relative:
        sums -= counts[:, None] * centers
    return sums + far_sums, counts + far_counts


def _accumulate_blocks(
    points: GridPoints,
    centers: NDArray[np.int64],
    start: int,
    stop: int,
    *,
    radius: int | None,
    shorten: bool,
    block: int,
) -> _Totals:
    """Sum and count points `start` to `stop` within the radius, and the shortened vectors of those beyond."""
    k, d = centers.shape
    limit = np.inf if radius is None else float(radius) * float(radius)
    sums, far_sums = np.zeros((2, k, d), dtype=np.float64)
    counts, far_counts = np.zeros((2, k), dtype=np.int64)
    one_hot = k <= _ONE_HOT_CLUSTERS or d >= _ONE_HOT_FEATURES
    for rows, x, best, scores in _blocks(points, centers, block, start, stop):
        if radius is not None:
            kept = best + points.raw_squared_norms[rows] <= limit
        else:
            kept = np.ones(best.shape, dtype=np.bool_)
        if shorten and radius is not None and not kept.all():
            far = np.flatnonzero(~kept)
            squared = best[far] + points.raw_squared_norms[rows][far]
            far_labels = _first_equal(scores[:, far], best[far])
            offset = x[:, far] - centers.T[:, far_labels]
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
    return sums.astype(np.int64), counts, far_sums.astype(np.int64), far_counts


def _sweep(
    fused: ModuleType,
    points: GridPoints,
    centers: NDArray[np.int64],
    start: int,
    stop: int,
    *,
    radius: int | None = None,
    shorten: bool = False,
    found: NDArray[np.int64] | None = None,
) -> _Totals:
    """Compute as `_accumulate_blocks`, or fill in the labels `found`, by the compiled pass."""
    k, d = centers.shape
    exact = np.ascontiguousarray(centers, dtype=np.float64)
    rows = 0 if found is not None else 2 * k + 1 if shorten else k + 1
    sums, counts = np.zeros((rows, d), dtype=np.int64), np.zeros(rows, dtype=np.int64)
    roundings = (d + 6) * 2.0**-24
    fused.sweep(
        points.raw_coordinates,
        start,
        stop,
        exact,
        (-2.0 * exact).astype(np.float32),
        (exact * exact).sum(axis=1).astype(np.float32),
        roundings / (1.0 - roundings) if roundings < 0.5 else 1e30,
        0.0 if radius is None else float(radius),
        radius is not None,
        sums,
        counts,
        np.empty(0, dtype=np.int64) if found is None else found,
    )
    if not shorten:
        return sums[:k], counts[:k], np.zeros_like(sums[:k]), np.zeros_like(counts[:k])
    return sums[:k], counts[:k], sums[k : 2 * k], counts[k : 2 * k]


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
    fused = points.passes.compiled("add_by_label", points.n, 1, points.d)

    def add(start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if fused is None:
            return _sum_blocks(points, labels, k, start, stop, block=block)
        raw_sums, raw_counts = np.zeros((k, points.d), dtype=np.int64), np.zeros(k, dtype=np.int64)
        fused.add_by_label(points.raw_coordinates, start, stop, labels, raw_sums, raw_counts)
        return raw_sums, raw_counts

    sums, counts = add_up(points.passes.over(points.n, 1, points.d, add))
    return sums, counts


def add_up(parts: Iterable[tuple[NDArray[np.int64], ...]]) -> tuple[NDArray[np.int64], ...]:
    """Add up the results of the ranges of a pass, array by array; at least one range."""
    return reduce(lambda total, part: tuple(map(np.add, total, part)), parts)


def _sum_blocks(
    points: GridPoints, labels: NDArray[np.int64], k: int, start: int, stop: int, *, block: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sum and count points `start` to `stop` by label."""
    sums = np.zeros((k, points.d), dtype=np.float64)
    width = max(256, min(block, (1 << 20) // max(k, 1)))
    member = np.empty((k, width))
    for at in range(start, stop, width):
        found = labels[at : min(at + width, stop)]
        part = member[:, : found.size]
        part.fill(0.0)
        part[found, np.arange(found.size)] = 1.0
        sums += part @ points.raw_coordinates[:, at : at + found.size].T.astype(np.float64)
    return sums.astype(np.int64), np.bincount(labels[start:stop], minlength=k).astype(np.int64)


def _blocks(
    points: GridPoints, centers: NDArray[np.int64], block: int, first: int, last: int
) -> Iterator[tuple[slice, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]:
    """Yield per block from `first` on its rows, coordinates (d, b), best scores (b,) and all scores (k, b)."""
    k = centers.shape[0]
    exact = centers.astype(np.float64)
    minus_two = -2.0 * exact
    squared = (exact * exact).sum(axis=1)[:, None]
    width = min(block, max(last - first, 1))
    # Many clusters: fewer points at a time, so that the scores stay in the cache.
    width = max(256, min(width, (1 << 18) // max(k, 1)))
    x_buffer = np.empty((points.d, width), dtype=np.float64)
    score_buffer = np.empty((k, width), dtype=np.float64)
    for start in range(first, last, width):
        rows = slice(start, min(start + width, last))
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
    found: NDArray[np.int64] = np.zeros(best.shape, dtype=np.int64)
    if len(scores) > _ROW_BY_ROW_CLUSTERS:
        found[:] = np.argmax(scores == best, axis=0)
        return found
    for j in reversed(range(len(scores))):  # with 64 clusters argmax takes four times as long
        np.copyto(found, j, where=scores[j] == best)
    return found
