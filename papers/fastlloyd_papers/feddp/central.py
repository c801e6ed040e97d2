"""FedDP-KMeans on pooled data with the parties' own kernels, without messages: fast enough for the paper's tables.

It checks nothing: the parties and this are both tested against `protocols/feddp/reference.py`, bit by bit.

Source: FedDP-KMeans, Algorithms 1 and 2; App. G.4 and H.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import quantise, round_centers
from fastlloyd.kmeans.passes import Passes
from fastlloyd.privacy.noise.discrete import discrete_gaussian, polya_difference
from fastlloyd.privacy.shares import draw_laplace_parts
from fastlloyd.protocols.feddp.client import noisy_elements, statistics_of
from fastlloyd.protocols.feddp.math.projection import Projection
from fastlloyd.protocols.feddp.math.record import Statistics
from fastlloyd.protocols.feddp.math.stage import (
    Centers,
    cluster_projected,
    make_centers,
    make_projection,
    start_centers,
)
from fastlloyd.protocols.feddp.plan import Plan
from fastlloyd.protocols.feddp.settings import CENTERS, LLOYD, OUTER, WEIGHTS
from fastlloyd.randomness.secret import SecretRandom

Noise = Callable[[int, int], NDArray[np.int64]]
"""From step and number of clusters to the sum of all clients' shares, int64, shape (plan.elements(t, k),)."""


@dataclass(frozen=True, slots=True)
class CentralResult:
    """What the server would have at the end.

    Attributes
    ----------
    centers : Centers
    costs : float64 array, shape (kmax,) or (0,)
    """

    centers: Centers
    costs: NDArray[np.float64]


class Pool:
    """Statistics of pooled records for many runs with plans of the same grids and bounds.

    A Lloyd step by given centres is computed once: baselines begin with the same centres at every epsilon and with
    every number of steps.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        All clients' records, scaled.
    plan : Plan
    users : int64 array, shape (n,), optional
        Client level: numbers that are unique over all clients.
    passes : Passes, optional
        How to go through the records.
    """

    def __init__(
        self,
        points: NDArray[np.float64],
        plan: Plan,
        users: NDArray[np.int64] | None = None,
        passes: Passes | None = None,
    ) -> None:
        self._statistics = statistics_of(quantise(points, plan.fraction_bits, passes), plan, users)
        self._steps: dict[bytes, NDArray[np.int64]] = {}

    def outer_product(self) -> NDArray[np.int64]:
        """Return what `Statistics` says, as do the next two."""
        return self._statistics.outer_product()

    def weights(self, projection: Projection) -> NDArray[np.int64]:
        """Return step 2's weights."""
        return self._statistics.weights(projection)

    def projected_step(self, projection: Projection, centers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return step 3's sums and counts."""
        return self._statistics.projected_step(projection, centers)

    def lloyd_step(self, centers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a Lloyd step's sums and counts, computed or known."""
        key = centers.tobytes()
        if key not in self._steps:
            self._steps[key] = self._statistics.lloyd_step(centers)
        return self._steps[key]


def grids_of(plan: Plan) -> tuple[object, ...]:
    """Return what two plans must have in common for one pool: grids, bounds and level."""
    return tuple(
        getattr(plan, name)
        for name in (
            *("d", "n_server", "privacy_level", "norm_bound", "lift", "fraction_bits", "outer_bits"),
            *("outer_clip", "weight_clip", "mean_clip", "count_clip"),
        )
    )


def run_central(
    points: NDArray[np.float64] | Statistics,
    server_points: NDArray[np.float64] | None,
    plan: Plan,
    noise: Noise | None = None,
    *,
    users: NDArray[np.int64] | None = None,
    restarts: int = 10,
) -> CentralResult:
    """Run the algorithm centrally.

    Parameters
    ----------
    points : float64 array, shape (n, d), or Statistics
        All clients' records, scaled; or their `Pool` for a plan of the same grids and bounds.
    server_points : float64 array, shape (n_server, d), or None
        Scaled.
    plan : Plan
    noise : callable, optional
        All clients' shares together; drawn afresh in one go if left out (`draw_total`).
    users : int64 array, shape (n,), optional
        With an array of points, at client level.
    restarts : int
        As for the server.

    Returns
    -------
    CentralResult
    """
    data = Pool(points, plan, users) if isinstance(points, np.ndarray) else points
    secret = SecretRandom()
    draw: Noise = noise or (lambda t, k: draw_total(plan, t, k, secret))
    kinds = [step.kind for step in plan.rounds]
    projected = None
    if kinds[0] == OUTER:
        noisy = data.outer_product() + draw(0, plan.k)  # Alg. 1, lines 4 and 6
        projection = make_projection(noisy, server_points, plan)  # line 7
        noisy = data.weights(projection) + draw(kinds.index(WEIGHTS), plan.k)  # lines 12 and 15
        projected = cluster_projected(noisy, projection, plan, restarts)  # line 17
        k = len(projected.centers)
        noisy = data.projected_step(projection, projected.centers) + draw(kinds.index(CENTERS), k)  # lines 20 to 23
        centers = make_centers(noisy, k, plan)  # line 24
    else:
        k = plan.k
        centers = Centers(start_centers(plan, server_points, restarts), np.zeros(k))
    for t, kind in enumerate(kinds):
        if kind == LLOYD:  # Alg. 2, lines 2 to 11
            noisy = data.lloyd_step(round_centers(centers.exact, plan.fraction_bits)) + draw(t, k)
            centers = make_centers(noisy, k, plan)
    return CentralResult(centers, np.zeros(0) if projected is None else projected.costs)


def draw_total(plan: Plan, t: int, k: int, secret: SecretRandom) -> NDArray[np.int64]:
    """Draw the sum of all m clients' shares at once; same parameters and distribution.

    Notes
    -----
    Gaussian: discrete, of variance m / (m - t) sigma^2, which the sum of m shares is up to a factor exp(10^-60) on
    each probability. Laplace: m - t Polya shares are one discrete Laplace variable, exactly; the t others are drawn.
    """
    step, share = plan.rounds[t], plan.share
    gaussian, laplace = noisy_elements(plan, t, plan.elements(t, k))
    parts = [np.zeros(0, dtype=np.int64)]
    if gaussian:
        parts.append(discrete_gaussian(Fraction(step.sigma) ** 2 * plan.clients * share, gaussian, secret))
    if laplace:
        noise = polya_difference(step.scale, Fraction(1), laplace, secret)
        for _ in range(plan.known_shares):
            noise = noise + draw_laplace_parts([(step.scale, laplace)], [share], [secret])[0]
        parts.append(noise)
    return np.concatenate(parts)
