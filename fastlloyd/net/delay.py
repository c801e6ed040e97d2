"""A transport that delays each outgoing frame, to stand in for a slow network.

The delays of frames to different peers run in parallel, as on real links: sending to three clients costs one delay,
not three. `send` never sleeps; due frames leave during the next `send`, `receive` or `close`. So a party that computes
for longer than the delay sends its frame when it is done, which errs on the slow side.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence

from fastlloyd.errors import ConfigError, InternalError, PeerGone
from fastlloyd.net.sockets import WireBytes
from fastlloyd.net.transport import Transport
from fastlloyd.wire.header import PartyId


def delayed(inner: Transport, delay_s: float) -> Transport:
    """Wrap a transport so that each frame leaves `delay_s` seconds late; with 0 return `inner` itself.

    Raises
    ------
    ConfigError
        The delay is negative or not finite.
    """
    if not math.isfinite(delay_s) or delay_s < 0:
        raise ConfigError(f"the injected delay must be 0 or more seconds, got {delay_s}: change --delay")
    return inner if delay_s == 0 else DelayedTransport(inner, delay_s)


class DelayedTransport(Transport):
    """Hands each frame to `inner` `delay_s` seconds after it was sent; see `delayed`.

    Parameters
    ----------
    inner : Transport
        Owned from now on: closing this closes it.
    delay_s : float
        Above 0.
    """

    def __init__(self, inner: Transport, delay_s: float) -> None:
        self.me = inner.me
        self.peers = inner.peers
        self._inner = inner
        self._delay_s = delay_s
        # One delay for all frames: the order of sending is the order of leaving.
        self._waiting: deque[tuple[float, PartyId, bytes]] = deque()
        self._closed = False

    @property
    def absent(self) -> frozenset[PartyId]:
        """As in `inner`."""
        return self._inner.absent

    @property
    def refused(self) -> str:
        """As in `inner`."""
        return self._inner.refused

    @property
    def most_frame(self) -> int:
        """The limit of `inner`, which reads the frames."""
        return self._inner.most_frame

    @most_frame.setter
    def most_frame(self, most_frame: int) -> None:
        self._inner.most_frame = most_frame

    @property
    def carrier(self) -> str | None:
        """As in `inner`."""
        return self._inner.carrier

    def wire(self, ahead: Sequence[int] = ()) -> WireBytes | None:
        """Count as `inner` does."""
        return self._inner.wire(ahead)

    def opens(self, peer: PartyId) -> bool:
        """As in `inner`."""
        return self._inner.opens(peer)

    def order(self, order: bytes) -> None:
        """Pass on without delay: it delays no message."""
        self._inner.order(order)

    def send(self, peer: PartyId, frame: bytes | bytearray | memoryview) -> None:
        """Keep a copy of the frame until it is due."""
        if self._closed:
            raise InternalError(f"the delayed transport of {self.me} was closed")
        copy = bytes(frame)
        self.check_send(peer, len(copy))
        self._waiting.append((time.monotonic() + self._delay_s, peer, copy))
        self._release_due()

    def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
        """Return the next frame of any peer; own frames that become due meanwhile leave on time."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._release_due()
            until = min(deadline, self._waiting[0][0]) if self._waiting else deadline
            found = self._inner.receive(max(0.0, until - time.monotonic()))
            if found is not None:
                return found
            if time.monotonic() >= deadline:
                return None

    def close(self, *, lost: bool = False) -> None:
        """Wait until the last frames are due, then close `inner`; with `lost`, send them at once."""
        if self._closed:
            return
        self._closed = True
        while self._waiting:
            due, peer, frame = self._waiting.popleft()
            if not lost:
                time.sleep(max(0.0, due - time.monotonic()))
            try:
                self._inner.send(peer, frame)
            except PeerGone:
                # The peer is gone; the frames of others still go out.
                continue
        self._inner.close(lost=lost)

    def _release_due(self) -> None:
        """Send every frame that is due."""
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, peer, frame = self._waiting.popleft()
            self._inner.send(peer, frame)
        self._inner.flush()
