"""What the server makes of the noisy sums of each step: post-processing, which spends no privacy.

Source: FedDP-KMeans, Alg. 1 lines 7, 17 and 24; Alg. 2 line 11; App. H.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.merging import merge
from fastlloyd.kmeans.spectral import leading_subspace, symmetric
from fastlloyd.kmeans.update import clip_step, move, split, truncate
from fastlloyd.kmeans.weighted import Clustering, cluster
from fastlloyd.protocols.feddp.math.elbow import CLEAR, elbow, margin
from fastlloyd.protocols.feddp.math.grid import MATRIX_BITS
from fastlloyd.protocols.feddp.math.projection import Projection, project
from fastlloyd.protocols.feddp.math.proxies import make_proxies
from fastlloyd.protocols.feddp.math.record import cut_norm
from fastlloyd.protocols.feddp.plan import Plan
from fastlloyd.protocols.feddp.settings import PRIVATE
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

# Clusters of server points smaller than this times the noise on them count as empty when k is chosen, and proxy points
# with less do always.
_STANDS_OUT = 2.0


@dataclass(frozen=True, slots=True)
class ProjectedCenters:
    """Centres in the projected space, and how k was chosen.

    Attributes
    ----------
    centers : int64 array, shape (k, r)
        On the grid of the projected points.
    costs : float64 array, shape (kmax,) or (0,)
        Cost of the weighted server points for 1, 2, ... clusters; empty where k was given.
    """

    centers: NDArray[np.int64]
    costs: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Centers:
    """Centres in the full space.

    Attributes
    ----------
    exact : float64 array, shape (k, d)
        Scaled domain.
    noisy_counts : float64 array, shape (k,)
        Records (users at client level) of each cluster; zeros for a start without clients.
    """

    exact: NDArray[np.float64]
    noisy_counts: NDArray[np.float64]


def make_projection(noisy: NDArray[np.int64], server_points: NDArray[np.float64] | None, plan: Plan) -> Projection:
    """Make the projection from the noisy outer product (line 7), and project the server's points.

    Parameters
    ----------
    noisy : int64 array, shape (d (d + 1) / 2,)
    server_points : float64 array, shape (n_server, d), or None
        Scaled; cut to norm Delta as the clients' records are. With the start 'private' proxy points take their place.
    plan : Plan
    """
    if plan.start == PRIVATE or server_points is None:
        return make_proxies(noisy, plan)
    rows = leading_subspace(symmetric(noisy.astype(np.float64), plan.d), plan.rank)
    matrix = np.rint(rows * (1 << MATRIX_BITS)).astype(np.int32)
    own = cut_norm(quantise(server_points, plan.fraction_bits), plan.norm_limit)
    seen = project(own, matrix, plan.projected_bits)
    # In C order, like a stored reply: sums of floats may depend on the order in memory.
    return Projection(matrix, np.ascontiguousarray(seen.raw_coordinates.T, dtype=np.int64), plan.projected_bits)


def cluster_projected(noisy: NDArray[np.int64], projection: Projection, plan: Plan, restarts: int) -> ProjectedCenters:
    """Cluster the server's projected points with the noisy weights (line 17); choose k if asked for.

    Parameters
    ----------
    noisy : int64 array, shape (n_server,)
    projection : Projection
    plan : Plan
    restarts : int

    Notes
    -----
    A weight below zero counts as zero. So does the weight of a proxy point that may be noise, if enough are left:
    there are many of them where no records are.
    """
    grid = float(1 << projection.bits)
    held = np.maximum(noisy, 0)
    if plan.start == PRIVATE and np.count_nonzero(sure := noisy > _STANDS_OUT * weight_noise(plan)) >= plan.k:
        held = np.where(sure, held, 0)
    weights = held.astype(np.float64) / float(1 << plan.fraction_bits)
    points = projection.server_points / grid
    numbers = range(1, plan.k + 1) if plan.choose_k else (plan.k,)
    found = [
        cluster(points, k, PublicStream(plan.seed, f"{domains.FEDDP_KMEANS}{k}"), weights=weights, restarts=restarts)
        for k in numbers
    ]
    costs = np.array([each.cost for each in found])
    chosen = found[_choose_k(found, noisy, plan) - 1] if plan.choose_k else found[0]
    grid_centers = np.rint(chosen.centers * grid).astype(np.int64)
    return ProjectedCenters(grid_centers, costs if plan.choose_k else np.zeros(0))


def _choose_k(found: list[Clustering], noisy: NDArray[np.int64], plan: Plan) -> int:
    """Choose k by the elbow of the costs where it is clear, else by merging the most clusters.

    # Differs from the paper: App. H.3 has the elbow alone.
    """
    costs = [each.cost for each in found]
    if margin(costs) >= CLEAR:
        return elbow(costs)
    sizes = np.bincount(found[-1].labels, noisy, plan.k)
    doubt = weight_noise(plan) * np.sqrt(np.bincount(found[-1].labels, minlength=plan.k))
    counts = np.where(sizes > _STANDS_OUT * doubt, sizes, 0.0) / float(1 << plan.fraction_bits)
    return len(merge(found[-1].centers, counts, count_noise=0.0).groups)


def weight_noise(plan: Plan) -> float:
    """Return the standard deviation of all noise on a weight, in grid units."""
    return math.sqrt(2.0) * plan.rounds[1].scale * plan.spread


def make_centers(noisy: NDArray[np.int64], k: int, plan: Plan) -> Centers:
    """Divide noisy sums by noisy counts (line 24 and Alg. 2, line 11).

    Parameters
    ----------
    noisy : int64 array, shape (k (d + 1),)
    k : int
    plan : Plan

    Notes
    -----
    All records lie in [-1, 1]^d and in the ball of radius Delta, so their means do: a centre outside is brought back.
    """
    values = noisy.astype(np.float64) / float(1 << plan.fraction_bits)
    noisy_sums, noisy_counts = split(values, k, plan.d)
    return Centers(clip_step(truncate(move(noisy_sums, noisy_counts)), plan.norm_bound), noisy_counts)
