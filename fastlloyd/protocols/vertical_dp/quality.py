"""Noise on a result of vertical DP clustering, and roughly how much to expect from its plan.

Two errors move a centre: that of the estimated weights of its cells (`likelihood_error`, `basic_error`), and the noise
on the local centres that make up the cells. Before a run both are computed for average cells and clusters. Afterwards
they are drawn again around the released values (`redraw.py`).

Privacy: post-processing of releases, with the noise that the plan states.

Source: Vertical DP, §5.2; docs/report.md, "Quality".
"""

from __future__ import annotations

import math

import numpy as np

from fastlloyd.protocols.vertical_dp.local_plan import FRACTION_BITS, SHORTENED, STEPS
from fastlloyd.protocols.vertical_dp.math.estimate import basic_error
from fastlloyd.protocols.vertical_dp.math.pair import likelihood_error
from fastlloyd.protocols.vertical_dp.messages import SharedResult
from fastlloyd.protocols.vertical_dp.plan import Plan
from fastlloyd.report.outlook import PRIOR_VARIANCE, Expected
from fastlloyd.report.quality import EXACT, ResultNoise
from fastlloyd.report.ranges import NORMAL_TAIL


def expect(plan: Plan) -> Expected:
    """Return roughly the noise to expect on an average centre, from public numbers alone."""
    shape, users = plan.shape, float(plan.n_total)
    error = likelihood_error if plan.estimator == "likelihood" else basic_error
    # A cluster is the mean of its cells, which are as far from it as records are.
    away = math.sqrt(PRIOR_VARIANCE) * plan.k ** (-1.0 / plan.d)
    weights = error(users, users / shape.cells, shape) * math.sqrt(shape.cells / plan.k) * away * plan.k / users
    local = max(_local_deviation(plan, place) for place in range(plan.clients))
    return Expected(centre_noise=math.hypot(weights, local) / 2.0, k=plan.k, d=plan.d)


def noise_of(plan: Plan, shared: SharedResult) -> ResultNoise:
    """Return the errors of centres and sizes, from the server's draws, as it sent them to the parties."""
    if shared.weights is None or shared.spread is None:
        return EXACT  # vertical-plain
    spread, reach = shared.spread, NORMAL_TAIL * shared.spread.weights
    sizes = np.column_stack([shared.weights - reach, shared.weights + reach])
    return ResultNoise(
        size_ranges=np.clip(sizes, 0.0, plan.n_total),
        centre_deviations=spread.centers,
        unsettled=spread.unsettled,
        expected=expect(plan),
    )


def _local_deviation(plan: Plan, place: int) -> float:
    """Return the standard deviation of the noise on a coordinate of an average local centre.

    If the noise is larger than the variation of features, the centre stays at its place on the grid.
    """
    local = plan.local_plan(place)
    features = math.sqrt(PRIOR_VARIANCE)
    if local.method == SHORTENED:
        # The steps are weighted; together they count as one step with half of their budget.
        radius = features * math.sqrt(local.d) * math.pow(local.clusters, -1.0 / local.d)
        noise = local.step_scale / math.sqrt(0.5 * STEPS) * radius * local.clusters / local.n
    else:
        noise = math.sqrt(2.0) * local.sum_scale / (1 << FRACTION_BITS) * local.clusters / local.n
    return min(noise, features)
