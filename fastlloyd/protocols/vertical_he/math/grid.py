"""The grid of the linear schemes: a record is divided among the corners of its cell, and each corner has a cluster.

An encrypted column is divided into cells of one width D, c columns into boxes. A record with the encrypted columns b
has these shares at the 2^c corners v of its box:

    s_v(b) = product over the columns f of max(0, 1 - |b_f - v_f| / D)

They are not negative, sum to 1, and keep the record's mean: the sum of s_v(b) v is b. Every corner goes to the centre
nearest to (the record's known columns, v). So a record's weights over the clusters, p_j = sum of s_v(b) over the
corners of j, are not negative and sum to exactly 1, whatever b and the centres are. To the sum of an encrypted column
a record adds the sum of s_v(b) v_f over the corners of j, at most p_j in size. A record whose corners all have one
cluster counts there unchanged; only records between clusters are divided.

This is Lloyd's step on records that are spread over a box: it keeps the mean of each and adds at most D^2 / 4 to its
variance in each encrypted column, D^2 / 6 on average.

Source: ours; multilinear interpolation. docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

MOST_AXES = 2
"""Encrypted columns that may share a grid: for three, cells are too wide or ciphertexts too many."""


def count_cells(degree: int, axes: int) -> int:
    """Return the cells of each encrypted column, a power of two: with degree 62, 32 for one column and 16 for two."""
    return max(1, (1 << int(math.log2(degree + 2))) >> axes)


@cache
def corners(cells: int, axes: int) -> NDArray[np.int64]:
    """Return the places of all corners in each column, from 0 to `cells`; int64, shape ((cells + 1)^axes, axes)."""
    return np.indices((cells + 1,) * axes).reshape(axes, -1).T.copy()


def places(cells: int, axes: int) -> NDArray[np.float64]:
    """Return the places of all corners in the scaled domain, float64, shape ((cells + 1)^axes, axes)."""
    return corners(cells, axes).astype(np.float64) * (2.0 / cells) - 1.0


def shares(columns: NDArray[np.float64], cells: int) -> NDArray[np.float64]:
    """Return the shares of records at all corners.

    Parameters
    ----------
    columns : float64 array, shape (axes, m), scaled to [-1, 1]
    cells : int

    Returns
    -------
    float64 array, shape ((cells + 1)^axes, m)
        In the order of `corners`.

    Notes
    -----
    Elementwise operations only: a record's shares depend on its own columns and on nothing else.
    """
    found = np.ones((1, columns.shape[1]))
    steps = np.arange(cells + 1, dtype=np.float64)[:, None]
    for column in columns:
        place = (np.clip(column, -1.0, 1.0) + 1.0) * (cells / 2.0)
        hats = np.maximum(0.0, 1.0 - np.abs(steps - place))
        found = (found[:, None] * hats).reshape(-1, columns.shape[1])
    return found


def along(direction: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inner product of a direction, shape (axes,), with each record's columns, shape (axes, m); shape (m,).

    Elementwise operations only: a product of matrices may round a record's number by what stands beside it, and then
    the records beside a missing one would move, too.
    """
    found = np.zeros(columns.shape[1])
    for slope, column in zip(direction, columns, strict=True):
        found += slope * column
    return found


def pulls(places: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the part 2 v.c of places v in the squared distances to centres, see `nearest`.

    Parameters
    ----------
    places : float64 array, shape (F, axes)
    centers : float64 array, shape (k, axes)

    Returns
    -------
    float64 array, shape (F, k)
    """
    found = np.zeros((len(places), len(centers)))
    for place, center in zip(places.T, centers.T, strict=True):
        found += 2.0 * place[:, None] * center
    return found


def nearest(scores: NDArray[np.float64], pulls: NDArray[np.float64]) -> NDArray[np.int16]:
    """Return the centre that each corner of each record goes to.

    Parameters
    ----------
    scores : float64 array, shape (k, m)
        The record's part of a squared distance: |c|^2 - 2 a.c on the known columns a.
    pulls : float64 array, shape (F, k)
        The corner's part: 2 v.c.

    Returns
    -------
    int16 array, shape (F, m)
        The first of the centres with the least scores[j] - pulls[v, j].
    """
    best = scores[0] - pulls[:, :1]
    found = np.zeros(best.shape, dtype=np.int16)
    for j in range(1, len(scores)):
        other = scores[j] - pulls[:, j, None]
        closer = other < best
        np.copyto(best, other, where=closer)
        np.copyto(found, np.int16(j), where=closer)
    return found
