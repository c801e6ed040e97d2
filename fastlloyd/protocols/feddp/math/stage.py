"""What the server makes of the noisy sums of each step: post-processing, which spends no privacy.

The elbow that k is chosen by, and the starts that spend no privacy: from the server's data alone (the paper's
baselines), or from no records (ours).

Where the server has no points, it makes some, spread as the noisy moments say that the records are.
With the start 'private', step 1 releases the outer product of (x, c), c a public constant. Its last column holds the
noisy sum of the records and their noisy number, so the server knows their middle and their covariance. The covariance
gives the projection. The proxy points lie in its first directions, as close together as the best quantiser of a normal
distribution of that middle and covariance has them: it has the density f^(s / (s + 2)), a normal one whose variances
are (s + 2) / s times as large. Step 2 then counts the records nearest to each of them.

Source: FedDP-KMeans, Alg. 1 lines 7, 17 and 24; Alg. 2 line 11; §5 "Baselines"; App. H.3, which reads the elbow off the
plot; our rule for it: Satopää et al., "Finding a kneedle in a haystack" (2011), without smoothing, on the logarithm of
the cost; FastLloyd, §5.3.1, for packed spheres.
For points in place of the server's: open in §6; Zador, "Asymptotic quantization error" (1982), for the density;
Roberts, "The unreasonable effectiveness of quasirandom sequences" (2018), for points of even density.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.initial import GRID_BITS, sphere_packing
from fastlloyd.kmeans.merging import merge
from fastlloyd.kmeans.spectral import leading_subspace, symmetric
from fastlloyd.kmeans.update import clip_step, move, split, truncate
from fastlloyd.kmeans.weighted import Clustering, cluster, seed_centers
from fastlloyd.protocols.feddp.math.projection import MATRIX_BITS, Projection, project
from fastlloyd.protocols.feddp.math.record import cut_norm
from fastlloyd.protocols.feddp.plan import PROXY_DIRECTIONS, Plan
from fastlloyd.protocols.feddp.settings import PRIVATE
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

# Clusters of server points smaller than this times the noise on them count as empty when k is chosen, and proxy points
# with less do always.
_STANDS_OUT = 2.0

Floats = NDArray[np.float64]

# Tuned on generated mixtures, see docs/feddp.md: a variance is at least this part of the largest.
_LEAST_VARIANCE, _LEAST_LARGEST = 0.02, 0.01


def make_proxies(noisy: NDArray[np.int64], plan: Plan, all_noise: float) -> Projection:
    """Make the projection and the proxy points from the noisy moments (in the place of line 7).

    Parameters
    ----------
    noisy : int64 array, shape ((d + 1) (d + 2) / 2,)
        Of (x, c), on the grid of 2^-2p.
    plan : Plan
    all_noise : float
        Over the noise that counts.

    Returns
    -------
    Projection
        Its server points are the proxy points.
    """
    middle, covariance, doubt = read_moments(noisy, plan, all_noise)
    matrix = np.rint(leading_subspace(covariance, plan.rank) * (1 << MATRIX_BITS)).astype(np.int32)
    rows = matrix / float(1 << MATRIX_BITS)
    seen = np.tile(rows @ middle, (plan.n_server, 1))
    s = min(plan.rank, PROXY_DIRECTIONS)
    variances = np.array([row @ covariance @ row for row in rows[:s]]) - doubt
    floor = _LEAST_VARIANCE * max(float(variances.max()), _LEAST_LARGEST)
    deviations = np.sqrt(np.clip(variances, floor, plan.norm_bound**2) * (s + 2) / s)
    seen[:, :s] += deviations * even_normals(plan.n_server, s)
    lengths = np.sqrt(np.einsum("ij,ij->i", seen, seen))
    seen *= np.minimum(1.0, plan.norm_bound / np.maximum(lengths, plan.norm_bound))[:, None]
    points = np.rint(seen * (1 << plan.projected_bits)).astype(np.int64)
    return Projection(matrix, points, plan.projected_bits)


def read_moments(noisy: NDArray[np.int64], plan: Plan, all_noise: float) -> tuple[Floats, Floats, float]:
    """Return middle, shape (d,), covariance, shape (d, d), and how far off a variance may be; scaled domain."""
    grid, lift = 4.0**plan.outer_bits, plan.lift / 2.0**plan.outer_bits
    whole = symmetric(noisy.astype(np.float64) / grid, plan.d + 1)
    noise = plan.rounds[0].sigma * all_noise / grid
    # At client level a user's records count less if they are many: this is the sum of their shares.
    records = min(max(whole[-1, -1] / lift**2, noise / lift**2, 1.0), float(plan.n_total))
    middle = np.clip(whole[:-1, -1] / (lift * records), -1.0, 1.0)
    covariance = whole[:-1, :-1] / records - np.outer(middle, middle)
    return middle, covariance, math.sqrt(plan.d) * noise / records


def even_normals(count: int, s: int) -> Floats:
    """Return points of s dimensions that are spread as a standard normal distribution, evenly; shape (count, s)."""
    root = 2.0
    for _ in range(64):  # of x^(s + 1) = x + 1
        root = (1.0 + root) ** (1.0 / (s + 1))
    uniform = (0.5 + np.outer(np.arange(1, count + 1), root ** -np.arange(1.0, s + 1))) % 1.0
    quantile = NormalDist().inv_cdf
    return np.array([[quantile(min(max(value, 1e-6), 1.0 - 1e-6)) for value in row] for row in uniform.tolist()])


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


def make_projection(
    noisy: NDArray[np.int64], server_points: NDArray[np.float64] | None, plan: Plan, all_noise: float | None = None
) -> Projection:
    """Make the projection from the noisy outer product (line 7), and project the server's points.

    Parameters
    ----------
    noisy : int64 array, shape (d (d + 1) / 2,)
    server_points : float64 array, shape (n_server, d), or None
        Scaled; cut to norm Delta as the clients' records are. With the start 'private' proxy points take their place.
    plan : Plan
    all_noise : float, optional
        Over the noise that counts; by default as planned.
    """
    if plan.start == PRIVATE or server_points is None:
        return make_proxies(noisy, plan, plan.all_noise if all_noise is None else all_noise)
    rows = leading_subspace(symmetric(noisy.astype(np.float64), plan.d), plan.rank)
    matrix = np.rint(rows * (1 << MATRIX_BITS)).astype(np.int32)
    own = cut_norm(quantise(server_points, plan.fraction_bits), plan.norm_limit)
    seen = project(own, matrix, plan.projected_bits)
    # In C order, like a stored reply: sums of floats may depend on the order in memory.
    return Projection(matrix, np.ascontiguousarray(seen.raw_coordinates.T, dtype=np.int64), plan.projected_bits)


def cluster_projected(
    noisy: NDArray[np.int64], projection: Projection, plan: Plan, restarts: int, all_noise: float | None = None
) -> ProjectedCenters:
    """Cluster the server's projected points with the noisy weights (line 17); choose k if asked for.

    Parameters
    ----------
    noisy : int64 array, shape (n_server,)
    projection : Projection
    plan : Plan
    restarts : int
    all_noise : float, optional
        Over the noise that counts; by default as planned.

    Notes
    -----
    A weight below zero counts as zero. So does the weight of a proxy point that may be noise, if enough are left:
    there are many of them where no records are.
    """
    grid = float(1 << projection.bits)
    held, doubt = np.maximum(noisy, 0), weight_noise(plan, all_noise)
    if plan.start == PRIVATE and np.count_nonzero(sure := noisy > _STANDS_OUT * doubt) >= plan.k:
        held = np.where(sure, held, 0)
    weights = held.astype(np.float64) / float(1 << plan.fraction_bits)
    points = projection.server_points / grid
    numbers = range(1, plan.k + 1) if plan.choose_k else (plan.k,)
    found = [
        cluster(points, k, PublicStream(plan.seed, f"{domains.FEDDP_KMEANS}{k}"), weights=weights, restarts=restarts)
        for k in numbers
    ]
    costs = np.array([each.cost for each in found])
    chosen = found[_choose_k(found, noisy, plan, doubt) - 1] if plan.choose_k else found[0]
    grid_centers = np.rint(chosen.centers * grid).astype(np.int64)
    return ProjectedCenters(grid_centers, costs if plan.choose_k else np.zeros(0))


def _choose_k(found: list[Clustering], noisy: NDArray[np.int64], plan: Plan, weight_doubt: float) -> int:
    """Choose k by the elbow of the costs where it is clear, else by merging the most clusters.

    # Differs from the paper: App. H.3 has the elbow alone.
    """
    costs = [each.cost for each in found]
    if margin(costs) >= CLEAR:
        return elbow(costs)
    sizes = np.bincount(found[-1].labels, noisy, plan.k)
    doubt = weight_doubt * np.sqrt(np.bincount(found[-1].labels, minlength=plan.k))
    counts = np.where(sizes > _STANDS_OUT * doubt, sizes, 0.0) / float(1 << plan.fraction_bits)
    return len(merge(found[-1].centers, counts, count_noise=0.0).groups)


def weight_noise(plan: Plan, all_noise: float | None = None) -> float:
    """Return the standard deviation of all noise on a weight, in grid units."""
    return math.sqrt(2.0) * plan.rounds[1].scale * (plan.all_noise if all_noise is None else all_noise)


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


# Costs below this part of the first are as good as nothing: points that lie on their centres.
_NOTHING = 1e-4
# A curve no deeper than this is a line.
_FLAT = 1e-12


CLEAR = 0.045
"""An elbow deeper than any other number by this much is right as good as always, see docs/feddp.md."""


def elbow(costs: Sequence[float]) -> int:
    """Return the number of clusters at which the curve lies deepest below the line between its ends.

    Parameters
    ----------
    costs : sequence of float
        Cost for 1, 2, ... clusters.

    Returns
    -------
    int
        The smallest such number; with fewer than three costs, or a curve that never lies below, their number.

    Notes
    -----
    In logarithms a cluster more counts by the part of the cost that it takes away. On the cost itself the first few
    clusters, which always take away much, pull the elbow to the left.
    """
    depths = _depths(costs)
    deepest = max(depths, default=0.0)
    return depths.index(deepest) + 1 if deepest > _FLAT else len(costs)


def margin(costs: Sequence[float]) -> float:
    """Return how much deeper the curve lies at the elbow than at any other number; 0 without an elbow."""
    ordered = sorted(_depths(costs), reverse=True)
    return ordered[0] - ordered[1] if ordered and ordered[0] > _FLAT else 0.0


def _depths(costs: Sequence[float]) -> list[float]:
    """Return how far the logarithms of the costs lie below the line between their ends; none where nothing can."""
    last = len(costs) - 1
    if last < 2 or costs[0] <= 0.0:
        return []
    logs = [math.log(max(cost / costs[0], _NOTHING)) for cost in costs]
    return [logs[last] * i / last - value for i, value in enumerate(logs)]


def start_centers(plan: Plan, server_points: NDArray[np.float64] | None, restarts: int) -> NDArray[np.float64]:
    """Return the centres that Lloyd's steps start from when Alg. 1 is left out.

    Parameters
    ----------
    plan : Plan
    server_points : float64 array, shape (n_server, d), or None
        Scaled.
    restarts : int

    Returns
    -------
    float64 array, shape (k, d)
        In [-1, 1]^d.
    """
    if plan.start == "sphere-packing" or server_points is None:
        return _packed(plan, server_points)
    inside = np.clip(server_points, -1.0, 1.0)
    stream = PublicStream(plan.seed, f"{domains.FEDDP_START}{plan.start}")
    if plan.start == "server-kmeans++":
        return seed_centers(inside, plan.k, stream)
    return cluster(inside, plan.k, stream, restarts=restarts).centers


def _packed(plan: Plan, server_points: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Pack spheres into a cube.

    # Differs from the paper, whose SpherePacking (App. G.3) this is not: its cube [-Delta, Delta]^d, Delta the largest
    # norm, lies almost wholly outside the data, and its centres keep off the cube's corners alone. Ours reaches as far
    # as the server's largest coordinate, or over the whole domain without server data, and keeps off the sides.
    """
    reach = 1.0
    if server_points is not None and server_points.size:
        reach = min(1.0, float(np.abs(server_points).max()))
    return sphere_packing(plan.k, plan.d, plan.seed).astype(np.float64) * (reach / (1 << GRID_BITS))
