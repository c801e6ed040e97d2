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
"""Calls `take` of a peer; returns its result, or raises if the peer was not reached."""
VERSION = 1
BATCH_BYTES = 1 << 20
"""No further frame is added to a call of this size."""
MOST_FRAMES = 1 << 12
_HEAD = struct.Struct("<BQ")
_LENGTH = struct.Struct("<I")
# A peer that leaves more than this untaken counts as gone.
WAITING_BYTES = 1 << 28
# With more than this in the inbox, a peer must keep its frames and call again.
INBOX_BYTES = 1 << 22
FRAME_COST = 64
BEAT_S = 1.0
CLOSE_S = 5.0
STOP_S = 5.0
"""How long a party that has to stop waits for the others to name the party at fault."""
_SETTLE_S = 1.0
"""How long a server that has to stop waits for current calls; a longer call without an answer has failed."""
_LOST_S = 2.0
_LOOK_S = 0.2
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_MOST_WORDS = 200


@dataclass(slots=True, eq=False)
class _Peer:
    """The state of the calls to and from one peer.

    Attributes
    ----------
    peer : PartyId
    work : threading.Condition
        Notified when there is something to send, or nothing more to wait for.
    waiting, waiting_bytes
        Frames for it.
    unread_bytes : int
        Bytes that came from it and were not received yet.
    sent, taken : int
        Number of calls that each end has taken from the other.
    busy, reached, failing, gone : bool
        Whether a call is in progress; whether it has ever answered or called; whether the last call failed; whether it
        is lost.
    """

    peer: PartyId
    work: threading.Condition
    waiting: deque[bytes] = field(default_factory=deque)
    waiting_bytes: int = 0
    unread_bytes: int = 0
    sent: int = 0
    taken: int = 0
    busy: bool = False
    reached: bool = False
    failing: bool = False
    gone: bool = False

    @property
    def pending(self) -> bool:
        """Whether something may still be delivered."""
        return not self.gone and (self.busy or bool(self.waiting))


class CallTransport(Transport):
    """One party's frames; the framework calls `take`, in any thread.

    Parameters
    ----------
    me : PartyId
    peers : tuple of PartyId
    call : callable
        Calls a peer's `take`; may be called in several threads, for different peers.
    gone_s : float
        How long a peer may be unreachable; 0: no call may fail.
    first_s : float
        The same before its first answer.
    stopped : callable
        Whether the framework stops this party: for a person, or because another party has ended.
    beat_s : float
        Longest time without a call between the server and a client.
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
        self._inbox: deque[tuple[_Peer, bytes] | PeerError] = deque()
        self._peers = {peer: _Peer(peer, threading.Condition(self._lock)) for peer in peers}
        self._carriers: dict[PartyId, threading.Thread] = {}
        self._closed = False
        self._over = False
        self._stop_at: float | None = None
        self._has_stopped = False
        for peer in peers if me == SERVER else (SERVER,):
            self._start(self._peers[peer])

    @property
    def absent(self) -> frozenset[PartyId]:
        """Peers that have never answered or called."""
        return frozenset(peer for peer, state in self._peers.items() if not state.reached and not state.gone)

    def send(self, peer: PartyId, frame: bytes | bytearray | memoryview) -> None:
        """Keep a copy of the frame until the framework has delivered it.

        Raises
        ------
        PeerGone
            The peer is lost, or has left too much untaken.
        """
        copy = bytes(frame)
        self.check_send(peer, len(copy))
        state = self._peers[peer]
        with self._lock:
            self._require_open()
            if state.waiting_bytes > WAITING_BYTES:
                error = PeerGone(f"{peer} counts as gone: it does not take its frames", rank=peer.rank)
                self._lose(state, error)
                raise error
            if state.gone:
                raise PeerGone(f"{peer} is gone: the framework does not reach it", rank=peer.rank)
            state.waiting.append(copy)
            state.waiting_bytes += len(copy) + FRAME_COST
            if peer not in self._carriers:
                self._start(state)
            state.work.notify_all()

    def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
        """Return the next frame of any peer, or None after `timeout_s` seconds.

        Raises
        ------
        PeerGone
            A peer is lost; once, after its last frame.
        PeerError
            A peer sent an invalid frame, or one that is too long.
        Interrupted
            The framework stops this party, and no party has reported why; once.
        """
        end = time.monotonic() + timeout_s
        with self._lock:
            self._require_open()
            while True:
                self._check_stopped()
                if self._inbox:
                    break
                remaining_s = end - time.monotonic()
                if remaining_s <= 0:
                    return None
                self._news.wait(min(remaining_s, _LOOK_S))
            item = self._inbox.popleft()
            if isinstance(item, PeerError):
                raise item
            state, frame = item
            state.unread_bytes -= len(frame) + FRAME_COST
            if len(frame) > self.most_frame:
                raise self.too_long(state.peer, len(frame))
            return state.peer, frame

    def take(self, sender: PartyId, content: object) -> bool:
        """Accept one call of a peer; the framework has authenticated the sender.

        Parameters
        ----------
        sender : PartyId
        content : object
            Hostile until decoded.

        Returns
        -------
        bool
            False if there is no room now: the peer must call again.

        Raises
        ------
        ValueError
            It is not a call of a party of this run, or comes after a lost one.
        """
        state = self._peers.get(sender)
        if state is None:
            raise ValueError(f"{sender} does not take part")
        try:
            number, frames = decode_call(content)
        except ValueError as error:
            with self._lock:
                self._lose(state, PeerError(f"{sender} sent an invalid frame: {error}", rank=sender.rank))
            raise
        with self._lock:
            if self._closed:
                return True
            if state.gone or number > state.taken:
                raise ValueError(f"call {number} of {sender} is not expected here, after {state.taken} were taken")
            state.reached = True
            if number < state.taken:
                return True
            if state.unread_bytes > INBOX_BYTES:
                return False
            state.taken += 1
            for frame in frames:
                state.unread_bytes += len(frame) + FRAME_COST
                self._inbox.append((state, frame))
            self._news.notify_all()
            return True

    def lose(self, peer: PartyId, why: str) -> None:
        """Count a peer as gone, on the framework's report."""
        with self._lock:
            self._lose(self._peers[peer], PeerGone(f"{peer} is gone: {why}", rank=peer.rank))

    def close(self, *, lost: bool = False) -> None:
        """Wait until the framework has delivered the last frames; with `lost`, only to peers that it reaches."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._inbox.clear()
            end = time.monotonic() + (_LOST_S if lost else self._close_deadline_s)
            self._wake()
            while any(state.pending and not (lost and state.failing) for state in self._peers.values()):
                remaining_s = end - time.monotonic()
                if remaining_s <= 0:
                    break
                self._news.wait(remaining_s)
            self._over = True
            self._wake()

    def _start(self, state: _Peer) -> None:
        """Start the thread that calls a peer."""
        carrier = threading.Thread(target=self._carry, args=(state,), name=f"calls-{state.peer.rank}", daemon=True)
        self._carriers[state.peer] = carrier
        carrier.start()

    def _carry(self, state: _Peer) -> None:
        """Make calls until this end is closed or the peer is lost."""
        while (content := self._next(state)) is not None:
            self._deliver(state, content)

    def _next(self, state: _Peer) -> bytes | None:
        """Wait for frames, or until a call without frames is due; return None at the end."""
        with self._lock:
            beats = SERVER in (self.me, state.peer)
            end = time.monotonic() + self._beat_s
            while not state.waiting and not self._closed and not state.gone:
                remaining_s = end - time.monotonic()
                if beats and remaining_s <= 0:
                    break
                state.work.wait(remaining_s if beats else None)
            if self._over or state.gone or (self._closed and not state.waiting):
                return None
            frames: list[bytes] = []
            size = 0
            while state.waiting and size < BATCH_BYTES and len(frames) < MOST_FRAMES:
                frames.append(state.waiting.popleft())
                size += len(frames[-1])
                state.waiting_bytes -= len(frames[-1]) + FRAME_COST
            state.busy = True
            return encode_call(state.sent, frames)

    def _deliver(self, state: _Peer, content: bytes) -> None:
        """Repeat one call until it is taken or the peer counts as gone."""
        limit_s = self._gone_s if state.reached else self._first_s
        end = time.monotonic() + limit_s
        pause_s = _FIRST_PAUSE_S
        while True:
            begun = time.monotonic()
            try:
                answer, why = self._call(state.peer, content), "its answer is invalid"
            except Exception as error:  # whatever a framework raises
                answer, why = None, f"{type(error).__name__}: {error}"[:_MOST_WORDS]
            with self._lock:
                if isinstance(answer, bool):
                    # A peer without room was reached; the deadlines limit how slow it may be.
                    state.reached = True
                    state.failing = state.failing and self._stopped()
                    state.sent += answer
                    limit_s = self._gone_s
                    end = time.monotonic() + limit_s
                else:
                    # A framework that stops also breaks off calls to reachable peers.
                    slow = time.monotonic() - begun >= _SETTLE_S
                    state.failing = state.failing or slow or not self._stopped()
                if not isinstance(answer, bool) and time.monotonic() >= end:
                    words = f"{state.peer} is gone: the framework did not reach it for {limit_s:g} s ({why})"
                    self._lose(state, PeerGone(words, rank=state.peer.rank))
                if answer is True or self._over or state.gone:
                    state.busy = False
                    self._news.notify_all()
                    return
                self._pause(state, pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _pause(self, state: _Peer, pause_s: float) -> None:
        """Wait before a call is repeated, even if more frames arrive."""
        end = time.monotonic() + pause_s
        while not self._over and not state.gone and (remaining_s := end - time.monotonic()) > 0:
            state.work.wait(remaining_s)

    def _check_stopped(self) -> None:
        """Stop if the framework asks for it; a peer that could not be reached at that moment is the likely reason."""
        now = time.monotonic()
        if self._has_stopped or not (self._stop_at or self._stopped()):
            return
        if self._stop_at is None:
            # A client lets the server report the reason.
            self._stop_at = now + (_SETTLE_S if self.me == SERVER else STOP_S)
        for state in self._peers.values():
            if state.failing and not state.gone:
                words = f"{state.peer} is gone: the framework did not reach it, and ended the job"
                self._lose(state, PeerGone(words, rank=state.peer.rank), first=True)
                self._stop_at = now + STOP_S
        if now >= self._stop_at:
            self._has_stopped = True
            raise Interrupted("stopped by the framework: by a person, or because another site ended")

    def _lose(self, state: _Peer, error: PeerError, *, first: bool = False) -> None:
        """Count a peer as lost; `receive` raises the error, with `first` before its remaining frames."""
        if state.gone:
            return
        state.gone = True
        state.waiting.clear()
        state.waiting_bytes = 0
        if first:
            self._inbox.appendleft(error)
        else:
            self._inbox.append(error)
        self._wake()

    def _wake(self) -> None:
        """Wake all waiting threads."""
        self._news.notify_all()
        for state in self._peers.values():
            state.work.notify_all()

    def _require_open(self) -> None:
        if self._closed:
            raise InternalError(f"the transport of {self.me} was closed")


def encode_call(number: int, frames: Iterable[bytes]) -> bytes:
    """Encode one call."""
    parts = [_HEAD.pack(VERSION, number)]
    for frame in frames:
        parts += [_LENGTH.pack(len(frame)), frame]
    return b"".join(parts)


def decode_call(content: object) -> tuple[int, list[bytes]]:
    """Decode a call into its number and its frames.

    Raises
    ------
    ValueError
        Not bytes, another version, truncated, or too many frames.
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
