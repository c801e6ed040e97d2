"""The server's open port: strangers become guests, and guests that show who they are become clients.

Whoever connects has a few seconds to show who it is, and is dropped otherwise; nothing that a stranger does
reaches a run. How many wait, and who goes when too many come, is for `net/tcp/lobby.py`.

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
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.net.sockets import SocketCount
from fastlloyd.net.tcp.address import Network, is_within, peer_name, source_of
from fastlloyd.net.tcp.admission import Guest, Introduction, Keys, StrangerLog
from fastlloyd.net.tcp.lobby import Room
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.net.tcp.transport import TcpTransport
from fastlloyd.wire.header import SERVER, PartyId

ADMISSION_S = 5.0
MAX_GUESTS = 256
"""Connections in each of the rooms of `net/tcp/lobby.py`; fewer where this process may open few files."""

_LAST_WORDS_S = 3.0
# Of all files that this process may open; the rest is for clients, results and libraries.
_GUESTS_SHARE = 6
_OTHER_FILES = 64
_ROOMS = 4
_ACCEPTED_AT_ONCE = 64
_TURNS_AT_ONCE = 4


class Door(TcpTransport):
    """The part of a server's transport that decides whom to let in; `relay.Relay` is the rest.

    Parameters
    ----------
    listeners : sequence of socket
    clients : tuple of PartyId
    keys : Keys or None
    warn : callable
    admission_s : float
    close_deadline_s : float
    reconnect_s : float
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
        balancers: tuple[Network, ...],
    ) -> None:
        super().__init__(SERVER, clients, close_deadline_s, reconnect_s)
        self._keys = keys
        self._balancers = balancers
        self._strangers = StrangerLog(warn)
        self._admission_s = admission_s
        self._past: SocketCount | None = SocketCount()
        self._past_tls_bytes = 0
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        spare = (files - len(clients) - _OTHER_FILES) // _ROOMS
        most = max(1, min(MAX_GUESTS, files // _GUESTS_SHARE, spare))
        self._silent: Room[Guest] = Room(most)
        self._waiting: Room[Guest] = Room(most)
        self._showing: Room[Guest] = Room(most)
        self._leaving: Room[Guest] = Room(most)
        self._rooms = (self._silent, self._waiting, self._showing, self._leaving)
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
        """Let a guest in that has shown who it is, or send it away."""

    def _open(self, holder: Any, mask: int) -> None:
        """Deal with a listener or a guest that has something."""
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
        """Wake up in time for the guest whose turn or end comes next."""
        if self._waiting:
            return 0.0
        for guest in self._due(math.inf):
            timeout_s = min(timeout_s, max(0.0, guest.deadline - time.monotonic()))
        return timeout_s

    def _take_turns(self) -> None:
        """Let a few guests that have said something begin to show who they are."""
        for _ in range(min(len(self._waiting), _TURNS_AT_ONCE)):
            guest = self._waiting.take()
            self._enter(guest, self._showing)
            self._attend(guest, selectors.EVENT_READ)

    def _send_away(self) -> None:
        """Drop guests whose time is up."""
        now = time.monotonic()
        while due := self._due(now):
            for guest in due:
                if guest not in self._leaving:
                    self._strangers.dropped(guest.stream.name, f"it did not show who it is in {self._admission_s:g} s")
                self._discard(guest)

    def _due(self, now: float) -> list[Guest]:
        """Return the oldest guest of each room, if its time is up at `now`."""
        # Those in one room came at about the same time.
        oldest = (next(iter(room), None) for room in self._rooms)
        return [guest for guest in oldest if guest is not None and guest.deadline <= now]

    def _let_in(self, guest: Guest) -> None:
        """Take a guest out of its room: its stream gets a place."""
        self._leave_room(guest)
        self._forget(guest.stream)

    def _accept(self, listener: socket.socket) -> bool:
        """Take a connection in as a guest; False if there is none now."""
        try:
            connection, (host, *_) = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            # Out of descriptors, most likely: the oldest stranger makes room.
            self._strangers.dropped("somebody", str(error.strerror).lower())
            oldest = next((guest for room in self._rooms for guest in room), None)
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
            # Mostly it is there already; until it is, all clients of a load balancer look like one address.
            self._introduce(guest)
        return True

    def _enter(self, guest: Guest, room: Room[Guest]) -> None:
        """Bring a guest into a room; if that is full, somebody has to go."""
        self._leave_room(guest)
        out = room.add(guest, guest.source)
        if out is not None:
            self._strangers.dropped(out.stream.name, f"{room.most} others wait to show who they are")
            self._discard(out)

    def _leave_room(self, guest: Guest) -> None:
        """Take a guest out of the room it is in, if it is in one."""
        for room in self._rooms:
            if guest in room:
                room.remove(guest)

    def _introduce(self, guest: Guest) -> None:
        """Hear from a load balancer whose connection it passes on; its client still has said nothing then."""
        try:
            guest.introduce()
        except ValueError as error:
            self._dismiss(guest, str(error))
            return
        if not guest.expected:
            self._enter(guest, self._silent)

    def _attend(self, guest: Guest, mask: int) -> None:
        """Listen to a guest, and decide once it has said who it is."""
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
                return
            if hello is not None:
                self._decide(guest, hello)
                return
        if stream.ended:
            self._discard(guest)
        else:
            self._watch(stream, guest, reading=True)

    def _dismiss(self, guest: Guest, why: str) -> None:
        """Drop a guest, with a moment to read why."""
        # A load balancer that looks every few seconds whether we are there would fill the log.
        if not (guest.own and guest.stream.ended):
            self._strangers.dropped(guest.stream.name, why)
        guest.dismiss()
        guest.deadline = time.monotonic() + _LAST_WORDS_S
        self._enter(guest, self._leaving)
        guest.stream.drop_input()
        if guest.stream.ended:
            self._discard(guest)
        else:
            self._watch(guest.stream, guest, reading=True)

    def _show(self, guest: Guest, offer: bytes, rank: int) -> None:
        """Tell a guest what run this is; it leaves when it has read that, or when its time is up."""
        guest.show(offer, rank, len(self.peers) + 1)
        guest.deadline = time.monotonic() + _LAST_WORDS_S
        self._enter(guest, self._leaving)
        self._watch(guest.stream, guest, reading=True)

    def _discard(self, guest: Guest) -> None:
        """Forget a guest at once."""
        self._leave_room(guest)
        self._forget(guest.stream)
        guest.stream.close()

    def _keep_count(self, stream: Stream) -> None:
        """Keep what a connection has moved that ends now."""
        counted = stream.count()
        self._past = None if counted is None or self._past is None else self._past + counted
        self._past_tls_bytes += stream.tls_bytes

    def _close_port(self) -> None:
        """Listen no more, and drop whoever waits there."""
        for listener in self._listeners:
            self._selector.unregister(listener)
        close_all(self._listeners)
        self._listeners.clear()
        for room in self._rooms:
            for guest in list(room):
                self._discard(guest)


def allow_files(clients: int) -> None:
    """Let this process open a connection for each client and for those at the door.

    Raises
    ------
    ConfigError
        Its limit cannot be raised that far.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = clients + _OTHER_FILES
    wanted = least + _ROOMS * MAX_GUESTS
    infinite = resource.RLIM_INFINITY
    if soft != infinite and soft < wanted:
        soft = wanted if hard == infinite else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft != infinite and soft < least + _ROOMS:
        raise ConfigError(
            f"{clients} clients need {least + _ROOMS} open files at least, and this process may open {soft}: raise the "
            f"limit first (`ulimit -n {wanted}`, or LimitNOFILE of a service)"
        )


def close_all(listeners: Iterable[socket.socket]) -> None:
    """Close sockets, whatever state they are in."""
    for listener in listeners:
        with contextlib.suppress(OSError):
            listener.close()
