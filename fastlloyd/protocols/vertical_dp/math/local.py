"""LocCluster: one party's clusters of its own columns, privately.

All ways begin with a tree of boxes: the party's columns halved level by level, as long as the noisy
counts are large enough. `box-tree` (the paper's DPLSF, an LSH forest, is
not among them) then clusters the noisy means of the leaves. The others
cluster the leaves' boxes, for which no sums are needed, and go on from there: `lloyd` (ours) by one step of Lloyd with
noise, for which k' sums do, and `shortened` (ours) by some steps of less noise. Every user then
belongs to the nearest centre: a function of its own row and of released values alone.

With `shortened` the boxes of the tree give a start and the spread of the party's records. In each step a user enters
with its vector from the nearest centre, shortened to a radius of about a cluster's share of the spread: far less than
the diagonal, for which the noise on plain sums must be. The noisy steps are weighed against what is known by then (a
Kalman filter with a known noise), so late steps average where noise is large. All of it but the sums and sizes works on
released values.

Differs from the paper: boxes replace random hyperplanes through the origin, because a party has few columns: boxes
shrink with every level, the mean of a leaf can be cut to its box, and with one column hyperplanes through the origin
know two sides only. Measured on mixtures at epsilon_1 = 0.25: 1.2 times the cost of k-means in place of 2.1.

Source: Vertical DP, §3.5, for what LocCluster has to do, on [-1, 1] with the Laplace mechanism;
docs/fastlloyd-plus.md, for shortening and weighing; tuned on generated sets, see docs/vertical-dp.md.
Chang et al. (2021), for the tree.
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
from fastlloyd.protocols.vertical_dp.local_plan import BOX_TREE, FRACTION_BITS, SHORTENED, STEPS, Draw, LocalPlan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

_REACH = 0.8
_PLAIN_RESTARTS = 4
_PLAIN_SAMPLE = 20_000
_LEAST_BETWEEN = 0.1  # of the spread: what lies between a party's centres


GRID = float(1 << FRACTION_BITS)


@dataclass(frozen=True, slots=True)
class Tree:
    """The boxes that are left, and who is in them.

    Attributes
    ----------
    raw_leaf : int64 array, shape (n,)
        Box of each user, or -1: it was in a box too small to follow.
    noisy_sizes : float64 array, shape (leaves,)
        Released; the root's is the public bound.
    low, high : int64 array, shape (leaves, d)
        Borders, on the grid of 2^-16.
    open : bool array, shape (leaves,)
        Which boxes may hold two useful ones.
    """

    raw_leaf: NDArray[np.int64]
    noisy_sizes: NDArray[np.float64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    open: NDArray[np.bool_]

    @property
    def weights(self) -> NDArray[np.float64]:
        """Noisy sizes, at least 1."""
        return np.maximum(self.noisy_sizes, 1.0)

    def descend(self, raw_child: NDArray[np.int64], noisy: NDArray[np.float64], axis: int, least: float) -> Tree:
        """Replace each open box by those of its halves that are large enough, or keep it if neither is.

        Parameters
        ----------
        raw_child : int64 array, shape (n,)
            2 box + side, or -1.
        noisy : float64 array, shape (leaves, 2)
            Noisy sizes of the halves.
        axis : int
            Coordinate that is halved.
        least : float
        """
        kept = (noisy >= least) & self.open[:, None]
        closed = np.flatnonzero(~kept.any(axis=1))
        children = np.flatnonzero(kept.ravel())
        parent, side = np.divmod(children, 2)
        low, high = self.low[parent].copy(), self.high[parent].copy()
        middle = (low[:, axis] + high[:, axis]) // 2
        low[:, axis] = np.where(side == 1, middle, low[:, axis])
        high[:, axis] = np.where(side == 0, middle, high[:, axis])
        sizes = noisy.ravel()[children]
        # One more place at the end: what -1 points to stays -1.
        new_of_box = np.full(len(self.open) + 1, -1)
        new_of_box[closed] = np.arange(len(closed))
        new_of_child = np.full(2 * len(self.open) + 1, -1)
        new_of_child[children] = len(closed) + np.arange(len(children))
        return Tree(
            np.maximum(new_of_box[self.raw_leaf], new_of_child[raw_child]),
            np.concatenate([self.noisy_sizes[closed], sizes]),
            np.concatenate([self.low[closed], low]),
            np.concatenate([self.high[closed], high]),
            np.concatenate([np.zeros(len(closed), dtype=np.bool_), sizes >= 2.0 * least]),
        )


def grow_tree(points: GridPoints, plan: LocalPlan, noise: Draw) -> Tree:
    """Halve boxes level by level, one coordinate after the other, in a public order.

    Notes
    -----
    Privacy: each level counts the halves of every box that is still open. A user is in at most one of them, so its row
    moves the level's counts by 1 in L1. What is halved next follows from noisy counts.
    """
    corner = np.full((1, points.d), 1 << FRACTION_BITS, dtype=np.int64)
    tree = Tree(
        np.zeros(points.n, dtype=np.int64), np.array([float(plan.n)]), -corner, corner, np.ones(1, dtype=np.bool_)
    )
    order = np.argsort(PublicStream(plan.seed, f"{domains.VERTICAL_AXES}{plan.party}").uint32(points.d), kind="stable")
    for level in range(plan.levels):
        axis = int(order[level % points.d])
        middle = (tree.low[:, axis] + tree.high[:, axis]) // 2
        side = points.raw_coordinates[axis] > middle[tree.raw_leaf]
        raw_child = np.where((tree.raw_leaf >= 0) & tree.open[tree.raw_leaf], 2 * tree.raw_leaf + side, -1)
        raw_counts = np.bincount(raw_child + 1, minlength=2 * len(middle) + 1)[1:]
        noisy = (raw_counts + noise(plan.level_scale, raw_counts.size)).astype(np.float64).reshape(-1, 2)
        tree = tree.descend(raw_child, noisy, axis, plan.least_leaf)
    return tree


def leaf_sums(points: GridPoints, tree: Tree) -> NDArray[np.int64]:
    """Add up the users of each leaf; int64 array, shape (leaves, d), in grid units.

    Notes
    -----
    Privacy: one user is in one leaf or in none, so its row moves the sums by d 2^16 in L1 at most.
    """
    sums = [
        np.bincount(tree.raw_leaf + 1, weights=row, minlength=len(tree.open) + 1)[1:]
        for row in points.raw_coordinates.astype(np.float64)
    ]
    return np.stack(sums, axis=1).astype(np.int64)


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


Floats = NDArray[np.float64]

_MOST_RADIUS = (1 << 24) - 1
"""Up to here a shortened integer vector is proved to be no longer than the radius (`kmeans.assign`)."""
# A box's users are spread over less than all of it: half of its uniform variance.
_WITHIN = 0.5 / 12.0
LEAST_VARIANCE = 0.02
"""Of a coordinate of a party's records."""
# Expected error of the start, and what is added to it after each step: over the radius.
_FIRST_DOUBT, _STEP_DOUBT = 1.2, 0.2
# Of an equal share of the users: doubt of a size at first and after each step, and the least size.
_SIZE_DOUBT, _SIZE_DRIFT, _LEAST_SHARE = 0.5, 0.1, 0.2


def shortened_steps(points: GridPoints, tree: Tree, start: Floats, plan: LocalPlan, noise: Draw) -> Floats:
    """Return k' centres after `STEPS` noisy steps; float64 array, shape (k', d).

    Parameters
    ----------
    points : GridPoints
    tree : Tree
    start : float64 array, shape (k', d)
        In [-1, 1]; from released values.
    plan : LocalPlan
    noise : callable
        Gaussian: standard deviation and size to integers.

    Notes
    -----
    Privacy: `plan.releases()`. Labels follow from a user's own row and the centres, so zero-out of one row moves one
    row of the sums by an integer vector of at most the radius in L2 (`kmeans.assign.accumulate`) and one size by 1, for
    whatever centres and radius earlier releases gave. The noise on the sums is `plan.step_scale` times the radius.
    """
    k, d = start.shape
    radius = step_radius(tree, plan)
    reach = radius / GRID
    share = min(total(tree.weights), float(plan.n)) / k
    centers = round_centers(start, FRACTION_BITS)
    doubt = np.full(k, first_doubt(reach, d))
    sizes, size_doubt = np.full(k, share), np.full(k, (_SIZE_DOUBT * share) ** 2)
    for _ in range(STEPS):
        raw_sums, raw_sizes = accumulate(points, centers, radius=radius, relative=True, shorten=True)
        noisy_sums = (raw_sums + noise(plan.step_scale * radius, k * d).reshape(k, d)) / GRID
        noisy_sizes = (raw_sizes + noise(plan.size_scale, k)).astype(np.float64)
        gain = size_doubt / (size_doubt + plan.size_scale**2)
        sizes = sizes + gain * (noisy_sizes - sizes)
        size_doubt = size_doubt * (1.0 - gain) + (_SIZE_DRIFT * share) ** 2
        divisor = np.maximum(sizes, _LEAST_SHARE * share)
        gain = _gain(doubt, divisor, reach, plan)
        moved = truncate(centers / GRID + gain[:, None] * (noisy_sums / divisor[:, None]))
        doubt = doubt * (1.0 - gain) + step_doubt(reach, d)
        centers = round_centers(moved, FRACTION_BITS)
    return centers / GRID


def left_doubt(sizes: Floats, reach: float, plan: LocalPlan) -> Floats:
    """Return how far off the centres are held to be after the last step: variance of a coordinate, shape (k',).

    Parameters
    ----------
    sizes : float64 array, shape (k',)
        Users of each cluster, as they are known.
    reach : float
        The radius, scaled.
    plan : LocalPlan

    Notes
    -----
    Post-processing: the variances that `shortened_steps` weighs by, if clusters had these sizes in all steps.
    """
    left = np.full(len(sizes), first_doubt(reach, plan.d))
    divisor = np.maximum(sizes, _LEAST_SHARE * total(sizes) / len(sizes))
    for step in range(STEPS):
        before = left + (step_doubt(reach, plan.d) if step else 0.0)
        left = before * (1.0 - _gain(before, divisor, reach, plan))
    return left


def first_doubt(reach: float, d: int) -> float:
    """Return how far off a start is held to be: variance of a coordinate."""
    return (_FIRST_DOUBT * reach) ** 2 / d


def step_doubt(reach: float, d: int) -> float:
    """Return what a step is held to leave open: variance of a coordinate."""
    return (_STEP_DOUBT * reach) ** 2 / d


def _gain(doubt: Floats, divisor: Floats, reach: float, plan: LocalPlan) -> Floats:
    """Return the share of a noisy step that is taken."""
    noisy = (plan.step_scale * reach / divisor) ** 2
    return doubt / (doubt + noisy)


def step_radius(tree: Tree, plan: LocalPlan) -> int:
    """Return the radius in grid units: the spread of the tree's boxes times k'^(-1/d). Post-processing."""
    shares = tree.weights / total(tree.weights)
    squared = 0.0
    for h in range(plan.d):
        middles = (tree.low[:, h] + tree.high[:, h]) / (2.0 * GRID)
        lengths = (tree.high[:, h] - tree.low[:, h]) / GRID
        away = middles - total(shares * middles)
        squared += total(shares * (away * away + _WITHIN * lengths * lengths))
    spread = math.sqrt(max(squared, LEAST_VARIANCE * plan.d))
    return min(max(int(spread * math.pow(plan.clusters, -1.0 / plan.d) * GRID), 1), _MOST_RADIUS)
