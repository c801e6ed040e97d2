"""The server's open port: strangers become guests, and guests that show who they are become clients.

Whoever connects has a few seconds to show who it is, and is dropped otherwise; nothing that a stranger does
reaches a run.

Source: docs/sites.md, "Firewall".
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fastlloyd.net.address import peer_name
from fastlloyd.net.admission import Guest, Keys, StrangerLog
from fastlloyd.net.stream import Stream
from fastlloyd.net.tcp import TcpTransport
from fastlloyd.wire import SERVER, PartyId

ADMISSION_S = 5.0
MAX_GUESTS = 64
_LAST_WORDS_S = 1.0


class Door(TcpTransport):
    """A server's transport as far as it is about whom to let in; `hub.TcpServer` is the rest.

    Parameters
    ----------
    listeners : sequence of socket
    clients : tuple of PartyId
    keys : Keys or None
    warn : callable
    admission_s : float
    close_deadline_s : float
        All as in `TcpServer`.
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
    ) -> None:
        super().__init__(SERVER, clients, close_deadline_s)
        self._keys = keys
        self._strangers = StrangerLog(warn)
        self._admission_s = admission_s
        self._guests: list[Guest] = []
        self._listeners = list(listeners)
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ, listener)

    def close(self, *, lost: bool = False) -> None:
        """Close the port, drop strangers, then as in `TcpTransport.close`."""
        if not self._closed:
            self._close_port()
        super().close(lost=lost)

    @abstractmethod
    def _decide(self, guest: Guest, rank: int) -> None:
        """Let a guest in that has shown who it is, or send it away."""

    def _open(self, holder: Any, mask: int) -> None:
        """Deal with a listener or a guest that has something."""
        if isinstance(holder, Guest):
            self._attend(holder, mask)
        elif holder in self._listeners:  # not closed a moment ago
            self._accept(holder)

    def _until_next_deadline(self, timeout_s: float) -> float:
        """Wake up in time for the guest whose time is up next."""
        if not self._guests:
            return timeout_s
        first = min(guest.deadline for guest in self._guests)
        return min(timeout_s, max(0.0, first - time.monotonic()))

    def _send_away(self) -> None:
        """Drop guests whose time is up."""
        now = time.monotonic()
        for guest in [guest for guest in self._guests if guest.deadline <= now]:
            if not guest.leaving:
                self._strangers.dropped(guest.stream.name, f"it did not show who it is in {self._admission_s:g} s")
            self._discard(guest)

    def _let_in(self, guest: Guest) -> None:
        """Take a guest off the list: its stream gets a place."""
        self._guests.remove(guest)
        self._forget(guest.stream)

    def _accept(self, listener: socket.socket) -> None:
        """Take a connection in as a guest."""
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # Out of descriptors, most likely: the oldest stranger makes room.
            self._strangers.dropped("somebody", str(error.strerror).lower())
            if self._guests:
                self._discard(self._guests[0])
            return
        try:
            stream = Stream(connection, None if self._keys is None else self._keys.context, server_side=True)
        except OSError:
            self._strangers.dropped(peer_name(connection), "it hung up at once")
            connection.close()
            return
        if len(self._guests) >= MAX_GUESTS:
            self._strangers.dropped(self._guests[0].stream.name, f"{MAX_GUESTS} others wait to show who they are")
            self._discard(self._guests[0])
        guest = Guest(stream, time.monotonic() + self._admission_s)
        self._guests.append(guest)
        self._watch(stream, guest, reading=True)

    def _attend(self, guest: Guest, mask: int) -> None:
        """Listen to a guest, and decide once it has said who it is."""
        if guest not in self._guests:
            return
        stream = guest.stream
        if mask & selectors.EVENT_WRITE:
            stream.flush()
        if guest.leaving:
            stream.drop_input()
        elif mask & selectors.EVENT_READ:
            try:
                rank = guest.advance(self._keys)
            except ValueError as error:
                self._dismiss(guest, str(error))
                return
            if rank is not None:
                self._decide(guest, rank)
                return
        if stream.ended:
            self._discard(guest)
        else:
            self._watch(stream, guest, reading=True)

    def _dismiss(self, guest: Guest, why: str) -> None:
        """Drop a guest, with a moment to read why."""
        self._strangers.dropped(guest.stream.name, why)
        guest.dismiss()
        guest.deadline = time.monotonic() + _LAST_WORDS_S
        guest.stream.drop_input()
        if guest.stream.ended:
            self._discard(guest)
        else:
            self._watch(guest.stream, guest, reading=True)

    def _discard(self, guest: Guest) -> None:
        """Forget a guest at once."""
        self._guests.remove(guest)
        self._forget(guest.stream)
        guest.stream.close()

    def _close_port(self) -> None:
        """Listen no more, and drop whoever waits there."""
        for listener in self._listeners:
            self._selector.unregister(listener)
        close_all(self._listeners)
        self._listeners.clear()
        for guest in list(self._guests):
            self._discard(guest)


def close_all(listeners: Iterable[socket.socket]) -> None:
    """Close sockets, whatever state they are in."""
    for listener in listeners:
        with contextlib.suppress(OSError):
            listener.close()
