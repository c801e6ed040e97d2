"""The largest body of each message of vertical-he, from its plan."""

from __future__ import annotations

from collections.abc import Mapping

from fastlloyd.lifecycle.align.sizes import align_sizes
from fastlloyd.lifecycle.sizes import plan_bounds
from fastlloyd.party.message_bounds import MessageBounds
from fastlloyd.protocols.vertical_he.frame import block_format, key_bytes, parts_bytes, sums_bytes
from fastlloyd.protocols.vertical_he.messages import (
    EncryptedBlock,
    KeyContribution,
    KeyMaterial,
    KeyPiece,
    NoisySamples,
    NoisySums,
    PartialOpenings,
    Present,
)
from fastlloyd.protocols.vertical_he.plan import Plan

_INTEGER_BYTES = 8
# A public key of the largest ring and modulus that any plan may choose. It is sent as soon as its sender has the plan,
# which may be before its receiver has it.
_MOST_PUBLIC_KEY_BYTES = 1 << 24


def early_sizes(n_total: int) -> Mapping[int, int]:
    """Return the bounds of what may come before the plan, for at most `n_total` records."""
    return {**align_sizes(n_total), KeyMaterial.TYPE: _MOST_PUBLIC_KEY_BYTES}


def bounds(plan: Plan) -> MessageBounds:
    """Return the bounds of what a peer may send once the plan is known.

    Notes
    -----
    An owner sends pieces of the key and all its encrypted blocks without an answer, so all of them may wait here.
    """
    keys = key_bytes(plan)
    block = max(block_format(plan, rank).total for rank in plan.encrypting)
    piece = plan.scales.ring + _INTEGER_BYTES * plan.rounds * plan.outputs
    pieces = len(plan.held(plan.openers[0])) if plan.openers else 0
    sizes = {
        KeyMaterial.TYPE: keys,
        KeyContribution.TYPE: keys,
        EncryptedBlock.TYPE: block,
        NoisySamples.TYPE: sums_bytes(plan),
        KeyPiece.TYPE: piece,
        PartialOpenings.TYPE: parts_bytes(plan),
        Present.TYPE: plan.parties // 8 + 1,
        NoisySums.TYPE: _INTEGER_BYTES * plan.outputs,
    }
    ahead = keys + pieces * piece + (plan.blocks + 1) * block
    return plan_bounds(sizes, clients=plan.parties - 1, ahead_bytes=ahead)
