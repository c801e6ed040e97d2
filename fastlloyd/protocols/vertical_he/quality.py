"""Say how much noise is on the last release of a run, and on that of a plan, from the noise that the plan states.

Both sides add noise. Ranges are for what the last round would have given without noise; the encryption's errors are far
smaller. All of it is post-processing of releases.

Source: Vertical HE, §3, Figure 1, steps (4) and (5); docs/report.md, "Quality".
"""

from __future__ import annotations

import numpy as np

from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.rounds import Estimate, expected_deviation, noise_deviations
from fastlloyd.report.outlook import Expected, expect_mean
from fastlloyd.report.quality import ResultNoise
from fastlloyd.report.ranges import NORMAL_TAIL, ratio_deviations


def expect(plan: Plan) -> Expected:
    """Return the noise to expect on an average centre, from public numbers alone."""
    if plan.shrinks:
        return Expected(centre_noise=expected_deviation(plan) / 2.0, k=plan.k, d=plan.d)
    (sums, *_), counts = noise_deviations(plan)
    return expect_mean(sums=sums, counts=counts, share=plan.n_total / plan.k, k=plan.k, d=plan.d)


def noise_of(plan: Plan, state: Estimate) -> ResultNoise:
    """Return how far off the released centres and sizes may be; without privacy, by the noise that protects the key.

    The error of a weighed centre or count is given by its variance. The last noisy step does not count as well: most of
    the part that weighing left out is noise. Without weighing, a centre whose count is mostly noise did not move.
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
