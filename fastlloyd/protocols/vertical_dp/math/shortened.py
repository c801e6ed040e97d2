"""Some noisy steps of Lloyd with shortened vectors, at one party: `local = shortened`.

From the boxes of the tree follow a start and the spread of the party's records. In each step a user enters with its
vector from the nearest centre, shortened to a radius of about a cluster's share of the spread: far less than the
diagonal, for which the noise on plain sums must be. The noisy steps are weighed against what is known by then (a Kalman
filter with a known noise), so late steps average where noise is large.

All of it but the sums and sizes works on released values.

Source: docs/fastlloyd-plus.md, for shortening and weighing; tuned on generated sets, see docs/vertical-dp.md.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.assign import accumulate
from fastlloyd.kmeans.grid import GridPoints, round_centers
from fastlloyd.kmeans.update import total, truncate
from fastlloyd.protocols.vertical_dp.local_plan import FRACTION_BITS, STEPS, Draw, LocalPlan
from fastlloyd.protocols.vertical_dp.math.tree import Tree

Floats = NDArray[np.float64]

_GRID = float(1 << FRACTION_BITS)
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
    reach = radius / _GRID
    share = min(total(tree.weights), float(plan.n)) / k
    centers = round_centers(start, FRACTION_BITS)
    doubt = np.full(k, first_doubt(reach, d))
    sizes, size_doubt = np.full(k, share), np.full(k, (_SIZE_DOUBT * share) ** 2)
    for _ in range(STEPS):
        raw_sums, raw_sizes = accumulate(points, centers, radius=radius, relative=True, shorten=True)
        noisy_sums = (raw_sums + noise(plan.step_scale * radius, k * d).reshape(k, d)) / _GRID
        noisy_sizes = (raw_sizes + noise(plan.size_scale, k)).astype(np.float64)
        gain = size_doubt / (size_doubt + plan.size_scale**2)
        sizes = sizes + gain * (noisy_sizes - sizes)
        size_doubt = size_doubt * (1.0 - gain) + (_SIZE_DRIFT * share) ** 2
        divisor = np.maximum(sizes, _LEAST_SHARE * share)
        gain = _gain(doubt, divisor, reach, plan)
        moved = truncate(centers / _GRID + gain[:, None] * (noisy_sums / divisor[:, None]))
        doubt = doubt * (1.0 - gain) + step_doubt(reach, d)
        centers = round_centers(moved, FRACTION_BITS)
    return centers / _GRID


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
        middles = (tree.low[:, h] + tree.high[:, h]) / (2.0 * _GRID)
        lengths = (tree.high[:, h] - tree.low[:, h]) / _GRID
        away = middles - total(shares * middles)
        squared += total(shares * (away * away + _WITHIN * lengths * lengths))
    spread = math.sqrt(max(squared, LEAST_VARIANCE * plan.d))
    return min(max(int(spread * math.pow(plan.clusters, -1.0 / plan.d) * _GRID), 1), _MOST_RADIUS)
