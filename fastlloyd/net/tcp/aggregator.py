"""An aggregator: a server for the clients that join it, with one connection to the server of the run.

::

    clients 1 .. m                  aggregator                           server
      frames  <--- TLS, links --->    passes on, under each rank  <--- one TLS connection --->
      masked updates    -------->     adds them up                       -------->   one sum
                        <--------     hands down                         <--------   one reply for all

It terminates the clients' links with the server's key, so to a client it is the server. It passes every message on
without judging, awaiting or answering it. The updates of a round are the exception: it passes up their sum
(`net/link/sums.py`). It has no configuration, state or result. The server decides which clients are let in, and frames
between clients pass only between clients of the same aggregator.

Sees: what the server sees of these clients: public set-up, sealed parts, and masked updates, uniform on the ring.
Source: docs/protocol.md, "Aggregators".
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from fastlloyd.crypto.link.identity import Identity
from fastlloyd.errors import Aborted, PeerError, PeerGone
from fastlloyd.net.link.frame import FrameKind, Notice, StartDecision
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.link.sums import Added, Adder, Order, Up, encode_ranks, take_ranks
from fastlloyd.net.meter import Meter
from fastlloyd.net.tcp.admission import Admission, Guest, Introduction, Keys
from fastlloyd.net.tcp.delivery import NO_ID, Delivery
from fastlloyd.net.tcp.relay import RELAY_BYTES, Relay
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.net.tcp.transport import Connection
from fastlloyd.net.tcp.tree import (
    DOWNWARD,
    MOST_CONTROL_BYTES,
    UPWARD,
    TreeKind,
    decode_answer,
    decode_limit,
    encode_fault,
)
from fastlloyd.net.transport import MAX_FRAME_BYTES
from fastlloyd.wire.header import SERVER, PartyId

# Until the parent sends its limit, which is its first frame.
_FIRST_LIMIT = 1 << 16
_RANK_BYTES = 2
_RECORD = bytes([FrameKind.RECORD])
_TICK_S = 3600.0


class BranchTransport(Relay):
    """The transport of an aggregator: its peers are the clients, and `SERVER` stands for its parent.

    A frame of the parent is returned with its rank in front (`split`).

    Parameters
    ----------
    listeners : sequence of socket
    parent : Stream
        Connected and admitted as an aggregator.
    count : int
        Number of clients of the whole run.
    keys : Keys
    note, warn, stall_s
        As in `Relay`.
    joined_here : callable
        Called with the rank of each client that joins.
    offer : bytes
        The parent's offer, for clients that ask.
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
        """Bytes sent to the parent."""
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
        self._put(self._parent, rank, frame)

    def close_port(self) -> None:
        """Admit no more clients."""
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
            # Clients elsewhere are unknown here. Only a last notice is for one, and the server notifies all.
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
        """Ask the parent whether a client may join."""
        rank = hello.rank
        place = self._by_rank.get(rank)
        if rank == SERVER.rank:
            why = "it is an aggregator, whose parent can only be the server itself"
            self._refuse(guest, Admission.NO_AGGREGATORS, rank, why)
        elif hello.session != NO_ID or place is None or self._is_here(place) or place.gone or rank in self._asked:
            # There is no such place, it is taken, or the parent has not answered for it yet.
            if rank in self._asked:
                self._refuse_taken(guest, rank)
            else:
                super()._decide(guest, hello)
        else:
            self._let_in(guest)
            self._asked[rank] = guest
            self.send_up(rank, bytes([TreeKind.JOIN]))

    def _admit_asked(self, rank: int, answer: Admission) -> None:
        """Admit or refuse a client, as the parent has decided."""
        guest = self._asked.pop(rank, None)
        if guest is None:
            raise ValueError(f"it answers for {PartyId(rank)}, which did not ask to join")
        if answer is Admission.WELCOME:
            self._joined_here(rank)
            self._admit(self._by_rank[rank], guest.stream)
        else:
            self._refuse_taken(guest, rank)


def split(frame: bytes) -> tuple[int, bytes]:
    """Split a frame of the parent into its rank and the frame."""
    return int.from_bytes(frame[:_RANK_BYTES], "little"), frame[_RANK_BYTES:]


class Aggregator(SecureLinks):
    """The clients' links at an aggregator, and the traffic between them and the parent.

    Parameters
    ----------
    transport : BranchTransport
    adder : Adder
        Notified by the transport when a client joins.
    identity : Identity
        The server's.
    certificates : mapping from PartyId to DER bytes
        The clients', from the roster.
    clock : callable, optional
    """

    def __init__(
        self,
        transport: BranchTransport,
        adder: Adder,
        identity: Identity,
        certificates: Mapping[PartyId, bytes],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(transport, identity, certificates, Meter())
        self._branch = transport
        self._adder = adder
        self._clock = clock
        self._early: dict[PartyId, list[bytes]] = {}
        self._refused: set[PartyId] = set()
        self._done = False
        self._notice: Notice | None = None

    def run(self) -> None:
        """Pass frames on until the parent ends the connection.

        Raises
        ------
        Aborted
            The run failed; the server has named the party at fault.
        PeerError
            The parent was lost, or sent an unexpected frame.
        """
        try:
            while True:
                self.turn(_TICK_S)
        except PeerError as error:
            if self._done and isinstance(error, PeerGone):
                return
            if self._notice is not None:
                notice = self._notice
                raise Aborted(rank=notice.rank, reason=notice.reason, code=notice.code, by=notice.by) from error
            raise

    def turn(self, timeout_s: float) -> None:
        """Wait for one frame or for the deadline of a sum, and handle it."""
        deadline = self._adder.deadline_s
        if deadline is not None:
            timeout_s = min(timeout_s, max(0.0, deadline - self._clock()))
        try:
            arrival = self._transport.receive(timeout_s)
            if arrival is not None:
                self._take(*arrival)
        except PeerError as error:
            if error.rank == SERVER.rank:
                raise
            self._report(error)
        deadline = self._adder.deadline_s
        if deadline is not None and deadline <= self._clock():
            self._send_up(self._adder.close())

    def _take(self, peer: PartyId, frame: bytes) -> None:
        """Pass a frame up or down."""
        if peer == SERVER:
            try:
                self._take_down(*split(frame))
            except ValueError as error:
                text = f"the parent server sent an unexpected frame: {error}"
                raise PeerError(text, rank=SERVER.rank) from error
        elif peer not in self._refused or (frame and frame[0] not in (FrameKind.RECORD, FrameKind.HANDSHAKE)):
            super()._take(peer, frame)

    def _on_control(self, peer: PartyId, kind: int, body: bytes) -> None:
        """Pass a client's control frame up; the server reads it."""
        if kind not in UPWARD or len(body) >= MOST_CONTROL_BYTES:
            raise ValueError(f"kind {kind} with {len(body)} bytes is not expected from it now")
        self._branch.send_up(peer.rank, bytes([kind]) + body)

    def _deliver(self, peer: PartyId, message: bytes, link_bytes: int) -> None:
        """Handle an opened message; the first of a link is its confirmation, which the server compares."""
        if peer in self._received:
            self._send_up(self._adder.take(peer.rank, message))
        else:
            self._received[peer] = b""
            self._links[peer].max_message = self._max_message
            self._branch.send_up(peer.rank, _RECORD + message)

    def _advance(self, peer: PartyId) -> None:
        """Continue a handshake, and send what has waited for it."""
        link = self._link(peer)
        if not link.started:
            link.start()
            self._answer(peer, link)
        if link.established:
            for message in self._early.pop(peer, ()):
                self._put(peer, _RECORD + link.seal(message))

    def _take_down(self, rank: int, frame: bytes) -> None:
        """Pass a frame of the parent down; raise ValueError for an unexpected one."""
        kind, body = frame[0] if frame else 0, frame[1:]
        if rank != SERVER.rank:
            self._hand_down(rank, frame)
        elif kind == TreeKind.CAST:
            ranks, cast = take_ranks(body)
            for each in ranks:
                self._hand_down(each, cast)
        elif kind == TreeKind.ORDER:
            self._send_up(self._adder.order(Order.decode(body), self._clock()))
        else:
            raise ValueError(f"kind {kind} is not for an aggregator")

    def _hand_down(self, rank: int, frame: bytes) -> None:
        """Send one client a frame of the server."""
        peer, kind = PartyId(rank), frame[0] if frame else 0
        if peer not in self._linked or kind not in DOWNWARD:
            raise ValueError(f"kind {kind} for {peer} is not to be handed down")
        link = self._links.get(peer)
        if kind == FrameKind.RECORD and (link is None or not link.established):
            self._early.setdefault(peer, []).append(frame[1:])
            return
        if kind == FrameKind.RECORD and link is not None:
            frame = _RECORD + link.seal(frame[1:])
        elif kind != FrameKind.RECORD:
            self._note(kind, frame[1:])
        with contextlib.suppress(PeerGone):  # `receive` raises it too, and it is reported to the server
            self._put(peer, frame)

    def _note(self, kind: int, body: bytes) -> None:
        """Note how the run ends; after the verdict on the start no client can join."""
        count = len(self.peers) + 1
        self._done |= kind == FrameKind.DONE
        if kind == FrameKind.ABORT:
            self._notice = Notice.decode(body, count)
        elif kind == FrameKind.VERDICT:
            self._notice = StartDecision.decode(body, count).notice
            self._branch.close_port()

    def _report(self, error: PeerError) -> None:
        """Report a client's fault or loss to the parent."""
        peer = PartyId(error.rank)
        self._refused.add(peer)
        if isinstance(error, PeerGone):
            self.gone.add(peer)
            self._send_up(self._adder.lose(peer.rank))
        self._branch.send_up(peer.rank, encode_fault(error))

    def _send_up(self, ups: Iterable[Up]) -> None:
        """Send messages and sums up."""
        for up in ups:
            if isinstance(up, Added):
                self._branch.send_up(SERVER.rank, bytes([FrameKind.SUM]) + encode_ranks(up.ranks) + up.message)
            else:
                self._branch.send_up(up.rank, _RECORD + up.message)
