"""How much noise lies on what a run of vertical k-means under CKKS releases last, and on what a plan would release.

Both sides add their noise. Counts and sums are soft: records enter by weights. Ranges are meant for what the last round
would have given without noise; errors of the encryption are flooded by it and far smaller.

Privacy: post-processing of releases, with the noise that the plan states.

Source: Vertical HE, §3, Figure 1, steps (4) and (5); docs/report.md, "Quality".
"""

from __future__ import annotations

import math

import numpy as np

from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.rounds import Result
from fastlloyd.report.expected import Expected, expect_mean
from fastlloyd.report.quality import EXACT, Noise
from fastlloyd.report.ranges import NORMAL_TAIL, ratio_deviations


def expect(plan: Plan) -> Expected:
    """Say what noise to expect on an average centre, from public numbers alone."""
    sums, counts = _deviations(plan)
    return expect_mean(sums=sums, counts=counts, share=plan.n / plan.k, k=plan.k, d=plan.d)


def noise_of(plan: Plan, result: Result) -> Noise:
    """Say how far off the released centres and sizes may be; a centre whose count says nothing was not moved."""
    if not plan.private:
        return EXACT
    sums, counts = _deviations(plan)
    sizes, margin = result.noisy_counts, NORMAL_TAIL * counts
    return Noise(
        size_ranges=np.clip(np.column_stack([sizes - margin, sizes + margin]), 0.0, plan.n),
        centre_deviations=ratio_deviations(result.centers, sizes, sums=sums, counts=counts, tail=NORMAL_TAIL),
        expected=expect(plan),
    )


def _deviations(plan: Plan) -> tuple[float, float]:
    """Return the standard deviation of both sides' noise on a sum and on a count, in the domain's units."""
    return math.sqrt(2.0) * plan.sum_scale / plan.unit, math.sqrt(2.0) * plan.count_scale / plan.unit
