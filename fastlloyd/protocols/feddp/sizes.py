"""The largest body of each message of FedDP-KMeans, from its plan."""

from __future__ import annotations

from fastlloyd.lifecycle.sizes import plan_bounds
from fastlloyd.party.message_bounds import MessageBounds
from fastlloyd.protocols.feddp.messages import (
    CentersMessage,
    MaskedStatistic,
    ProjectedCentersMessage,
    ProjectionMessage,
)
from fastlloyd.protocols.feddp.plan import Plan

_INTEGER_BYTES = 4
_FLOAT_BYTES = 8
_COUNT_BYTES = 4


def bounds(plan: Plan) -> MessageBounds:
    """Return the bounds of what a peer may send once the plan is known."""
    statistics = (plan.elements(t) * plan.ring_of(t) // 8 for t in range(len(plan.rounds)))
    costs = plan.k if plan.choose_k else 0
    sizes = {
        MaskedStatistic.TYPE: max(statistics),
        ProjectionMessage.TYPE: _INTEGER_BYTES * plan.rank * (plan.d + plan.n_server),
        ProjectedCentersMessage.TYPE: _COUNT_BYTES + _INTEGER_BYTES * plan.k * plan.rank + _FLOAT_BYTES * costs,
        CentersMessage.TYPE: _COUNT_BYTES + _FLOAT_BYTES * plan.k * (plan.d + 1),
    }
    return plan_bounds(sizes, clients=plan.clients)
