"""What a message says about itself: its number, its largest size, its way, and who can read what in it.

A message class states this once. A protocol lists its classes in about the order in which they are sent; from the list
follow the bounds of what a peer may send (`lifecycle/messages.py`) and the rows of a dossier (`report/flow.py`), which
the tables of the documents are compared with.

Source: docs/security.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

UP, DOWN, ACROSS = "client to server", "server to clients", "client to client"


def always(facts: Mapping[str, Any]) -> bool:
    """Whether a message that every run has is sent."""
    return True


def pairwise(facts: Mapping[str, Any]) -> bool:
    """Whether masks are pairwise."""
    return facts.get("masking") == "pairwise"


def common(facts: Mapping[str, Any]) -> bool:
    """Whether masks are common."""
    return not pairwise(facts)


@dataclass(frozen=True, slots=True)
class Seen:
    """A message, or several that go together: one row of "who sees what".

    Attributes
    ----------
    route : str
        From whom to whom.
    about : str
        What it is for, in plain words.
    server : str
        What the server (rank 0) can read in it; in vertical-he the computing party.
    others : str
        What another party can read in it; in vertical-he the key holder and further owners.
    network : str
        What the network can read in it.
    variant : str
        What stands behind the name, where the same message is read in several ways.
    when : callable
        Whether it is sent at all, from the run's public facts.
    kinds : tuple of type
        The message classes; empty for frames of links, which no protocol sends.
    frames : str
        Names of these.
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
        """As the protocols' pages call it."""
        names = self.frames or ", ".join(kind.__name__ for kind in self.kinds)
        return f"{names} ({self.variant})" if self.variant else names


@dataclass(frozen=True, slots=True)
class OfPlan:
    """A number that follows from the plan."""

    count: Callable[[Any], int]


class Declared:
    """A message class that says what follows from it, besides what `wire.header.Message` asks for.

    Attributes
    ----------
    TYPE : int
        Its number: the first byte of its frame. A number is never given to another message; one that is no longer sent
        stays taken until the protocol version rises.
    MOST_BYTES : int or OfPlan
        Bytes of its largest body.
    LEADS_TO_PLAN : bool
        Whether it is sent before the plan alone.
    SEEN : Seen or tuple of Seen
        Who can read what, one row for each way to read it. Empty: it goes with the message before it in the list of a
        protocol, whose row tells of both.
    """

    __slots__ = ()
    TYPE: ClassVar[int]
    MOST_BYTES: ClassVar[int | OfPlan]
    LEADS_TO_PLAN: ClassVar[bool] = False
    SEEN: ClassVar[Seen | tuple[Seen, ...]]


Messages: TypeAlias = tuple[type[Declared] | Seen, ...]
"""What a protocol sends, in about that order: classes, or rows where it says in other words who reads what."""


def seen_as(*kinds: type[Declared], **changes: Any) -> Seen:
    """Return the row of a message of several protocols in the words of one of them.

    Parameters
    ----------
    *kinds : type
        The classes that go together; the row of the first one is changed.
    **changes
        Fields of `Seen`.
    """
    return replace(_own_rows(kinds[0])[0], kinds=kinds, **changes)


def rows_of(messages: Messages) -> tuple[Seen, ...]:
    """Return the rows of what a protocol sends."""
    rows: list[Seen] = []
    last = 0
    for message in messages:
        if isinstance(message, Seen):
            own = [message]
        elif found := _own_rows(message):
            own = [replace(row, kinds=(message,)) for row in found]
        else:
            own = [replace(row, kinds=(*row.kinds, message)) for row in rows[-last:]]
            del rows[-last:]
        rows, last = [*rows, *own], len(own)
    return tuple(rows)


def kinds_of(messages: Messages, facts: Mapping[str, Any] | None = None) -> tuple[type[Declared], ...]:
    """Return the classes that a protocol sends: all, or those of a run with these public facts."""
    sent = (row for row in rows_of(messages) if facts is None or row.when(facts))
    return tuple(dict.fromkeys(kind for row in sent for kind in row.kinds))


def largest_bodies(kinds: Iterable[type[Declared]], plan: Any) -> dict[int, int]:
    """Return the bytes of the largest body of each type of message; `plan` is what the classes compute it from."""
    bounds = ((kind.TYPE, kind.MOST_BYTES) for kind in kinds)
    return {number: most.count(plan) if isinstance(most, OfPlan) else most for number, most in bounds}


def _own_rows(kind: type[Declared]) -> tuple[Seen, ...]:
    return kind.SEEN if isinstance(kind.SEEN, tuple) else (kind.SEEN,)
