"""Frames as calls of a framework that already connects the parties, such as NVFlare.

::

    version u8 | number u64 | frames: length u32, bytes      the bytes of one call, little endian

The framework offers one thing: to call a function of another party with some bytes, which returns or fails. A thread
per peer makes these calls one after the other, each with the frames that wait. It calls `take` at the other end. A
failed call is repeated under its number, so each frame arrives once, whole and in order, as long as the framework
reaches the peer now and then. Server and clients also call each other without frames, to notice when the other is gone.

Source: docs/nvflare.md, "On the wire".
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fastlloyd.errors import InternalError, Interrupted, PeerError, PeerGone
from fastlloyd.net.transport import Transport
from fastlloyd.wire.header import SERVER, PartyId

Call = Callable[[PartyId, bytes], object]
"""Calls `take` of a peer; gives what that returned, or raises if it was not reached."""
VERSION = 1
BATCH_BYTES = 1 << 20
"""No further frame is put into a call that has so many bytes."""
MOST_FRAMES = 1 << 12
_HEAD = struct.Struct("<BQ")
_LENGTH = struct.Struct("<I")
# Above it a peer that does not take its frames counts as gone.
WAITING_BYTES = 1 << 28
# Above it a peer's frames stay with it until some were taken.
INBOX_BYTES = 1 << 22
FRAME_COST = 64
BEAT_S = 1.0
CLOSE_S = 5.0
STOP_S = 5.0
"""How long a party that is told to stop waits for the others to say who is to blame."""
_SETTLE_S = 1.0
"""What a server that is told to stop waits for calls under way; one that took longer without an answer has failed."""
_LOST_S = 2.0
_LOOK_S = 0.2
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_MOST_WORDS = 200


@dataclass(slots=True, eq=False)
class _Way:
    """What this end knows of the way to one peer.

    Attributes
    ----------
    peer : PartyId
    work : threading.Condition
        Told when there is something to send, or nothing more to wait for.
    waiting, waiting_bytes
        Frames for it.
    unread_bytes : int
        How much has come from it and was not received yet.
    sent, taken : int
        How many calls each end has taken of the other.
    busy, heard, failing, gone : bool
        Whether a call is under way; whether it has ever answered or called; whether the last call failed; whether it is
        lost.
    """

    peer: PartyId
    work: threading.Condition
    waiting: deque[bytes] = field(default_factory=deque)
    waiting_bytes: int = 0
    unread_bytes: int = 0
    sent: int = 0
    taken: int = 0
    busy: bool = False
    heard: bool = False
    failing: bool = False
    gone: bool = False

    @property
    def pending(self) -> bool:
        """Whether there is something that could still be delivered."""
        return not self.gone and (self.busy or bool(self.waiting))


class CallTransport(Transport):
    """One party's frames; `take` is to be called by the framework, in any thread.

    Parameters
    ----------
    me : PartyId
    peers : tuple of PartyId
    call : callable
        Calls a peer's `take`; may be called in several threads, for different peers.
    gone_s : float
        How long a peer may be out of reach; 0: one call may not fail.
    first_s : float
        The same before it was reached for the first time.
    stopped : callable
        Whether the framework has told this party to stop: by a person, or because it knows that another has ended.
    beat_s : float
        After so long without a frame the server and its clients call each other.
    close_deadline_s : float
        For the last frames in `close`.
    """

    def __init__(
        self,
        me: PartyId,
        peers: tuple[PartyId, ...],
        call: Call,
        *,
        gone_s: float,
        first_s: float,
        stopped: Callable[[], bool] = lambda: False,
        beat_s: float = BEAT_S,
        close_deadline_s: float = CLOSE_S,
    ) -> None:
        self.me = me
        self.peers = peers
        self._call = call
        self._gone_s = gone_s
        self._first_s = first_s
        self._stopped = stopped
        self._beat_s = beat_s
        self._close_deadline_s = close_deadline_s
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._inbox: deque[tuple[_Way, bytes] | PeerError] = deque()
        self._ways = {peer: _Way(peer, threading.Condition(self._lock)) for peer in peers}
        self._carriers: dict[PartyId, threading.Thread] = {}
        self._closed = False
        self._over = False
        self._stop_at: float | None = None
        self._has_stopped = False
        for peer in peers if me == SERVER else (SERVER,):
            self._start(self._ways[peer])

    @property
    def absent(self) -> frozenset[PartyId]:
        """Peers that have never answered nor called."""
        return frozenset(peer for peer, way in self._ways.items() if not way.heard and not way.gone)

    def send(self, peer: PartyId, frame: bytes | bytearray | memoryview) -> None:
        """Keep a copy of the frame until the framework has delivered it.

        Raises
        ------
        PeerGone
            The peer is lost, or has left too much untaken.
        """
        copy = bytes(frame)
        self.check_send(peer, len(copy))
        way = self._ways[peer]
        with self._lock:
            self._require_open()
            if way.waiting_bytes > WAITING_BYTES:
                error = PeerGone(f"{peer} counts as gone: it leaves its frames untaken", rank=peer.rank)
                self._lose(way, error)
                raise error
            if way.gone:
                raise PeerGone(f"{peer} is gone: the framework does not reach it", rank=peer.rank)
            way.waiting.append(copy)
            way.waiting_bytes += len(copy) + FRAME_COST
            if peer not in self._carriers:
                self._start(way)
            way.work.notify_all()

    def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
        """Return the next frame of any peer, or None after `timeout_s` seconds.

        Raises
        ------
        PeerGone
            A peer is lost; once, after its last frame.
        PeerError
            A peer sent what is no frame, or a longer one than it may.
        Interrupted
            The framework has told this party to stop, and nobody has said why; once.
        """
        end = time.monotonic() + timeout_s
        with self._lock:
            self._require_open()
            while True:
                self._heed()
                if self._inbox:
                    break
                remaining_s = end - time.monotonic()
                if remaining_s <= 0:
                    return None
                self._news.wait(min(remaining_s, _LOOK_S))
            item = self._inbox.popleft()
            if isinstance(item, PeerError):
                raise item
            way, frame = item
            way.unread_bytes -= len(frame) + FRAME_COST
            if len(frame) > self.most_frame:
                raise self.too_long(way.peer, len(frame))
            return way.peer, frame

    def take(self, sender: PartyId, content: object) -> bool:
        """Take one call of a peer in; the framework has found out whose it is.

        Parameters
        ----------
        sender : PartyId
        content : object
            What the framework has brought: hostile until decoded.

        Returns
        -------
        bool
            False if there is no room now: the peer is to call again.

        Raises
        ------
        ValueError
            It is no call of a party of this run, or comes after one that was lost.
        """
        way = self._ways.get(sender)
        if way is None:
            raise ValueError(f"{sender} does not take part")
        try:
            number, frames = decode_call(content)
        except ValueError as error:
            with self._lock:
                self._lose(way, PeerError(f"{sender} sent what is no frame: {error}", rank=sender.rank))
            raise
        with self._lock:
            if self._closed:
                return True
            if way.gone or number > way.taken:
                raise ValueError(f"call {number} of {sender} is not expected here, after {way.taken} were taken")
            way.heard = True
            if number < way.taken:
                return True
            if way.unread_bytes > INBOX_BYTES:
                return False
            way.taken += 1
            for frame in frames:
                way.unread_bytes += len(frame) + FRAME_COST
                self._inbox.append((way, frame))
            self._news.notify_all()
            return True

    def lose(self, peer: PartyId, why: str) -> None:
        """Count a peer as gone, for the framework says so."""
        with self._lock:
            self._lose(self._ways[peer], PeerGone(f"{peer} is gone: {why}", rank=peer.rank))

    def close(self, *, lost: bool = False) -> None:
        """Wait until the framework has delivered the last frames; with `lost`, not for whom it does not reach."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._inbox.clear()
            end = time.monotonic() + (_LOST_S if lost else self._close_deadline_s)
            self._wake()
            while any(way.pending and not (lost and way.failing) for way in self._ways.values()):
                remaining_s = end - time.monotonic()
                if remaining_s <= 0:
                    break
                self._news.wait(remaining_s)
            self._over = True
            self._wake()

    def _start(self, way: _Way) -> None:
        """Begin to make calls to a peer."""
        carrier = threading.Thread(target=self._carry, args=(way,), name=f"calls-{way.peer.rank}", daemon=True)
        self._carriers[way.peer] = carrier
        carrier.start()

    def _carry(self, way: _Way) -> None:
        """Make one call after the other until this end is closed or the peer is lost."""
        while (content := self._next(way)) is not None:
            self._deliver(way, content)

    def _next(self, way: _Way) -> bytes | None:
        """Wait for frames, or until it is time for a call without any; None when there are no more."""
        with self._lock:
            beats = SERVER in (self.me, way.peer)
            end = time.monotonic() + self._beat_s
            while not way.waiting and not self._closed and not way.gone:
                remaining_s = end - time.monotonic()
                if beats and remaining_s <= 0:
                    break
                way.work.wait(remaining_s if beats else None)
            if self._over or way.gone or (self._closed and not way.waiting):
                return None
            frames: list[bytes] = []
            size = 0
            while way.waiting and size < BATCH_BYTES and len(frames) < MOST_FRAMES:
                frames.append(way.waiting.popleft())
                size += len(frames[-1])
                way.waiting_bytes -= len(frames[-1]) + FRAME_COST
            way.busy = True
            return encode_call(way.sent, frames)

    def _deliver(self, way: _Way, content: bytes) -> None:
        """Make one call until it is taken, or the peer counts as gone."""
        limit_s = self._gone_s if way.heard else self._first_s
        end = time.monotonic() + limit_s
        pause_s = _FIRST_PAUSE_S
        while True:
            begun = time.monotonic()
            try:
                answer, why = self._call(way.peer, content), "its answer is none"
            except Exception as error:  # whatever a framework raises
                answer, why = None, f"{type(error).__name__}: {error}"[:_MOST_WORDS]
            with self._lock:
                if isinstance(answer, bool):
                    # One that has no room is there; the deadlines say how long it may be slow.
                    way.heard = True
                    way.failing = way.failing and self._stopped()
                    way.sent += answer
                    limit_s = self._gone_s
                    end = time.monotonic() + limit_s
                else:
                    # Told to stop, a framework breaks off calls to those that are there, too.
                    slow = time.monotonic() - begun >= _SETTLE_S
                    way.failing = way.failing or slow or not self._stopped()
                if not isinstance(answer, bool) and time.monotonic() >= end:
                    words = f"{way.peer} is gone: the framework did not reach it for {limit_s:g} s ({why})"
                    self._lose(way, PeerGone(words, rank=way.peer.rank))
                if answer is True or self._over or way.gone:
                    way.busy = False
                    self._news.notify_all()
                    return
                self._pause(way, pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _pause(self, way: _Way, pause_s: float) -> None:
        """Wait before a call is made again, whatever else there is to send."""
        end = time.monotonic() + pause_s
        while not self._over and not way.gone and (remaining_s := end - time.monotonic()) > 0:
            way.work.wait(remaining_s)

    def _heed(self) -> None:
        """Stop if that is asked for; who could not be reached just then is the reason, as far as this end can tell."""
        now = time.monotonic()
        if self._has_stopped or not (self._stop_at or self._stopped()):
            return
        if self._stop_at is None:
            # A client leaves it to the server to say why.
            self._stop_at = now + (_SETTLE_S if self.me == SERVER else STOP_S)
        for way in self._ways.values():
            if way.failing and not way.gone:
                words = f"{way.peer} is gone: the framework did not reach it, and ended the job"
                self._lose(way, PeerGone(words, rank=way.peer.rank), first=True)
                self._stop_at = now + STOP_S
        if now >= self._stop_at:
            self._has_stopped = True
            raise Interrupted("told to stop by the framework: by a person, or because another site ended")

    def _lose(self, way: _Way, error: PeerError, *, first: bool = False) -> None:
        """Count a peer as lost; `receive` tells why, after all that has come or before."""
        if way.gone:
            return
        way.gone = True
        way.waiting.clear()
        way.waiting_bytes = 0
        if first:
            self._inbox.appendleft(error)
        else:
            self._inbox.append(error)
        self._wake()

    def _wake(self) -> None:
        """Let everybody look again."""
        self._news.notify_all()
        for way in self._ways.values():
            way.work.notify_all()

    def _require_open(self) -> None:
        if self._closed:
            raise InternalError(f"the transport of {self.me} was closed")


def encode_call(number: int, frames: Iterable[bytes]) -> bytes:
    """Write the bytes of one call."""
    parts = [_HEAD.pack(VERSION, number)]
    for frame in frames:
        parts += [_LENGTH.pack(len(frame)), frame]
    return b"".join(parts)


def decode_call(content: object) -> tuple[int, list[bytes]]:
    """Read a call; gives its number and its frames.

    Raises
    ------
    ValueError
        These are no bytes, of another version, cut, or of too many frames.
    """
    if not isinstance(content, bytes):
        raise ValueError(f"expected bytes, got {type(content).__name__}")
    if len(content) < _HEAD.size:
        raise ValueError(f"expected at least {_HEAD.size} bytes, got {len(content)}")
    version, number = _HEAD.unpack_from(content)
    if version != VERSION:
        raise ValueError(
            f"expected version {VERSION} of a call, got {version}: install the same fastlloyd at all sites"
        )
    frames: list[bytes] = []
    place = _HEAD.size
    while place < len(content):
        if place + _LENGTH.size > len(content) or len(frames) == MOST_FRAMES:
            raise ValueError(f"expected whole frames, at most {MOST_FRAMES}")
        (length,) = _LENGTH.unpack_from(content, place)
        place += _LENGTH.size
        if length > len(content) - place:
            raise ValueError(f"a frame of {length} bytes was announced, and {len(content) - place} came")
        frames.append(content[place : place + length])
        place += length
    return number, frames
