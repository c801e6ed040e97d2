"""The server's places for clients, which join, reconnect or are dropped; it relays frames between clients.

The server relays during `receive`, which is nearly always. While it computes (noise for a round: milliseconds), frames
between clients wait in the kernel. A client that does not read holds up those that send to it for at most `stall_s`;
then it is named and dropped. So the server never keeps more than `RELAY_BYTES` and one frame of other clients for a
client.

Source: docs/sites.md, "What relay means".
"""

from __future__ import annotations

import hmac
import os
import socket
import time
from collections.abc import Callable, Sequence

from fastlloyd.errors import ConfigError, PeerError, PeerGone, PeerTimeout, Reason
from fastlloyd.net.tcp.address import Network
from fastlloyd.net.tcp.admission import Admission, Guest, Introduction, Keys, OtherVersion, Welcome
from fastlloyd.net.tcp.delivery import ASKS, ID_BYTES, NO_ID, Delivery, most_kept
from fastlloyd.net.tcp.door import ADMISSION_S, Door, close_all
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.net.tcp.transport import CLOSE_S, SILENCE_S, Connection
from fastlloyd.wire.header import MAX_CLIENTS, SERVER, PartyId, clients

RELAY_BYTES = 1 << 23
_TICK_S = 1.0
_MOST_RETURNS = 1000
"""How often a client may reconnect within a run, so that it cannot fill a log."""


class Relay(Door):
    """A server's transport with a place for each client; clients may join while `receive` is called.

    Parameters
    ----------
    listeners : sequence of socket
        From `address.listen`; owned from now on.
    count : int
        Number of clients.
    keys : Keys or None
        None: plain TCP, and clients state their rank without proof (demonstration).
    note : callable
        Receives a sentence about each client that joins.
    warn : callable
        Receives a sentence, now and then, about dropped connections.
    stall_s : float
        How long a client may leave frames of other clients unread once its buffer is full.
    admission_s : float
        How long a connection may take to identify itself.
    close_deadline_s : float
    reconnect_s : float
        How long a client may take to reconnect after a cut; 0: not at all.
    silence_s : float
        As in `TcpTransport`.
    balancers : tuple of networks
        Addresses of load balancers, which must send the client's address in a header.
    offer : bytes
        Answer to clients that ask about the run before they join.

    Raises
    ------
    ConfigError
        No clients, or more than a frame's header can count.
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
        reconnect_s: float = 0.0,
        silence_s: float = SILENCE_S,
        balancers: tuple[Network, ...] = (),
        offer: bytes = b"",
    ) -> None:
        if not 1 <= count <= MAX_CLIENTS:
            close_all(listeners)
            raise ConfigError(f"--clients: expected 1 to {MAX_CLIENTS} clients, got {count}")
        super().__init__(
            listeners,
            clients(count),
            keys,
            warn,
            admission_s=admission_s,
            close_deadline_s=close_deadline_s,
            reconnect_s=reconnect_s,
            silence_s=silence_s,
            balancers=balancers,
        )
        self._note = note
        self._stall_s = stall_s
        self._offer = offer
        most = most_kept(count, reconnect_s)
        self._by_rank = {party.rank: Connection(party, delivery=Delivery(most)) for party in self.peers}
        self._holding: list[Connection] = []
        self._away: dict[Connection, None] = {}
        self._refused = ""

    @property
    def joined(self) -> int:
        """Number of clients that have joined so far, including those that left again."""
        return sum(self._is_here(place) for place in self._by_rank.values())

    @property
    def absent(self) -> frozenset[PartyId]:
        """Clients that have not joined yet."""
        return frozenset(place.party for place in self._by_rank.values() if not self._is_here(place))

    @property
    def refused(self) -> str:
        """Why the last client of another version was not let in, if no key named it."""
        return self._refused

    def send(self, peer: PartyId, frame: bytes | bytearray | memoryview) -> None:
        """Queue a frame for a client, which may join later.

        Raises
        ------
        PeerGone
            Its connection is known to have ended, or it leaves too much unread.
        """
        # Other parties have no place; `check_send` refuses them.
        self._send_to(self._by_rank.get(peer.rank) or Connection(peer), peer, SERVER.rank, frame)

    def _places(self) -> list[Connection]:
        return [*self._by_rank.values()]

    def _is_here(self, place: Connection) -> bool:
        """Whether a client has joined."""
        return place.delivery.id != NO_ID

    def _pump(self, timeout_s: float) -> None:
        for key, mask in self._selector.select(self._until(timeout_s)):
            holder = key.data
            if isinstance(holder, Connection):
                self._move(holder, mask)
            else:
                self._open(holder, mask)
        self._release()
        self._name_stalled()
        self._name_lost()
        self._take_turns()
        self._send_away()

    def _until(self, timeout_s: float) -> float:
        """Return how long to wait at most, so that stalled and lost clients are dropped in time."""
        timeout_s = min(timeout_s, self._beat_s)
        if self._holding:
            timeout_s = min(timeout_s, _TICK_S, self._stall_s)
        for place in self._away:  # the first has been away longest
            timeout_s = min(timeout_s, max(0.0, place.cut + self._reconnect_s - time.monotonic()))
            break
        return self._until_next_deadline(timeout_s)

    def _route(self, place: Connection, rank: int, frame: bytes) -> None:
        """Keep a frame for the server; relay any other under the sender's rank."""
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

    def _relay(self, source: Connection, target: Connection, frame: bytes) -> None:
        """Pass a frame on; its sender is that of the connection, whatever the frame claims."""
        self._put(target, source.party.rank, frame)

    def _release(self) -> None:
        """Pass on the frames whose receiver has room again, oldest first."""
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

    def _lose(self, place: Connection, error: PeerError) -> None:
        self._away.pop(place, None)
        super()._lose(place, error)

    def _miss(self, place: Connection, stream: Stream) -> None:
        super()._miss(place, stream)
        self._away[place] = None
        how = self._how(stream)
        self._note(f"the connection of {place.party} was cut{how}; it has {self._reconnect_s:g} s to come back")

    def _name_lost(self) -> None:
        """Drop clients that have not reconnected."""
        now = time.monotonic()
        for place in [place for place in self._away if now - place.cut >= self._reconnect_s]:
            text = f"{place.party} is gone: its connection was cut, and it did not come back in {self._reconnect_s:g} s"
            self._lose(place, PeerGone(text, rank=place.party.rank))

    def _decide(self, guest: Guest, hello: Introduction) -> None:
        """Admit a client to its place, if it is free or its own."""
        rank = hello.rank
        place = self._by_rank.get(rank)
        if place is None:
            why = f"it asks for rank {rank}, expected 1 to {len(self.peers)}"
            self._refuse(guest, Admission.NO_SUCH_RANK, rank, why)
        elif hello.session == ASKS:
            self._show(guest, self._offer, rank)
        elif hello.session != NO_ID:
            self._return(place, guest, hello)
        elif place.gone or not self._is_free(place):
            self._refuse_taken(guest, rank)
        else:
            self._let_in(guest)
            self._admit(place, guest.stream)

    def _differ(self, error: OtherVersion) -> None:
        """End the run for a party that is awaited; without a roster anybody could say so, and the run waits on."""
        place = None if error.party is None else self._by_rank.get(error.party.rank)
        if place is None:
            self._refused = str(error)
        elif not self._is_here(place):
            self._lose(place, PeerError(str(error), rank=place.party.rank, reason=Reason.OTHER_VERSION))

    def _refuse_taken(self, guest: Guest, rank: int) -> None:
        self._refuse(guest, Admission.TAKEN, rank, f"it comes as {PartyId(rank)}, which has joined already")

    def _note_joined(self, place: Connection, origin: str) -> None:
        """Report a client that has joined; close the port once all have."""
        self._note(f"{place.party} joined from {origin}: {self.joined} of {len(self.peers)}")
        if self.joined == len(self.peers) and not self._reconnect_s:
            self._close_port()

    def _is_free(self, place: Connection) -> bool:
        """Whether a place is free: no client has joined it, or one was cut off before it took anything."""
        unused = place.delivery.taken == place.delivery.confirmed == 0 and place.returns < _MOST_RETURNS
        return not self._is_here(place) or (unused and place in self._away)

    def _admit(self, place: Connection, stream: Stream) -> None:
        """Admit a client, and send the frames that wait for it."""
        place.returns += self._is_here(place)
        place.delivery.id = os.urandom(ID_BYTES)
        if not self._welcome(place, stream, 0):
            return
        self._note_joined(place, stream.name)
        self._sort(place)

    def _return(self, place: Connection, guest: Guest, hello: Introduction) -> None:
        """Let a client continue its own session; the frames that it lacks are sent again."""
        known = hmac.compare_digest(hello.session, place.delivery.id) and place.returns < _MOST_RETURNS
        if place.gone or not self._reconnect_s or not known:
            why = f"it comes back as {place.party}, whose session is over or another one"
            self._refuse(guest, Admission.NO_SUCH_SESSION, hello.rank, why)
            return
        was = f" after {time.monotonic() - place.cut:.1f} s" if place in self._away else ""
        self._let_in(guest)
        if not self._welcome(place, guest.stream, hello.taken):
            return
        place.returns += 1
        self._note(f"{place.party} is back{was}, from {guest.stream.name}")
        self._sort(place)

    def _welcome(self, place: Connection, stream: Stream, taken: int) -> bool:
        """Continue a client's session on this connection, and send the missing frames; False if impossible."""
        delivery = place.delivery
        try:
            self._continue(place, stream, taken)
        except ValueError as error:
            stream.close()
            self._lose(place, PeerError(f"{place.party} cannot come back: {error}", rank=place.party.rank))
            return False
        self._away.pop(place, None)
        session = delivery.id if self._reconnect_s else NO_ID
        answer = Welcome(Admission.WELCOME, place.party.rank, len(self.peers) + 1, session, delivery.confirmation())
        stream.write(answer.encode())
        stream.flush()
        place.feed()
        return True
