"""Layouts that messages share: fixed byte strings, payload alone, payload with a set of clients, ring elements.

A message class has the declarations of `party/declaration.py`, defines its bytes, and checks them in `read`.

Source: docs/protocol.md, "Frames".
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.party.declaration import Declared
from fastlloyd.wire.header import Message, PartyId, decode_included, encode_included

M = TypeVar("M", bound=Message)
P = TypeVar("P", bound="FixedBytes")


class NoPayload(Declared):
    """A message without payload, such as those of set-up and closing exchange: all its bytes count as link bytes."""

    __slots__ = ()

    @property
    def payload_bytes(self) -> int:
        """None."""
        return 0


class FixedBytes(NoPayload):
    """A message of byte strings of fixed lengths, one for each field, in the order of the fields.

    Attributes
    ----------
    SIZES : tuple of int
        Bytes of each field; their sum is `MOST_BYTES`.
    """

    __slots__ = ()
    SIZES: ClassVar[tuple[int, ...]]
    MOST_BYTES: ClassVar[int]

    def __init_subclass__(cls) -> None:
        cls.MOST_BYTES = sum(cls.SIZES)

    def body(self) -> bytes:
        """Return the fields, one after the other."""
        return b"".join(getattr(self, entry.name) for entry in fields(self))  # type: ignore[arg-type]

    @classmethod
    def read(cls, body: bytes, format: Any) -> Self:
        """Split a body into the fields; another length is refused."""
        check_size(body, cls.MOST_BYTES)
        return cls(*(body[end - size : end] for size, end in zip(cls.SIZES, accumulate(cls.SIZES), strict=True)))

    @classmethod
    def read_all(cls, body: bytes, count: int) -> tuple[Self, ...]:
        """Read `count` of them, one after the other; another length is refused."""
        size = cls.MOST_BYTES
        check_size(body, count * size)
        return tuple(cls.read(body[start : start + size], None) for start in range(0, len(body), size))


@dataclass(frozen=True, slots=True)
class Several(NoPayload, Generic[P]):
    """A message of several pieces of one class, one after the other; `format` is their number.

    Attributes
    ----------
    PIECE : type
        Their class.
    pieces : tuple of `PIECE`
    """

    PIECE: ClassVar[type[FixedBytes]]
    pieces: tuple[P, ...]

    def body(self) -> bytes:
        """Return the pieces."""
        return b"".join(piece.body() for piece in self.pieces)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Decode the pieces; another length is refused."""
        return cls(cls.PIECE.read_all(body, format))  # type: ignore[arg-type]


def check_size(body: bytes, size: int) -> None:
    """Refuse a body of another length with a ValueError: the sender is at fault."""
    if len(body) != size:
        raise ValueError(f"expected {size} bytes, got {len(body)}")


@dataclass(frozen=True, slots=True)
class Presence(NoPayload):
    """A message that says which of the clients are there, as a bitmap."""

    present: tuple[PartyId, ...]
    clients: int

    def body(self) -> bytes:
        """Return the bitmap."""
        return encode_included(self.present, self.clients)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the bitmap of `format` clients."""
        return cls(decode_included(body, format), format)


@dataclass(frozen=True, slots=True)
class Payload(Declared):
    """A message whose body is its payload; the class that inherits says what the bytes are."""

    data: bytes = field(repr=False)

    def body(self) -> bytes:
        """Return the bytes."""
        return self.data

    @property
    def payload_bytes(self) -> int:
        """All of it."""
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
            The bitmap does not fit the number of clients, or the set is empty: the sender is at fault.
        """
        width = (clients + 7) // 8
        included = decode_included(body[:width], clients)
        if not included:
            raise ValueError(f"{what} no client")
        return included, body[width:]


def cut_silent(body: bytes, included: tuple[PartyId, ...], clients: int) -> tuple[tuple[PartyId, ...], bytes]:
    """Split what follows a set into those of its clients that left more of their noise in the sum, and the payload.

    Raises
    ------
    ValueError
        The bitmap does not fit the number of clients, or names one outside the set: the sender is at fault.
    """
    width = (clients + 7) // 8
    silent = decode_included(body[:width], clients)
    if not set(silent) <= set(included):
        raise ValueError("its silent clients are not all in the sum")
    return silent, body[width:]


def recall(kind: type[M], body: bytes, format: Any, name: str) -> M:
    """Decode what an interrupted run stored under a name.

    Raises
    ------
    ConfigError
        It is damaged: this party's own state is at fault.
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
