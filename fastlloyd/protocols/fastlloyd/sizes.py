"""The largest body of each message of FastLloyd, from its plan."""

from __future__ import annotations

from fastlloyd.lifecycle.sizes import plan_bounds, seed_sizes
from fastlloyd.party.message_bounds import MessageBounds
from fastlloyd.protocols.fastlloyd.messages import MaskedUpdate, NoisyMaskedSum
from fastlloyd.protocols.fastlloyd.plan import Plan


def bounds(plan: Plan) -> MessageBounds:
    """Return the bounds of what a peer may send once the plan is known."""
    vector = max(map(plan.elements, range(len(plan.rounds)))) * plan.ring_bits // 8
    sizes = {MaskedUpdate.TYPE: vector, NoisyMaskedSum.TYPE: vector + (plan.clients + 7) // 8}
    if plan.masking != "pairwise":
        sizes |= seed_sizes(plan.clients)
    return plan_bounds(sizes, clients=plan.clients)
