"""The clients' shares of each step's noise.

Source: FedDP-KMeans, Alg. 1 lines 6, 15 and 23, Alg. 2 line 10; docs/privacy.md, "Noise in shares".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.privacy.shares import draw_gaussian_share, draw_laplace_share
from fastlloyd.protocols.feddp.budget import OUTER, WEIGHTS
from fastlloyd.protocols.feddp.plan import Plan
from fastlloyd.randomness.secret import SecretRandom


def draw_share(plan: Plan, t: int, k: int, secret: SecretRandom) -> NDArray[np.int64]:
    """Draw one client's share of step t's noise with k clusters, in grid units; shape (plan.elements(t, k),).

    Notes
    -----
    Sees: the client that draws it; the server sees sums of all clients' shares and statistics.
    Privacy: m - t shares together have the scales of the plan (`privacy/shares.py`).
    """
    step, shares = plan.rounds[t], plan.shares
    gaussian, laplace = noisy_elements(plan, t, k)
    return np.concatenate(
        [
            draw_gaussian_share(step.sigma, shares, gaussian, secret) if gaussian else np.zeros(0, dtype=np.int64),
            draw_laplace_share(step.scale, shares, laplace, secret) if laplace else np.zeros(0, dtype=np.int64),
        ]
    )


def noisy_elements(plan: Plan, t: int, k: int) -> tuple[int, int]:
    """Return how many elements of step t carry Gaussian and Laplace noise."""
    total, kind = plan.elements(t, k), plan.rounds[t].kind
    if kind == OUTER:
        return total, 0
    if kind == WEIGHTS:
        return 0, total
    return (k * plan.d, k) if total else (0, 0)
