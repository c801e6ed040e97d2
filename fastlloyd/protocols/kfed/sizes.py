"""The largest body of each message of k-FED, from its plan."""

from __future__ import annotations

from fastlloyd.lifecycle.sizes import plan_bounds
from fastlloyd.party.message_bounds import MessageBounds
from fastlloyd.protocols.kfed.messages import LocalCenters, MergedCenters
from fastlloyd.protocols.kfed.plan import Plan

_FLOAT_BYTES = 8


def bounds(plan: Plan) -> MessageBounds:
    """Return the bounds of what a peer may send once the plan is known."""
    merged = _FLOAT_BYTES * plan.k * plan.d + (plan.clients + 7) // 8
    sizes = {LocalCenters.TYPE: _FLOAT_BYTES * plan.most_elements, MergedCenters.TYPE: merged}
    return plan_bounds(sizes, clients=plan.clients)
