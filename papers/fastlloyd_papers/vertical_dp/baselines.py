"""What the paper compares with: other ways to the grid weights, and k-means on pooled columns.

On one machine: nothing here is sent. Weights come from the parties' labels, privately for
IND-LAP (one histogram per party, Laplace) and LDP-AGG (every user's label by randomised response, or by hashing).

Source: Vertical DP, §4.1, §6 "Compared methods"; Wang et al. (2017), for GRR and OLH.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.weighted import cluster
from fastlloyd.privacy.noise.sampler import round_laplace
from fastlloyd.protocols.vertical_dp.client import noise_for
from fastlloyd.protocols.vertical_dp.local_plan import BOX_TREE, LocalPlan, automatic_levels
from fastlloyd.protocols.vertical_dp.math.estimate import Table, nearest_table
from fastlloyd.protocols.vertical_dp.math.fit import GridCells, cells_of, fit_tables, paper_fit
from fastlloyd.protocols.vertical_dp.math.local import GRID, cluster_locally
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream
from fastlloyd.randomness.secret import SecretRandom

Labels = NDArray[np.int64]

MAX_GRID = 1 << 22
_HASH_STEP = 4096
_UNIT = 2.0**-64


def ind_lap_cells(
    labels: Sequence[Labels], clusters: int, noisy_total: float, epsilon: float, secret: SecretRandom
) -> GridCells:
    """Weigh the grid as if the parties' columns were independent (IND-LAP).

    Parameters
    ----------
    labels : per party, int64 array, shape (n,)
    clusters : int
        k'.
    noisy_total : float
        Paper: n-hat.
    epsilon : float
        Paper: epsilon_2, of each party's histogram.
    secret : SecretRandom

    Notes
    -----
    Privacy: one user counted or not moves each histogram by 1: S epsilon in all.
    """
    table = np.full((clusters,) * len(labels), noisy_total)
    _check_grid(table.size)
    for party, own in enumerate(labels):
        # Whole counts and rounded noise: the discrete version of the same mechanism.
        histogram = np.bincount(own, minlength=clusters) + round_laplace(1.0 / epsilon, clusters, secret)
        share = np.maximum(histogram, 0.0) / max(noisy_total, 1.0)
        table = table * share.reshape([-1 if axis == party else 1 for axis in range(len(labels))])
    return cells_of(nearest_table(table, noisy_total))


def ldp_supports(own: Labels, clusters: int, epsilon: float, secret: SecretRandom) -> Table:
    """Report every user's label under local DP and give the server's unbiased indicator of each cluster.

    Parameters
    ----------
    own : int64 array, shape (n,)
    clusters : int
    epsilon : float
    secret : SecretRandom

    Returns
    -------
    float64 array, shape (n, k')
        Expectation 1 for the user's own cluster and 0 for the others.

    Notes
    -----
    GRR where k' < 3 e^epsilon + 2, else OLH with g = e^epsilon + 1 buckets (Wang et al.).
    """
    if clusters < 3.0 * math.exp(epsilon) + 2.0:
        kept = math.exp(epsilon) / (math.exp(epsilon) + clusters - 1.0)
        reports = _respond(own, clusters, kept, secret)
        support = (reports[:, None] == np.arange(clusters)).astype(np.float64)
        other = (1.0 - kept) / (clusters - 1.0)
        return np.asarray((support - other) / (kept - other))
    buckets = max(2, round(math.exp(epsilon)) + 1)
    kept = math.exp(epsilon) / (math.exp(epsilon) + buckets - 1.0)
    # Each user's own hash function: a random table of k' buckets, which it would name by a seed.
    hashes = (secret.uint64(len(own) * clusters) % np.uint64(buckets)).astype(np.int64).reshape(len(own), clusters)
    reports = _respond(hashes[np.arange(len(own)), own], buckets, kept, secret)
    support = (hashes == reports[:, None]).astype(np.float64)
    return np.asarray((support - 1.0 / buckets) / (kept - 1.0 / buckets))


def _respond(values: Labels, size: int, kept: float, secret: SecretRandom) -> Labels:
    """Keep each value with probability `kept`, else give one of the others."""
    other = (secret.uint64(len(values)) % np.uint64(size - 1)).astype(np.int64)
    other += other >= values
    return np.where(secret.uint64(len(values)) * _UNIT < kept, values, other)


def ldp_agg_cells(
    supports: Sequence[Table], *, pairs: bool, fit: str = "paper", steps: int = 500, seed: int = 0
) -> GridCells:
    """Weigh the grid by every user's reports (LDP-AGG), or by those of pairs of parties (LDP-AGG-2PEst).

    Parameters
    ----------
    supports : per party, as `ldp_supports` gives them
    pairs : bool
    fit : {'paper', 'entropy'}
        From pairs to the grid.
    steps, seed : int
        As for `estimate_weights`.
    """
    n, clusters = supports[0].shape
    if not pairs or len(supports) == 2:
        _check_grid(clusters ** len(supports))
        return cells_of(nearest_table(_joint(supports), float(n)))
    tables = {
        (i, j): nearest_table(_joint([supports[i], supports[j]]), float(n))
        for i, j in combinations(range(len(supports)), 2)
    }
    if fit == "entropy":
        return fit_tables(tables, float(n))
    sizes = [np.maximum(own.sum(axis=0), 0.0) for own in supports]
    return paper_fit(tables, sizes, float(n), steps=steps, seed=seed)


def _joint(supports: Sequence[Table]) -> Table:
    """Sum over the users the products of their indicators; shape (k', ..., k')."""
    n, clusters = supports[0].shape
    total = np.zeros((clusters ** (len(supports) - 1), clusters))
    for start in range(0, n, _HASH_STEP):
        rows = slice(start, start + _HASH_STEP)
        product = supports[0][rows]
        for own in supports[1:-1]:
            product = (product[:, :, None] * own[rows][:, None, :]).reshape(len(product), -1)
        total += product.T @ supports[-1][rows]
    return total.reshape((clusters,) * len(supports))


def central_box_tree(
    points: NDArray[np.float64], k: int, epsilon: float, *, tree_share: float, seed: int, secret: SecretRandom
) -> NDArray[np.float64]:
    """Cluster pooled columns by a box tree with all of epsilon; float64 array, shape (k, d).

    Notes
    -----
    # Differs from the paper: its central baseline is DPLSF, an LSH forest with Gaussian noise (Google, 2022).
    """
    n, d = points.shape
    levels = automatic_levels(n, epsilon, BOX_TREE)
    plan = LocalPlan(
        method=BOX_TREE, clusters=k, d=d, n=n, epsilon=epsilon, tree_share=tree_share, levels=levels, seed=seed, party=0
    )
    return np.asarray(cluster_locally(points, plan, noise_for(plan, secret)).noisy_centers / GRID)


def central_kmeans(points: NDArray[np.float64], k: int, *, seed: int) -> NDArray[np.float64]:
    """Cluster pooled columns without privacy; float64 array, shape (k, d)."""
    return cluster(points, k, PublicStream(seed, domains.CENTRAL_KMEANS)).centers


def _check_grid(cells: int) -> None:
    if cells > MAX_GRID:
        raise ConfigError(f"this baseline holds the whole grid: expected at most {MAX_GRID} cells, got {cells}")
