"""LocCluster: one party's clusters of its own columns, privately.

All ways begin with a tree of boxes (`tree.py`). `dplsf` (ours, in spite of the setting's name: the paper's DPLSF is an
LSH forest) then clusters the noisy means of the leaves. The others
cluster the leaves' boxes, for which no sums are needed, and go on from there: `lloyd` (ours) by one step of Lloyd with
noise, for which k' sums do, and `shortened` (ours) by some steps of less noise (`shortened.py`). Every user then
belongs to the nearest centre: a function of its own row and of released values alone.

Source: Vertical DP, §3.5, for what LocCluster has to do, on [-1, 1] with the Laplace mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.assign import accumulate, assign
from fastlloyd.kmeans.grid import GridPoints, quantise, round_centers
from fastlloyd.kmeans.update import move, total, truncate
from fastlloyd.kmeans.weighted import cluster
from fastlloyd.protocols.vertical_dp.local_plan import BOX_TREE, FRACTION_BITS, SHORTENED, Draw, LocalPlan
from fastlloyd.protocols.vertical_dp.math.shortened import (
    LEAST_VARIANCE,
    first_doubt,
    left_doubt,
    shortened_steps,
    step_doubt,
)
from fastlloyd.protocols.vertical_dp.math.tree import Tree, grow_tree, leaf_sums
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

GRID = float(1 << FRACTION_BITS)

_REACH = 0.8
_PLAIN_RESTARTS = 4
_PLAIN_SAMPLE = 20_000
_LEAST_BETWEEN = 0.1  # of the spread: what lies between a party's centres


@dataclass(frozen=True, slots=True)
class LocalClusters:
    """Centres, which leave, and labels, which stay.

    Attributes
    ----------
    noisy_centers : int64 array, shape (k', d)
        On the grid of 2^-16; released.
    raw_labels : int64 array, shape (n,)
        Nearest centre of each user, lowest index on ties.
    """

    noisy_centers: NDArray[np.int64]
    raw_labels: NDArray[np.int64]


def cluster_locally(raw_points: NDArray[np.float64], plan: LocalPlan, noise: Draw) -> LocalClusters:
    """Cluster one party's columns.

    Parameters
    ----------
    raw_points : float64 array, shape (n, d)
        Scaled to [-1, 1].
    plan : LocalPlan
    noise : callable
        Scale and size to fresh integer noise, of the kind that `plan.mechanism` names.

    Notes
    -----
    Sees: the caller, until the centres leave.
    Privacy: `plan.releases()`; labels are not released.
    """
    points = quantise(raw_points, FRACTION_BITS)
    if plan.method == "plain":
        found = _plain_centers(points, plan)
    else:
        centers_of = {BOX_TREE: leaf_centers, "lloyd": step_centers, SHORTENED: shortened_centers}[plan.method]
        found = centers_of(points, grow_tree(points, plan, noise), plan, noise)
    centers = round_centers(_spread_copies(found, _stream(plan)), FRACTION_BITS)
    return LocalClusters(centers, assign(points, centers))


def leaf_centers(points: GridPoints, tree: Tree, plan: LocalPlan, noise: Draw) -> NDArray[np.float64]:
    """Return k' centres from noisy means of the tree's leaves; float64 array, shape (k', d).

    Notes
    -----
    Privacy: the sums of disjoint leaves.
    """
    raw_sums = leaf_sums(points, tree)
    noisy_sums = (raw_sums + noise(plan.sum_scale, raw_sums.size).reshape(raw_sums.shape)) / GRID
    # The mean of a leaf's users lies in its box, so what noise moves beyond is cut.
    means = np.clip(move(noisy_sums, tree.noisy_sizes), tree.low / GRID, tree.high / GRID)
    return cluster(means, plan.clusters, _stream(plan), weights=tree.weights).centers


def step_centers(points: GridPoints, tree: Tree, plan: LocalPlan, noise: Draw) -> NDArray[np.float64]:
    """Return k' centres by clustering the leaves' boxes, then one noisy step of Lloyd; float64 array, shape (k', d).

    Notes
    -----
    Privacy: the sums and the sizes of disjoint clusters, see `kmeans.assign.accumulate`.
    Source: ours; the step is Vertical DP, §3.5 "DPLloyd".
    """
    middles = (tree.low + tree.high) / (2.0 * GRID)
    start = round_centers(cluster(middles, plan.clusters, _stream(plan), weights=tree.weights).centers, FRACTION_BITS)
    raw_sums, raw_sizes = accumulate(points, start, radius=None, relative=False)
    noisy_sums = (raw_sums + noise(plan.sum_scale, raw_sums.size).reshape(raw_sums.shape)) / GRID
    noisy_sizes = (raw_sizes + noise(plan.size_scale, raw_sizes.size)).astype(np.float64)
    moved = truncate(move(noisy_sums, noisy_sizes))
    return np.where((noisy_sizes >= plan.least_cluster)[:, None], moved, start / GRID)


def shortened_centers(points: GridPoints, tree: Tree, plan: LocalPlan, noise: Draw) -> NDArray[np.float64]:
    """Return k' centres by clustering the leaves' boxes, then shortened noisy steps; float64 array, shape (k', d)."""
    middles = (tree.low + tree.high) / (2.0 * GRID)
    stream = _stream(plan)
    found = cluster(middles, plan.clusters, stream, weights=tree.weights).centers
    # Equal centres would never separate.
    return shortened_steps(points, tree, _spread_copies(found, stream), plan, noise)


@dataclass(frozen=True, slots=True)
class LocalDoubts:
    """How far off a party's released centres may be.

    Attributes
    ----------
    noise : float64 array, shape (k',)
        Variance of each coordinate, scaled, by the noise and what weighing left of it.
    unsettled : float
        The same because the steps may have ended before the centres stood still.
    """

    noise: NDArray[np.float64]
    unsettled: float


def local_doubts(plan: LocalPlan, centers: NDArray[np.float64], sizes: NDArray[np.float64]) -> LocalDoubts:
    """Say how far off a party's released centres may be.

    Parameters
    ----------
    plan : LocalPlan
        Of a method with noise.
    centers : float64 array, shape (k', d)
        As released, scaled.
    sizes : float64 array, shape (k',)
        Users of each cluster, as estimated from sketches.

    Notes
    -----
    Post-processing. The radius is not released, so it is guessed: the spread of all records from that between the
    centres, of which k' clusters are taken to leave the part k'^(-2/d) within them. A centre is off by no more than a
    start is held to be.
    """
    cell = math.pow(plan.clusters, -2.0 / plan.d)
    shares = sizes / max(total(sizes), 1e-9)
    away = centers - shares @ centers
    between = float(shares @ (away * away).sum(axis=1))
    spread = max(between / max(1.0 - cell, _LEAST_BETWEEN), LEAST_VARIANCE * plan.d)
    reach = math.sqrt(spread * cell)
    most, unsettled = first_doubt(reach, plan.d), step_doubt(reach, plan.d)
    if plan.method == SHORTENED:
        return LocalDoubts(left_doubt(sizes, reach, plan), unsettled)
    # Laplace noise of scale b has the variance 2 b^2; a cluster of a box tree adds up the leaves that it is made of.
    parts = max((1 << plan.levels) / plan.clusters, 1.0) if plan.method == BOX_TREE else 1.0
    divisor = np.maximum(sizes, 1.0)
    noise = 2.0 * parts * (plan.sum_scale / GRID / divisor) ** 2
    if plan.method != BOX_TREE:
        noise = noise + 2.0 * (centers * centers).mean(axis=1) * (plan.size_scale / divisor) ** 2
    return LocalDoubts(np.minimum(noise, most), unsettled)


def _plain_centers(points: GridPoints, plan: LocalPlan) -> NDArray[np.float64]:
    """Return the centres of k-means without privacy (on every n-th user of a large table)."""
    raw = points.raw_coordinates.T / GRID
    step = max(1, len(raw) // _PLAIN_SAMPLE)
    return truncate(cluster(raw[::step], plan.clusters, _stream(plan), restarts=_PLAIN_RESTARTS).centers)


def _stream(plan: LocalPlan) -> PublicStream:
    """Start the party's public randomness."""
    return PublicStream(plan.seed, f"{domains.VERTICAL_LOCAL}{plan.party}")


def _spread_copies(centers: NDArray[np.float64], stream: PublicStream) -> NDArray[np.float64]:
    """Move repeated centres (fewer leaves than clusters) to public random places."""
    result = centers.copy()
    for j in range(1, len(result)):
        if (result[:j] == result[j]).all(axis=1).any():
            reach = int(_REACH * GRID)
            result[j] = stream.integers(-reach, reach, result.shape[1]) / GRID
    return result
