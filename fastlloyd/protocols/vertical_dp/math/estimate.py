"""How many users unions and intersections of local clusters have, by inclusion and exclusion (the paper's BasicEst).

Everything here works on released sketches: post-processing, at the server.

The highest level of a union of N users and phantoms has the distribution F^N, F known exactly, and each row is an
independent draw. N is estimated by maximum likelihood, times (M - 1) / M, which takes off its bias to first order.

Differs from the paper: maximum likelihood in place of the harmonic mean, which is its limit for small gamma; the
phantoms taken off are the distinct ones in the union, (k')^s - 1 cells of them; and the last step, non-negative
weights with the sum n, is the nearest such table in place of an unnamed method.

Source: Vertical DP, Algorithm 4, Theorem 6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import DataError, RangeError
from fastlloyd.protocols.vertical_dp.sketch.sketch import PAPER_PHANTOMS, Levels, SketchShape

Table = NDArray[np.float64]

_BLOCK = 1 << 21
_STEPS = 60


def cardinality(levels: Levels, shape: SketchShape) -> NDArray[np.float64]:
    """Estimate how many users and phantoms stand behind the highest levels of each column.

    Parameters
    ----------
    levels : int64 array, shape (M, c)
        One column per set; levels below `shape.floor` do not occur.

    Returns
    -------
    float64 array, shape (c,)
        Standard error N * `relative_error` each. 0 for a column that never rises above the floor.

    Raises
    ------
    RangeError
        A set is too large for the words: more than half of its rows are at the top.

    Notes
    -----
    Source: Smith, Song, Thakurta (2020), estimator; here by maximum likelihood. The score is
    sum over rows of ln F(a) + d / (e^(N d) - 1), d = ln F(a) - ln F(a - 1), or ln F(floor) at the floor; it falls in N.
    """
    log, gap = _logarithms(shape)
    if ((levels >= shape.top).sum(axis=0) > len(levels) // 2).any():
        raise RangeError("a set is too large for sketches with 32-bit words: expected at most 2^28 users")
    at = levels - shape.floor
    sums, gaps = log[at].sum(axis=0), gap[at]
    floored = at <= 0
    # The continuous limit is the start; ln N then converges in a few steps of Newton's method.
    middle = np.where(floored, 0.0, 0.5 * gaps).sum(axis=0) - sums
    size = (len(at) - floored.sum(axis=0)) / np.maximum(middle, 1e-300)
    shares, terms = np.empty_like(gaps), np.empty_like(gaps)
    for _ in range(_STEPS):
        # In place: with many cells these arrays are far larger than a cache.
        np.multiply(gaps, size, out=shares)
        np.minimum(shares, 500.0, out=shares)
        np.expm1(shares, out=shares)
        with np.errstate(divide="ignore", invalid="ignore"):
            np.divide(gaps, shares, out=shares)
        np.copyto(shares, 0.0, where=floored)
        np.add(shares, gaps, out=terms)
        np.multiply(shares, terms, out=terms)
        slope = terms.sum(axis=0)
        score = shares.sum(axis=0) + sums
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(size > 0.0, score / (size * slope), 0.0)
        size = size * np.exp(np.clip(step, -1.0, 1.0))
        if (np.abs(step) < 1e-8).all():
            break
    return np.asarray(size * (1.0 - 1.0 / len(levels)))


def relative_error(size: float, shape: SketchShape) -> float:
    """Return the standard error of `cardinality` over the cardinality: rho / sqrt(M) (paper: Theorem 6's rho).

    Notes
    -----
    From the Fisher information of one row; rho is 1 for small gamma and sets well above the number of phantoms.
    """
    log, gap = _logarithms(shape)
    lower = np.concatenate([[-np.inf], (log - gap)[1:]])
    here, below = np.exp(size * log), np.exp(size * lower)
    mass = here - below
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = log * here - np.where(below > 0.0, lower * below, 0.0)
        terms = np.where(mass > 1e-300, slope * slope / mass, 0.0)
    return 1.0 / (size * math.sqrt(float(terms.sum()) * shape.rows))


def cluster_sizes(levels: Levels, shape: SketchShape) -> NDArray[np.float64]:
    """Estimate the users in each local cluster of one party, phantoms taken off; shape (k',), may be negative."""
    per_cluster = 1 if shape.scheme == PAPER_PHANTOMS else shape.cells // shape.clusters
    return cardinality(levels, shape) - per_cluster * shape.phantoms


def basic_table(sketches: Sequence[Levels], shape: SketchShape, total: float) -> Table:
    """Estimate the users in every grid cell from the union of its complement.

    Parameters
    ----------
    sketches : sequence of int64 arrays, shape (M, k')
        One per party of the group, in the group's order.
    shape : SketchShape
    total : float
        Paper: n-hat.

    Returns
    -------
    float64 array, shape (k', ..., k')
        Non-negative, with sum `total`.

    Notes
    -----
    Standard error of a cell before the last step: `basic_error`. Memory: some 16 MB of rows at a time beside the table.

    Source: Vertical DP, Algorithm 4.
    """
    return nearest_table(raw_basic_table(sketches, shape, total), total)  # line 11


def raw_basic_table(sketches: Sequence[Levels], shape: SketchShape, total: float) -> Table:
    """Return `basic_table` before its last step: unbiased, some cells negative."""
    check_sketches(sketches, shape)
    rest = [without_one(levels) for levels in sketches]
    flat = np.empty(shape.cells)
    step = max(1, _BLOCK // shape.rows)
    for first in range(0, shape.cells, step):  # Alg. 4, lines 3 to 10
        cells = np.arange(first, min(first + step, shape.cells))
        places = np.unravel_index(cells, (shape.clusters,) * shape.parties)
        union = rest[0][:, places[0]]
        for levels, place in zip(rest[1:], places[1:], strict=True):
            np.maximum(union, levels[:, place], out=union)  # line 4
        # Lines 7 to 9.
        flat[cells] = total - (cardinality(union, shape) - union_phantoms(shape))
    return flat.reshape((shape.clusters,) * shape.parties)


def union_phantoms(shape: SketchShape) -> int:
    """Count the distinct phantoms in the complement of one grid cell."""
    if shape.scheme == PAPER_PHANTOMS:
        return shape.parties * (shape.clusters - 1) * shape.phantoms
    return (shape.cells - 1) * shape.phantoms


def basic_error(total: float, weight: float, shape: SketchShape) -> float:
    """Return the standard error of a cell of `weight` users: rho (n - w + phantoms in the union) / sqrt(M).

    Notes
    -----
    Source: Vertical DP, Theorem 6, with the corrected number of phantoms.
    """
    size = total - weight + union_phantoms(shape)
    return size * relative_error(size, shape)


def without_one(levels: Levels) -> Levels:
    """Return for each column the row's highest level over all other columns; shape (M, k')."""
    if levels.shape[1] == 1:
        return np.ones_like(levels)
    order = np.argsort(levels, axis=1)
    lines = np.arange(len(levels))
    result = np.repeat(levels[lines, order[:, -1]][:, None], levels.shape[1], axis=1)
    result[lines, order[:, -1]] = levels[lines, order[:, -2]]
    return result


def nearest_table(table: Table, total: float) -> Table:
    """Return the nearest table with non-negative entries and the sum `total` (least squares).

    Notes
    -----
    All entries fall by one amount, and negative ones are set to 0: the projection onto a simplex.
    """
    if not (math.isfinite(total) and np.isfinite(table).all()):
        raise DataError(f"expected finite weights and total, got total {total}; check the sketches")
    if total <= 0.0:
        return np.zeros_like(table)
    falling = np.sort(table.ravel())[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    kept = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(table - excess[kept], 0.0))


def check_sketches(sketches: Sequence[Levels], shape: SketchShape) -> None:
    """Check number, shapes and levels of a group's sketches.

    Raises
    ------
    DataError
        They do not fit `shape`.
    """
    shapes = [levels.shape for levels in sketches]
    if shapes != [(shape.rows, shape.clusters)] * shape.parties:
        raise DataError(f"expected {shape.parties} sketches of {shape.rows} x {shape.clusters} levels, got {shapes}")
    if any(levels.min() < shape.floor or levels.max() > shape.top for levels in sketches):
        raise DataError(f"expected levels from {shape.floor} to {shape.top}; do all parties use the same parameters?")


@lru_cache(maxsize=8)
def _logarithms(shape: SketchShape) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ln F(a) and ln F(a) - ln F(a - 1) for a = floor..top; the latter is 0 at the floor."""
    cumulative = shape.user_levels.cumulative()[shape.floor :]
    survival = 1.0 - cumulative
    log = np.log1p(-survival)
    # A level that no word reaches has no gap; it is never seen, and must not divide by zero if a party makes it up.
    return log, np.maximum(np.diff(log, prepend=log[0]), 1e-30)
