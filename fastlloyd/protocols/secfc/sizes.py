"""The largest body of each message of SecFC, from its plan."""

from __future__ import annotations

from fastlloyd.lifecycle.sizes import plan_bounds
from fastlloyd.party.message_bounds import MessageBounds
from fastlloyd.protocols.secfc.math.onion import TAG_BYTES, sealed_bytes
from fastlloyd.protocols.secfc.messages import CenterShares, CodedValues, Finished, Roll, Signs
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.protocols.secfc.setup_messages import DataShares, LayerPublicKey, SealedTags, Shared, Union
from fastlloyd.randomness.prg import KEY_BYTES

_NUMBER_BYTES = 8


def bounds(plan: Plan) -> MessageBounds:
    """Return the bounds of what a peer may send once the plan is known."""
    records, element, bitmap = sum(plan.sizes), plan.field.element_bytes, (plan.clients + 7) // 8
    sizes = {
        LayerPublicKey.TYPE: KEY_BYTES,
        SealedTags.TYPE: records * sealed_bytes(plan.clients),
        Union.TYPE: records * TAG_BYTES,
        DataShares.TYPE: _NUMBER_BYTES + min(plan.block_rows, records) * plan.width * element,
        Shared.TYPE: _NUMBER_BYTES,
        CodedValues.TYPE: 1 + plan.answer_values * element,
        Signs.TYPE: bitmap + (plan.answer_values + 7) // 8,
        Finished.TYPE: 0,
        Roll.TYPE: bitmap,
        CenterShares.TYPE: plan.k * plan.width * element,
    }
    return plan_bounds(sizes, clients=plan.clients)
