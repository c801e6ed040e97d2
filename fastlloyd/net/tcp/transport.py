"""Frames over one TCP connection per client, for sites that no single mpirun can start.

The server listens on one port (`net/tcp/hub.py`), clients connect to it (`net/tcp/spoke.py`), and frames between
clients pass through the server: it sees which client sends how many bytes to which, but cannot read them, since
the links on top (`net/link/secure.py`) are encrypted end to end. Everything is non-blocking and in the calling thread;
bytes move during `send`, `receive` and `close`.

When a connection ends, `receive` returns its last frames and then raises `PeerGone` once. A connection that was cut
without an announced end may be replaced for a while first (`net/tcp/delivery.py`); the layers above do not notice. One
that nothing comes from while bytes are on their way counts as cut.

Source: docs/sites.md.
"""

from __future__ import annotations

import contextlib
import selectors
import ssl
import time
from abc import abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from fastlloyd.errors import InternalError, PeerError, PeerGone, SecurityError
from fastlloyd.net.tcp.admission import tls_problem
from fastlloyd.net.tcp.delivery import CONTROL_RANK, FRAME_COST, Control, Delivery
from fastlloyd.net.tcp.stream import Stream, TooLong
from fastlloyd.net.transport import Transport
from fastlloyd.wire.header import PartyId

# A peer that leaves more than this unread counts as gone.
WAITING_BYTES = 1 << 28
# With more than this in the inbox, a peer's frames stay in the network.
INBOX_BYTES = 1 << 22
CLOSE_S = 5.0
_LOST_S = 0.5
SILENCE_S = 60.0
"""How long, at most, a connection may leave unconfirmed what was sent on it."""
# Proxies and load balancers cut connections that are silent for a minute.
_BEATS = 3
_FEED_BYTES = 1 << 18


@dataclass(slots=True, eq=False)
class Connection:
    """One connection and this side's queues for it.

    Attributes
    ----------
    party : PartyId
        The other end.
    stream : Stream or None
        None before it has joined and while its connection is cut.
    delivery : Delivery
        Frames that wait for it, and its confirmations.
    waiting_bytes : int
        Bytes that came from it and were not taken yet.
    held : (Connection, bytes) or None
        A frame for another client, and the client that must read first.
    since : float
        When `held` arrived.
    moved : (int, float)
        Bytes sent, and when that number last changed.
    cut : float
        When its connection was cut.
    returns : int
        Number of reconnections.
    accused : bool
        Whether an aggregator has reported its fault.
    gone : bool
    """

    party: PartyId
    stream: Stream | None = None
    delivery: Delivery = field(default_factory=Delivery)
    waiting_bytes: int = 0
    held: tuple[Connection, bytes] | None = None
    since: float = 0.0
    moved: tuple[int, float] = (0, 0.0)
    cut: float = 0.0
    returns: int = 0
    accused: bool = False
    gone: bool = False

    def __str__(self) -> str:
        return str(self.party)

    @property
    def backlog(self) -> int:
        """Bytes that wait to be sent to it."""
        return self.delivery.waiting_bytes + (0 if self.stream is None else self.stream.waiting_bytes)

    @property
    def open(self) -> bool:
        """Whether more may be read from it now."""
        return self.held is None and self.waiting_bytes < INBOX_BYTES

    def put(self, rank: int, frame: bytes) -> None:
        """Send a frame, or queue it until the other end takes it."""
        if not self.gone:
            self.delivery.put(rank, frame)
            self.feed()

    def feed(self) -> None:
        """Hand queued frames to the connection as fast as it takes them."""
        stream = self.stream
        if stream is not None:
            while stream.waiting_bytes < _FEED_BYTES and not stream.broken and (found := self.delivery.next()):
                stream.put_frame(*found, self.delivery.confirmation())

    def send_control(self, word: Control) -> None:
        """Send a control frame, which also confirms."""
        if self.stream is not None:
            # After a failure of TLS nothing can be sent.
            with contextlib.suppress(ssl.SSLError):
                self.stream.put_frame(CONTROL_RANK, bytes([word]), self.delivery.confirmation())
                # That may have made room for queued frames.
                self.feed()


class TcpTransport(Transport):
    """What both ends share: connections, the inbox, waiting, closing.

    Parameters
    ----------
    me : PartyId
    peers : tuple of PartyId
    close_deadline_s : float
        For the last frames in `close`.
    reconnect_s : float
        How long to wait for a cut connection; 0: not at all.
    silence_s : float
        How long the other end's kernel may confirm nothing; then the connection counts as cut. A control frame is sent
        at least three times as often. Without effect on connections that cannot be replaced.
    """

    def __init__(
        self,
        me: PartyId,
        peers: tuple[PartyId, ...],
        close_deadline_s: float,
        reconnect_s: float = 0.0,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.me = me
        self.peers = peers
        self._close_deadline_s = close_deadline_s
        self._reconnect_s = reconnect_s
        self._silence_s = silence_s
        self._beat_s = silence_s / _BEATS
        self._next_beat = 0.0
        self._selector = selectors.DefaultSelector()
        self._masks: dict[Stream, int] = {}
        self._inbox: deque[tuple[Connection, PartyId, bytes] | PeerError] = deque()
        self._closed = False

    def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
        """Return the next frame of any peer, or None after `timeout_s` seconds; all bytes move meanwhile.

        Raises
        ------
        PeerGone
            A connection ended; once, after its last frame.
        PeerError
            A peer sent an invalid frame.
        """
        self._require_open()
        end = time.monotonic() + timeout_s
        self._beat()
        self._pump(0.0)
        while not self._inbox:
            remaining_s = end - time.monotonic()
            if remaining_s <= 0:
                return None
            self._pump(remaining_s)
            self._beat()
        item = self._inbox.popleft()
        if isinstance(item, PeerError):
            raise item
        place, sender, frame = item
        was_open = place.open
        place.waiting_bytes -= len(frame) + FRAME_COST
        if not was_open and not place.gone:
            self._sort(place)
        return sender, frame

    def close(self, *, lost: bool = False) -> None:
        """Send the last frames, and wait until the others have read them; with `lost`, at most half a second."""
        if self._closed:
            return
        self._closed = True
        self._inbox.clear()
        end = time.monotonic() + (_LOST_S if lost else self._close_deadline_s)
        open_ends = [(place, place.stream) for place in self._places() if place.stream is not None and not place.gone]
        announced: set[Stream] = set()
        while open_ends:
            for place, stream in open_ends:
                place.feed()
                if not place.delivery.waiting_bytes and stream not in announced:
                    announced.add(stream)
                    place.send_control(Control.END)
                stream.flush()
                if stream in announced and not stream.waiting_bytes and not stream.broken:
                    stream.end_output()
                # With unread bytes, closing would make the kernel discard what is on its way to the peer.
                stream.drop_input()
                self._watch(stream, stream, reading=True)
            open_ends = [(place, stream) for place, stream in open_ends if not stream.ended]
            remaining_s = end - time.monotonic()
            if remaining_s <= 0:
                break
            if open_ends:
                self._selector.select(remaining_s)
        for place in self._places():
            if place.stream is not None:
                place.stream.close()
        self._selector.close()

    @abstractmethod
    def _places(self) -> list[Connection]:
        """Return all connections."""

    @abstractmethod
    def _pump(self, timeout_s: float) -> None:
        """Move bytes; wait for the first until the next control frame is due, and at most `timeout_s`."""

    @abstractmethod
    def _route(self, place: Connection, rank: int, frame: bytes) -> None:
        """Deliver a received frame; raise ValueError if it has no valid receiver."""

    def _limit(self, place: Connection) -> int:
        """Return the largest size of a frame of this connection."""
        return self.most_frame

    def _sender(self, place: Connection, rank: int) -> PartyId:
        """Return the sender of a frame with this rank in its header."""
        return place.party

    def _keep(self, place: Connection, sender: PartyId, frame: bytes) -> None:
        """Put a frame into the inbox."""
        place.waiting_bytes += len(frame) + FRAME_COST
        self._inbox.append((place, sender, frame))

    def _move(self, place: Connection, mask: int) -> None:
        """Write and read as far as possible now."""
        stream = place.stream
        if stream is None or place.gone:
            return
        if mask & selectors.EVENT_WRITE:
            stream.flush()
            place.feed()
        if mask & selectors.EVENT_READ:
            try:
                stream.fill()
            except ssl.SSLError as error:
                text = f"{place}: {tls_problem(error)}; check the network between the two"
                self._lose(place, SecurityError(text, rank=place.party.rank))
                return
        self._sort(place)

    def _sort(self, place: Connection) -> None:
        """Route the complete frames, and note the end after the last one."""
        stream = place.stream
        if stream is None or place.gone:
            return
        try:
            while place.open and (found := stream.next_frame(self._limit(place))) is not None:
                self._take(place, *found)
        except TooLong as error:
            self._lose(place, self.too_long(self._sender(place, error.rank), error.size))
            return
        except ValueError as error:
            text = f"{place} sent an invalid frame: {error}"
            self._lose(place, PeerError(text, rank=place.party.rank))
            return
        if place.open and (stream.ended or place.delivery.over):
            if self._may_return(place):
                self._miss(place, stream)
            else:
                text = f"{place} is gone: its connection ended"
                self._lose(place, PeerGone(text, rank=place.party.rank))
            return
        if place.delivery.due:
            place.send_control(Control.CONFIRM)
        self._watch(stream, place, reading=place.open)

    def _take(self, place: Connection, rank: int, taken: int, frame: bytes) -> None:
        """Count and route a frame; raise ValueError if it is invalid."""
        place.delivery.confirm(taken)
        if rank != CONTROL_RANK:
            place.delivery.take(len(frame))
            self._route(place, rank, frame)
        elif frame == bytes([Control.END]):
            place.delivery.over = True
        elif frame != bytes([Control.CONFIRM]):
            raise ValueError("an unknown control frame")

    def _beat(self) -> None:
        """Send a control frame on every connection now and then, so that none is silent for long without being cut."""
        now = time.monotonic()
        if now < self._next_beat:
            return
        for place in self._places() if self._next_beat else ():
            stream = place.stream
            if stream is None or place.gone:
                continue
            place.send_control(Control.CONFIRM)
            if self._may_return(place):
                stream.check_silence(self._silence_s)
            if stream.silent:
                self._sort(place)
            else:
                self._watch(stream, place, reading=place.open)
        self._next_beat = now + self._beat_s

    def _may_return(self, place: Connection) -> bool:
        """Whether another connection may continue this one."""
        return bool(self._reconnect_s) and not place.delivery.over

    def _miss(self, place: Connection, stream: Stream) -> None:
        """Set a cut connection aside: another one may continue its session."""
        self._forget(stream)
        stream.close()
        place.stream = None
        place.cut = time.monotonic()

    def _continue(self, place: Connection, stream: Stream, taken: int) -> None:
        """Continue a session on another connection; its other end has taken `taken` frames (ValueError: impossible)."""
        place.delivery.rewind(taken)
        if place.stream is not None:
            self._forget(place.stream)
            place.stream.close()
        place.stream = stream
        place.moved = (0, time.monotonic())
        self._guard(place)

    def _guard(self, place: Connection) -> None:
        """Let the kernel, too, notice that a connection which can be replaced is gone: this process may compute."""
        if place.stream is not None and self._may_return(place):
            place.stream.keep_alive(self._silence_s)

    def _how(self, stream: Stream) -> str:
        """Say in brackets how a connection was cut, if it did not just end."""
        return f" (nothing has come from it for {self._silence_s:g} s)" if stream.silent else ""

    def _lose(self, place: Connection, error: PeerError) -> None:
        """End a connection; `receive` raises the error."""
        if not place.gone:
            self._inbox.append(error)
            self._end(place)

    def _end(self, place: Connection) -> None:
        """Announce the end of a connection, and close it."""
        place.gone = True
        place.held = None
        if place.stream is not None:
            self._forget(place.stream)
            place.send_control(Control.END)
            place.stream.close()
        place.delivery.forget()

    def _send_to(self, place: Connection, peer: PartyId, rank: int, frame: bytes | bytearray | memoryview) -> None:
        """Queue a frame for a connection, unless it is gone or reads nothing."""
        self._require_open()
        copy = bytes(frame)
        self.check_send(peer, len(copy))
        if place.backlog > WAITING_BYTES:
            text = f"{place.party} counts as gone: it left {place.backlog} bytes unread; look at its own messages"
            error = PeerGone(text, rank=place.party.rank)
            self._lose(place, error)
            raise error
        broken = place.stream is not None and place.stream.broken and not self._reconnect_s
        if place.gone or broken:
            relays = "" if peer == place.party else f" and relays to {peer}"
            raise PeerGone(f"{place.party}{relays} is gone: its connection ended", rank=place.party.rank)
        self._put(place, rank, copy)

    def _put(self, place: Connection, rank: int, frame: bytes) -> None:
        """Queue a frame for a connection, and send what it takes."""
        place.put(rank, frame)
        if place.stream is not None and not place.gone:
            self._watch(place.stream, place, reading=place.open)

    def _watch(self, stream: Stream, holder: Any, *, reading: bool) -> None:
        """Let the selector watch a stream for reading, and for writing if bytes wait."""
        mask = selectors.EVENT_READ if reading and not stream.ended else 0
        if stream.waiting_bytes and not stream.broken:
            mask |= selectors.EVENT_WRITE
        known = self._masks.get(stream, 0)
        if mask == 0:
            self._forget(stream)
        elif known == 0:
            self._selector.register(stream, mask, holder)
            self._masks[stream] = mask
        elif mask != known:
            self._selector.modify(stream, mask, holder)
            self._masks[stream] = mask

    def _forget(self, stream: Stream) -> None:
        """Remove a stream from the selector."""
        if self._masks.pop(stream, 0):
            self._selector.unregister(stream)

    def _require_open(self) -> None:
        if self._closed:
            raise InternalError(f"the TCP transport of {self.me} was closed")
