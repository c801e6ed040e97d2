"""What both ends of a connection remember of it, so that another connection can go on where one was cut.

Each end counts the frames that it has taken, and keeps those that it has sent until the other end has confirmed them,
as far as `KEPT_BYTES` go.
Whoever comes back says how many it has taken, and the other end sends what is missing: each frame is taken once, and
in order. Every frame's header confirms; where no frame goes back for a while, a control frame of one byte does.

Source: docs/sites.md, "When a connection is cut".
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum

CONTROL_RANK = 0xFFFF
"""In a frame's header: its byte is a `Control`; it is not counted, kept or handed on."""
ID_BYTES = 16
NO_ID = bytes(ID_BYTES)
ASKS = b"\xff" * ID_BYTES
"""In the place of a session: who says this joins nothing, and asks what run this is."""
KEPT_BYTES = 1 << 25
"""Of frames that the other end has not confirmed; at least the last one is kept."""
ALL_KEPT_BYTES = 1 << 27
"""What one process keeps so for all its connections."""
FRAME_COST = 64
_CONFIRM_BYTES = 1 << 16


class Control(IntEnum):
    """What the one byte of a control frame says."""

    CONFIRM = 0
    END = 1


def most_kept(connections: int, reconnect_s: float) -> int | None:
    """Return the most bytes that each of so many sessions keeps: none where no connection may come back."""
    if not reconnect_s:
        return 0
    share = ALL_KEPT_BYTES // connections
    return share if share < KEPT_BYTES else None


class Delivery:
    """One end's account of the frames in both directions.

    Parameters
    ----------
    most_kept : int or None
        Bytes of frames that the other end has not confirmed; None: `KEPT_BYTES`, and the last frame however long it is.

    Attributes
    ----------
    id : bytes, length 16
        Drawn by the server; zeros before the client has joined.
    taken : int
        How many frames of the other end were taken, over all connections.
    confirmed : int
        How many frames of this end the other one has confirmed.
    waiting_bytes : int
        How much was not handed to a connection yet.
    over : bool
        Whether the other end has said that no more will come, so that a cut is the end.
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
        """How many frames of this end are kept no more: the confirmed ones, and perhaps some behind them."""
        self._untold_bytes = 0

    @property
    def due(self) -> bool:
        """Whether so much was taken since the other end last heard of it that it should be told."""
        return self._untold_bytes >= _CONFIRM_BYTES

    def put(self, rank: int, frame: bytes) -> None:
        """Keep a frame for the other end."""
        self._waiting.append((rank, frame))
        self.waiting_bytes += len(frame) + FRAME_COST

    def next(self) -> tuple[int, bytes] | None:
        """Return the frame that is to be sent now, with the rank in its header; it is kept until it is confirmed."""
        if not self._waiting:
            return None
        found = self._waiting.popleft()
        self.waiting_bytes -= len(found[1]) + FRAME_COST
        self._sent.append(found)
        self._sent_bytes += len(found[1]) + FRAME_COST
        # Whoever never confirms must not fill the memory; it cannot come back then.
        most, least = (KEPT_BYTES, 1) if self._most_kept is None else (self._most_kept, 0)
        while self._sent_bytes > most and len(self._sent) > least:
            self._drop()
        return found

    def take(self, size: int) -> None:
        """Count a frame of `size` bytes that came."""
        self.taken += 1
        self._untold_bytes += size + FRAME_COST

    def tell(self) -> int:
        """Return how many frames were taken, for a header."""
        self._untold_bytes = 0
        return self.taken

    def confirm(self, count: int) -> None:
        """Note that the other end has taken `count` frames in all; they are kept no longer.

        Raises
        ------
        ValueError
            It cannot have taken so many, or has confirmed more before.
        """
        most = self._dropped + len(self._sent)
        if not self.confirmed <= count <= most:
            raise ValueError(f"it confirms {count} frames, expected {self.confirmed} to {most}")
        self.confirmed = count
        while self._dropped < count:
            self._drop()

    def rewind(self, count: int) -> None:
        """Prepare for another connection to an end that has taken `count` frames: what it lacks is sent again.

        Raises
        ------
        ValueError
            As in `confirm`, or what it lacks is not kept any more.
        """
        self.confirm(count)
        if self._dropped > count:
            raise ValueError(f"it lacks {self._dropped - count} frames that are not kept any more")
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        self.waiting_bytes += self._sent_bytes
        self._sent_bytes = 0

    def forget(self) -> None:
        """Drop what is kept: the other end will not come back."""
        self._waiting.clear()
        self._sent.clear()
        self.waiting_bytes = self._sent_bytes = 0

    def _drop(self) -> None:
        """Keep the oldest frame that was sent no longer."""
        self._sent_bytes -= len(self._sent.popleft()[1]) + FRAME_COST
        self._dropped += 1
