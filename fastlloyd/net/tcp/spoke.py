"""A client's end of TCP: one connection to the server, which relays to the other clients.

Where a proxy is on the way, its kernel confirms what the server never gets. So a client that hears nothing, not even a
control frame, tries another connection beside the one that it has: a server that computes does not answer there either.

Source: docs/sites.md.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections.abc import Callable

from fastlloyd.errors import ConfigError, FastLloydError, PeerError, PeerGone, PeerTimeout
from fastlloyd.net.tcp.admission import Admission, Welcome
from fastlloyd.net.tcp.delivery import NO_ID, Delivery, most_kept
from fastlloyd.net.tcp.route import NOBODY_LISTENS, NOT_LOOKED_UP, Found, Route
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.net.tcp.transport import CLOSE_S, SILENCE_S, Connection, TcpTransport
from fastlloyd.wire.header import SERVER, PartyId, clients

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
_TRY_S = 10.0
_LEAST_TRY_S = 0.05
_REMIND_S = 60.0
"""First reminder that this party still waits; each next one after twice the time."""
GONE_S = 30.0
"""How long a server that was reached before may be away."""


class TcpClient(TcpTransport):
    """A client's connection to the server; made by `join`.

    Parameters
    ----------
    found : (Stream, Welcome)
        From a server that has admitted this client.
    route : Route
        How to reconnect if the connection is cut.
    note : callable
        Receives a sentence about each event.
    close_deadline_s : float
    reconnect_s : float
        How long to try to reconnect; 0: not at all.
    silence_s : float
        As in `TcpTransport`.
    """

    def __init__(
        self,
        found: Found,
        route: Route,
        *,
        note: Callable[[str], None],
        close_deadline_s: float = CLOSE_S,
        reconnect_s: float = 0.0,
        silence_s: float = SILENCE_S,
    ) -> None:
        stream, welcome = found
        me = PartyId(welcome.rank)
        others = tuple(party for party in clients(welcome.parties - 1) if party != me)
        super().__init__(me, (SERVER, *others), close_deadline_s, reconnect_s, silence_s)
        self._server_route = route
        self._note = note
        self._hub = Connection(SERVER, stream, Delivery(most_kept(1, reconnect_s)))
        self._hub.delivery.id = welcome.session
        self._next_try = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._why = "it hung up"
        self._heard = time.monotonic()
        self._doubt_s = silence_s
        self._guard(self._hub)
        self._sort(self._hub)

    def send(self, peer: PartyId, frame: bytes | bytearray | memoryview) -> None:
        """Queue a frame for the server, which relays it if it is for another client.

        Raises
        ------
        PeerGone
            The connection to the server is known to have ended.
        """
        self._send_to(self._hub, peer, peer.rank, frame)

    def _places(self) -> list[Connection]:
        return [self._hub]

    def _pump(self, timeout_s: float) -> None:
        if self._hub.stream is None and not self._hub.gone:
            self._reconnect(timeout_s)
            return
        if timeout_s >= _LEAST_TRY_S and time.monotonic() - self._heard >= self._doubt_s:
            self._try_another(min(timeout_s, _TRY_S, self._silence_s))
        for key, mask in self._selector.select(min(timeout_s, self._beat_s)):
            self._move(key.data, mask)

    def _move(self, place: Connection, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._heard, self._doubt_s = time.monotonic(), self._silence_s
        super()._move(place, mask)

    def _try_another(self, timeout_s: float) -> None:
        """Try once, for at most `timeout_s`, to continue on another connection; without an answer this one stays."""
        self._doubt_s *= 2
        # In clear the server would take the session before this end knows that it answers.
        if not self._may_return(self._hub) or self._server_route.keys is None:
            return
        delivery, stream, end = self._hub.delivery, self._hub.stream, time.monotonic() + timeout_s
        with contextlib.suppress(ConfigError, PeerError):
            found, _, _ = self._server_route.attempt(
                # A server that has computed sends control frames before it answers a handshake.
                end,
                delivery.id,
                delivery.taken,
                unless=lambda: stream is not None and stream.peek_raw(1) != b"",
            )
            if found is not None and stream is not None:
                self._hub.cut, stream.silent = self._heard, True
                self._note(f"the connection to the server was cut{self._how(stream)}; there is another one")
                self._continue_with(*found)

    def _sender(self, place: Connection, rank: int) -> PartyId:
        # The server wrote the header.
        return PartyId(rank) if PartyId(rank) in self.peers else SERVER

    def _route(self, place: Connection, rank: int, frame: bytes) -> None:
        sender = PartyId(rank)
        if sender not in self.peers:
            raise ValueError(f"it is said to come from rank {rank}")
        self._keep(place, sender, frame)

    def _miss(self, place: Connection, stream: Stream) -> None:
        super()._miss(place, stream)
        self._next_try = place.cut + _spread(_FIRST_PAUSE_S)
        self._pause_s = _FIRST_PAUSE_S
        how = self._how(stream)
        self._note(f"the connection to the server was cut{how}; trying for {self._reconnect_s:g} s to come back")

    def _may_return(self, place: Connection) -> bool:
        # An aggregator takes nobody back, nor does a server with --reconnect 0.
        return super()._may_return(place) and place.delivery.id != NO_ID

    def _reconnect(self, timeout_s: float) -> None:
        """Try once, for at most `timeout_s`, to continue the session on another connection."""
        now = time.monotonic()
        end = min(now + timeout_s, self._hub.cut + self._reconnect_s)
        if now >= self._hub.cut + self._reconnect_s:
            self._give_up(
                f"the connection to it was cut, and there was no other in {self._reconnect_s:g} s ({self._why})"
            )
        elif self._next_try > now or end - now < _LEAST_TRY_S:
            time.sleep(max(0.0, min(end, max(self._next_try, now + _LEAST_TRY_S)) - now))
        else:
            delivery = self._hub.delivery
            found = None
            try:
                found, self._why, _ = self._server_route.attempt(min(end, now + _TRY_S), delivery.id, delivery.taken)
            except (ConfigError, PeerError) as error:
                # An unknown host name, or another certificate: this may be temporary.
                self._why = str(error)
            if found is not None:
                self._continue_with(*found)
            else:
                self._next_try = time.monotonic() + _spread(self._pause_s)
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _continue_with(self, stream: Stream, welcome: Welcome) -> None:
        """Continue the session on a new connection, if the server agrees."""
        delivery = self._hub.delivery
        if welcome.answer is not Admission.WELCOME or welcome.session != delivery.id:
            stream.close()
            self._give_up("the connection to it was cut, and it does not take this client back")
            return
        was_s = time.monotonic() - self._hub.cut
        try:
            self._continue(self._hub, stream, welcome.taken)
        except ValueError as error:
            stream.close()
            self._lose(self._hub, PeerError(f"the server cannot continue: {error}", rank=SERVER.rank))
            return
        self._heard, self._doubt_s = time.monotonic(), self._silence_s
        self._note(f"back at the server after {was_s:.1f} s")
        self._hub.feed()
        self._sort(self._hub)

    def _give_up(self, why: str) -> None:
        """Count the server as gone."""
        self._lose(self._hub, PeerGone(f"the server is gone: {why}", rank=SERVER.rank))


def join(
    route: Route,
    *,
    deadline_s: float,
    note: Callable[[str], None],
    allows: str = "--setup-deadline",
    close_deadline_s: float = CLOSE_S,
    reconnect_s: float = 0.0,
    silence_s: float = SILENCE_S,
) -> TcpClient:
    """Connect to the server as `reach` does; return the client's transport.

    Parameters
    ----------
    close_deadline_s, reconnect_s, silence_s : float
        As for `TcpClient`; others as for `reach`.
    """
    found = reach(route, deadline_s=deadline_s, note=note, allows=allows)
    return TcpClient(
        found, route, note=note, close_deadline_s=close_deadline_s, reconnect_s=reconnect_s, silence_s=silence_s
    )


def reach(route: Route, *, deadline_s: float, note: Callable[[str], None], allows: str = "--setup-deadline") -> Found:
    """Connect to the server; try again until the deadline, because the operator may start last.

    A server that was reached and then does not listen for `GONE_S` has ended: it is not awaited.

    Parameters
    ----------
    route : Route
    note : callable
        Receives a sentence about each event.
    allows : str
        The flag that the deadline comes from.

    Raises
    ------
    ConfigError
        The host does not exist, the proxy refuses the connection, or the rank is taken or not in this run.
    SecurityError
        A certificate was refused, or one side has a roster and the other has none.
    PeerGone
        A server was reached, but ended before it admitted this client.
    PeerTimeout, PeerError
        No fastlloyd server answered.
    """
    who = "aggregator" if route.rank == SERVER.rank else "client"
    end = time.monotonic() + deadline_s
    pause_s, remind_s = _FIRST_PAUSE_S, _REMIND_S
    remind = time.monotonic() + remind_s
    there = None
    while True:
        found, why, listens = route.attempt(end)
        if found is not None:
            try:
                found[1].check(route.rank)
            except FastLloydError:
                found[0].close()
                raise
            return found
        if listens:
            there = time.monotonic()
        elif there is not None and time.monotonic() - there >= GONE_S:
            raise PeerGone(
                f"the server at {route} was there and has ended before it let this {who} in: for {GONE_S:g} s "
                f"nobody has listened there ({why}); ask the operator why, and join again once `fastlloyd serve` runs",
                rank=SERVER.rank,
            )
        if time.monotonic() + pause_s >= end:
            ways = route.flag if route.proxy is None else f"{route.flag}, the proxy"
            checks = f"{ways}, that the operator has started `fastlloyd serve`, and the firewalls"
            if why == NOT_LOOKED_UP:
                checks = "that it finds the host (`getent hosts NAME`), or give an address in place of the name"
            raise PeerTimeout(
                f"no server let this {who} in at {route} within {deadline_s:g} s ({why}): check {checks}; "
                f"{allows} allows more time",
                rank=SERVER.rank,
            )
        unclear = not listens and route.proxy is None and why != NOT_LOOKED_UP
        maybe, ask = "", "ask the operator whether `fastlloyd serve` will be started"
        if unclear and why == NOBODY_LISTENS:
            maybe = ": it has not started, or its run has ended"
        elif unclear:  # a machine that can be reached refuses
            maybe = ": a wrong address, a firewall on the way, or a machine that is off"
            ask = f"check {route.flag}, and the firewalls here and at the operator"
        if pause_s == _FIRST_PAUSE_S:
            note(f"waiting for the server at {route} ({why}{maybe}); trying again for {deadline_s:g} s")
        elif time.monotonic() >= remind:
            note(
                f"still waiting for the server at {route} ({why}{maybe}), for {end - time.monotonic():.0f} s more: "
                f"{ask}; Ctrl-C ends this wait"
            )
            remind_s *= 2
            remind = time.monotonic() + remind_s
        # Sites that were refused together must not retry together.
        time.sleep(_spread(pause_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _spread(pause_s: float) -> float:
    """Return a random part of a pause, at least half of it."""
    return pause_s * (0.5 + os.urandom(1)[0] / 510)
