"""The largest messages of the set-up and of the closing exchange.

A party knows these numbers before it reads a byte: of the set-up they are fixed, of the rounds they follow from the
plan. A link refuses a longer frame when its length is announced, before memory is set aside for it; the driver
refuses a longer message of its type, and a peer that sends too much before it is asked.

Each protocol's `sizes.py` gives its own numbers.

Source: docs/security.md, "What a peer can make this party hold".
"""

from __future__ import annotations

from collections.abc import Mapping

from fastlloyd.lifecycle.closing import MOST_CHAINS_BYTES, THINGS, Chains, Counters, Totals
from fastlloyd.lifecycle.hello import Go, Hello, PlanProposal, Ready
from fastlloyd.lifecycle.pairs import PairPublicKey
from fastlloyd.lifecycle.same_secret import TAG_BYTES, AlikeProof, AlikeTag, proof_bytes
from fastlloyd.lifecycle.sealed_messages import (
    CONTRIBUTORS,
    SEAL_KEY_BYTES,
    SEALED_SEED_BYTES,
    SealedParts,
    SealedSeed,
    SealKey,
    SealKeys,
    sealed_parts_bytes,
)
from fastlloyd.lifecycle.seed import SeedConfirmation, SeedContribution
from fastlloyd.party.message_bounds import MessageBounds
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.wire.header import PartyId

_SMALL_BYTES = 1 << 12
_COUNTERS_BYTES = 1 << 14
_AGREEMENT = dict.fromkeys((SeedContribution.TYPE, SeedConfirmation.TYPE, PairPublicKey.TYPE), KEY_BYTES)


def seed_sizes(clients: int) -> dict[int, int]:
    """Return the largest body of each message with which clients agree and compare through the server."""
    return {
        SealKey.TYPE: SEAL_KEY_BYTES,
        SealKeys.TYPE: SEAL_KEY_BYTES * clients,
        SealedParts.TYPE: sealed_parts_bytes(clients),
        SealedSeed.TYPE: SEALED_SEED_BYTES * CONTRIBUTORS,
        AlikeTag.TYPE: TAG_BYTES * THINGS,
        AlikeProof.TYPE: proof_bytes(clients, THINGS),
    }


def setup_bounds(me: PartyId, sizes: Mapping[int, int] | None = None) -> MessageBounds:
    """Return the bounds until the plan is known.

    Parameters
    ----------
    me : PartyId
    sizes : mapping from int to int, optional
        What a protocol sends before its plan, besides.
    """
    opening = Hello if me.is_server else PlanProposal
    # Another client may be ahead with its set-up by a message or two; all of these are short.
    fixed = {opening.TYPE: opening.MOST_BYTES, **_AGREEMENT}
    return MessageBounds(sizes={**fixed, **(sizes or {})}, other_bytes=_SMALL_BYTES)


def plan_bounds(sizes: Mapping[int, int], *, clients: int, ahead_bytes: int = 0) -> MessageBounds:
    """Return the bounds from the plan to the end.

    Parameters
    ----------
    sizes : mapping from int to int
        Of the protocol's own messages.
    clients : int
    ahead_bytes : int
        As in `MessageBounds`.
    """
    signals = dict.fromkeys((Ready.TYPE, Go.TYPE), _SMALL_BYTES)
    final = {
        Chains.TYPE: MOST_CHAINS_BYTES,
        Counters.TYPE: _COUNTERS_BYTES,
        Totals.TYPE: _COUNTERS_BYTES * (clients + 1),
    }
    return MessageBounds(sizes={**_AGREEMENT, **signals, **final, **sizes}, ahead_bytes=ahead_bytes)
