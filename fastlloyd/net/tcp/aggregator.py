"""An aggregator: a server to the clients that join it, and one connection to the server of the run.

::

    clients 1 .. m                  aggregator                           server
      frames  <--- TLS, links --->    passes on, under each one's rank  <--- one TLS connection --->
      masked updates    -------->     adds them up                       -------->   one sum
                        <--------     hands down                         <--------   one reply for all

It ends the clients' links with the server's key, so to a client it is the server, and passes every message on: it
judges none, waits for none and answers none. The exception are the updates of a round, of which it hands up the sum
(`net/link/sums.py`). It has no configuration, no state and no result of its own.

Sees: what the server sees of these clients: public set-up, sealed parts, and masked updates, uniform on the ring.
Source: docs/protocol.md, "Aggregators".
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping

from fastlloyd.crypto.link.identity import Identity
from fastlloyd.errors import Aborted, PeerError, PeerGone
from fastlloyd.net.link.frame import FrameKind, Notice, StartDecision
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.link.sums import Added, Adder, Order, Up, encode_ranks, take_ranks
from fastlloyd.net.meter import Meter
from fastlloyd.net.tcp.branch import BranchTransport, split
from fastlloyd.net.tcp.tree import DOWNWARD, MOST_CONTROL_BYTES, UPWARD, TreeKind, encode_fault
from fastlloyd.wire.header import SERVER, PartyId

_RECORD = bytes([FrameKind.RECORD])
_TICK_S = 3600.0


class Aggregator(SecureLinks):
    """The clients' links at an aggregator, and what passes between them and the parent.

    Parameters
    ----------
    transport : BranchTransport
    adder : Adder
        Told by the transport who joins.
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
        """Pass on until the parent ends the connection.

        Raises
        ------
        Aborted
            The run failed; whose fault it was, as the server has said.
        PeerError
            The parent was lost, or sent what does not belong here.
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
        """Wait for one frame, or for the end of a sum's time, and deal with it."""
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
        """Pass a frame on, up or down."""
        if peer == SERVER:
            try:
                self._take_down(*split(frame))
            except ValueError as error:
                text = f"the parent server sent a frame that does not belong here: {error}"
                raise PeerError(text, rank=SERVER.rank) from error
        elif peer not in self._refused or (frame and frame[0] not in (FrameKind.RECORD, FrameKind.HANDSHAKE)):
            super()._take(peer, frame)

    def _on_control(self, peer: PartyId, kind: int, body: bytes) -> None:
        """Pass a client's control frame up; the server reads it."""
        if kind not in UPWARD or len(body) >= MOST_CONTROL_BYTES:
            raise ValueError(f"kind {kind} with {len(body)} bytes is not expected from it now")
        self._branch.send_up(peer.rank, bytes([kind]) + body)

    def _deliver(self, peer: PartyId, message: bytes, link_bytes: int) -> None:
        """Take in an opened message; the first of a link is its confirmation, which the server compares."""
        if peer in self._heard:
            self._send_up(self._adder.take(peer.rank, message))
        else:
            self._heard[peer] = b""
            self._links[peer].max_message = self._max_message
            self._branch.send_up(peer.rank, _RECORD + message)

    def _advance(self, peer: PartyId) -> None:
        """Carry a handshake on, and send what has waited for it."""
        link = self._link(peer)
        if not link.started:
            link.start()
            self._answer(peer, link)
        if link.established:
            for message in self._early.pop(peer, ()):
                self._put(peer, _RECORD + link.seal(message))

    def _take_down(self, rank: int, frame: bytes) -> None:
        """Hand down what the parent sent; ValueError for what does not belong here."""
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
        """Send one client what the server has for it."""
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
        with contextlib.suppress(PeerGone):  # `receive` says so, and the server hears of it
            self._put(peer, frame)

    def _note(self, kind: int, body: bytes) -> None:
        """Note how the run ends; after the verdict on the start nobody else can join."""
        count = len(self.peers) + 1
        self._done |= kind == FrameKind.DONE
        if kind == FrameKind.ABORT:
            self._notice = Notice.decode(body, count)
        elif kind == FrameKind.VERDICT:
            self._notice = StartDecision.decode(body, count).notice
            self._branch.close_port()

    def _report(self, error: PeerError) -> None:
        """Tell the parent what a client did, or that it is gone."""
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
