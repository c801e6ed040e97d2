"""One compiled pass over records: nearest centre, radius, sums and counts, tile by tile, equal to numpy's to the bit.

Scores |c|^2 - 2 x.c are first computed in float32, several records at a time. A bound on their rounding shows which
labels, and which sides of the radius, are certain; the few others are computed again in float64, where every product
and partial sum is an integer below 2^53. So each label is that of exact arithmetic, ties go to the lowest index, and
sums are added in int64: no tile, thread or machine changes a result (tests compare with
`assign.py`).

The bound: with u = 2^-24 a score's conversions, products and sums round at most d + 6 times in a row, so it is off by
at most g (|c|^2 + 2 |x| |c|), g = (d + 6) u / (1 - (d + 6) u), by Cauchy and Schwarz. A label is certain if the second
best score is worse by more than twice that.

Points that are not integers have no such bound: `label_in_order` does numpy's own operations, one by one.

Only this module imports numba; `passes.py` decides when that is worthwhile.

Source: FastLloyd, Alg. 1 lines 6 to 13; Higham, Accuracy and Stability of Numerical Algorithms (2002), §3.1.
"""

# Kernels take arrays, one by one. Public kernels have types; numba infers the rest.
# ruff: noqa: PLR0917
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numba.core.caching import FunctionCache
from numpy.typing import NDArray

_TILE = 256
# Distance of a tile's rows: at a power of two they would collide in the L1 cache.
_WIDE = _TILE + 16
_HUGE = np.float32(3e38)
# Exact results and first guesses may be computed in any order; none is infinite or NaN.
_ANY_ORDER = {"contract", "nsz", "nnan", "ninf", "reassoc"}


class _Kept(FunctionCache):
    """An optional cache of machine code on disk: if it cannot be read or written, numba compiles."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return machine code, or None; drop a damaged index, as after a power cut."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever unpickling damaged bytes may raise
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store machine code if possible."""
        with suppress(Exception):
            super().save_overload(sig, data)


def _compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile at the first call, and cache the machine code where numba can write: here, or in the user's cache."""

    def decorate(function: Callable[..., Any]) -> Any:
        made = njit(nogil=True, **options)(function)
        with suppress(RuntimeError):  # numba found no folder to write to
            made._cache = _Kept(function)
        return made

    return decorate


def is_ready(kernel: str) -> bool:
    """Whether a call compiles nothing: this process has done so, or an earlier one has left its machine code."""
    function = globals()[kernel]
    folder = function.stats.cache_path
    return bool(function.signatures) or (folder is not None and any(Path(folder).glob(f"fused.{kernel}-*.nbi")))


@_compiled(fastmath=_ANY_ORDER)
def _load(raw, start, size, whole, x):
    """Copy a tile as int32 and as float32; return a bound on the records' squared norms."""
    most = 0.0
    for h in range(raw.shape[0]):
        source = raw[h, start : start + size]
        exact, rounded = whole[h], x[h]
        low = high = np.int32(0)
        for i in range(size):
            v = source[i]
            exact[i] = v
            rounded[i] = np.float32(v)
            low, high = min(low, v), max(high, v)
        reach = max(-np.float64(low), np.float64(high))
        most += reach * reach
    return most


@_compiled(fastmath=_ANY_ORDER)
def _square(whole, size, norms):
    """Fill in the tile's squared norms: exact integers."""
    for i in range(size):
        norms[i] = 0.0
    for h in range(whole.shape[0]):
        exact = whole[h]
        for i in range(size):
            norms[i] += np.float64(exact[i]) * np.float64(exact[i])


@_compiled(fastmath=_ANY_ORDER)
def _scan(x, size, minus_two, squares, scores, best, second, labels):
    """Find each record's best and second best score in float32, and the first index of the best.

    Four centres and four features at a time: the sums of a tile stay in the L1 cache, the coefficients in registers.
    """
    k, d = minus_two.shape
    for i in range(size):
        best[i] = _HUGE
        second[i] = _HUGE
        labels[i] = np.uint32(0)
    s0, s1, s2, s3 = scores[0], scores[1], scores[2], scores[3]
    j = 0
    while j + 4 <= k:
        a0, a1, a2, a3 = squares[j], squares[j + 1], squares[j + 2], squares[j + 3]
        for i in range(size):
            s0[i] = a0
            s1[i] = a1
            s2[i] = a2
            s3[i] = a3
        h = 0
        while h + 4 <= d:
            c = minus_two[j : j + 4, h : h + 4]
            c00, c01, c02, c03 = c[0, 0], c[0, 1], c[0, 2], c[0, 3]
            c10, c11, c12, c13 = c[1, 0], c[1, 1], c[1, 2], c[1, 3]
            c20, c21, c22, c23 = c[2, 0], c[2, 1], c[2, 2], c[2, 3]
            c30, c31, c32, c33 = c[3, 0], c[3, 1], c[3, 2], c[3, 3]
            x0, x1, x2, x3 = x[h], x[h + 1], x[h + 2], x[h + 3]
            for i in range(size):
                u, v, w, z = x0[i], x1[i], x2[i], x3[i]  # loaded once: the sums might lie over them
                s0[i] += c00 * u + c01 * v + c02 * w + c03 * z
                s1[i] += c10 * u + c11 * v + c12 * w + c13 * z
                s2[i] += c20 * u + c21 * v + c22 * w + c23 * z
                s3[i] += c30 * u + c31 * v + c32 * w + c33 * z
            h += 4
        while h < d:
            c0, c1, c2, c3 = minus_two[j, h], minus_two[j + 1, h], minus_two[j + 2, h], minus_two[j + 3, h]
            x0 = x[h]
            for i in range(size):
                u = x0[i]
                s0[i] += c0 * u
                s1[i] += c1 * u
                s2[i] += c2 * u
                s3[i] += c3 * u
            h += 1
        for i in range(size):
            b, n, label = best[i], second[i], labels[i]
            s = s0[i]
            n, label, b = min(n, max(b, s)), np.uint32(j) if s < b else label, min(b, s)
            s = s1[i]
            n, label, b = min(n, max(b, s)), np.uint32(j + 1) if s < b else label, min(b, s)
            s = s2[i]
            n, label, b = min(n, max(b, s)), np.uint32(j + 2) if s < b else label, min(b, s)
            s = s3[i]
            n, label, b = min(n, max(b, s)), np.uint32(j + 3) if s < b else label, min(b, s)
            best[i], second[i], labels[i] = b, n, label
        j += 4
    while j < k:
        a0 = squares[j]
        for i in range(size):
            s0[i] = a0
        for h in range(d):
            c0 = minus_two[j, h]
            x0 = x[h]
            for i in range(size):
                s0[i] += c0 * x0[i]
        for i in range(size):
            s, b = s0[i], best[i]
            second[i] = min(second[i], max(b, s))
            labels[i] = np.uint32(j) if s < b else labels[i]
            best[i] = min(b, s)
        j += 1


@_compiled(fastmath=_ANY_ORDER)
def _distance(whole, i, center):
    """Return a record's squared distance from a centre: an exact integer."""
    total = 0.0
    for h in range(center.shape[0]):
        away = np.float64(whole[h, i]) - center[h]
        total += away * away
    return total


@_compiled(fastmath=_ANY_ORDER)
def _settle(whole, size, centers, doubt, best, second, labels):
    """Compare again, exactly, where two scores are closer than the rounding error.

    `best` stays: it is within `doubt` of the score of the right label too, whichever it was found for.
    """
    gap = _HUGE
    for i in range(size):
        gap = min(gap, second[i] - best[i])
    if np.float64(gap) > 2.001 * doubt:
        return
    for i in range(size):
        if np.float64(second[i]) - np.float64(best[i]) > 2.0 * doubt:
            continue
        least = _distance(whole, i, centers[0])
        label = np.uint32(0)
        for j in range(1, centers.shape[0]):
            squared = _distance(whole, i, centers[j])
            if squared < least:
                least = squared
                label = np.uint32(j)
        labels[i] = label


@_compiled(fastmath=_ANY_ORDER)
def _put_far_aside(whole, size, centers, doubt, limit, norms, best, labels, far):
    """List the records whose exact squared distance is above the limit; return their number."""
    count = 0
    for i in range(size):
        squared = norms[i] + np.float64(best[i])
        if abs(squared - limit) <= doubt:
            squared = _distance(whole, i, centers[labels[i]])
        far[count] = i
        count += 1 if squared > limit else 0
    return count


@_compiled()
def _add_shortened(whole, far, count, columns, radius, labels, offset, squared, again, sums, counts):
    """Add the far records' vectors from their centres, shortened to the radius: the operations of `assign._shorten`.

    `columns` are the centres' coordinates, shape (d, k). An offset is shorter than 2^27, so its whole part is an int32.
    """
    d = columns.shape[0]
    for t in range(count):
        squared[t] = 0.0
        again[t] = 0.0
    for h in range(d):
        exact, center, away = whole[h], columns[h], offset[h]
        for t in range(count):
            i = np.uint64(far[t])
            v = np.float64(exact[i]) - center[np.uint64(labels[i])]
            away[t] = v
            squared[t] += v * v
    for t in range(count):
        squared[t] = radius / np.sqrt(squared[t])
    for h in range(d):
        away = offset[h]
        for t in range(count):
            v = np.float64(np.int32(away[t] * squared[t]))
            away[t] = v
            again[t] += v * v
    limit = radius * radius
    for t in range(count):
        label = np.uint64(labels[np.uint64(far[t])])
        counts[label] += 1
        if again[t] <= limit:
            row = sums[label]
            for h in range(d):
                row[h] += np.int64(offset[h, t])


@_compiled(fastmath=_ANY_ORDER)
def sweep(
    raw: NDArray[np.int32],
    start: int,
    stop: int,
    centers: NDArray[np.float64],
    minus_two: NDArray[np.float32],
    squares: NDArray[np.float32],
    slack: float,
    radius: float,
    bounded: bool,
    sums: NDArray[np.int64],
    counts: NDArray[np.int64],
    found: NDArray[np.int64],
) -> None:
    """Go once over records start to stop; every array is C-contiguous and every result exact.

    Parameters
    ----------
    raw : int32 array, shape (d, n)
    start, stop : int
    centers : float64 array, shape (k, d)
        Integers, as `raw`.
    minus_two, squares : float32 arrays, shapes (k, d) and (k,)
        -2 c and |c|^2, rounded.
    slack : float
        g of the bound above.
    radius : float
    bounded : bool
        Whether the radius counts.
    sums, counts : int64 arrays, shapes (2 k + 1, d) and (2 k + 1,)
        Filled: rows 0 to k - 1 with the records within the radius, k to 2 k - 1 with the shortened vectors of those
        beyond, the last with what is left over. With shapes (k + 1, d) those beyond the radius count nowhere else; with
        no rows nothing is summed.
    found : int64 array, shape (n,)
        Filled with labels; with shape (0,) left alone.
    """
    d = raw.shape[0]
    k = squares.shape[0]
    whole = np.empty((d, _WIDE), np.int32)
    x = np.empty((d, _WIDE), np.float32)
    scores = np.empty((4, _WIDE), np.float32)
    norms = np.empty(_TILE)
    best = np.empty(_TILE, np.float32)
    second = np.empty(_TILE, np.float32)
    labels = np.empty(_TILE, np.uint32)
    far = np.empty(_TILE + 1, np.uint32)
    squared = np.empty(_TILE)
    again = np.empty(_TILE)
    others = np.zeros_like(sums)
    columns = centers.T.copy()
    offset = np.empty((d, _WIDE))
    reach = 0.0
    for j in range(k):
        reach = max(reach, np.float64(squares[j]))
    reach = np.sqrt(reach)
    last = np.uint32(len(counts) - 1)
    for at in range(start, stop, _TILE):
        size = min(_TILE, stop - at)
        most = np.sqrt(_load(raw, at, size, whole, x))
        # A little more than the bound, for the rounding of the bound itself.
        doubt = 1.001 * slack * reach * (reach + 2.0 * most)
        _scan(x, size, minus_two, squares, scores, best, second, labels)
        _settle(whole, size, centers, doubt, best, second, labels)
        if len(found):
            part = found[at : at + size]
            for i in range(size):
                part[i] = labels[i]
        if not len(counts):
            continue
        if bounded:
            _square(whole, size, norms)
            count = _put_far_aside(whole, size, centers, doubt, radius * radius, norms, best, labels, far)
            if len(counts) > k + 1:
                _add_shortened(whole, far, count, columns, radius, labels, offset, squared, again, sums[k:], counts[k:])
            for t in range(count):
                labels[far[t]] = last
        _add(whole, size, labels, sums, others, counts)
    sums += others


@_compiled(inline="always")
def _add(whole, size, labels, sums, others, counts):
    """Add a tile's records by label, by turns to `sums` and `others`: an addition need not wait for the one before."""
    d = whole.shape[0]
    i = 0
    while i + 2 <= size:
        one, two = np.uint64(labels[i]), np.uint64(labels[i + 1])
        counts[one] += 1
        counts[two] += 1
        row, other = sums[one], others[two]
        for h in range(d):
            row[h] += whole[h, i]
            other[h] += whole[h, i + 1]
        i += 2
    if i < size:
        last = np.uint64(labels[i])
        counts[last] += 1
        for h in range(d):
            sums[last, h] += whole[h, i]


@_compiled()
def add_by_label(
    raw: NDArray[np.int32],
    start: int,
    stop: int,
    labels: NDArray[np.int64],
    sums: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Add records start to stop of (d, n) to the rows of `sums`, shape (k, d), that their labels, shape (n,), name."""
    d = raw.shape[0]
    whole = np.empty((d, _WIDE), np.int32)
    others = np.zeros_like(sums)
    for at in range(start, stop, _TILE):
        size = min(_TILE, stop - at)
        for h in range(d):
            whole[h, :size] = raw[h, at : at + size]
        _add(whole, size, labels[at : at + size], sums, others, counts)
    sums += others


@_compiled()
def label_in_order(
    columns: NDArray[np.float64],
    start: int,
    stop: int,
    centers: NDArray[np.float64],
    labels: NDArray[np.int64],
    distances: NDArray[np.float64],
) -> None:
    """Label points start to stop of (d, n) and fill in their squared distances, shape (n,) each.

    Squares are added feature by feature, as `weighted.nearest` does for few features: the same operations in the same
    order, none fused, so the same bits.
    """
    d = columns.shape[0]
    squared = np.empty(_TILE)
    least = np.empty(_TILE)
    label = np.empty(_TILE, np.int64)
    for at in range(start, stop, _TILE):
        size = min(_TILE, stop - at)
        for j in range(centers.shape[0]):
            for i in range(size):
                squared[i] = 0.0
            for h in range(d):
                column = columns[h, at : at + size]
                c = centers[j, h]
                for i in range(size):
                    squared[i] += (column[i] - c) * (column[i] - c)
            for i in range(size):
                closer = j == 0 or squared[i] < least[i]
                label[i] = j if closer else label[i]
                least[i] = squared[i] if closer else least[i]
        labels[at : at + size] = label[:size]
        distances[at : at + size] = least[:size]
