"""How much a peer may send: the largest body of each type of message, and how much of it ahead of time.

Source: docs/security.md, "Memory that a peer can occupy".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MESSAGE_COST = 512
"""Bytes that a message takes while it waits, besides its body."""

_ROOM_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBounds:
    """What each peer may send from now on.

    Attributes
    ----------
    sizes : mapping from int to int
        Message type to the bytes of its largest body.
    other_bytes : int
        The same for every type that is not listed; 0 refuses them.
    ahead_bytes : int
        How much of one peer may wait here until this party asks for it. Default: two of the largest messages. Only
        protocols that say so let a party send more before it has an answer.
    """

    sizes: Mapping[int, int]
    other_bytes: int = 0
    ahead_bytes: int = field(default=0)

    def __post_init__(self) -> None:
        least = 2 * self.largest + _ROOM_BYTES
        object.__setattr__(self, "ahead_bytes", max(self.ahead_bytes, least))

    @property
    def largest(self) -> int:
        """Bytes of the longest body of any type."""
        return max(self.other_bytes, *self.sizes.values())

    def refusal(self, kind: int, size: int) -> str:
        """Say why a body of `size` bytes does not do; nothing if it does."""
        most = self.sizes.get(kind, self.other_bytes)
        if size <= most and (most or kind in self.sizes):
            return ""
        if kind not in self.sizes and not self.other_bytes:
            return f"a message of type {kind}, which has no place in this part of the run"
        return f"{size} bytes as a message of type {kind}, expected at most {most}"
