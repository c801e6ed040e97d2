"""What happens to the numbers of one round outside the encryption, alike at all parties.

Source: Vertical HE, §3 and Figure 1: the initialisation, steps (4) "Noise Injection" and (5) "Centroid Update".
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.initial import GRID_BITS, sphere_packing
from fastlloyd.kmeans.update import move, truncate
from fastlloyd.privacy.noise.sampler import round_normal
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.weighing import FIRST_SCALE, Estimate, first_state, weigh
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import PartyId


@dataclass(frozen=True, slots=True)
class Released:
    """What every party has at the end; released.

    Attributes
    ----------
    state : Estimate
        After the last round.
    rounds : int
        Rounds done.
    path : tuple of float64 arrays, shape (k, d)
        The centres at the start and after each round.
    present : tuple of PartyId
        Owners who helped to open the last round, where more than two share the key.
    """

    state: Estimate
    rounds: int
    path: tuple[NDArray[np.float64], ...] = ()
    present: tuple[PartyId, ...] = ()

    @property
    def centers(self) -> NDArray[np.float64]:
        """Centres, shape (k, d), scaled to [-1, 1]; columns owner by owner."""
        return self.state.centers


def first_centers(plan: Plan) -> NDArray[np.float64]:
    """Return the public start, shape (k, d): sphere packing from the seed, drawn in where steps are weighed."""
    packed = sphere_packing(plan.k, plan.d, plan.seed) / float(1 << GRID_BITS)  # Figure 1, "Centroid initialization"
    return FIRST_SCALE * packed if plan.shrinks else packed


def begin(plan: Plan, start: NDArray[np.float64] | None = None) -> Estimate:
    """Return what is known before the first round: the public start, or given centres, shape (k, d)."""
    return first_state(plan, first_centers(plan) if start is None else np.asarray(start, dtype=np.float64).copy())


def draw_noise(plan: Plan, secret: SecretRandom, grid: float = 1.0) -> NDArray[np.int64]:
    """Draw one party's noise of one round, integers, shape (k (d + 1),): cluster by cluster, first the count.

    Parameters
    ----------
    plan : Plan
    secret : SecretRandom
    grid : float
        Integer units of the sums to one unit of the noise.

    Notes
    -----
    Sees: the party that draws it. All who open add their own: each could take its own off again.
    """
    noise = np.empty((plan.k, plan.d + 1), dtype=np.int64)
    noise[:, 0] = round_normal(plan.count_scale / grid, plan.k, secret)  # §3, step (4): N(0, sigma_T^2)
    noise[:, 1:] = round_normal(plan.sum_scale / grid, (plan.k, plan.d), secret)  # §3, step (4): N(0, sigma_S^2)
    if plan.stepping:
        own = [1 + column for column in plan.stepping]
        noise[:, own] = round_normal(plan.step_scale / grid, (plan.k, len(own)), secret)
    return noise.reshape(-1)


def post_process(noisy: NDArray[np.int64], state: Estimate, plan: Plan, t: int) -> Estimate:
    """Make the next state from the noisy integers of round t.

    Notes
    -----
    Post-processing of a release. Without weighing, a cluster whose noisy count is below the noise's own deviation keeps
    its centre: what its sum says is noise.
    """
    table = noisy.reshape(plan.k, plan.d + 1).astype(np.float64) / plan.unit
    counts, sums = table[:, 0], table[:, 1:]
    if plan.shrinks:
        sums[:, list(plan.stepping)] *= plan.radius
        return weigh(sums, counts, state, plan, t)
    least = max(1.0, math.sqrt(plan.noises) * plan.count_scale / plan.unit)
    # §3, step (5): s / t.
    moved = np.where((counts >= least)[:, None], truncate(move(sums, counts)), state.centers)
    return dataclasses.replace(state, centers=moved, counts=counts)


def settled(before: NDArray[np.float64], after: NDArray[np.float64], plan: Plan) -> bool:
    """Return whether the public centres have stopped moving, as far as the plan's tolerance goes."""
    # §3: "until the centroids are sufficiently stable, or a fixed number of rounds".
    return bool(plan.tolerance > 0.0 and np.abs(after - before).max() <= plan.tolerance)
