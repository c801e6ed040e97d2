"""What one client computes at client level: statistics of each of its users, cut to a bound, then added up.

Everything is cut in integers and checked afterwards, so one user moves a statistic by at most the bound, exactly. A
user is known by a number within one client; somebody who has records at two clients counts as two users.

Source: FedDP-KMeans, App. G.4, for Alg. 1 lines 4, 12, 20 and 21 and Alg. 2 lines 6 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError
from fastlloyd.kmeans.assign import assign
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.kmeans.spectral import outer_product
from fastlloyd.kmeans.update import join
from fastlloyd.protocols.feddp.math.projection import Projection, project
from fastlloyd.protocols.feddp.math.record import coarsen, cut_norm, lifted
from fastlloyd.protocols.feddp.plan import Plan

_BLOCK_VALUES = 1 << 21
_EXACT_ROWS = 1 << 20
# How much is taken off where truncation left a statistic too long.
_LESS = 1.0 - 2.0**-20


class UserStatistics:
    """Statistics in which all records of one user are protected.

    Parameters
    ----------
    raw_points : GridPoints
        The client's own records.
    raw_users : int64 array, shape (n,)
        Which user each record belongs to; any numbers.
    plan : Plan
    """

    def __init__(self, raw_points: GridPoints, raw_users: NDArray[np.int64], plan: Plan) -> None:
        if raw_users.shape != (raw_points.n,):
            raise InternalError(f"expected one user for each of {raw_points.n} records, got {raw_users.shape}")
        self._plan = plan
        order = np.argsort(raw_users, kind="stable")
        points = cut_norm(raw_points, plan.norm_limit)
        self._points = GridPoints(
            np.ascontiguousarray(points.raw_coordinates[:, order]),
            points.raw_squared_norms[order],
            points.fraction_bits,
            points.passes,
        )
        first = np.diff(raw_users[order], prepend=raw_users[order][:1] - 1) != 0
        self._users = np.cumsum(first) - 1
        self._starts = np.append(np.flatnonzero(first), raw_points.n)
        self._projected: tuple[Projection, GridPoints] | None = None
        self._outer: NDArray[np.int64] | None = None

    def outer_product(self) -> NDArray[np.int64]:
        """Add up the users' outer products, each of Frobenius norm at most the plan's bound.

        Notes
        -----
        # Differs from the paper: a user's matrix is made shorter by shortening its records by the root of the same
        # factor, truncated towards zero, so that one matrix product serves all users.
        """
        if self._outer is None:
            plan = self._plan
            shift, limit = plan.fraction_bits - plan.outer_bits, plan.limit_of(plan.outer_clip, 2 * plan.outer_bits)
            x = lifted(coarsen(self._points.raw_coordinates, shift), plan.lift).copy()
            for start, stop in zip(self._starts[:-1], self._starts[1:], strict=True):
                x[:, start:stop] = cut_outer(x[:, start:stop].astype(np.float64), limit)
            self._outer = outer_product(x, plan.outer_limit)
        return self._outer

    def weights(self, projection: Projection) -> NDArray[np.int64]:
        """Add up the users' histograms over the server's points, each of sum at most the plan's bound.

        Notes
        -----
        A user's histogram adds up to its number of records: from c of n records, min(2^q, W / n) each, rounded down.
        """
        plan = self._plan
        limit = plan.limit_of(plan.weight_clip, plan.fraction_bits)
        labels = assign(self._project(projection), projection.server_points)
        pairs, counts = np.unique(self._users * plan.n_server + labels, return_counts=True)
        users, servers = np.divmod(pairs, plan.n_server)
        sizes = np.diff(self._starts)[users]
        whole = counts << plan.fraction_bits
        parts = np.where(sizes << plan.fraction_bits > limit, counts * limit // sizes, whole)
        total = np.zeros(plan.n_server, dtype=np.int64)
        np.add.at(total, servers, parts)
        return total

    def projected_step(self, projection: Projection, centers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add up the users' means and non-empty clusters by the nearest projected centre."""
        return self._means(assign(self._project(projection), centers), len(centers))

    def lloyd_step(self, centers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add up the users' means and non-empty clusters by the nearest centre.

        Notes
        -----
        # Differs from the paper: App. G.4 names means for step 3 only; a Lloyd step is the same estimate once more.
        """
        return self._means(assign(self._points, centers), len(centers))

    def _means(self, labels: NDArray[np.int64], k: int) -> NDArray[np.int64]:
        """Add up means of users' clusters, truncated towards zero, and 2^q for each that is not empty."""
        plan = self._plan
        bounds = (plan.limit_of(plan.mean_clip, plan.fraction_bits), plan.limit_of(plan.count_clip, plan.fraction_bits))
        sums = np.zeros((k, plan.d), dtype=np.int64)
        counts = np.zeros(k, dtype=np.int64)
        for users, clusters, whole in self._cluster_means(labels, k):
            means, units = cut_means(whole, users, bounds, plan.fraction_bits)
            np.add.at(counts, clusters, units)
            order = np.argsort(clusters, kind="stable")
            present, first = np.unique(clusters[order], return_index=True)
            sums[present] += np.add.reduceat(means[order], first, axis=0)
        return join(sums, counts)

    def _cluster_means(
        self, labels: NDArray[np.int64], k: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Yield for a block of users: user, cluster and mean, shape (p, d), of each non-empty pair of the two."""
        for rows in self._user_blocks():
            keys = self._users[rows] * k + labels[rows]
            order = np.argsort(keys, kind="stable")
            pairs, first, counts = np.unique(keys[order], return_index=True, return_counts=True)
            x = self._points.raw_coordinates[:, rows].T[order].astype(np.int64)
            totals = np.add.reduceat(x, first, axis=0)
            sizes = np.abs(totals) // counts[:, None]
            yield pairs // k, pairs % k, np.where(totals < 0, -sizes, sizes)

    def _user_blocks(self) -> Iterator[slice]:
        """Cut the records into blocks of whole users."""
        height = max(1, _BLOCK_VALUES // self._plan.d)
        at = 0
        while at < self._points.n:
            end = int(np.searchsorted(self._starts, at + height, side="right")) - 1
            stop = int(self._starts[end])
            if stop <= at:  # one user alone has more records than a block
                stop = int(self._starts[end + 1])
            yield slice(at, stop)
            at = stop

    def _project(self, projection: Projection) -> GridPoints:
        """Project this party's records, once per projection."""
        if self._projected is None or self._projected[0] is not projection:
            self._projected = (projection, project(self._points, projection.matrix, projection.bits))
        return self._projected[1]


def cut_outer(raw_x: NDArray[np.float64], limit: int) -> NDArray[np.float64]:
    """Shorten one user's records until their outer product has Frobenius norm at most `limit`.

    Parameters
    ----------
    raw_x : float64 array, shape (d, n)
        Integers.
    limit : int

    Returns
    -------
    float64 array, shape (d, n)
        Integers, none larger in size than before.

    Notes
    -----
    Privacy: the norm is that of the smaller of X X^T and X^T X. Its entries are exact; its square errs by a relative
    (s + 2) 2^-53 for s entries at most, and is taken that much larger before it is compared.
    """
    norm = _frobenius(raw_x)
    if norm <= limit:
        return raw_x
    factor = limit / norm
    while True:
        cut = np.trunc(raw_x * math.sqrt(factor))
        norm = _frobenius(cut)
        if norm <= limit:
            return cut
        factor *= min(limit / norm, 1.0) * _LESS


def _frobenius(x: NDArray[np.float64]) -> float:
    """Bound the Frobenius norm of x x^T from above, all but the last digits."""
    if x.shape[0] < x.shape[1]:
        # In blocks, so that every entry stays an integer below 2^53 before it is added up in int64.
        parts = (x[:, start : start + _EXACT_ROWS] for start in range(0, x.shape[1], _EXACT_ROWS))
        small = np.add.reduce([(part @ part.T).astype(np.int64) for part in parts]).astype(np.float64)
    else:
        small = x.T @ x
    square = float(np.einsum("ij,ij->", small, small))
    return math.sqrt(square * (1.0 + (small.size + 8) * 2.0**-52))


def cut_means(
    raw_means: NDArray[np.int64], users: NDArray[np.int64], bounds: tuple[int, int], bits: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Shorten each user's means and units together, until both keep their bounds.

    Parameters
    ----------
    raw_means : int64 array, shape (p, d)
        Means of non-empty clusters.
    users : int64 array, shape (p,)
        Ascending.
    bounds : tuple of int
        Largest L2 norm of a user's means, all clusters one after the other; largest sum of its units.
    bits : int
        A cluster's unit is 2^bits before it is shortened.

    Returns
    -------
    means : int64 array, shape (p, d)
    units : int64 array, shape (p,)

    Notes
    -----
    # Differs from the paper: one factor for both, so that the quotient stays a mean of means whatever is cut off;
    # cut separately, means would shrink towards zero against their counts.
    Privacy: squares of at most d k entries below 2^17 add up exactly in int64.
    """
    _, first, owner = np.unique(users, return_index=True, return_inverse=True)
    clusters = np.diff(np.append(first, users.size))
    mean_limit, unit_limit = bounds
    factor = np.minimum(1.0, unit_limit / (clusters * float(1 << bits)))
    while True:
        means = np.trunc(raw_means * factor[owner][:, None]).astype(np.int64)
        units = np.floor(factor * float(1 << bits)).astype(np.int64)
        squares = np.add.reduceat(np.einsum("ij,ij->i", means, means), first)
        # The first factor bounds the units already: floor(unit_limit / clusters), exact below 2^53. Their check
        # is a second guard, and no test can see it go.
        over = (squares > mean_limit * mean_limit) | (units * clusters > unit_limit)
        if not over.any():
            return means, units[owner]
        shrink = np.minimum(1.0, mean_limit / np.sqrt(np.maximum(squares, 1).astype(np.float64)))
        factor = np.where(over, factor * shrink * _LESS, factor)
