"""A tree of boxes: one party's columns halved level by level, as long as the noisy counts are large enough.

Differs from the paper: boxes replace random hyperplanes through the origin, because a party has few columns: boxes
shrink with every level, the mean of a leaf can be cut to its box, and with one column hyperplanes through the origin
know two sides only. Measured on mixtures at epsilon_1 = 0.25: 1.2 times the cost of k-means in place of 2.1.

Source: Vertical DP, §3.5; Chang et al. (2021), for the tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.protocols.vertical_dp.local_plan import FRACTION_BITS, Draw, LocalPlan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream


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
