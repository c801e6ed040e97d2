"""How much a peer may send: the largest body of each type of message, and how much of it ahead of time.

A party knows these numbers before it reads a byte: of the set-up they are fixed, of the rounds they follow from the
plan. A link refuses a longer frame when its length is announced, before memory is set aside for it; the driver
refuses a longer message of its type, and a peer that sends too much before it is asked.

Each protocol's `sizes.py` gives its own numbers.

Source: docs/security.md, "What a peer can make this party hold".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fastlloyd.life.farewell import MOST_CHAINS_BYTES, Chains, Counters, Totals
from fastlloyd.life.hello import Go, Hello, PlanProposal, Ready
from fastlloyd.life.pairs import PairPublicKey
from fastlloyd.life.seed import SeedConfirmation, SeedContribution
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.wire.header import PartyId

MESSAGE_COST = 512
"""Bytes that a message takes while it waits, besides its body."""

_SMALL_BYTES = 1 << 12
_ROOM_BYTES = 1 << 16
_COUNTERS_BYTES = 1 << 14
_AGREEMENT = dict.fromkeys((SeedContribution.TYPE, SeedConfirmation.TYPE, PairPublicKey.TYPE), KEY_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What each peer may send from now on.

    Attributes
    ----------
    sizes : mapping from int to int
        Message type to the bytes of its largest body.
    other_bytes : int
        The same for every type that is not listed; 0 refuses them.
    ahead_bytes : int
        How much of one peer may wait here until this party asks for it. By default two of the largest messages, for
        no protocol but those that say so lets a party send more before it has an answer.
    """

    sizes: Mapping[int, int]
    other_bytes: int = 0
    ahead_bytes: int = field(default=0)

    def __post_init__(self) -> None:
        least = 2 * self.largest + _ROOM_BYTES
        object.__setattr__(self, "ahead_bytes", max(self.ahead_bytes, least))

    @property
    def largest(self) -> int:
        """Bytes of the longest body of any type."""
        return max(self.other_bytes, *self.sizes.values())

    def refusal(self, kind: int, size: int) -> str:
        """Say why a body of `size` bytes does not do; nothing if it does."""
        most = self.sizes.get(kind, self.other_bytes)
        if size <= most and (most or kind in self.sizes):
            return ""
        if kind not in self.sizes and not self.other_bytes:
            return f"a message of type {kind}, which has no place in this part of the run"
        return f"{size} bytes as a message of type {kind}, expected at most {most}"


def setup_bounds(me: PartyId, sizes: Mapping[int, int] | None = None) -> Bounds:
    """Give the bounds until the plan is known.

    Parameters
    ----------
    me : PartyId
    sizes : mapping from int to int, optional
        What a protocol sends before its plan, besides.
    """
    opening = Hello if me.is_server else PlanProposal
    # Another client may be ahead with its set-up by a message or two; all of these are short.
    fixed = {opening.TYPE: opening.MOST_BYTES, **_AGREEMENT}
    return Bounds(sizes={**fixed, **(sizes or {})}, other_bytes=_SMALL_BYTES)


def plan_bounds(sizes: Mapping[int, int], *, clients: int, ahead_bytes: int = 0) -> Bounds:
    """Give the bounds from the plan to the end.

    Parameters
    ----------
    sizes : mapping from int to int
        Of the protocol's own messages.
    clients : int
    ahead_bytes : int
        As in `Bounds`.
    """
    signals = dict.fromkeys((Ready.TYPE, Go.TYPE), _SMALL_BYTES)
    final = {
        Chains.TYPE: MOST_CHAINS_BYTES,
        Counters.TYPE: _COUNTERS_BYTES,
        Totals.TYPE: _COUNTERS_BYTES * (clients + 1),
    }
    return Bounds(sizes={**_AGREEMENT, **signals, **final, **sizes}, ahead_bytes=ahead_bytes)
