"""A transport between threads of one process, for tests: the same parties without sockets or processes.

One queue per party; a frame is copied once when it is sent. What an ended endpoint means:

- closed in order: its last frames are delivered, frames sent to it vanish, and nobody is alarmed,
  since a party that has finished may leave before the others have. Only when *all* peers have left
  does `receive` raise `PeerGone`, because nothing can ever arrive any more;
- closed with `lost=True`: it stands for a process that died. Each peer's `receive` raises `PeerGone`
  once, after its last frames, and sending to it raises `PeerGone`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from queue import Empty, Queue

from fastlloyd.errors import ConfigError, InternalError, PeerGone
from fastlloyd.net.transport import Transport
from fastlloyd.wire.header import PartyId

Tap = Callable[[PartyId, PartyId, bytes], "bytes | list[bytes] | None"]


class _End(Enum):
    """How an endpoint ended; travels in the queues behind its last frame."""

    CLOSED = "closed"
    LOST = "lost"


_Item = tuple[PartyId, "bytes | _End"]


class MemoryNetwork:
    """All parties of one run, in memory.

    Parameters
    ----------
    count : int
        Number of parties, the server included; at least 2.
    tap : callable (sender, receiver, frame) -> bytes, list of bytes or None, optional
        Called in the sender's thread for each frame. What it returns is delivered in place of the
        frame; None drops it. `deliver` puts frames in later, so a tap can also delay and reorder.
    """

    def __init__(self, count: int, *, tap: Tap | None = None) -> None:
        if count < 2:
            raise ConfigError(f"a network has at least 2 parties (the server and a client), got {count}")
        self._parties = tuple(PartyId(rank) for rank in range(count))
        # No SimpleQueue: in Python 3.11 its `get` may wait for ever after a timeout that is over before it waits.
        self._queues: dict[PartyId, Queue[_Item]] = {p: Queue() for p in self._parties}
        self._ends: dict[PartyId, _End] = {}
        self._tap = tap
        self._endpoints = {p: MemoryTransport(self, p, self._parties) for p in self._parties}

    def endpoint(self, party: PartyId) -> MemoryTransport:
        """Return the one endpoint of a party.

        Raises
        ------
        InternalError
            There is no such party.
        """
        if party not in self._endpoints:
            raise InternalError(f"this network has ranks 0 to {len(self._parties) - 1}, not {party.rank}")
        return self._endpoints[party]

    def deliver(self, sender: PartyId, receiver: PartyId, frame: bytes) -> None:
        """Put a frame into a party's queue as if `sender` had sent it; the tap does not see it."""
        self._queues[receiver].put((sender, frame))

    def _send(self, sender: PartyId, receiver: PartyId, frame: bytes) -> None:
        """Pass a frame through the tap and deliver what comes out."""
        if self._ends.get(receiver) is _End.LOST:
            raise PeerGone(f"{receiver} is gone: its endpoint was lost", rank=receiver.rank)
        out = frame if self._tap is None else self._tap(sender, receiver, frame)
        if out is None:
            return
        for each in [out] if isinstance(out, bytes) else out:
            self.deliver(sender, receiver, each)

    def _end(self, party: PartyId, end: _End) -> None:
        """Tell all others that a party's endpoint has ended."""
        self._ends[party] = end
        for other in self._parties:
            if other != party:
                self._queues[other].put((party, end))


class MemoryTransport(Transport):
    """One party's endpoint of a `MemoryNetwork`; made by `MemoryNetwork.endpoint`.

    One thread uses an endpoint at a time; different endpoints may be used by different threads.
    """

    def __init__(self, network: MemoryNetwork, me: PartyId, parties: tuple[PartyId, ...]) -> None:
        self.me = me
        self.peers = tuple(party for party in parties if party != me)
        self._network = network
        self._queue = network._queues[me]
        self._left: set[PartyId] = set()
        self._closed = False

    def send(self, peer: PartyId, frame: bytes | bytearray | memoryview) -> None:
        """Copy a frame into the peer's queue."""
        self._require_open()
        copy = bytes(frame)
        self.check_send(peer, len(copy))
        self._network._send(self.me, peer, copy)

    def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
        """Return the next frame of any peer, or None after `timeout_s` seconds."""
        self._require_open()
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                sender, item = self._next(deadline)
            except Empty:
                if len(self._left) == len(self.peers):
                    raise PeerGone("all peers have closed: no frame can come", rank=self._last) from None
                return None
            if isinstance(item, bytes):
                if len(item) > self.most_frame:
                    raise self.too_long(sender, len(item))
                return sender, item
            self._left.add(sender)
            if item is _End.LOST:
                raise PeerGone(f"{sender} is gone: its endpoint was lost", rank=sender.rank)

    def close(self, *, lost: bool = False) -> None:
        """Leave the network; idempotent. `lost=True` stands for a process that died."""
        if not self._closed:
            self._closed = True
            self._network._end(self.me, _End.LOST if lost else _End.CLOSED)

    @property
    def _last(self) -> int:
        """Rank to name when nobody is left."""
        return self.peers[-1].rank

    def _next(self, deadline: float) -> _Item:
        """Take one item; wait only while somebody could still send."""
        wait_s = deadline - time.monotonic()
        if wait_s <= 0 or len(self._left) == len(self.peers):
            return self._queue.get_nowait()
        return self._queue.get(timeout=wait_s)

    def _require_open(self) -> None:
        if self._closed:
            raise InternalError(f"the endpoint of {self.me} was closed: make a new network")
