"""The server's end of TCP: clients that connect directly (`net/tcp/relay.py`), and those behind aggregators.

An aggregator (`net/tcp/aggregator.py`) has one connection for all its clients: a `Branch`. It carries the frames of its
clients, each under its rank; a frame that several of them get is sent once.

`net/tcp/door.py` admits clients. Once all have joined, the port is closed, unless clients may reconnect.

Source: docs/protocol.md, "Aggregators".
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastlloyd.errors import PeerError, PeerGone, Reason
from fastlloyd.net.link.frame import FrameKind
from fastlloyd.net.link.sums import encode_ranks, ranks_bytes, take_ranks
from fastlloyd.net.sockets import SocketCount, WireBytes, interface_bytes, seen_headers
from fastlloyd.net.tcp.admission import Admission, Guest, Introduction, Welcome
from fastlloyd.net.tcp.delivery import ASKS, Delivery
from fastlloyd.net.tcp.relay import RELAY_BYTES, Relay
from fastlloyd.net.tcp.stream import HEADER_BYTES
from fastlloyd.net.tcp.transport import WAITING_BYTES, Connection
from fastlloyd.net.tcp.tree import UPWARD, TreeKind, decode_fault, encode_answer, encode_limit
from fastlloyd.net.transport import MAX_FRAME_BYTES
from fastlloyd.wire.header import MAX_CLIENTS, SERVER, PartyId

_TLS_RECORD_BYTES = 22
_LAST_SEGMENTS = 3
_LIST_BYTES = ranks_bytes(MAX_CLIENTS)


@dataclass(slots=True, eq=False)
class Branch(Connection):
    """The connection of an aggregator.

    Attributes
    ----------
    name : str
        Its address.
    frame : bytes
        A frame that is held back because the next client may get the same.
    ranks : set of int
        Its receivers.
    """

    name: str = ""
    frame: bytes = b""
    ranks: set[int] = field(default_factory=set)

    def __str__(self) -> str:
        return f"the aggregator at {self.name}"


class TcpServer(Relay):
    """The server's transport; clients and aggregators may join as long as `receive` is called.

    Parameters
    ----------
    listeners, count
        As for `Relay`; the same for the rest.
    adds_up : bool
        Whether aggregators may join: the clients' updates can be added up on the way, and no client has a link to
        another.

    Raises
    ------
    ConfigError
        As for `Relay`.
    """

    def __init__(self, listeners: Sequence[socket.socket], count: int, *, adds_up: bool = False, **rest: Any) -> None:
        self._branches: list[Branch] = []
        self._moved_before = sum(interface_bytes())
        self._most_frame = MAX_FRAME_BYTES
        super().__init__(listeners, count, **rest)
        self._adds_up = adds_up
        self._behind: dict[int, Branch] = {}

    @property
    def most_frame(self) -> int:
        """The longest frame that a client may send; aggregators receive it."""
        return self._most_frame

    @most_frame.setter
    def most_frame(self, most_frame: int) -> None:
        self._most_frame = most_frame
        for branch in self._branches:
            self._put_down(branch, SERVER.rank, encode_limit(most_frame))

    def opens(self, peer: PartyId) -> bool:
        """Whether an aggregator has opened the peer's link."""
        return peer.rank in self._behind

    def order(self, order: bytes) -> None:
        """Order the aggregators to add up messages."""
        for branch in self._branches:
            self._put_down(branch, SERVER.rank, bytes([TreeKind.ORDER]) + order)

    def flush(self) -> None:
        """Send frames that are held back because several clients of one aggregator might get them."""
        for branch in self._branches:
            self._release_cast(branch)

    def send(self, peer: PartyId, frame: bytes | bytearray | memoryview) -> None:
        """Queue a frame for a client as `Relay.send` does, or for its aggregator."""
        branch = self._behind.get(peer.rank)
        if branch is None:
            super().send(peer, frame)
        else:
            self._send_through(branch, self._by_rank[peer.rank], bytes(frame))

    def wire(self, ahead: Sequence[int] = ()) -> WireBytes | None:
        """Count the bytes of all parties, which all pass the server; None with aggregators."""
        streams = [place.stream for place in self._places() if place.stream is not None]
        counts = [self._past, *(stream.count() for stream in streams)]
        known = [each for each in counts if each is not None]
        if self._branches or len(known) < len(counts):
            return None
        total = sum(known, SocketCount())
        tls = self._past_tls_bytes + sum(stream.tls_bytes for stream in streams)
        # Of each client one more frame, and the END of each side.
        rest = [*ahead, *(1, 1, 1) * len(streams)]
        rest_tls = 0 if self._keys is None else _TLS_RECORD_BYTES * len(rest)
        segments = 2 * len(rest) + _LAST_SEGMENTS * len(streams)
        stream_bytes, headers = total.sent + total.received, total.headers_sent + total.headers_received
        if not total.local:
            moved = sum(interface_bytes()) - self._moved_before
            headers = seen_headers(headers, total.spared_sent + total.spared_received, stream_bytes, moved)
        return WireBytes(
            stream_bytes=stream_bytes + sum(rest) + HEADER_BYTES * len(rest) + rest_tls,
            outer_tls_bytes=max(0, tls + rest_tls),
            tcp_ip_bytes=headers + total.header * segments,
            whole=True,
        )

    def close(self, *, lost: bool = False) -> None:
        """Send held-back frames, then close as `Door` does."""
        if not self._closed:
            self.flush()
        super().close(lost=lost)

    def _places(self) -> list[Connection]:
        return [*super()._places(), *self._branches]

    def _is_here(self, place: Connection) -> bool:
        return super()._is_here(place) or place.party.rank in self._behind

    def _limit(self, place: Connection) -> int:
        # A sum names its clients before the message.
        return min(self.most_frame + _LIST_BYTES, MAX_FRAME_BYTES) if isinstance(place, Branch) else self.most_frame

    def _sender(self, place: Connection, rank: int) -> PartyId:
        return PartyId(rank) if isinstance(place, Branch) and rank in self._by_rank else place.party

    def _pump(self, timeout_s: float) -> None:
        self.flush()
        super()._pump(timeout_s)

    def _send_through(self, branch: Branch, place: Connection, frame: bytes) -> None:
        """Hold a frame for a client back until a different one follows for the same aggregator."""
        self._require_open()
        self.check_send(place.party, len(frame))
        if branch.backlog > WAITING_BYTES:
            text = f"{branch} left {branch.backlog} bytes unread"
            self._lose(branch, PeerGone(text, rank=SERVER.rank))
        if place.gone or branch.gone:
            raise PeerGone(f"{place.party}, behind the aggregator at {branch.name}, is gone", rank=place.party.rank)
        if branch.frame != frame or place.party.rank in branch.ranks:
            self._release_cast(branch)
            branch.frame = frame
        branch.ranks.add(place.party.rank)

    def _release_cast(self, branch: Branch) -> None:
        """Send the held-back frame: unchanged for one client, with a list for several."""
        frame, ranks = branch.frame, sorted(branch.ranks)
        branch.frame = b""
        branch.ranks.clear()
        if len(ranks) == 1:
            self._put_down(branch, ranks[0], frame)
        elif ranks:
            self._put_down(branch, SERVER.rank, bytes([TreeKind.CAST]) + encode_ranks(ranks) + frame)

    def _put_down(self, branch: Branch, rank: int, frame: bytes) -> None:
        """Queue a frame for an aggregator, after the held-back one."""
        if branch.ranks:
            self._release_cast(branch)
        self._put(branch, rank, frame)

    def _route(self, place: Connection, rank: int, frame: bytes) -> None:
        if isinstance(place, Branch):
            self._take_from(place, rank, frame)
        elif rank not in self._behind:
            # With aggregators no client needs another; only a last notice is for one.
            super()._route(place, rank, frame)

    def _take_from(self, branch: Branch, rank: int, frame: bytes) -> None:
        """Handle a frame that an aggregator passes up; raise ValueError for an unexpected one."""
        kind, body = frame[0] if frame else 0, frame[1:]
        if kind == FrameKind.SUM and rank == SERVER.rank:
            ranks, _ = take_ranks(body)
            for each in ranks:
                self._own(branch, each)
            self._keep(branch, PartyId(ranks[0]), frame)
        elif kind == TreeKind.JOIN and not body:
            self._admit_through(branch, rank)
        elif kind == TreeKind.FAULT:
            place = self._by_rank.get(rank) or self._own(branch, rank)
            error = decode_fault(body, place.party, branch.name)
            if error.reason is Reason.OTHER_VERSION:  # it was not let in: as `_differ`
                if not self._is_here(place):
                    self._lose(place, error)
                return
            self._own(branch, rank)
            if isinstance(error, PeerGone):
                self._lose(place, error)
            elif not place.accused:  # once: the client continues, and could fill the memory
                place.accused = True
                self._inbox.append(error)
        elif kind in UPWARD:
            place = self._own(branch, rank)
            if not place.gone:
                self._keep(branch, place.party, frame)
        else:
            raise ValueError(f"kind {kind} for rank {rank} is not expected from an aggregator")

    def _own(self, branch: Branch, rank: int) -> Connection:
        """Return the place of a client of this aggregator; raise ValueError for any other."""
        if self._behind.get(rank) is not branch:
            raise ValueError(f"rank {rank} did not join through it")
        return self._by_rank[rank]

    def _lose(self, place: Connection, error: PeerError) -> None:
        """End a connection; an aggregator's takes all its clients with it."""
        if not isinstance(place, Branch):
            super()._lose(place, error)
        elif not place.gone:
            self._end(place)
            for rank, branch in self._behind.items():
                if branch is place:
                    party = self._by_rank[rank].party
                    text = f"{party} is gone with its aggregator: {error}"
                    super()._lose(self._by_rank[rank], PeerGone(text, rank=rank))

    def _may_return(self, place: Connection) -> bool:
        # An aggregator's sums and links end with its connection.
        return super()._may_return(place) and not isinstance(place, Branch)

    def _decide(self, guest: Guest, hello: Introduction) -> None:
        if hello.rank != SERVER.rank or self._keys is None:
            super()._decide(guest, hello)
        elif hello.session == ASKS:  # an offer for its own clients
            self._show(guest, self._offer, hello.rank)
        else:
            self._decide_aggregator(guest)

    def _decide_aggregator(self, guest: Guest) -> None:
        """Admit an aggregator, which has shown the server's own certificate, if this run allows one."""
        if not self._adds_up:
            why = "it is an aggregator, and this run cannot use one"
            self._refuse(guest, Admission.NO_AGGREGATORS, SERVER.rank, why)
            return
        self._let_in(guest)
        branch = Branch(SERVER, guest.stream, Delivery(0), name=guest.stream.name)
        self._branches.append(branch)
        guest.stream.write(Welcome(Admission.WELCOME, SERVER.rank, len(self.peers) + 1).encode())
        self._put_down(branch, SERVER.rank, encode_limit(self.most_frame))
        self._note(f"an aggregator joined from {branch.name}")
        self._sort(branch)

    def _admit_through(self, branch: Branch, rank: int) -> None:
        """Admit a client of an aggregator, if its place is free."""
        place = self._by_rank.get(rank)
        if branch.backlog > RELAY_BYTES:
            raise ValueError("it asks for clients and does not read the answers")
        if place is None or self._is_here(place) or place.gone:
            self._put_down(branch, rank, encode_answer(Admission.NO_SUCH_RANK if place is None else Admission.TAKEN))
            return
        self._behind[rank] = branch
        self._put_down(branch, rank, encode_answer(Admission.WELCOME))
        while early := place.delivery.next():
            self._put_down(branch, rank, early[1])
        place.delivery.forget()
        self._note_joined(place, f"the aggregator at {branch.name}")
