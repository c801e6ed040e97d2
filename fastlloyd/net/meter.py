"""Counts what one party sends and receives, at the one place that writes.

Payload is ring or field elements and ciphertexts only; link bytes are what leaves for the transport
(message headers, TLS records, handshakes). Counts are kept per peer, direction and round; set-up and
the closing exchange have their own round numbers (`SETUP_ROUND`, `FINAL_ROUND`).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fastlloyd.net.sockets import WireBytes
from fastlloyd.wire.header import SETUP_ROUND, PartyId


@dataclass(slots=True)
class Count:
    """Messages, payload bytes and link bytes."""

    messages: int = 0
    payload_bytes: int = 0
    link_bytes: int = 0

    def add(self, messages: int, payload_bytes: int, link_bytes: int) -> None:
        """Add to all three."""
        self.messages += messages
        self.payload_bytes += payload_bytes
        self.link_bytes += link_bytes


def _nothing(ahead: Sequence[int]) -> WireBytes | None:
    return None


@dataclass(slots=True)
class Meter:
    """The traffic of one party.

    Attributes
    ----------
    wire : callable
        As `Transport.wire`.
    sent, received : dict from (peer, round) to Count
    """

    wire: Callable[[Sequence[int]], WireBytes | None] = _nothing
    sent: dict[tuple[PartyId, int], Count] = field(default_factory=lambda: defaultdict(Count))
    received: dict[tuple[PartyId, int], Count] = field(default_factory=lambda: defaultdict(Count))

    def total_sent(self) -> Count:
        """Sum everything that was sent, including set-up and closing exchange."""
        return _sum(self.sent.values())

    def setup_sent(self) -> Count:
        """Sum everything that was sent before round 0."""
        return _sum(count for (_, round_), count in self.sent.items() if round_ == SETUP_ROUND)

    def of_rounds(self, peers: Iterable[PartyId], rounds: Iterable[int]) -> tuple[Count, Count]:
        """Sum the messages of some rounds that were sent to some peers and received from them."""
        keys = list(itertools.product(peers, rounds))
        return _some(self.sent, keys), _some(self.received, keys)


def _some(counts: dict[tuple[PartyId, int], Count], keys: Iterable[tuple[PartyId, int]]) -> Count:
    return _sum(counts[key] for key in keys if key in counts)


def _sum(counts: Iterable[Count]) -> Count:
    total = Count()
    for count in counts:
        total.add(count.messages, count.payload_bytes, count.link_bytes)
    return total
