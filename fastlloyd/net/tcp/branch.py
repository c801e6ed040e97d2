"""An aggregator's connections: its clients', as a server has them, and one to its parent.

The parent decides who is let in; frames between clients are for nobody but clients of the same aggregator.

Source: docs/protocol.md, "Aggregators".
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

from fastlloyd.errors import PeerGone
from fastlloyd.net.tcp.admission import Admission, Guest, Introduction, Keys, Welcome
from fastlloyd.net.tcp.delivery import NO_ID, Delivery
from fastlloyd.net.tcp.relay import RELAY_BYTES, Relay
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.net.tcp.transport import Connection
from fastlloyd.net.tcp.tree import TreeKind, decode_answer, decode_limit
from fastlloyd.net.transport import MAX_FRAME_BYTES
from fastlloyd.wire.header import SERVER, PartyId

# Until the parent says what clients may send; it does so first.
_FIRST_LIMIT = 1 << 16
_RANK_BYTES = 2


class BranchTransport(Relay):
    """The transport of an aggregator: its peers are the clients, and `SERVER` stands for its parent.

    A frame that the parent sent is given out with the rank that it came under before it (`split`).

    Parameters
    ----------
    listeners : sequence of socket
    parent : Stream
        Connected, and let in as an aggregator.
    count : int
        Number of clients of the whole run.
    keys : Keys
    note, warn, stall_s
        As in `Relay`.
    joined_here : callable
        Told the rank of each client that comes in.
    offer : bytes
        What the parent offers, for clients that ask.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        parent: Stream,
        count: int,
        *,
        keys: Keys,
        note: Callable[[str], None],
        warn: Callable[[str], None],
        joined_here: Callable[[int], None],
        stall_s: float,
        offer: bytes = b"",
    ) -> None:
        super().__init__(listeners, count, keys=keys, note=note, warn=warn, stall_s=stall_s, offer=offer)
        self.most_frame = _FIRST_LIMIT
        self._joined_here = joined_here
        self._parent = Connection(SERVER, parent, Delivery(0))
        self._asked: dict[int, Guest] = {}
        self._sort(self._parent)

    @property
    def sent_up_bytes(self) -> int:
        """How much has gone to the parent."""
        return 0 if self._parent.stream is None else self._parent.stream.moved_bytes

    def send_up(self, rank: int, frame: bytes) -> None:
        """Send the parent a frame under a client's rank, or under 0.

        Raises
        ------
        PeerGone
            It is known to be gone.
        """
        self._require_open()
        stream = self._parent.stream
        if self._parent.gone or stream is None or stream.broken:
            raise PeerGone("the parent server is gone: its connection ended", rank=SERVER.rank)
        self._parent.put(rank, frame)
        self._watch(stream, self._parent, reading=self._parent.open)

    def close_port(self) -> None:
        """Let nobody in any more."""
        self._close_port()

    def _places(self) -> list[Connection]:
        return [*super()._places(), self._parent]

    def _limit(self, place: Connection) -> int:
        return MAX_FRAME_BYTES if place is self._parent else super()._limit(place)

    def _route(self, place: Connection, rank: int, frame: bytes) -> None:
        if place is not self._parent:
            target = self._by_rank.get(rank)
            if rank == SERVER.rank and self._parent.backlog > RELAY_BYTES:
                place.held, place.since = (self._parent, frame), time.monotonic()
                self._holding.append(place)
            # Of clients elsewhere it knows none; only a last notice is for one, and the server tells all.
            elif rank == SERVER.rank or target is None or target.stream is not None:
                super()._route(place, rank, frame)
            return
        kind = frame[0] if frame else 0
        if kind == TreeKind.ANSWER:
            self._admit_asked(rank, decode_answer(frame[1:]))
        elif kind == TreeKind.LIMIT and rank == SERVER.rank:
            self.most_frame = decode_limit(frame[1:])
        else:
            self._keep(place, SERVER, rank.to_bytes(_RANK_BYTES, "little") + frame)

    def _relay(self, source: Connection, target: Connection, frame: bytes) -> None:
        if target is self._parent:
            self._keep(source, source.party, frame)
        else:
            super()._relay(source, target, frame)

    def _decide(self, guest: Guest, hello: Introduction) -> None:
        """Ask the parent whether a client may come in."""
        rank = hello.rank
        place, parties = self._by_rank.get(rank), len(self.peers) + 1
        if rank == SERVER.rank:
            guest.refuse(Welcome(Admission.NO_AGGREGATORS, rank, parties))
            self._dismiss(guest, "it is an aggregator, whose parent can only be the server itself")
        elif hello.session != NO_ID or place is None or self._is_here(place) or place.gone or rank in self._asked:
            # There is no such place, or it is taken; of those asked about the parent has not said so yet.
            if rank in self._asked:
                self._refuse_taken(guest, rank)
            else:
                super()._decide(guest, hello)
        else:
            self._let_in(guest)
            self._asked[rank] = guest
            self.send_up(rank, bytes([TreeKind.JOIN]))

    def _admit_asked(self, rank: int, answer: Admission) -> None:
        """Let a client in, or send it away, as the parent has decided."""
        guest = self._asked.pop(rank, None)
        if guest is None:
            raise ValueError(f"it answers for {PartyId(rank)}, for whom nobody asked")
        if answer is Admission.WELCOME:
            self._joined_here(rank)
            self._admit(self._by_rank[rank], guest.stream)
        else:
            self._refuse_taken(guest, rank)

    def _refuse_taken(self, guest: Guest, rank: int) -> None:
        guest.refuse(Welcome(Admission.TAKEN, rank, len(self.peers) + 1))
        self._dismiss(guest, f"it comes as {PartyId(rank)}, who has joined already")


def split(frame: bytes) -> tuple[int, bytes]:
    """Part a frame of the parent from the rank it came under."""
    return int.from_bytes(frame[:_RANK_BYTES], "little"), frame[_RANK_BYTES:]
