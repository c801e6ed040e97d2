"""Vertical-he's rounds on pooled records, in clear: the plan's soft rule and noise, the parties' post-processing.

Only the encryption is left out, and with it its errors, which the noise hides. So a run takes milliseconds.

Source: Vertical HE, §3, Figure 1; docs/vertical-he.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_he.math import landmarks
from fastlloyd.protocols.vertical_he.math.coefficients import CHAIN, LARGEST
from fastlloyd.protocols.vertical_he.math.grid import corners, nearest, shares
from fastlloyd.protocols.vertical_he.math.linear import partial_scores, short_steps
from fastlloyd.protocols.vertical_he.math.pairwise import normalise
from fastlloyd.protocols.vertical_he.parameters import LANDMARKS, LINEAR, PROJECTION
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.rounds import Estimate, begin, post_process, settled

Array = NDArray[np.float64]
_AT_ONCE = 2048
"""Records whose distances to all landmarks fit the cache."""


def run_in_clear(
    plan: Plan, points: Array, rng: np.random.Generator, sums: Callable[[Plan, Array, Array, int], Array] | None = None
) -> Estimate:
    """Run all rounds from the public start.

    Parameters
    ----------
    plan : Plan
    points : float64 array, shape (n, d), scaled to [-1, 1]
        Columns owner by owner.
    rng : numpy.random.Generator
        Of the noise: for simulations only.
    sums : callable, optional
        Takes the place of `soft_sums`.
    """
    state = begin(plan)
    for t in range(plan.rounds):
        exact = np.rint((sums or soft_sums)(plan, points, state.centers, t) * plan.unit).astype(np.int64)
        before, state = state, post_process(exact.reshape(-1) + draw(plan, rng), state, plan, t)
        if settled(before.centers, state.centers, plan):
            break
    return state


def soft_sums(plan: Plan, points: Array, centers: Array, t: int = 0) -> Array:
    """Return what round t of the plan opens without noise, shape (k, d + 1): first the count, then the sums."""
    known = plan.columns(plan.computing)
    hidden = [column for column in range(plan.d) if column not in known]
    if plan.scheme == LINEAR:
        return grid_sums(points, centers, known=known, hidden=hidden, cells=plan.grid, radius=plan.radius)
    if plan.scheme == PROJECTION:
        return projected_sums(points, centers, known=known, hidden=hidden, cells=plan.grid)
    if plan.scheme == LANDMARKS:
        return landmark_sums(plan, points, centers, t)
    return with_sums(circuit_weights(points, centers, known=known), points)


def draw(plan: Plan, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw one round's noise of all who add their own, as `rounds.draw_noise` for one; int64, shape (k (d + 1),)."""
    deviations = np.full(plan.d + 1, plan.sum_scale)
    deviations[0] = plan.count_scale
    deviations[[1 + column for column in plan.stepping]] = plan.step_scale
    drawn = rng.normal(0.0, deviations, (plan.noises, plan.k, plan.d + 1))
    found: NDArray[np.int64] = np.rint(drawn).astype(np.int64).sum(axis=0).reshape(-1)
    return found


def grid_sums(
    points: Array, centers: Array, *, known: Sequence[int], hidden: Sequence[int], cells: int, radius: float = 0.0
) -> Array:
    """Return counts and sums of the linear scheme, shape (k, d + 1); with a radius, known columns enter as steps."""
    places = corners(cells, len(hidden)) * (2.0 / cells) - 1.0
    own, parts = points[:, list(known)].T, shares(points[:, list(hidden)].T, cells)
    labels = nearest(partial_scores(centers, own, known), 2.0 * places @ centers[:, list(hidden)].T)
    sums = np.zeros((len(centers), 1 + points.shape[1]))
    for j, center in enumerate(centers):
        held = parts * (labels == j)
        entered = short_steps(own, center[list(known)], radius) if radius else own
        sums[j, 0] = held.sum()
        sums[j, [1 + column for column in known]] = entered @ held.sum(axis=0)
        sums[j, [1 + column for column in hidden]] = held.sum(axis=1) @ places
    return sums


def projected_sums(points: Array, centers: Array, *, known: Sequence[int], hidden: Sequence[int], cells: int) -> Array:
    """Return counts and sums of two clusters by projection, shape (2, d + 1)."""
    step = centers[1] - centers[0]
    own, others = step[list(known)], step[list(hidden)]
    spread = np.abs(others).sum()
    middle = ((centers[1] ** 2 - centers[0] ** 2).sum() - 2.0 * points[:, list(known)] @ own) / 2.0
    place = points[:, list(hidden)] @ others / spread if spread else np.zeros(len(points))
    # The two corners beside the place, and which of them lie beyond the middle.
    low = np.minimum(np.floor((place + 1.0) * cells / 2.0), cells - 1)
    inside = (place + 1.0) * cells / 2.0 - low
    ahead = np.zeros(len(points))
    for corner, share in ((low, 1.0 - inside), (low + 1, inside)):
        ahead += share * ((corner * 2.0 / cells - 1.0) * spread > middle)
    return with_sums(np.column_stack((1.0 - ahead, ahead)), points)


def landmark_sums(plan: Plan, points: Array, centers: Array, t: int) -> Array:
    """Return counts and sums of round t by landmarks, shape (k, d + 1); with a radius, known columns enter as steps."""
    known, hidden = plan.columns(plan.computing), plan.columns(plan.holder)
    labels, pulls = np.empty(len(points), dtype=np.int16), landmarks.pulls(plan, t, centers)
    for start in range(0, len(points), _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        own, others = points[rows][:, list(known)].T, points[rows][:, list(hidden)].T
        marks = landmarks.shares(plan, others, t, centers).argmax(axis=0)
        labels[rows] = (partial_scores(centers, own, known) - pulls[marks].T).argmin(axis=0)
    return hard_sums(plan, points, centers, labels)


def hard_sums(plan: Plan, points: Array, centers: Array, labels: NDArray[np.int16]) -> Array:
    """Return counts and sums of records with one label each, as a plan adds them up, shape (k, d + 1)."""
    known, sums = list(plan.columns(plan.computing)), np.zeros((plan.k, 1 + plan.d))
    for j, center in enumerate(centers):
        held = points[labels == j]
        sums[j] = len(held), *held.sum(axis=0)
        if plan.stepping:
            steps = short_steps(np.ascontiguousarray(held[:, known].T), center[known], plan.radius)
            sums[j, [1 + column for column in known]] = steps.sum(axis=1)
    return sums


def circuit_weights(points: Array, centers: Array, *, known: Sequence[int]) -> Array:
    """Return each record's weights by the pairwise circuit, shape (n, k): not negative, summing to at most 1."""
    hidden = [column for column in range(points.shape[1]) if column not in known]
    weights = np.ones((len(points), len(centers)))
    for low in range(len(centers)):
        for high in range(low + 1, len(centers)):
            step = centers[high] - centers[low]
            apart = (centers[high] ** 2 - centers[low] ** 2).sum() - 2.0 * points[:, list(known)] @ step[list(known)]
            part, rest = normalise(apart, -2.0 * step[hidden])
            ahead = sign(part + points[:, hidden] @ rest) / LARGEST
            weights[:, low] *= (1.0 + ahead) / 2.0
            weights[:, high] *= (1.0 - ahead) / 2.0
    return weights


def sign(x: Array) -> Array:
    """Evaluate the circuit's polynomials, about the sign, on [-1, 1]."""
    for kappa, lead, gamma, pairs in CHAIN:
        u = kappa * x
        square = u * u
        x = lead * u * (square + gamma)
        for alpha, beta in pairs:
            x = x * (square * (square + alpha) + beta)
    return x


def with_sums(weights: Array, points: Array) -> Array:
    """Return the counts and the weighted sums of the records, shape (k, d + 1)."""
    return np.column_stack((weights.sum(axis=0), weights.T @ points))
