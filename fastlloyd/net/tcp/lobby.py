"""Where strangers wait at the open port, so that a flood pushes out itself and nobody else.

A stranger passes through rooms: silent (it has sent nothing), waiting (its first bytes are there, nobody has looked
at them), showing (the TLS handshake is under way), leaving (it hears why it must go). Only the handshake costs
much, so the addresses that wait for one take turns. When a room is full, the address that has most connections in
it loses its oldest one. So a flood from one address pushes out its own, and a flood of silent connections meets no
client, for a client begins at once. Of the connections from one address the newest goes first: when a flood leaves no
time for all, its client is the one still waiting.

Source: docs/sites.md, "Firewall".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Room(Generic[T]):
    """Guests in the order in which they came, by address.

    Parameters
    ----------
    most : int
        At most so many at a time.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._source: dict[T, str] = {}
        self._by_source: dict[str, dict[T, None]] = {}

    def __len__(self) -> int:
        return len(self._source)

    def __contains__(self, guest: object) -> bool:
        return guest in self._source

    def __iter__(self) -> Iterator[T]:
        """Return the guests, the oldest first."""
        return iter(self._source)

    def add(self, guest: T, source: str) -> T | None:
        """Take a guest in.

        Parameters
        ----------
        guest : hashable
        source : str
            The address it comes from.

        Returns
        -------
        The guest that has to go for it, no longer in the room, or None.
        """
        self._source[guest] = source
        self._by_source.setdefault(source, {})[guest] = None
        if len(self) <= self.most:
            return None
        fullest = max(self._by_source.values(), key=len)
        oldest = next(iter(fullest))
        self.remove(oldest)
        return oldest

    def take(self) -> T:
        """Take out the newest guest of the address whose turn it is; then it is the next address's turn."""
        source, guests = next(iter(self._by_source.items()))
        newest = next(reversed(guests))
        self.remove(newest)
        if guests:
            self._by_source[source] = self._by_source.pop(source)
        return newest

    def remove(self, guest: T) -> None:
        """Let a guest go."""
        source = self._source.pop(guest)
        others = self._by_source[source]
        del others[guest]
        if not others:
            del self._by_source[source]
