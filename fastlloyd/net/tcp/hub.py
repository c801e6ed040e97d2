"""The server's end of TCP: one port, a place for each client, frames between clients relayed.

Who gets a place is decided at the door (`net/tcp/door.py`); once all clients are there the port is closed, unless a
client whose connection is cut may come back.

Relaying happens while the server is in `receive`, which is nearly always. While it computes (noise for
a round: milliseconds), frames between clients wait in the kernel. A client that does not read holds up
those that send to it, at most `stall_s`; then it is named and dropped. So the server never keeps more than
`RELAY_BYTES` and one frame for a client from others.

An aggregator (`net/tcp/aggregator.py`) has one connection for all its clients: a `Branch`. What comes over it is what
its clients sent, each under its rank, and what is for several of them alike goes out once.

Source: docs/sites.md, "What relay means"; docs/protocol.md, "Aggregators".
"""

from __future__ import annotations

import hmac
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fastlloyd.errors import ConfigError, PeerError, PeerGone, PeerTimeout
from fastlloyd.net.link.frame import Kind
from fastlloyd.net.link.sums import encode_ranks, ranks_bytes, take_ranks
from fastlloyd.net.tcp.address import Network
from fastlloyd.net.tcp.admission import MAX_CLIENTS, Answer, Guest, Hello, Keys, Welcome
from fastlloyd.net.tcp.door import ADMISSION_S, Door, close_all
from fastlloyd.net.tcp.session import ID_BYTES, NO_ID, Control, Session, most_kept
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.net.tcp.transport import CLOSE_S, WAITING_BYTES, Place
from fastlloyd.net.tcp.tree import UPWARD, TreeKind, decode_fault, encode_answer, encode_limit
from fastlloyd.net.transport import MAX_FRAME_BYTES
from fastlloyd.wire.header import SERVER, PartyId, clients

RELAY_BYTES = 1 << 23
_TICK_S = 1.0
_LIST_BYTES = ranks_bytes(MAX_CLIENTS)
_MOST_RETURNS = 1000
"""How often a client may come back within a run, so that it cannot fill a log."""


@dataclass(slots=True, eq=False)
class Branch(Place):
    """The connection of an aggregator.

    Attributes
    ----------
    name : str
        Its address.
    frame : bytes
        What is kept back because the next client may get the same.
    ranks : set of int
        For whom it is.
    """

    name: str = ""
    frame: bytes = b""
    ranks: set[int] = field(default_factory=set)

    def __str__(self) -> str:
        return f"the aggregator at {self.name}"


class TcpServer(Door):
    """The server's transport; clients may join as long as `receive` is called.

    Parameters
    ----------
    listeners : sequence of socket
        From `address.listen`; owned from now on.
    count : int
        Number of clients.
    keys : Keys or None
        None: plain TCP, clients say their rank and nobody proves anything (demonstration).
    note : callable
        Told in words who joins.
    warn : callable
        Told in words, now and then, whose connection was dropped.
    stall_s : float
        How long a client may leave frames of other clients unread once its buffer is full.
    adds_up : bool
        Whether aggregators may join: whether the clients' updates can be added up on their way, and no client has a
        link to another.
    admission_s : float
        How long a connection may take to show who it is.
    close_deadline_s : float
    reconnect_s : float
        How long a client whose connection was cut may take to come back; 0: not at all.
    balancers : tuple of networks
        Addresses of load balancers, which must say, and are believed, whose connections they pass on.

    Raises
    ------
    ConfigError
        More clients than the frames' header can count, or none.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        count: int,
        *,
        keys: Keys | None,
        note: Callable[[str], None],
        warn: Callable[[str], None],
        stall_s: float = 30.0,
        adds_up: bool = False,
        admission_s: float = ADMISSION_S,
        close_deadline_s: float = CLOSE_S,
        reconnect_s: float = 0.0,
        balancers: tuple[Network, ...] = (),
    ) -> None:
        if not 1 <= count <= MAX_CLIENTS:
            close_all(listeners)
            raise ConfigError(f"--clients: expected 1 to {MAX_CLIENTS} clients, got {count}")
        self._branches: list[Branch] = []
        self._most_frame = MAX_FRAME_BYTES
        super().__init__(
            listeners,
            clients(count),
            keys,
            warn,
            admission_s=admission_s,
            close_deadline_s=close_deadline_s,
            reconnect_s=reconnect_s,
            balancers=balancers,
        )
        self._note = note
        self._stall_s = stall_s
        self._adds_up = adds_up
        most = most_kept(count, reconnect_s)
        self._by_rank = {party.rank: Place(party, session=Session(most)) for party in self.peers}
        self._behind: dict[int, Branch] = {}
        self._holding: list[Place] = []
        self._away: dict[Place, None] = {}

    @property
    def joined(self) -> int:
        """How many clients have joined so far, those that left again included."""
        return sum(self._is_here(place) for place in self._by_rank.values())

    @property
    def absent(self) -> frozenset[PartyId]:
        """Clients that have not joined yet."""
        return frozenset(place.party for place in self._by_rank.values() if not self._is_here(place))

    @property
    def most_frame(self) -> int:
        """The longest frame that a client may send; aggregators are told."""
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
        """Tell the aggregators what to add up."""
        for branch in self._branches:
            self._put_down(branch, SERVER.rank, bytes([TreeKind.ORDER]) + order)

    def flush(self) -> None:
        """Send what is kept back because it might be for several clients behind one aggregator."""
        for branch in self._branches:
            self._release_cast(branch)

    def send(self, peer: PartyId, frame: bytes | bytearray | memoryview) -> None:
        """Queue a frame for a client, which may still have to join.

        Raises
        ------
        PeerGone
            Its connection is known to have ended, or it leaves too much unread.
        """
        branch = self._behind.get(peer.rank)
        if branch is None:
            # Whoever is no client has no place; `check_send` refuses it.
            self._send_to(self._by_rank.get(peer.rank) or Place(peer), peer, SERVER.rank, frame)
        else:
            self._send_through(branch, self._by_rank[peer.rank], bytes(frame))

    def close(self, *, lost: bool = False) -> None:
        """Send what is kept back, then as in `Door.close`."""
        if not self._closed:
            self.flush()
        super().close(lost=lost)

    def _places(self) -> list[Place]:
        return [*self._by_rank.values(), *self._branches]

    def _is_here(self, place: Place) -> bool:
        """Whether a client has joined, here or through an aggregator."""
        return place.session.id != NO_ID or place.party.rank in self._behind

    def _limit(self, place: Place) -> int:
        # A sum names its clients before the message.
        return min(self.most_frame + _LIST_BYTES, MAX_FRAME_BYTES) if isinstance(place, Branch) else self.most_frame

    def _sender(self, place: Place, rank: int) -> PartyId:
        return PartyId(rank) if isinstance(place, Branch) and rank in self._by_rank else place.party

    def _send_through(self, branch: Branch, place: Place, frame: bytes) -> None:
        """Keep a frame for a client back until the next one for the same aggregator is another."""
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
        """Send a frame that was kept back: as it is for one client, with their list for several."""
        frame, ranks = branch.frame, sorted(branch.ranks)
        branch.frame = b""
        branch.ranks.clear()
        if len(ranks) == 1:
            self._put_down(branch, ranks[0], frame)
        elif ranks:
            self._put_down(branch, SERVER.rank, bytes([TreeKind.CAST]) + encode_ranks(ranks) + frame)

    def _put_down(self, branch: Branch, rank: int, frame: bytes) -> None:
        """Queue a frame for an aggregator, behind what was kept back for it."""
        if branch.ranks:
            self._release_cast(branch)
        branch.put(rank, frame)
        if branch.stream is not None and not branch.gone:
            self._watch(branch.stream, branch, reading=branch.open)

    def _pump(self, timeout_s: float) -> None:
        self.flush()
        for key, mask in self._selector.select(self._until(timeout_s)):
            holder = key.data
            if isinstance(holder, Place):
                self._move(holder, mask)
            else:
                self._open(holder, mask)
        self._release()
        self._name_stalled()
        self._name_lost()
        self._take_turns()
        self._send_away()

    def _until(self, timeout_s: float) -> float:
        """Wake up in time for whoever may have to be dropped."""
        if self._holding:
            timeout_s = min(timeout_s, _TICK_S, self._stall_s)
        for place in self._away:  # the first has been away longest
            timeout_s = min(timeout_s, max(0.0, place.cut + self._reconnect_s - time.monotonic()))
            break
        return self._until_next_deadline(timeout_s)

    def _route(self, place: Place, rank: int, frame: bytes) -> None:
        """Keep a frame for the server; relay any other, under the rank of whoever sent it."""
        if isinstance(place, Branch):
            self._take_from(place, rank, frame)
            return
        if rank == SERVER.rank:
            self._keep(place, place.party, frame)
            return
        target = self._by_rank.get(rank)
        if target is None or target is place:
            raise ValueError(f"it is addressed to rank {rank}")
        if rank in self._behind:
            return  # where there are aggregators no client needs another; only a last notice is for one
        if target.backlog > RELAY_BYTES:
            place.held, place.since = (target, frame), time.monotonic()
            self._holding.append(place)
        else:
            self._relay(place, target, frame)

    def _take_from(self, branch: Branch, rank: int, frame: bytes) -> None:
        """Take what an aggregator passes up; ValueError for what does not belong there."""
        kind, body = frame[0] if frame else 0, frame[1:]
        if kind == Kind.SUM and rank == SERVER.rank:
            ranks, _ = take_ranks(body)
            for each in ranks:
                self._own(branch, each)
            self._keep(branch, PartyId(ranks[0]), frame)
        elif kind == TreeKind.JOIN and not body:
            self._admit_through(branch, rank)
        elif kind == TreeKind.FAULT:
            place = self._own(branch, rank)
            error = decode_fault(body, place.party, branch.name)
            if isinstance(error, PeerGone):
                self._lose(place, error)
            elif not place.accused:  # once: the client goes on, and could fill the memory
                place.accused = True
                self._inbox.append(error)
        elif kind in UPWARD:
            place = self._own(branch, rank)
            if not place.gone:
                self._keep(branch, place.party, frame)
        else:
            raise ValueError(f"kind {kind} for rank {rank} is not expected from an aggregator")

    def _own(self, branch: Branch, rank: int) -> Place:
        """Return the place of a client that came through this aggregator; ValueError for any other."""
        if self._behind.get(rank) is not branch:
            raise ValueError(f"rank {rank} did not join through it")
        return self._by_rank[rank]

    def _lose(self, place: Place, error: PeerError) -> None:
        """End a connection; with an aggregator's, all its clients are lost."""
        self._away.pop(place, None)
        if not isinstance(place, Branch):
            super()._lose(place, error)
        elif not place.gone:
            place.gone = True
            if place.stream is not None:
                self._forget(place.stream)
                place.say(Control.END)
                place.stream.close()
            place.session.forget()
            for rank, branch in self._behind.items():
                if branch is place:
                    party = self._by_rank[rank].party
                    text = f"{party} is gone with its aggregator: {error}"
                    super()._lose(self._by_rank[rank], PeerGone(text, rank=rank))

    def _relay(self, source: Place, target: Place, frame: bytes) -> None:
        """Pass a frame on; the sender's place, not its own words, says whose it is."""
        target.put(source.party.rank, frame)
        if target.stream is not None and not target.gone:
            self._watch(target.stream, target, reading=target.open)

    def _release(self) -> None:
        """Pass on the frames whose receiver has room again, the oldest first."""
        waiting, self._holding = self._holding, []
        for place in waiting:
            if place.held is None:
                continue
            target, frame = place.held
            if target.backlog > RELAY_BYTES and not target.gone:
                self._holding.append(place)
                continue
            place.held = None
            self._relay(place, target, frame)
            self._sort(place)

    def _name_stalled(self) -> None:
        """Drop clients that hold up others."""
        now = time.monotonic()
        for place in self._holding:
            if place.held is None or place.held[0] in self._away:
                continue
            target = place.held[0]
            sent = 0 if target.stream is None else target.stream.moved_bytes
            if target.moved[0] != sent:
                target.moved = (sent, now)
            if now - max(place.since, target.moved[1]) >= self._stall_s:
                text = f"{target.party} has read nothing for {self._stall_s:g} s and holds up {place.party}"
                self._lose(target, PeerTimeout(text, rank=target.party.rank))

    def _may_return(self, place: Place) -> bool:
        # An aggregator has sums and links of its own that end with its connection.
        return super()._may_return(place) and not isinstance(place, Branch)

    def _miss(self, place: Place, stream: Stream) -> None:
        super()._miss(place, stream)
        self._away[place] = None
        self._note(f"the connection of {place.party} was cut; it has {self._reconnect_s:g} s to come back")

    def _name_lost(self) -> None:
        """Drop clients that have not come back."""
        now = time.monotonic()
        for place in [place for place in self._away if now - place.cut >= self._reconnect_s]:
            text = f"{place.party} is gone: its connection was cut, and it did not come back in {self._reconnect_s:g} s"
            self._lose(place, PeerGone(text, rank=place.party.rank))

    def _decide(self, guest: Guest, hello: Hello) -> None:
        """Let a client have its place, if that is free or its own."""
        rank = hello.rank
        place = self._by_rank.get(rank)
        parties = len(self.peers) + 1
        if rank == SERVER.rank and self._keys is not None:
            self._decide_aggregator(guest)
        elif place is None:
            guest.refuse(Welcome(Answer.NO_SUCH_RANK, rank, parties))
            self._dismiss(guest, f"it wants rank {rank}, expected 1 to {parties - 1}")
        elif hello.session != NO_ID:
            self._return(place, guest, hello)
        elif place.gone or not self._is_free(place):
            guest.refuse(Welcome(Answer.TAKEN, rank, parties))
            self._dismiss(guest, f"it comes as {place.party}, who has joined already")
        else:
            self._let_in(guest)
            self._admit(place, guest.stream)

    def _decide_aggregator(self, guest: Guest) -> None:
        """Let an aggregator in, which has shown the server's own certificate, if this run can have one."""
        parties = len(self.peers) + 1
        if not self._adds_up:
            guest.refuse(Welcome(Answer.NO_AGGREGATORS, SERVER.rank, parties))
            self._dismiss(guest, "it is an aggregator, and this server has no use for one")
            return
        self._let_in(guest)
        branch = Branch(SERVER, guest.stream, Session(0), name=guest.stream.name)
        self._branches.append(branch)
        guest.stream.write(Welcome(Answer.WELCOME, SERVER.rank, parties).encode())
        self._put_down(branch, SERVER.rank, encode_limit(self.most_frame))
        self._note(f"an aggregator joined from {branch.name}")
        self._sort(branch)

    def _admit_through(self, branch: Branch, rank: int) -> None:
        """Let a client in that has come to an aggregator, if its place is free."""
        place = self._by_rank.get(rank)
        if branch.backlog > RELAY_BYTES:
            raise ValueError("it asks for clients and does not read the answers")
        if place is None or self._is_here(place) or place.gone:
            self._put_down(branch, rank, encode_answer(Answer.NO_SUCH_RANK if place is None else Answer.TAKEN))
            return
        self._behind[rank] = branch
        self._put_down(branch, rank, encode_answer(Answer.WELCOME))
        while early := place.session.next():
            self._put_down(branch, rank, early[1])
        place.session.forget()
        self._note_joined(place, f"the aggregator at {branch.name}")

    def _note_joined(self, place: Place, origin: str) -> None:
        """Say who has joined; nobody else can once all have."""
        self._note(f"{place.party} joined from {origin}: {self.joined} of {len(self.peers)}")
        if self.joined == len(self.peers) and not self._reconnect_s:
            self._close_port()

    def _is_free(self, place: Place) -> bool:
        """Whether a client may join in this place: nobody has, or the welcome was cut off before it took anything."""
        unused = place.session.taken == place.session.confirmed == 0 and place.returns < _MOST_RETURNS
        return not self._is_here(place) or (unused and place in self._away)

    def _admit(self, place: Place, stream: Stream) -> None:
        """Let a client in, and send what has waited for it."""
        place.returns += self._is_here(place)
        place.session.id = os.urandom(ID_BYTES)
        if not self._welcome(place, stream, 0):
            return
        self._note_joined(place, stream.name)
        self._sort(place)

    def _return(self, place: Place, guest: Guest, hello: Hello) -> None:
        """Let a client go on with its session, if it is its own; what it lacks is sent again."""
        known = hmac.compare_digest(hello.session, place.session.id) and place.returns < _MOST_RETURNS
        if place.gone or not self._reconnect_s or not known:
            guest.refuse(Welcome(Answer.NO_SUCH_SESSION, hello.rank, len(self.peers) + 1))
            self._dismiss(guest, f"it comes back as {place.party}, whose session is over or another one")
            return
        was = f" after {time.monotonic() - place.cut:.1f} s" if place in self._away else ""
        self._let_in(guest)
        if not self._welcome(place, guest.stream, hello.taken):
            return
        place.returns += 1
        self._note(f"{place.party} is back{was}, from {guest.stream.name}")
        self._sort(place)

    def _welcome(self, place: Place, stream: Stream, taken: int) -> bool:
        """Go on with a client over this connection, and send what it has not taken yet; False where that cannot be."""
        session = place.session
        try:
            self._go_on(place, stream, taken)
        except ValueError as error:
            stream.close()
            self._lose(place, PeerError(f"{place.party} cannot come back: {error}", rank=place.party.rank))
            return False
        self._away.pop(place, None)
        answer = Welcome(Answer.WELCOME, place.party.rank, len(self.peers) + 1, session.id, session.tell())
        stream.write(answer.encode())
        stream.flush()
        place.feed()
        return True
