"""EUGkM: one noisy count for each cell of a uniform grid, then k-means on the cells.

Source: Su, Cao, Li, Bertino and Jin, "Differentially private k-means clustering" (CODASPY 2016): the extended uniform
grid, whose number of cells is (N epsilon / 10)^(2 d / (2 + d)).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError

MAX_CELLS = 1 << 22
"""Cells that are counted at most: a larger grid is refused before it is made."""

_THETA = 10.0
_STARTS, _FEWER_STARTS, _MANY_CELLS = 30, 5, 10_000


def eugkm(
    points: NDArray[np.float64], k: int, rng: np.random.Generator, *, epsilon: float, delta: float = 0.0
) -> NDArray[np.float64]:
    """Cluster the cells of a noisy grid: k-means from 30 k-means++ starts, the best by the grid's own cost.

    Above 10,000 cells, 5 starts: there noise decides, and each start takes seconds.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        In [-1, 1]; n is public.
    k : int
    rng : numpy Generator
    epsilon : float
    delta : float
        Not used: this is pure epsilon-DP.

    Returns
    -------
    float64 array, shape (k, d)
        Fewer rows where fewer than k cells have a positive noisy count.

    Raises
    ------
    ConfigError
        The grid has more than `MAX_CELLS` cells.

    Privacy
    -------
    The noisy counts are the only release (`noisy_counts`); all else follows from them and from public numbers.

    Notes
    -----
    The paper does not say what becomes of counts that noise makes negative. Here they count as zero, which no private
    figure goes into.
    """
    from sklearn.cluster import KMeans

    n, d = points.shape
    per_axis = cells_per_axis(n, d, epsilon)
    counts = noisy_counts(points, per_axis, epsilon, rng)
    kept = np.flatnonzero(counts > 0.0)
    if not len(kept):
        return np.zeros((1, d))
    starts = _STARTS if len(counts) <= _MANY_CELLS else _FEWER_STARTS
    found = KMeans(min(k, len(kept)), n_init=starts, random_state=int(rng.integers(1 << 31)))
    centers: NDArray[np.float64] = found.fit(
        cell_centers(kept, per_axis, d), sample_weight=counts[kept]
    ).cluster_centers_
    return centers


def cells_per_axis(n: int, d: int, epsilon: float) -> int:
    """Return the cells along one axis: the paper's number of cells to the power 1 / d, rounded, at least two."""
    return max(2, round(math.pow(n * epsilon / _THETA, 2.0 / (2.0 + d))))


def noisy_counts(
    points: NDArray[np.float64], per_axis: int, epsilon: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Count the records of each cell and add Laplace noise of scale 1 / epsilon.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        In [-1, 1].
    per_axis : int
    epsilon : float
    rng : numpy Generator

    Returns
    -------
    float64 array, shape (per_axis^d,)
        The last feature runs fastest.

    Raises
    ------
    ConfigError
        There are more than `MAX_CELLS` cells.

    Privacy
    -------
    Neighbours: one record added or removed. A record lies in one cell, which depends on that record alone, so one count
    changes by 1: L1 sensitivity 1. Laplace noise of scale 1 / epsilon on each count is epsilon-DP.
    """
    d = points.shape[1]
    cells = per_axis**d
    if cells > MAX_CELLS:
        raise ConfigError(f"EUGkM counts every cell: expected at most {MAX_CELLS} cells, got {per_axis}^{d}")
    steps = np.clip(np.floor((points + 1.0) * (per_axis / 2.0)), 0, per_axis - 1).astype(np.int64)
    counts = np.bincount(np.ravel_multi_index(tuple(steps.T), (per_axis,) * d), minlength=cells)
    noisy: NDArray[np.float64] = counts + rng.laplace(0.0, 1.0 / epsilon, cells)
    return noisy


def cell_centers(cells: NDArray[np.int64], per_axis: int, d: int) -> NDArray[np.float64]:
    """Return the middles of cells that are given by their numbers, shape (cells, d)."""
    steps = np.stack(np.unravel_index(cells, (per_axis,) * d), axis=1)
    return (2.0 * steps + 1.0) / per_axis - 1.0
