"""The releases of one party's local clustering, from public numbers alone.

A user counts in one node per level of the tree, and then in one leaf (a box tree) or in one cluster (lloyd,
shortened). One user's row replaced by nothing moves a level's counts by 1, in L1 and in L2. It moves sums of d
coordinates in [-1, 1] by at most d in the L1 norm, that is d 2^q on the grid of 2^-q, because coordinates are rounded
to the grid before they are added. `shortened` adds vectors from the nearest centre that are no longer than a radius r:
one row of the sums moves by a vector of at most r in L2, and one size by 1. r follows from the tree's noisy counts,
which are earlier releases, and the noise is drawn in units of r; so the release is stated in these units, where r is 1.

Source: Vertical DP, §3.5; Su et al. (2016), §4, for the split between sums and counts of lloyd; FastLloyd, Eq. 7, for
the split of shortened; docs/fastlloyd-plus.md, "What one record can change".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import RangeError
from fastlloyd.privacy.calibration import laplace_ratio
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.vertical_dp.sketch.sketch import ZERO_OUT

Draw = Callable[[float, int], NDArray[np.int64]]
"""From a scale and a size to an array of that size, the rounded noise of that scale: fresh and secret."""

SHORTENED = "shortened"
# The paper has an LSH forest, DPLSF, in its place (docs/vertical-dp.md).
BOX_TREE = "box-tree"
STEPS = 4
"""Noisy steps of Lloyd of 'shortened'."""

FRACTION_BITS = 16
MAX_FEATURES = 1 << 14
LEVELS = (4, 10)
SHORTENED_LEVELS = (3, 10)

# Keep a leaf if noise moves its count by less than 1 in 2, and each coordinate of its mean by less than 0.15; accept a
# cluster's new centre if noise moves it by less than 0.7 of the half-width. Tuned on mixtures.
_COUNT_ERRORS = 2.0
_LEAF_ERROR = 0.15
_STEP_ERROR = 0.7
# Levels: log2(N epsilon_1) minus the first; with Gaussian noise log2(N / noise multiplier) minus the second.
_LEVEL_OFFSET, _SHORTENED_OFFSET = 4, 2


def check_width(d: int) -> None:
    """Refuse a party with more columns than its local plan can have.

    Raises
    ------
    RangeError
        Says how many.
    """
    if not 1 <= d <= MAX_FEATURES:
        raise RangeError(f"expected 1 to {MAX_FEATURES} columns per party, got {d}; leave some out (--columns)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlan:
    """One party's local clustering.

    Attributes
    ----------
    method : {'shortened', 'lloyd', 'box-tree', 'plain'}
        'box-tree': the means of a box tree's leaves.
    clusters : int
        Paper: k'.
    d : int
        Columns of this party.
    n : int
        Public N.
    epsilon : float
        Paper: epsilon_1; not used by 'plain'. For 'shortened' one over the noise multiplier of all its releases, which
        together are epsilon-GDP.
    tree_share : float
        Share of epsilon_1 for the counts of the tree; for 'shortened' share of its square.
    levels : int
        Of the tree.
    seed : int
    party : int
        Rank, which keeps the parties' public randomness apart.
    """

    method: str
    clusters: int
    d: int
    n: int
    epsilon: float
    tree_share: float
    levels: int
    seed: int
    party: int

    def __post_init__(self) -> None:
        check_width(self.d)

    @property
    def mechanism(self) -> str:
        """The kind of noise."""
        return "gaussian" if self.method == SHORTENED else "laplace"

    @property
    def sum_sensitivity(self) -> float:
        """Largest change of the sums by one user, in grid units."""
        return float(self.d << FRACTION_BITS)

    @property
    def level_scale(self) -> float:
        """Scale of the noise on the counts of a level: b, or for 'shortened' the standard deviation."""
        if self.method == SHORTENED:
            return math.sqrt(self.levels / self.tree_share) / self.epsilon
        return self.levels / (self.tree_share * self.epsilon)

    @property
    def sum_epsilon(self) -> float:
        """Epsilon for the sums of all leaves, or of all clusters."""
        rest = (1.0 - self.tree_share) * self.epsilon
        return rest if self.method == BOX_TREE else rest * self._sum_share

    @property
    def sum_scale(self) -> float:
        """Scale b of the Laplace noise on the sums, in grid units."""
        return self.sum_sensitivity / self.sum_epsilon

    @property
    def size_scale(self) -> float:
        """Scale of the noise on the clusters' sizes: b (lloyd), or the standard deviation in each step (shortened)."""
        if self.method == SHORTENED:
            return self._count_ratio * self.step_scale
        return 1.0 / ((1.0 - self.tree_share) * self.epsilon * (1.0 - self._sum_share))

    @property
    def step_scale(self) -> float:
        """Standard deviation of the noise on the sums of one step over the radius; shortened only.

        Notes
        -----
        Privacy: with s for the sums and rho s for the sizes, each step is mu-GDP, mu^2 = 1/s^2 + 1/(rho s)^2, which is
        an equal part of what the tree leaves of epsilon^2.
        """
        part = self.epsilon**2 * (1.0 - self.tree_share) / STEPS
        return math.sqrt((1.0 + self._count_ratio**-2) / part)

    @property
    def _count_ratio(self) -> float:
        return math.pow(4.0 * self.d, 0.25)

    @property
    def least_leaf(self) -> float:
        """Smallest noisy count of a node that is divided further or kept."""
        if self.method == SHORTENED:
            return max(self.level_scale, 1.0)
        counts = max(_COUNT_ERRORS * self.level_scale, 1.0)
        return max(counts, self._useful(_LEAF_ERROR)) if self.method == BOX_TREE else counts

    @property
    def least_cluster(self) -> float:
        """Smallest noisy size of a cluster whose mean replaces its centre; lloyd only."""
        return self._useful(_STEP_ERROR)

    def _useful(self, error: float) -> float:
        """Return the smallest size for which noise moves a mean's coordinates by less than `error`."""
        return math.sqrt(2.0) * self.d / (self.sum_epsilon * error)

    @property
    def _sum_share(self) -> float:
        """Share of the sums of a round of Lloyd (Su et al.)."""
        weight = self.d * laplace_ratio(self.d)
        return weight / (weight + 1.0)

    def releases(self) -> tuple[Release, ...]:
        """Return this party's releases about its local clusters.

        Notes
        -----
        Privacy: pure epsilon_1 in all, for 'shortened' epsilon_1-GDP, adaptively composed; zero-out of one user's row.
        """
        if self.method == "plain":
            return (self._release(0, "centres", 1.0, 0.0, "1"),)
        counts = tuple(
            self._release(level, "counts of a tree's level", 1.0, self.level_scale, "one user")
            for level in range(self.levels)
        )
        if self.method == SHORTENED:
            sums_of = [self._release(t, "shortened sums", 1.0, self.step_scale, "the radius") for t in range(STEPS)]
            sizes_of = [self._release(t, "local sizes", 1.0, self.size_scale, "one user") for t in range(STEPS)]
            return (*counts, *sums_of, *sizes_of)
        grid = f"grid of 2^-{FRACTION_BITS}"
        sums = self._release(0, "local sums", self.sum_sensitivity, self.sum_scale, grid)
        if self.method == BOX_TREE:
            return (*counts, sums)
        return (*counts, sums, self._release(0, "local sizes", 1.0, self.size_scale, "one user"))

    def _release(self, step: int, name: str, sensitivity: float, scale: float, unit: str) -> Release:
        return Release(
            round=step,
            name=f"{name}, client {self.party}",
            mechanism=self.mechanism if scale > 0.0 else "none",
            sensitivity=sensitivity,
            norm="l2" if self.method == SHORTENED else "l1",
            noise_scale=scale,
            unit=unit,
            neighbours=ZERO_OUT,
            seen_by="server",
        )


def automatic_levels(n: int, epsilon: float, method: str) -> int:
    """Return the levels of a tree for the public N and epsilon_1: one more for twice the users, up to 10."""
    low, high = SHORTENED_LEVELS if method == SHORTENED else LEVELS
    offset = _SHORTENED_OFFSET if method == SHORTENED else _LEVEL_OFFSET
    return min(max(round(math.log2(max(n * epsilon, 1.0))) - offset, low), high)
