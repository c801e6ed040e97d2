"""Messages that have come to one party and wait to be asked for.

One queue per peer. What a peer may not send is refused when it comes; messages of rounds that are over are dropped;
anything else than what is asked for is its sender's fault.

Source: docs/protocol.md, "Frames" and "Dropout and late clients".
"""

from __future__ import annotations

import logging

from fastlloyd.errors import PeerError
from fastlloyd.party.declaration import MESSAGE_COST, MessageBounds
from fastlloyd.party.effects import Gather, Receive
from fastlloyd.wire.header import COMPARE_ROUND, FINAL_ROUND, SETUP_ROUND, Header, Message, PartyId, round_order

_log = logging.getLogger(__name__)


class Inbox:
    """The queues of one party.

    Parameters
    ----------
    bounds : MessageBounds, optional
        What each peer may send; None for anything.
    """

    def __init__(self, bounds: MessageBounds | None = None) -> None:
        self.bounds = bounds
        # Only of peers with messages here, and lists: a deque is 600 bytes, and M clients in one thread need M squared.
        self._queues: dict[PartyId, list[tuple[Header, bytes]]] = {}
        self._bytes: dict[PartyId, int] = {}

    def put(self, peer: PartyId, header: Header, body: bytes) -> None:
        """Put a message into the peer's queue.

        Raises
        ------
        PeerError
            The peer may not send it, or not yet.
        """
        waiting = self._bytes.get(peer, 0) + len(body) + MESSAGE_COST
        if self.bounds is not None:
            if refusal := self.bounds.refusal(header.type, len(body)):
                raise PeerError(f"{peer} sent {refusal}", rank=peer.rank)
            if waiting > self.bounds.ahead_bytes:
                raise PeerError(
                    f"{peer} sent more than {self.bounds.ahead_bytes} bytes ahead of time, expected it to wait",
                    rank=peer.rank,
                )
        self._bytes[peer] = waiting
        self._queues.setdefault(peer, []).append((header, body))

    def holds(self, sender: PartyId, effect: Receive | Gather) -> bool:
        """Whether the sender has a message here that is not of an earlier round or step; those are dropped."""
        asked = (round_order(effect.round), effect.step)
        while sender in self._queues:
            header, _ = self._queues[sender][0]
            if (round_order(header.round), header.step) >= asked:
                return True
            self._next(sender)
            _log.info("dropped a late message of type %d, round %d, from %s", header.type, header.round, sender)
        return False

    def take(self, sender: PartyId, effect: Receive | Gather) -> Message | None:
        """Decode the sender's next message, if there is one.

        Raises
        ------
        PeerError
            It is not the one asked for, or malformed.
        """
        if not self.holds(sender, effect):
            return None
        header, body = self._next(sender)
        if (header.type, header.round, header.step) != (effect.type.TYPE, effect.round, effect.step):
            raise PeerError(
                f"{sender} sent message type {header.type} of {_name(header.round)}, expected "
                f"{effect.type.__name__} of {_name(effect.round)}",
                rank=sender.rank,
            )
        try:
            message: Message = effect.type.read(body, effect.format)
        except ValueError as error:
            what = f"a malformed {effect.type.__name__}: {error}"
            raise PeerError(f"{sender} sent {what}; check its version", rank=sender.rank) from error
        return message

    def _next(self, sender: PartyId) -> tuple[Header, bytes]:
        """Take the first message out of a queue."""
        queue = self._queues[sender]
        header, body = queue.pop(0)
        self._bytes[sender] -= len(body) + MESSAGE_COST
        if not queue:
            del self._queues[sender], self._bytes[sender]
        return header, body


def _name(round_: int) -> str:
    names = {SETUP_ROUND: "the set-up", COMPARE_ROUND: "the comparison", FINAL_ROUND: "the final exchange"}
    return names.get(round_, f"round {round_}")
