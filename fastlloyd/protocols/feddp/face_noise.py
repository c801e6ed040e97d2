"""How much noise lies on what a run of FedDP-KMeans releases last, and on what a plan would release.

The last step divides noisy sums by noisy counts (at client level: users' means by users, each cut to a bound). Ranges
are meant for what that step would have given without noise.

Privacy: post-processing of releases, with the noise that the plan states.

Source: FedDP-KMeans, Alg. 1 line 24, Alg. 2 line 11; docs/report.md, "Quality".
"""

from __future__ import annotations

import math

import numpy as np

from fastlloyd.privacy.shares import spread
from fastlloyd.protocols.feddp.budget import START
from fastlloyd.protocols.feddp.math.stage import Centers
from fastlloyd.protocols.feddp.plan import Plan
from fastlloyd.report.quality import UNKNOWN, Expected, Noise, expect_mean
from fastlloyd.report.ranges import LAPLACE_TAIL, ratio_deviations


def expect(plan: Plan) -> Expected:
    """Say what noise to expect on an average centre, from public numbers alone; at client level nothing tells."""
    if plan.by_user or plan.rounds[-1].kind == START:
        return Expected(centre_noise=None, k=plan.k, d=plan.d)
    sums, counts = _deviations(plan)
    return expect_mean(sums=sums, counts=counts, share=plan.n_total / plan.k, k=plan.k, d=plan.d)


def noise_of(plan: Plan, centers: Centers) -> Noise:
    """Say how far off the released centres and sizes may be."""
    if plan.rounds[-1].kind == START:
        return UNKNOWN
    sums, counts = _deviations(plan)
    sizes = centers.noisy_counts
    margin = LAPLACE_TAIL * counts
    return Noise(
        size_ranges=np.clip(np.column_stack([sizes - margin, sizes + margin]), 0.0, plan.n_total),
        centre_deviations=ratio_deviations(centers.exact, sizes, sums=sums, counts=counts, tail=LAPLACE_TAIL),
        tail=LAPLACE_TAIL,
        expected=expect(plan),
    )


def _deviations(plan: Plan) -> tuple[float, float]:
    """Return the standard deviation of all noise on a sum and on a count of the last step, in the domain's units."""
    step, grid = plan.rounds[-1], float(1 << plan.fraction_bits)
    more = spread(plan.clients, plan.known_shares)
    return step.sigma * more / grid, math.sqrt(2.0) * step.scale * more / grid
