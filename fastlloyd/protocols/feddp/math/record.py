"""What one client computes from its records at record level: integers, each record's part bounded exactly.

Source: FedDP-KMeans, Alg. 1 lines 4, 10 to 13, 20 and 21; Alg. 2 lines 5 to 8.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.assign import accumulate, assign, sum_by_label
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.kmeans.spectral import outer_product
from fastlloyd.kmeans.update import join
from fastlloyd.protocols.feddp.math.projection import Projection, project
from fastlloyd.protocols.feddp.plan import Plan

_BLOCK = 1 << 14


class Statistics(Protocol):
    """What each step asks of a client's records, in the grid units of the plan's releases.

    Notes
    -----
    Sees: nobody but the caller, until noise and mask are added.
    """

    def outer_product(self) -> NDArray[np.int64]:
        """Return step 1's entries, shape (d (d + 1) / 2,)."""

    def weights(self, projection: Projection) -> NDArray[np.int64]:
        """Return step 2's weights, shape (n_server,)."""

    def projected_step(self, projection: Projection, centers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return step 3's sums and counts, shape (k (d + 1),), by projected centres, shape (k, r)."""

    def lloyd_step(self, centers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a Lloyd step's sums and counts, shape (k (d + 1),), by centres, shape (k, d)."""


class RecordStatistics:
    """Statistics in which one record is protected; `Plan.sensitivities` says how far it moves each.

    Parameters
    ----------
    raw_points : GridPoints
        The client's own records; cut to norm Delta here.
    plan : Plan
    """

    def __init__(self, raw_points: GridPoints, plan: Plan) -> None:
        self._plan = plan
        self._points = cut_norm(raw_points, plan.norm_limit)
        self._projected: tuple[Projection, GridPoints] | None = None
        self._outer: NDArray[np.int64] | None = None

    def outer_product(self) -> NDArray[np.int64]:
        """Add up x x^T on the coarser grid of 2^-p (Alg. 1, line 4); of (x, c) in the start 'private'."""
        if self._outer is None:
            plan = self._plan
            x = lifted(coarsen(self._points.raw_coordinates, plan.fraction_bits - plan.outer_bits), plan.lift)
            self._outer = outer_product(x, plan.outer_limit)
        return self._outer

    def weights(self, projection: Projection) -> NDArray[np.int64]:
        """Count the records nearest to each server point in the projected space (line 12)."""
        labels = assign(self._project(projection), projection.server_points)
        return np.bincount(labels, minlength=self._plan.n_server).astype(np.int64) << self._plan.fraction_bits

    def projected_step(self, projection: Projection, centers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum and count by the nearest projected centre (lines 20 and 21)."""
        labels = assign(self._project(projection), centers)
        sums, counts = sum_by_label(self._points, labels, len(centers))
        return join(sums, counts << self._plan.fraction_bits)

    def lloyd_step(self, centers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum and count by the nearest centre (Alg. 2, lines 6 and 7)."""
        sums, counts = accumulate(self._points, centers, radius=None, relative=False)
        return join(sums, counts << self._plan.fraction_bits)

    def _project(self, projection: Projection) -> GridPoints:
        """Project this party's records, once per projection."""
        if self._projected is None or self._projected[0] is not projection:
            points = project(self._points, projection.matrix, projection.bits)
            self._projected = (projection, points)
        return self._projected[1]


def cut_norm(points: GridPoints, limit: int) -> GridPoints:
    """Shorten points to norm `limit`, truncating towards zero, so that the integer norm is at most `limit`.

    Parameters
    ----------
    points : GridPoints
    limit : int
        R, grid units.

    Returns
    -------
    GridPoints
        The same object if no point is longer.

    Notes
    -----
    Privacy: each point by itself. Squares add up in float64 below 2^53, exactly, so the check is exact.
    Source: FedDP-KMeans, §5.1.
    """
    square = float(limit) * float(limit)
    long = np.flatnonzero(points.raw_squared_norms > square)
    if long.size == 0:
        return points
    coordinates, norms = points.raw_coordinates.copy(), points.raw_squared_norms.copy()
    for start in range(0, long.size, _BLOCK):
        rows = long[start : start + _BLOCK]
        factor = limit / np.sqrt(norms[rows])
        while rows.size:
            cut = np.trunc(points.raw_coordinates[:, rows] * factor)
            coordinates[:, rows] = cut
            norms[rows] = np.einsum("ij,ij->j", cut, cut)
            # Rounding could leave a point too long only where limit^2 is 2^50 or more: the squares of what is truncated
            # exceed limit^2 by a share of 2^-50 at most, and both are integers. This is a second guard, whatever the
            # limit is, and no test can see it go.
            again = norms[rows] > square
            rows, factor = rows[again], factor[again] * (1.0 - 2.0**-30)
    return GridPoints(coordinates, norms, points.fraction_bits, points.passes)


def lifted(coordinates: NDArray[np.int32], lift: int) -> NDArray[np.int32]:
    """Put a constant beside each record, shape (d, n), as one more coordinate; none if it is 0."""
    if lift == 0:
        return coordinates
    return np.concatenate([coordinates, np.full((1, coordinates.shape[1]), lift, dtype=np.int32)])


def coarsen(coordinates: NDArray[np.int32], shift: int) -> NDArray[np.int32]:
    """Divide by 2^shift, truncating towards zero: no norm grows."""
    if shift == 0:
        return coordinates
    sizes = np.abs(coordinates) >> shift
    return np.where(coordinates < 0, -sizes, sizes)
