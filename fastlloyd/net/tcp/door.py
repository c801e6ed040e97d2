"""The server's open port: a new connection is a guest, and becomes a client when it has shown who it is.

A guest has a few seconds to show who it is, and is dropped otherwise. Nothing that it does reaches a run. It passes
through four queues: silent (it has sent nothing), waiting (its first bytes have arrived and are unread), showing (the
TLS handshake is under way), leaving (it is sent the reason for its refusal).

Only the handshake is expensive, so the addresses that wait for one take turns. When a queue is full, the address with
the most connections in it loses its oldest one. So a flood from one address pushes out its own connections. A flood of
silent connections meets no client, because a client sends at once. Of the connections from one address the newest is
served first: if a flood leaves no time for all, its client is the one that is still waiting.

Source: docs/sites.md, "Firewall".
"""

from __future__ import annotations

import contextlib
import math
import resource
import selectors
import socket
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from fastlloyd.errors import ConfigError
from fastlloyd.net.sockets import SocketCount
from fastlloyd.net.tcp.address import Network, is_within, peer_name, source_of
from fastlloyd.net.tcp.admission import Admission, Guest, Introduction, Keys, OtherVersion, StrangerLog, Welcome
from fastlloyd.net.tcp.delivery import ASKS
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.net.tcp.transport import TcpTransport
from fastlloyd.wire.header import SERVER, PartyId

T = TypeVar("T")
ADMISSION_S = 5.0
MAX_GUESTS = 256
"""Connections in each queue; fewer where this process may open few files."""

_LEAVING_S = 3.0
# Of all files that this process may open; the rest is for clients, results and libraries.
_GUESTS_SHARE = 6
_OTHER_FILES = 64
_QUEUES = 4
_ACCEPTED_AT_ONCE = 64
_TURNS_AT_ONCE = 4


class GuestQueue(Generic[T]):
    """Guests in order of arrival, by address.

    Parameters
    ----------
    most : int
        The largest number of guests at a time.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._source: dict[T, str] = {}
        self._by_source: dict[str, dict[T, None]] = {}

    def __len__(self) -> int:
        return len(self._source)

    def __contains__(self, guest: object) -> bool:
        return guest in self._source

    def __iter__(self) -> Iterator[T]:
        """Return the guests, the oldest first."""
        return iter(self._source)

    def add(self, guest: T, source: str) -> T | None:
        """Add a guest.

        Parameters
        ----------
        guest : hashable
        source : str
            The address it comes from.

        Returns
        -------
        The guest that was removed to make room, or None.
        """
        self._source[guest] = source
        self._by_source.setdefault(source, {})[guest] = None
        if len(self) <= self.most:
            return None
        fullest = max(self._by_source.values(), key=len)
        oldest = next(iter(fullest))
        self.remove(oldest)
        return oldest

    def take(self) -> T:
        """Remove and return the newest guest of the address whose turn it is; then it is the next address's turn."""
        source, guests = next(iter(self._by_source.items()))
        newest = next(reversed(guests))
        self.remove(newest)
        if guests:
            self._by_source[source] = self._by_source.pop(source)
        return newest

    def remove(self, guest: T) -> None:
        """Remove a guest."""
        source = self._source.pop(guest)
        others = self._by_source[source]
        del others[guest]
        if not others:
            del self._by_source[source]


class Door(TcpTransport):
    """The part of a server's transport that decides who is let in; `relay.Relay` is the rest.

    Parameters
    ----------
    listeners : sequence of socket
    clients : tuple of PartyId
    keys : Keys or None
    warn : callable
    admission_s : float
    close_deadline_s : float
    reconnect_s : float
    silence_s : float
    balancers : tuple of networks
        All as in `Relay`.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        clients: tuple[PartyId, ...],
        keys: Keys | None,
        warn: Callable[[str], None],
        *,
        admission_s: float,
        close_deadline_s: float,
        reconnect_s: float,
        silence_s: float,
        balancers: tuple[Network, ...],
    ) -> None:
        super().__init__(SERVER, clients, close_deadline_s, reconnect_s, silence_s)
        self._keys = keys
        self._balancers = balancers
        self._strangers = StrangerLog(warn)
        self._admission_s = admission_s
        self._past: SocketCount | None = SocketCount()
        self._past_tls_bytes = 0
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        spare = (files - len(clients) - _OTHER_FILES) // _QUEUES
        most = max(1, min(MAX_GUESTS, files // _GUESTS_SHARE, spare))
        self._silent: GuestQueue[Guest] = GuestQueue(most)
        self._waiting: GuestQueue[Guest] = GuestQueue(most)
        self._showing: GuestQueue[Guest] = GuestQueue(most)
        self._leaving: GuestQueue[Guest] = GuestQueue(most)
        self._queues = (self._silent, self._waiting, self._showing, self._leaving)
        self._listeners = list(listeners)
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ, listener)

    def close(self, *, lost: bool = False) -> None:
        """Close the port, drop strangers, then as in `TcpTransport.close`."""
        if not self._closed:
            self._close_port()
        super().close(lost=lost)

    @abstractmethod
    def _decide(self, guest: Guest, hello: Introduction) -> None:
        """Let in a guest that has shown who it is, or dismiss it."""

    @abstractmethod
    def _differ(self, error: OtherVersion) -> None:
        """Note a client of another version, which was dismissed."""

    def _open(self, holder: Any, mask: int) -> None:
        """Handle a listener or a guest that is ready."""
        if isinstance(holder, Guest):
            if holder.expected:
                self._introduce(holder)
            elif holder in self._silent:
                self._forget(holder.stream)
                self._enter(holder, self._waiting)
            else:
                self._attend(holder, mask)
        else:
            for _ in range(_ACCEPTED_AT_ONCE):
                if holder not in self._listeners or not self._accept(holder):
                    return

    def _until_next_deadline(self, timeout_s: float) -> float:
        """Return how long to wait at most, so that no guest's turn or deadline is missed."""
        if self._waiting:
            return 0.0
        for guest in self._due(math.inf):
            timeout_s = min(timeout_s, max(0.0, guest.deadline - time.monotonic()))
        return timeout_s

    def _take_turns(self) -> None:
        """Start the handshake of a few guests that have sent something."""
        for _ in range(min(len(self._waiting), _TURNS_AT_ONCE)):
            guest = self._waiting.take()
            self._enter(guest, self._showing)
            self._attend(guest, selectors.EVENT_READ)

    def _send_away(self) -> None:
        """Drop guests whose deadline has passed."""
        now = time.monotonic()
        while due := self._due(now):
            for guest in due:
                if guest not in self._leaving:
                    self._strangers.dropped(guest.stream.name, f"it did not show who it is in {self._admission_s:g} s")
                self._discard(guest)

    def _due(self, now: float) -> list[Guest]:
        """Return the oldest guest of each queue whose deadline is over at `now`."""
        # All guests of a queue have the same time limit, so the oldest is due first.
        oldest = (next(iter(queue), None) for queue in self._queues)
        return [guest for guest in oldest if guest is not None and guest.deadline <= now]

    def _let_in(self, guest: Guest) -> None:
        """Remove a guest from its queue: its stream gets a place."""
        self._dequeue(guest)
        self._forget(guest.stream)

    def _accept(self, listener: socket.socket) -> bool:
        """Accept one connection as a guest; return False if none is waiting."""
        try:
            connection, (host, *_) = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            # Out of descriptors, most likely: the oldest guest makes room.
            self._strangers.dropped("an unknown address", str(error.strerror).lower())
            oldest = next((guest for queue in self._queues for guest in queue), None)
            if oldest is not None:
                self._discard(oldest)
            return False
        try:
            stream = Stream(connection, None if self._keys is None else self._keys.context, server_side=True)
        except OSError:
            self._strangers.dropped(peer_name(connection), "it hung up at once")
            connection.close()
            return True
        stream.at_end = self._keep_count
        deadline = time.monotonic() + self._admission_s
        guest = Guest(stream, source_of(host), deadline, passed_on=is_within(host, self._balancers))
        self._enter(guest, self._silent)
        self._watch(stream, guest, reading=True)
        if guest.expected:
            # The header is usually there already. Until it is, all clients of a load balancer share one address.
            self._introduce(guest)
        return True

    def _enter(self, guest: Guest, queue: GuestQueue[Guest]) -> None:
        """Move a guest to a queue; if the queue is full, drop another guest."""
        self._dequeue(guest)
        out = queue.add(guest, guest.source)
        if out is not None:
            self._strangers.dropped(out.stream.name, f"{queue.most} others wait to show who they are")
            self._discard(out)

    def _dequeue(self, guest: Guest) -> None:
        """Remove a guest from its queue, if it is in one."""
        for queue in self._queues:
            if guest in queue:
                queue.remove(guest)

    def _introduce(self, guest: Guest) -> None:
        """Read a load balancer's header, which names the client; the client itself has sent nothing yet."""
        try:
            guest.introduce()
        except ValueError as error:
            self._dismiss(guest, str(error))
            return
        if not guest.expected:
            self._enter(guest, self._silent)

    def _attend(self, guest: Guest, mask: int) -> None:
        """Read from a guest, and decide once it has shown who it is."""
        stream = guest.stream
        if stream.closed:
            return
        if mask & selectors.EVENT_WRITE:
            stream.flush()
        if guest in self._leaving:
            stream.drop_input()
        elif mask & selectors.EVENT_READ:
            try:
                hello = guest.advance(self._keys)
            except ValueError as error:
                self._dismiss(guest, str(error))
                if isinstance(error, OtherVersion):
                    self._differ(error)
                return
            if hello is not None:
                self._decide(guest, hello)
                return
        if stream.ended:
            self._discard(guest)
        else:
            self._watch(stream, guest, reading=True)

    def _refuse(self, guest: Guest, answer: Admission, rank: int, why: str) -> None:
        """Answer a guest that it is not let in, and dismiss it."""
        guest.refuse(Welcome(answer, rank, len(self.peers) + 1))
        self._dismiss(guest, why)

    def _dismiss(self, guest: Guest, why: str) -> None:
        """Refuse a guest, and leave it a moment to read why."""
        # A load balancer that checks every few seconds whether the port is open would fill the log.
        if not (guest.own and guest.stream.ended):
            self._strangers.dropped(guest.stream.name, why)
        guest.stream.flush()
        guest.stream.end_output()  # the other end still has time to read it
        guest.deadline = time.monotonic() + _LEAVING_S
        self._enter(guest, self._leaving)
        guest.stream.drop_input()
        if guest.stream.ended:
            self._discard(guest)
        else:
            self._watch(guest.stream, guest, reading=True)

    def _show(self, guest: Guest, offer: bytes, rank: int) -> None:
        """Send a guest the offer of this run; it leaves once it has read it, or at its deadline."""
        answer = Welcome(Admission.OFFER, rank, len(self.peers) + 1, ASKS, len(offer))
        guest.stream.write(answer.encode() + offer)
        guest.stream.flush()
        guest.deadline = time.monotonic() + _LEAVING_S
        self._enter(guest, self._leaving)
        self._watch(guest.stream, guest, reading=True)

    def _discard(self, guest: Guest) -> None:
        """Drop a guest at once."""
        self._dequeue(guest)
        self._forget(guest.stream)
        guest.stream.close()

    def _keep_count(self, stream: Stream) -> None:
        """Add the bytes of a connection that ends now to the count."""
        counted = stream.count()
        self._past = None if counted is None or self._past is None else self._past + counted
        self._past_tls_bytes += stream.tls_bytes

    def _close_port(self) -> None:
        """Stop listening, and drop all guests."""
        for listener in self._listeners:
            self._selector.unregister(listener)
        close_all(self._listeners)
        self._listeners.clear()
        for queue in self._queues:
            for guest in list(queue):
                self._discard(guest)


def allow_files(clients: int) -> None:
    """Raise this process's limit of open files to one for each client and one for each guest.

    Raises
    ------
    ConfigError
        The limit cannot be raised that far.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = clients + _OTHER_FILES
    enough = least + _QUEUES * MAX_GUESTS
    infinite = resource.RLIM_INFINITY
    if soft != infinite and soft < enough:
        soft = enough if hard == infinite else min(enough, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft != infinite and soft < least + _QUEUES:
        raise ConfigError(
            f"{clients} clients need at least {least + _QUEUES} open files, and this process may open {soft}: raise "
            f"the limit first (`ulimit -n {enough}`, or LimitNOFILE of a service)"
        )


def close_all(listeners: Iterable[socket.socket]) -> None:
    """Close sockets, whatever state they are in."""
    for listener in listeners:
        with contextlib.suppress(OSError):
            listener.close()
