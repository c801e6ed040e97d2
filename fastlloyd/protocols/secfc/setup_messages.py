"""The messages of SecFC before round 0, in the order they are sent; `messages.py` draws the whole exchange.

Payload is field elements and sealed tags.
"""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from typing import Self

from fastlloyd.lifecycle.seed import SetupBytes
from fastlloyd.party.declaration import ACROSS, UP, Declared, OfPlan, Seen
from fastlloyd.party.message import NoPayload
from fastlloyd.protocols.secfc.field.prime import Elements, Field
from fastlloyd.protocols.secfc.math.onion import TAG_BYTES, sealed_bytes

_NUMBER = struct.Struct("<Q")
_BLOCK = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class _Number(NoPayload):
    """A message that is one public number."""

    MOST_BYTES = _NUMBER.size
    value: int

    def body(self) -> bytes:
        """Return the number as 8 bytes."""
        return _NUMBER.pack(self.value)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the length, and that the number is at most `format`."""
        if len(body) != _NUMBER.size:
            raise ValueError(f"expected {_NUMBER.size} bytes, got {len(body)}")
        value = int(_NUMBER.unpack(body)[0])
        if value > format:
            raise ValueError(f"expected a number of at most {format}, got {value}")
        return cls(value)


class Size(_Number):
    """Sender: each client. Receiver: the server, and by the plan all. Its records, or its public padded size."""

    __slots__ = ()
    TYPE = 72
    LEADS_TO_PLAN = True
    SEEN = Seen(
        UP,
        "how many records this site brings",
        server="number of records of each client, or its public padded size",
        others="the same, in the plan",
    )


class LayerPublicKey(SetupBytes):
    """Sender: each client. Receiver: each other client. Tells nothing by itself."""

    __slots__ = ()
    TYPE = 73
    SEEN = Seen(
        ACROSS,
        "hide whose a record is",
        server="nothing",
        others="random tags of all records, in no client's order; the last client: how many are padding",
        variant="membership",
        when=lambda facts: bool(facts.get("membership")),
    )


@dataclass(frozen=True, slots=True)
class TagFormat:
    """The shape of a list of tags: how many, and how long each is. A count of None: any up to `most`."""

    count: int | None
    length: int
    most: int = 0


@dataclass(frozen=True, slots=True)
class _Tags(Declared):
    """A list of byte strings of one length."""

    entries: tuple[bytes, ...] = dataclasses.field(repr=False)

    def body(self) -> bytes:
        """Return the entries one after the other."""
        return b"".join(self.entries)

    @classmethod
    def read(cls, body: bytes, format: TagFormat) -> Self:
        """Check the length and cut."""
        count, rest = divmod(len(body), format.length)
        fits = count == format.count if format.count is not None else count <= format.most
        if rest or not fits:
            expected = format.most if format.count is None else format.count
            raise ValueError(f"expected {expected} tags of {format.length} bytes, got {len(body)} bytes")
        return cls(tuple(body[i : i + format.length] for i in range(0, len(body), format.length)))


class SealedTags(_Tags):
    """Sender: each client to client 1; then client j to client j + 1. Seen by: the receiver, who cannot link them."""

    __slots__ = ()
    TYPE = 74
    MOST_BYTES = OfPlan(lambda plan: sum(plan.sizes) * sealed_bytes(plan.clients))
    SEEN = ()

    @property
    def payload_bytes(self) -> int:
        """Ciphertexts are payload."""
        return sum(map(len, self.entries))


class Union(NoPayload, _Tags):
    """Sender: client n. Receiver: each other client. Random tags of all records, in no client's order."""

    __slots__ = ()
    TYPE = 75
    MOST_BYTES = OfPlan(lambda plan: sum(plan.sizes) * TAG_BYTES)
    SEEN = ()


@dataclass(frozen=True, slots=True)
class ArrayFormat:
    """The public shape of an array of field elements, and of a block of shares its number."""

    field: Field
    shape: tuple[int, int]
    block: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class DataShares(Declared):
    """Sender: each client. Receiver: each other client, its own share only. Any t of them together learn nothing.

    Attributes
    ----------
    elements : float64 array, shape (primes, rows, width)
    field : Field
    block : int
        Number of the block; one that is empty keeps the clients in step.
    """

    TYPE = 76
    MOST_BYTES = OfPlan(
        lambda plan: _BLOCK.size + min(plan.block_rows, sum(plan.sizes)) * plan.width * plan.field.element_bytes
    )
    SEEN = Seen(
        ACROSS,
        "a secret share of every record of this site, another one for each client",
        server="nothing",
        others="one share of each record, as good as random for any t clients together",
    )
    elements: Elements = dataclasses.field(repr=False)
    field: Field
    block: int

    def body(self) -> bytes:
        """Return the number of the block, then the elements."""
        return _BLOCK.pack(self.block) + self.field.to_bytes(self.elements)

    @property
    def payload_bytes(self) -> int:
        """The elements."""
        return int(self.elements[0].size) * self.field.element_bytes

    @classmethod
    def read(cls, body: bytes, format: ArrayFormat) -> Self:
        """Check number, length and range."""
        if len(body) < _BLOCK.size or _BLOCK.unpack_from(body)[0] != format.block:
            raise ValueError(f"expected block {format.block}")
        elements = format.field.from_bytes(memoryview(body)[_BLOCK.size :], format.shape)
        return cls(elements, format.field, format.block)


class Shared(_Number):
    """Sender: each client. Receiver: the server. Sharing is done, of so many records in all."""

    __slots__ = ()
    TYPE = 77
    SEEN = Seen(UP, "the shares are there", server="number of records of all clients", others="-")
