"""Points in the place of the server's own, where it has none: spread as the noisy moments say that the records are.

With the start 'private', step 1 releases the outer product of (x, c), c a public constant. Its last column holds the
noisy sum of the records and their noisy number, so the server knows their middle and their covariance. The covariance
gives the projection. The proxy points lie in its first directions, as close together as the best quantiser of a normal
distribution of that middle and covariance has them: it has the density f^(s / (s + 2)), a normal one whose variances
are (s + 2) / s times as large. Step 2 then counts the records nearest to each of them.

All of it is made from a release: post-processing, which spends no privacy.

Source: open in FedDP-KMeans, §6; Zador, "Asymptotic quantization error" (1982), for the density; Roberts, "The
unreasonable effectiveness of quasirandom sequences" (2018), for points of even density.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.spectral import leading_subspace, symmetric
from fastlloyd.protocols.feddp.math.grid import MATRIX_BITS
from fastlloyd.protocols.feddp.math.projection import Projection
from fastlloyd.protocols.feddp.plan import PROXY_DIRECTIONS, Plan

Floats = NDArray[np.float64]

# Tuned on generated mixtures, see docs/feddp.md: a variance is at least this part of the largest.
_LEAST_VARIANCE, _LEAST_LARGEST = 0.02, 0.01


def make_proxies(noisy: NDArray[np.int64], plan: Plan) -> Projection:
    """Make the projection and the proxy points from the noisy moments (in the place of line 7).

    Parameters
    ----------
    noisy : int64 array, shape ((d + 1) (d + 2) / 2,)
        Of (x, c), on the grid of 2^-2p.
    plan : Plan

    Returns
    -------
    Projection
        Its server points are the proxy points.
    """
    middle, covariance, doubt = read_moments(noisy, plan)
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


def read_moments(noisy: NDArray[np.int64], plan: Plan) -> tuple[Floats, Floats, float]:
    """Return middle, shape (d,), covariance, shape (d, d), and how far off a variance may be; scaled domain."""
    grid, lift = 4.0**plan.outer_bits, plan.lift / 2.0**plan.outer_bits
    whole = symmetric(noisy.astype(np.float64) / grid, plan.d + 1)
    noise = plan.rounds[0].sigma * plan.spread / grid
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
