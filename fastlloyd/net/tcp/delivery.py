"""The state that both ends of a connection keep, so that another connection can continue where one was cut.

Each end counts the frames that it has taken, and keeps the frames that it has sent until the other end confirms them,
up to `KEPT_BYTES`. An end that reconnects sends its count, and the other end sends the missing frames: each frame is
taken once, and in order. Every frame's header confirms; if no frame goes back for a while, a control frame of one byte
does.

Source: docs/sites.md, "When a connection is cut".
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum

CONTROL_RANK = 0xFFFF
"""The rank in the header of a control frame: its byte is a `Control`; it is not counted, kept or passed on."""
ID_BYTES = 16
NO_ID = bytes(ID_BYTES)
ASKS = b"\xff" * ID_BYTES
"""In place of a session: the client does not join, but asks which run this is."""
KEPT_BYTES = 1 << 25
"""Most bytes of unconfirmed frames that are kept; at least the last frame is kept."""
ALL_KEPT_BYTES = 1 << 27
"""The same for all connections of one process."""
FRAME_COST = 64
_CONFIRM_BYTES = 1 << 16


class Control(IntEnum):
    """The one byte of a control frame."""

    CONFIRM = 0
    END = 1


def most_kept(connections: int, reconnect_s: float) -> int | None:
    """Return the most bytes that each session keeps, if there are `connections` of them: 0 without reconnecting."""
    if not reconnect_s:
        return 0
    share = ALL_KEPT_BYTES // connections
    return share if share < KEPT_BYTES else None


class Delivery:
    """One end's count of the frames in both directions.

    Parameters
    ----------
    most_kept : int or None
        Most bytes of unconfirmed frames; None: `KEPT_BYTES`, and always the last frame.

    Attributes
    ----------
    id : bytes, length 16
        Drawn by the server; zeros before the client has joined.
    taken : int
        Number of the other end's frames that were taken, over all connections.
    confirmed : int
        Number of this end's frames that the other one has confirmed.
    waiting_bytes : int
        Bytes that were not handed to a connection yet.
    over : bool
        Whether the other end has announced its end, so that a cut is final.
    """

    def __init__(self, most_kept: int | None = None) -> None:
        self._most_kept = most_kept
        self.id = NO_ID
        self.taken = 0
        self.confirmed = 0
        self.waiting_bytes = 0
        self.over = False
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._sent: deque[tuple[int, bytes]] = deque()
        self._sent_bytes = 0
        self._dropped = 0
        """Number of this end's frames that are not kept any more: the confirmed ones, and perhaps later ones."""
        self._unconfirmed_bytes = 0

    @property
    def due(self) -> bool:
        """Whether enough bytes were taken since the last confirmation that another one is due."""
        return self._unconfirmed_bytes >= _CONFIRM_BYTES

    def put(self, rank: int, frame: bytes) -> None:
        """Queue a frame for the other end."""
        self._waiting.append((rank, frame))
        self.waiting_bytes += len(frame) + FRAME_COST

    def next(self) -> tuple[int, bytes] | None:
        """Return the next frame to send, with the rank in its header; it is kept until it is confirmed."""
        if not self._waiting:
            return None
        found = self._waiting.popleft()
        self.waiting_bytes -= len(found[1]) + FRAME_COST
        self._sent.append(found)
        self._sent_bytes += len(found[1]) + FRAME_COST
        # An end that never confirms must not fill the memory; then it cannot reconnect.
        most, least = (KEPT_BYTES, 1) if self._most_kept is None else (self._most_kept, 0)
        while self._sent_bytes > most and len(self._sent) > least:
            self._drop()
        return found

    def take(self, size: int) -> None:
        """Count a received frame of `size` bytes."""
        self.taken += 1
        self._unconfirmed_bytes += size + FRAME_COST

    def confirmation(self) -> int:
        """Return the number of frames taken, for the header of a frame that is sent now."""
        self._unconfirmed_bytes = 0
        return self.taken

    def confirm(self, count: int) -> None:
        """Note that the other end has taken `count` frames in all, and drop them.

        Raises
        ------
        ValueError
            It cannot have taken that many, or has confirmed more before.
        """
        most = self._dropped + len(self._sent)
        if not self.confirmed <= count <= most:
            raise ValueError(f"it confirms {count} frames, expected {self.confirmed} to {most}")
        self.confirmed = count
        while self._dropped < count:
            self._drop()

    def rewind(self, count: int) -> None:
        """Prepare for another connection to an end that has taken `count` frames: the missing ones are sent again.

        Raises
        ------
        ValueError
            As in `confirm`, or a missing frame is not kept any more.
        """
        self.confirm(count)
        if self._dropped > count:
            raise ValueError(f"it lacks {self._dropped - count} frames that are not kept any more")
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        self.waiting_bytes += self._sent_bytes
        self._sent_bytes = 0

    def forget(self) -> None:
        """Drop all frames: the other end will not reconnect."""
        self._waiting.clear()
        self._sent.clear()
        self.waiting_bytes = self._sent_bytes = 0

    def _drop(self) -> None:
        """Drop the oldest frame that was sent."""
        self._sent_bytes -= len(self._sent.popleft()[1]) + FRAME_COST
        self._dropped += 1
