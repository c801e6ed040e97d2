"""Shapes that messages of several protocols have: bytes that are all payload, and the same with a set of clients.

A message class says what `party/declaration.py` asks for and what its bytes mean, and checks them in `read`.

Source: docs/protocol.md, "Frames".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.party.declaration import Declared
from fastlloyd.wire.header import Message, PartyId, decode_included, encode_included

M = TypeVar("M", bound=Message)


class NoPayload(Declared):
    """A message without payload, as those of set-up and closing exchange: all of it are link bytes."""

    __slots__ = ()

    @property
    def payload_bytes(self) -> int:
        """None."""
        return 0


@dataclass(frozen=True, slots=True)
class Payload(Declared):
    """A message whose body is its payload; what the bytes are stands with the class that inherits."""

    data: bytes = field(repr=False)

    def body(self) -> bytes:
        """Return the bytes."""
        return self.data

    @property
    def payload_bytes(self) -> int:
        """All of it is payload."""
        return len(self.data)


@dataclass(frozen=True, slots=True)
class IncludedPayload(Declared):
    """A message that names the clients it was made from, then its payload."""

    data: bytes = field(repr=False)
    included: tuple[PartyId, ...]
    clients: int

    def body(self) -> bytes:
        """Return the bitmap of the clients included, then the bytes."""
        return encode_included(self.included, self.clients) + self.data

    @property
    def payload_bytes(self) -> int:
        """All but the bitmap."""
        return len(self.data)

    @staticmethod
    def cut(body: bytes, clients: int, what: str) -> tuple[tuple[PartyId, ...], bytes]:
        """Split a body into the clients included and the payload; `what` names what needs at least one client.

        Raises
        ------
        ValueError
            No bitmap of so many clients, or an empty set: the sender is at fault.
        """
        width = (clients + 7) // 8
        included = decode_included(body[:width], clients)
        if not included:
            raise ValueError(f"{what} no client")
        return included, body[width:]


def recall(kind: type[M], body: bytes, format: Any, name: str) -> M:
    """Decode what an interrupted run has stored under a name.

    Raises
    ------
    ConfigError
        It is damaged; this party's own state is at fault.
    """
    try:
        message: M = kind.read(body, format)
    except ValueError as error:
        raise ConfigError(
            f"--resume: the stored {name} is damaged ({error}); start anew without --resume", reason=Reason.RESUME
        ) from error
    return message


class RingFormat(Protocol):
    """The public shape of ring elements: which ring, and how many."""

    @property
    def ring(self) -> Ring:
        """The ring."""

    @property
    def elements(self) -> int:
        """Their number."""


class RingPayload(Payload):
    """A message that is ring elements, little endian."""

    __slots__ = ()

    @classmethod
    def read(cls, body: bytes, format: RingFormat) -> Self:
        """Check the length."""
        format.ring.from_bytes(body, format.elements)
        return cls(body)

    def elements(self, format: RingFormat) -> RingArray:
        """Return the ring elements, shape (elements,)."""
        return format.ring.from_bytes(self.data, format.elements)
