"""How much noise is in the last release of a run of FedDP-KMeans, and in what a plan would release.

The last step divides noisy sums by noisy counts (at client level: users' means by users, each cut to a bound). Ranges
are about the result that this step would have without noise.

Privacy: post-processing of releases, with the noise that the plan states.

Source: FedDP-KMeans, Alg. 1 line 24, Alg. 2 line 11; docs/report.md, "Quality".
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.feddp.math.stage import CLEAR, Centers, margin
from fastlloyd.protocols.feddp.plan import Plan
from fastlloyd.protocols.feddp.settings import START
from fastlloyd.report.outlook import Expected, expect_mean
from fastlloyd.report.quality import UNKNOWN, ResultNoise
from fastlloyd.report.ranges import LAPLACE_TAIL, ratio_deviations


def expect(plan: Plan, users: int) -> Expected:
    """Return the noise to expect on an average centre, from public numbers alone.

    At client level the number of users with records in a cluster is unknown. Only the least noise is known: that of
    `users`, the largest number of users, if each counts in as many clusters as the bound on its counts allows.
    """
    if plan.rounds[-1].kind == START:
        return Expected(centre_noise=None, k=plan.k, d=plan.d)
    sums, counts = deviations(plan)
    share = users * min(plan.k, plan.count_clip) / plan.k if plan.by_user else plan.n_total / plan.k
    found = expect_mean(sums=sums, counts=counts, share=share, k=plan.k, d=plan.d)
    if not plan.by_user:
        return found
    each = "each client is one" if users == plan.clients else "each record is of another"
    return replace(
        found, centre_noise=None, least=found.centre_noise, if_least=f"if there are {users:,} users ({each})"
    )


def noise_of(plan: Plan, centers: Centers, users: int, costs: NDArray[np.float64]) -> ResultNoise:
    """Return the error ranges of the released centres and sizes, and whether a chosen k stands out."""
    if plan.rounds[-1].kind == START:
        return UNKNOWN
    sums, counts = deviations(plan)
    sizes = centers.noisy_counts
    reach = LAPLACE_TAIL * counts
    return ResultNoise(
        size_ranges=np.clip(np.column_stack([sizes - reach, sizes + reach]), 0.0, plan.n_total),
        centre_deviations=ratio_deviations(centers.exact, sizes, sums=sums, counts=counts, tail=LAPLACE_TAIL),
        tail=LAPLACE_TAIL,
        expected=expect(plan, users),
        stands_out=margin(costs.tolist()) >= CLEAR if plan.choose_k else None,
    )


def deviations(plan: Plan) -> tuple[float, float]:
    """Return the standard deviation of all noise on a sum and on a count of the last step, in the domain's units."""
    step, grid = plan.rounds[-1], float(1 << plan.fraction_bits)
    more = plan.spread
    return step.sigma * more / grid, math.sqrt(2.0) * step.scale * more / grid
