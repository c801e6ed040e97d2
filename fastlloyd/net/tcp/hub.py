"""The server's end of TCP: one port, a place for each client, frames between clients relayed.

Who gets a place is decided at the door (`net/tcp/door.py`); once all clients are there the port is closed.

Relaying happens while the server is in `receive`, which is nearly always. While it computes (noise for
a round: milliseconds), frames between clients wait in the kernel. A client that does not read holds up
those that send to it, at most `stall_s`; then it is named and dropped. So the server never keeps more than
`RELAY_BYTES` and one frame for a client from others.

Source: docs/sites.md, "What relay means".
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

from fastlloyd.errors import ConfigError, PeerTimeout
from fastlloyd.net.tcp.admission import MAX_CLIENTS, Answer, Guest, Keys, Welcome
from fastlloyd.net.tcp.door import ADMISSION_S, Door, close_all
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.net.tcp.transport import CLOSE_S, Place
from fastlloyd.wire.header import SERVER, PartyId, clients

RELAY_BYTES = 1 << 23
_TICK_S = 1.0


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
    admission_s : float
        How long a connection may take to show who it is.
    close_deadline_s : float

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
        admission_s: float = ADMISSION_S,
        close_deadline_s: float = CLOSE_S,
    ) -> None:
        if not 1 <= count <= MAX_CLIENTS:
            close_all(listeners)
            raise ConfigError(f"--clients: expected 1 to {MAX_CLIENTS} clients, got {count}")
        super().__init__(
            listeners, clients(count), keys, warn, admission_s=admission_s, close_deadline_s=close_deadline_s
        )
        self._note = note
        self._stall_s = stall_s
        self._by_rank = {party.rank: Place(party) for party in self.peers}
        self._holding: list[Place] = []

    @property
    def joined(self) -> int:
        """How many clients have joined so far, those that left again included."""
        return sum(place.stream is not None for place in self._places())

    @property
    def absent(self) -> frozenset[PartyId]:
        """Clients that have not joined yet."""
        return frozenset(place.party for place in self._places() if place.stream is None)

    def send(self, peer: PartyId, frame: bytes | bytearray | memoryview) -> None:
        """Queue a frame for a client, which may still have to join.

        Raises
        ------
        PeerGone
            Its connection is known to have ended, or it leaves too much unread.
        """
        # Whoever is no client has no place; `check_send` refuses it.
        self._send_to(self._by_rank.get(peer.rank) or Place(peer), peer, SERVER.rank, frame)

    def _places(self) -> list[Place]:
        return list(self._by_rank.values())

    def _pump(self, timeout_s: float) -> None:
        for key, mask in self._selector.select(self._until(timeout_s)):
            holder = key.data
            if isinstance(holder, Place):
                self._move(holder, mask)
            else:
                self._open(holder, mask)
        self._release()
        self._name_stalled()
        self._take_turns()
        self._send_away()

    def _until(self, timeout_s: float) -> float:
        """Wake up in time for whoever may have to be dropped."""
        if self._holding:
            timeout_s = min(timeout_s, _TICK_S, self._stall_s)
        return self._until_next_deadline(timeout_s)

    def _route(self, place: Place, rank: int, frame: bytes) -> None:
        """Keep a frame for the server; relay any other, under the rank of whoever sent it."""
        if rank == SERVER.rank:
            self._keep(place, place.party, frame)
            return
        target = self._by_rank.get(rank)
        if target is None or target is place:
            raise ValueError(f"it is addressed to rank {rank}")
        if target.backlog > RELAY_BYTES:
            place.held, place.since = (target, frame), time.monotonic()
            self._holding.append(place)
        else:
            self._relay(place, target, frame)

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
            if place.held is None:
                continue
            target = place.held[0]
            sent = 0 if target.stream is None else target.stream.moved_bytes
            if target.moved[0] != sent:
                target.moved = (sent, now)
            if now - max(place.since, target.moved[1]) >= self._stall_s:
                text = f"{target.party} has read nothing for {self._stall_s:g} s and holds up {place.party}"
                self._lose(target, PeerTimeout(text, rank=target.party.rank))

    def _decide(self, guest: Guest, rank: int) -> None:
        """Let a client have its place, if that is free."""
        place = self._by_rank.get(rank)
        parties = len(self.peers) + 1
        if place is None:
            guest.refuse(Welcome(Answer.NO_SUCH_RANK, rank, parties))
            self._dismiss(guest, f"it wants rank {rank}, expected 1 to {parties - 1}")
        elif place.stream is not None or place.gone:
            guest.refuse(Welcome(Answer.TAKEN, rank, parties))
            self._dismiss(guest, f"it comes as {place.party}, who has joined already")
        else:
            self._let_in(guest)
            self._admit(place, guest.stream)

    def _admit(self, place: Place, stream: Stream) -> None:
        """Let a client in, and send what has waited for it."""
        place.stream = stream
        place.moved = (0, time.monotonic())
        stream.write(Welcome(Answer.WELCOME, place.party.rank, len(self.peers) + 1).encode())
        early, place.early = place.early, []
        for rank, frame in early:
            stream.put_frame(rank, frame)
        stream.flush()
        self._note(f"{place.party} joined from {stream.name}: {self.joined} of {len(self.peers)}")
        if self.joined == len(self.peers):
            self._close_port()
        self._sort(place)
