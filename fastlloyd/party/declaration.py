"""What a message class declares, and the bounds that follow: number, largest size, route, who can read what in it.

A message class states this once. A protocol lists its classes roughly in the order in which they are sent. The list
determines what a peer may send (`lifecycle/messages.py`) and the rows of a dossier (`report/sight.py`). Tests compare
the tables of the documents with these rows.

Source: docs/security.md, "Who sees what" and "Memory that a peer can occupy".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

MESSAGE_COST = 512
"""Bytes of memory that a waiting message takes besides its body."""
MOST_MESSAGE_BYTES = (1 << 30) - (1 << 22)
"""A link carries frames of 1 GiB; the rest is for headers, lengths and TLS records."""

_ROOM_BYTES = 1 << 16

UP, DOWN, ACROSS = "client to server", "server to clients", "client to client"


def always(facts: Mapping[str, Any]) -> bool:
    """Return True: every run sends the message."""
    return True


def pairwise(facts: Mapping[str, Any]) -> bool:
    """Return whether masks are pairwise."""
    return facts.get("masking") == "pairwise"


def threshold(facts: Mapping[str, Any]) -> bool:
    """Return whether masks are threshold masks."""
    return facts.get("masking") == "threshold"


def common(facts: Mapping[str, Any]) -> bool:
    """Return whether the clients have a common seed: with common masks, and under threshold masks."""
    return not pairwise(facts)


@dataclass(frozen=True, slots=True)
class Seen:
    """One row of "who sees what": a message, or several that go together.

    Attributes
    ----------
    route : str
        Sender and receiver.
    about : str
        Purpose, in plain words.
    server : str
        What the server (rank 0) can read in it; in vertical-he the computing party.
    others : str
        What another party can read in it; in vertical-he the key holder and further owners.
    network : str
        What the network can read in it.
    variant : str
        Added to the name if a message has several rows.
    when : callable
        Whether it is sent at all, given the run's public facts.
    kinds : tuple of type
        The message classes; empty for frames of links, which no protocol sends.
    frames : str
        Names of these frames.
    """

    route: str
    about: str
    server: str = field(kw_only=True)
    others: str = field(kw_only=True)
    network: str = field(default="length", kw_only=True)
    variant: str = field(default="", kw_only=True)
    when: Callable[[Mapping[str, Any]], bool] = field(default=always, repr=False, kw_only=True)
    kinds: tuple[type[Declared], ...] = field(default=(), kw_only=True)
    frames: str = field(default="", kw_only=True)

    @property
    def name(self) -> str:
        """The name in the protocols' pages."""
        names = self.frames or ", ".join(kind.__name__ for kind in self.kinds)
        return f"{names} ({self.variant})" if self.variant else names


@dataclass(frozen=True, slots=True)
class OfPlan:
    """A number that follows from the plan."""

    count: Callable[[Any], int]


class Declared:
    """A message class with declarations, besides the interface `wire.header.Message`.

    Attributes
    ----------
    TYPE : int
        Its number: the first byte of its frame. A number is never reused for another message before the protocol
        version changes.
    MOST_BYTES : int or OfPlan
        Bytes of its largest body.
    LEADS_TO_PLAN : bool
        Whether it is sent only before the plan.
    SEEN : Seen or tuple of Seen
        Who can read what, one row for each way to read it. Empty: the row of the message before it in a protocol's
        list covers both.
    """

    __slots__ = ()
    TYPE: ClassVar[int]
    MOST_BYTES: ClassVar[int | OfPlan]
    LEADS_TO_PLAN: ClassVar[bool] = False
    SEEN: ClassVar[Seen | tuple[Seen, ...]]


Messages: TypeAlias = tuple[type[Declared] | Seen, ...]
"""What a protocol sends, roughly in that order: classes, or rows that state in other words who reads what."""


def seen_as(*kinds: type[Declared], **changes: Any) -> Seen:
    """Return the row of a shared message with the changes of one protocol.

    Parameters
    ----------
    *kinds : type
        The classes that go together; the row of the first is changed.
    **changes
        Fields of `Seen`.
    """
    return replace(_own_rows(kinds[0])[0], kinds=kinds, **changes)


@lru_cache(maxsize=64)  # each party of a process asks for the rows of the same few protocols
def rows_of(messages: Messages) -> tuple[Seen, ...]:
    """Return the rows of what a protocol sends; raise TypeError if the first message has none and none to go with."""
    rows: list[Seen] = []
    last = 0
    for message in messages:
        if isinstance(message, Seen):
            own = [message]
        elif found := _own_rows(message):
            own = [replace(row, kinds=(message,)) for row in found]
        elif not rows:
            raise TypeError(
                f"{message.__name__} comes first and has SEEN = (): expected its own row of who can read it"
            )
        else:
            own = [replace(row, kinds=(*row.kinds, message)) for row in rows[-last:]]
            del rows[-last:]
        rows, last = [*rows, *own], len(own)
    return tuple(rows)


def kinds_of(messages: Messages, facts: Mapping[str, Any] | None = None) -> tuple[type[Declared], ...]:
    """Return the classes that a protocol sends: all, or those of a run with the given public facts."""
    sent = (row for row in rows_of(messages) if facts is None or row.when(facts))
    return tuple(dict.fromkeys(kind for row in sent for kind in row.kinds))


def largest_bodies(kinds: Iterable[type[Declared]], plan: Any) -> dict[int, int]:
    """Return the bytes of the largest body of each message type; the classes compute them from `plan`."""
    bounds = ((kind.TYPE, kind.MOST_BYTES) for kind in kinds)
    return {number: most.count(plan) if isinstance(most, OfPlan) else most for number, most in bounds}


def _own_rows(kind: type[Declared]) -> tuple[Seen, ...]:
    return kind.SEEN if isinstance(kind.SEEN, tuple) else (kind.SEEN,)


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
        Bytes from one peer that may wait until this party asks for them. Default: two of the largest messages. A
        protocol raises it if a party may send more before it gets an answer.
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
        """Return why a body of `size` bytes is refused; empty if it is accepted."""
        most = self.sizes.get(kind, self.other_bytes)
        if size <= most and (most or kind in self.sizes):
            return ""
        if kind not in self.sizes and not self.other_bytes:
            return f"a message of type {kind}, which has no place in this part of the run"
        return f"{size} bytes as a message of type {kind}, expected at most {most}"
