"""Party ids, and the header of every message of every protocol.

A message on a link is an 8-byte header and a body::

    type u8 | version u8 | step u16 | round u32      little endian
    body: encoded by the message class

The header counts as link bytes, not as payload. Decoding checks type, round, step and length
before any byte of the body is used.

Source: docs/protocol.md, "Frames".
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import compress
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

PROTOCOL_VERSION = 9
MAX_CLIENTS = 0xFFFE
"""Ranks are 16 bits, and the last one is nobody's."""
SETUP_ROUND = 0xFFFF_FFFF
FINAL_ROUND = 0xFFFF_FFFE
COMPARE_ROUND = 0xFFFF_FFFD

_HEADER = struct.Struct("<BBHI")
HEADER_BYTES = _HEADER.size
_AS_TRUTH = bytes.maketrans(b"01", b"\0\1")


class PartyId(NamedTuple):
    """A party: rank 0 is the server, ranks 1..M are the clients."""

    # A tuple, because it is the key of many dicts: a dataclass's hash and comparison run in Python.
    rank: int

    def __str__(self) -> str:
        return "the server" if self.rank == 0 else f"client {self.rank}"

    @property
    def is_server(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0


SERVER = PartyId(0)


@lru_cache(maxsize=8)
def clients(count: int) -> tuple[PartyId, ...]:
    """Return the ids of clients 1..count."""
    return tuple(PartyId(rank) for rank in range(1, count + 1))


class Header(NamedTuple):
    """The 8 bytes before each message's body."""

    type: int
    round: int
    step: int = 0

    def encode(self) -> bytes:
        """Return the 8 bytes."""
        return _HEADER.pack(self.type, PROTOCOL_VERSION, self.step, self.round)

    @classmethod
    def decode(cls, frame: bytes) -> Self:
        """Decode a header.

        Raises
        ------
        ValueError
            The frame is shorter than a header or of another version: the sender is at fault.
        """
        if len(frame) < HEADER_BYTES:
            raise ValueError(f"a message has at least {HEADER_BYTES} bytes, this one has {len(frame)}")
        kind, version, step, round_ = _HEADER.unpack_from(frame)
        if version != PROTOCOL_VERSION:
            raise ValueError(f"expected message version {PROTOCOL_VERSION}, got {version}")
        return cls(kind, round_, step)


def round_order(round_: int) -> int:
    """Return the place of a round number in time: set-up before round 0, the closing exchange last."""
    return -1 if round_ == SETUP_ROUND else round_


@runtime_checkable
class Message(Protocol):
    """The interface of every message class; see `protocols/*/messages.py`.

    `TYPE` is the number on the wire, `body()` the bytes after the header, `payload_bytes` the number of these that
    count as payload (only ring or field elements and ciphertexts). `read(body, format)` is the inverse of `body` and
    raises ValueError on anything malformed; `format` holds the public shapes that the receiver expects.
    """

    TYPE: ClassVar[int]

    def body(self) -> bytes:
        """Encode everything after the header."""

    @property
    def payload_bytes(self) -> int:
        """Count the payload."""

    @classmethod
    def read(cls, body: bytes, format: Any) -> Self:
        """Decode a body."""


def encode_included(included: tuple[PartyId, ...], count: int) -> bytes:
    """Encode a set of clients as a bitmap: bit i - 1 is client i of `count`."""
    if included == clients(count):
        bits = (1 << count) - 1
    else:
        digits = bytearray(b"0" * count)
        for party in included:
            if not 1 <= party.rank <= count:
                raise ValueError(f"{party} is not one of {count} clients")
            digits[-party.rank] = ord("1")
        bits = int(digits, 2)
    return bits.to_bytes((count + 7) // 8, "little")


def decode_included(bitmap: bytes, count: int) -> tuple[PartyId, ...]:
    """Decode a bitmap of clients, in the order of ranks.

    Raises
    ------
    ValueError
        Wrong length, or a bit beyond the last client.
    """
    if len(bitmap) != (count + 7) // 8:
        raise ValueError(f"expected a bitmap of {(count + 7) // 8} bytes, got {len(bitmap)}")
    bits = int.from_bytes(bitmap, "little")
    if bits >> count:
        raise ValueError(f"the bitmap names clients beyond client {count}")
    if bits == (1 << count) - 1:
        return clients(count)
    digits = f"{bits:b}"[::-1].encode()
    return tuple(compress(clients(count), digits.translate(_AS_TRUTH)))
