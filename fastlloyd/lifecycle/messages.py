"""The messages of set-up and closing exchange, as parts of a protocol's list, and how much a peer may send.

A party knows the bounds before it reads a byte: those of the set-up are fixed, and those of the rounds follow from the
plan. A link refuses a longer frame when its length is announced, before it allocates memory. The driver refuses a
message that is too long for its type, and a peer that sends too much before it is asked.

Source: docs/security.md, "Memory that a peer can occupy".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.lifecycle.closing import Chains, Counters, Totals
from fastlloyd.lifecycle.hello import Go, Hello, PlanProposal, Ready
from fastlloyd.lifecycle.same_secret import EqualityProof, EqualityTag
from fastlloyd.lifecycle.sealed import SealedParts, SealedSeed, SealKey, SealKeys
from fastlloyd.lifecycle.shared_secrets import PairCiphertext, PairPublicKey, SeedConfirmation, SeedContribution
from fastlloyd.party.declaration import MessageBounds, Messages, common, kinds_of, largest_bodies, pairwise, seen_as
from fastlloyd.wire.header import PartyId

OPENING: Messages = (Hello, PlanProposal)
"""Who takes part, and the plan."""
READY: Messages = (Ready, Go)
"""The set-up is done."""
SEED: Messages = (
    seen_as(
        *(PairPublicKey, PairCiphertext, SeedContribution, SeedConfirmation),
        about="agree on the seed of the masks",
        others="a public key or ciphertext, a sealed part and tags each, hence the seed",
        variant="",
        when=common,
    ),
)
"""A common seed over the clients' own links."""
SEALED: Messages = (SealKey, SealedParts, SealKeys, SealedSeed)
"""A common seed through the server."""
PAIRS: Messages = (PairPublicKey, PairCiphertext, SeedConfirmation)
"""A secret for each pair of clients."""
EQUALITY: Messages = (EqualityTag, EqualityProof)
"""A comparison through the server, with common masks."""
COUNTED: Messages = (Counters, Totals)
CLOSING: Messages = (Chains, *COUNTED)
"""The closing exchange if the server does not have the result."""
CHAINS_OF_ALL = seen_as(
    Chains,
    variant="the server has the result",
    route="any pair",
    server="digests of what it sent, and of the result that it has",
)
CLOSING_OF_ALL: Messages = (CHAINS_OF_ALL, *COUNTED)
"""The same if the server has the result, too."""
CLOSING_OF_PAIRS: Messages = (seen_as(Chains, when=pairwise), *COUNTED)
"""The same if clients with common masks compare through the server (`EQUALITY`)."""

_SMALL_BYTES = 1 << 12


def setup_bounds(me: PartyId, sizes: Mapping[int, int] | None = None, ahead_bytes: int = 0) -> MessageBounds:
    """Return the bounds until the plan is known.

    Parameters
    ----------
    me : PartyId
    sizes : mapping from int to int, optional
        Further messages that a protocol sends before its plan.
    ahead_bytes : int
        As in `MessageBounds`.
    """
    # Another client may be a message or two ahead in its set-up; all of these are short.
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
        Everything that the protocol sends; messages that lead to the plan are left out.
    plan : object
        The message classes compute their largest sizes from it.
    facts : mapping, optional
        As in `kinds_of`.
    ahead_bytes : int
        As in `MessageBounds`.
    """
    kinds = (kind for kind in kinds_of(messages, facts) if not kind.LEADS_TO_PLAN)
    return MessageBounds(sizes=largest_bodies(kinds, plan), ahead_bytes=ahead_bytes)
