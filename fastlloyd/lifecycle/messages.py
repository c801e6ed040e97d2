"""The messages of set-up and closing exchange, as parts of a protocol's list, and how much a peer may send.

A party knows the bounds before it reads a byte: of the set-up they are fixed, of the rounds they follow from the plan.
A link refuses a longer frame when its length is announced, before memory is set aside for it; the driver
refuses a longer message of its type, and a peer that sends too much before it is asked.

Source: docs/security.md, "Memory that a peer can occupy".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.lifecycle.closing import Chains, Counters, Totals
from fastlloyd.lifecycle.hello import Hello, PlanProposal, Ready
from fastlloyd.lifecycle.pairs import PairPublicKey
from fastlloyd.lifecycle.same_secret import AlikeProof, AlikeTag
from fastlloyd.lifecycle.sealed import SealedParts, SealedSeed, SealKey, SealKeys
from fastlloyd.lifecycle.seed import SeedConfirmation, SeedContribution
from fastlloyd.party.declaration import Messages, kinds_of, largest_bodies, pairwise, seen_as
from fastlloyd.party.message_bounds import MessageBounds
from fastlloyd.wire.header import PartyId

OPENING: Messages = (Hello, PlanProposal)
"""Who is there, and the plan."""
READY: Messages = (Ready,)
"""The set-up is done."""
SEED: Messages = (SeedContribution, SeedConfirmation)
"""A common seed over the clients' own links."""
SEALED: Messages = (SealKey, SealedParts, SealKeys, SealedSeed)
"""A common seed through the server."""
PAIRS: Messages = (PairPublicKey, SeedConfirmation)
"""A secret for each pair of clients."""
ALIKE: Messages = (AlikeTag, AlikeProof)
"""A comparison through the server, with common masks."""
COUNTED: Messages = (Counters, Totals)
CLOSING: Messages = (Chains, *COUNTED)
"""The closing exchange, where the server does not have the result."""
CHAINS_OF_ALL = seen_as(
    Chains,
    variant="the server has the result",
    route="any pair",
    server="digests of what it sent, and of the result that it has",
)
CLOSING_OF_ALL: Messages = (CHAINS_OF_ALL, *COUNTED)
"""The same where the server has the result, too."""
CLOSING_OF_PAIRS: Messages = (seen_as(Chains, when=pairwise), *COUNTED)
"""The same where clients with common masks compare through the server (`ALIKE`)."""

_SMALL_BYTES = 1 << 12


def setup_bounds(me: PartyId, sizes: Mapping[int, int] | None = None, ahead_bytes: int = 0) -> MessageBounds:
    """Return the bounds until the plan is known.

    Parameters
    ----------
    me : PartyId
    sizes : mapping from int to int, optional
        What a protocol sends before its plan, besides.
    ahead_bytes : int
        As in `MessageBounds`.
    """
    # Another client may be ahead with its set-up by a message or two; all of these are short.
    early = (Hello if me.is_server else PlanProposal, *kinds_of((*SEED, *PAIRS)))
    fixed = largest_bodies(early, None)
    return MessageBounds(sizes={**fixed, **(sizes or {})}, other_bytes=_SMALL_BYTES, ahead_bytes=ahead_bytes)


def plan_bounds(
    messages: Messages, plan: Any, *, facts: Mapping[str, Any] | None = None, ahead_bytes: int = 0
) -> MessageBounds:
    """Return the bounds from the plan to the end.

    Parameters
    ----------
    messages : tuple
        All that the protocol sends; what leads to the plan is left out.
    plan : object
        What the message classes compute their largest sizes from.
    facts : mapping, optional
        As in `kinds_of`.
    ahead_bytes : int
        As in `MessageBounds`.
    """
    kinds = (kind for kind in kinds_of(messages, facts) if not kind.LEADS_TO_PLAN)
    return MessageBounds(sizes=largest_bodies(kinds, plan), ahead_bytes=ahead_bytes)
