"""How much noise lies on a result of vertical DP clustering, and about how much to expect of its plan.

Two things move a centre: the error of the estimated weights of the cells that it is the mean of (`likelihood_error`,
`basic_error`), and the noise on the local centres that the cells are made of. Before a run both are taken for average
cells and clusters. Afterwards they are drawn again around what was released (`redraw.py`).

Privacy: post-processing of releases, with the noise that the plan states.

Source: Vertical DP, §5.2; docs/report.md, "Quality".
"""

from __future__ import annotations

import math

import numpy as np

from fastlloyd.protocols.vertical_dp.local_plan import FRACTION_BITS, SHORTENED, STEPS
from fastlloyd.protocols.vertical_dp.math.estimate import basic_error
from fastlloyd.protocols.vertical_dp.math.pair import likelihood_error
from fastlloyd.protocols.vertical_dp.messages import Told
from fastlloyd.protocols.vertical_dp.plan import Plan
from fastlloyd.report.expected import PRIOR_VARIANCE, Expected
from fastlloyd.report.quality import EXACT, ResultNoise
from fastlloyd.report.ranges import NORMAL_TAIL


def expect(plan: Plan) -> Expected:
    """Say about what noise to expect on an average centre, from public numbers alone."""
    shape, users = plan.shape, float(plan.n_total)
    error = likelihood_error if plan.estimator == "likelihood" else basic_error
    # A cluster is the mean of its cells, which lie as far from it as records do.
    away = math.sqrt(PRIOR_VARIANCE) * plan.k ** (-1.0 / plan.d)
    weights = error(users, users / shape.cells, shape) * math.sqrt(shape.cells / plan.k) * away * plan.k / users
    local = max(_local_deviation(plan, place) for place in range(plan.clients))
    return Expected(centre_noise=math.hypot(weights, local) / 2.0, k=plan.k, d=plan.d)


def noise_of(plan: Plan, told: Told) -> ResultNoise:
    """Say how far off centres and sizes may be: by the server's own draws, and by what it told the parties of them."""
    if told.weights is None or told.spread is None:
        return EXACT  # of vertical-plain
    spread, reach = told.spread, NORMAL_TAIL * told.spread.weights
    sizes = np.column_stack([told.weights - reach, told.weights + reach])
    return ResultNoise(
        size_ranges=np.clip(sizes, 0.0, plan.n_total),
        centre_deviations=spread.centers,
        unsettled=spread.unsettled,
        expected=expect(plan),
    )


def _local_deviation(plan: Plan, place: int) -> float:
    """Return the standard deviation of the noise on a coordinate of an average local centre.

    Where noise is larger than features vary, the centre stays where the grid put it, and is as far off as that.
    """
    local = plan.local_plan(place)
    features = math.sqrt(PRIOR_VARIANCE)
    if local.method == SHORTENED:
        # The steps are weighed: together they are taken to be as good as one with half of their budget.
        radius = features * math.sqrt(local.d) * math.pow(local.clusters, -1.0 / local.d)
        noise = local.step_scale / math.sqrt(0.5 * STEPS) * radius * local.clusters / local.n
    else:
        noise = math.sqrt(2.0) * local.sum_scale / (1 << FRACTION_BITS) * local.clusters / local.n
    return min(noise, features)
