"""How much noise lies on what a run of vertical k-means under CKKS releases last, and on what a plan would release.

Both sides add their noise. Counts and sums are soft: records enter by weights. Ranges are meant for what the last round
would have given without noise; errors of the encryption are flooded by it and far smaller.

Privacy: post-processing of releases, with the noise that the plan states.

Source: Vertical HE, §3, Figure 1, steps (4) and (5); docs/report.md, "Quality".
"""

from __future__ import annotations

import numpy as np

from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.weighing import Estimate, expected_deviation, noise_deviations
from fastlloyd.report.expected import Expected, expect_mean
from fastlloyd.report.quality import ResultNoise
from fastlloyd.report.ranges import NORMAL_TAIL, ratio_deviations


def expect(plan: Plan) -> Expected:
    """Say what noise to expect on an average centre, from public numbers alone."""
    if plan.shrinks:
        return Expected(centre_noise=expected_deviation(plan) / 2.0, k=plan.k, d=plan.d)
    (sums, *_), counts = noise_deviations(plan)
    return expect_mean(sums=sums, counts=counts, share=plan.n_total / plan.k, k=plan.k, d=plan.d)


def noise_of(plan: Plan, state: Estimate) -> ResultNoise:
    """Say how far off the released centres and sizes may be; without privacy, by the noise that protects the key.

    Notes
    -----
    A weighed centre or count is off by what its variance says. The last noisy step does not enter beside it: most of
    what was not taken of that step is noise, which weighing has kept out. Without weighing, a centre whose count says
    nothing was not moved.
    """
    (sums, *_), counts = noise_deviations(plan)
    size_deviations = np.sqrt(state.count_variance) if plan.shrinks else np.full(plan.k, counts)
    reach = NORMAL_TAIL * size_deviations
    sizes = np.clip(np.column_stack([state.counts - reach, state.counts + reach]), 0.0, plan.n_total)
    expected = expect(plan) if plan.private else None
    if not plan.shrinks:
        deviations = ratio_deviations(state.centers, state.counts, sums=sums, counts=counts, tail=NORMAL_TAIL)
        return ResultNoise(size_ranges=sizes, centre_deviations=deviations, expected=expected)
    return ResultNoise(
        size_ranges=sizes,
        centre_deviations=np.sqrt(state.variance),
        steps=state.steps,
        step_deviations=np.sqrt(state.step_variance.mean(axis=1)),
        expected=expected,
    )
