"""The largest body of each message of vertical-dp, from its plan."""

from __future__ import annotations

from fastlloyd.lifecycle.align.sizes import align_sizes
from fastlloyd.lifecycle.sizes import plan_bounds
from fastlloyd.party.message_bounds import MessageBounds
from fastlloyd.protocols.vertical_dp.client import result_format, synopsis_format
from fastlloyd.protocols.vertical_dp.messages import FinalResult, Synopsis
from fastlloyd.protocols.vertical_dp.plan import Plan

_FLOAT_BYTES = 8


def bounds(plan: Plan) -> MessageBounds:
    """Return the bounds of what a peer may send once the plan is known."""
    formats = (synopsis_format(plan, place) for place in range(plan.clients))
    sizes = {
        Synopsis.TYPE: max(form.fixed_bytes + form.users for form in formats),
        FinalResult.TYPE: _FLOAT_BYTES * result_format(plan).elements,
    }
    return plan_bounds({**align_sizes(plan.n_total), **sizes}, clients=plan.clients)
