"""The messages of SecFC, in the order they are sent.

::

    client i                        client j                        server
      Size  number of records, or padded size  ------------------->   plan
      -- with membership privacy (§6) --
      LayerPublicKey   <------->    LayerPublicKey
      SealedTags       ------->     client 1 opens a layer, shuffles, sends to client 2, .. to client n
      Union            <-------     client n: the tags of all records, sorted
      -- secure data sharing (Alg. 1, phase 1) --
      DataShares       <------->    DataShares                        block by block
      Shared  number of records of all clients -------------------->  all are ready
      -- each round of a separated start, each iteration (phase 2), and the choice among several starts --
      CodedValues  a value for each pair that is compared ----------> decodes from the first 2l + 2t - 1
      who won          <--------------------------------------------  Signs
      .. 2 for a seed; ceil(log2 c) for an iteration, c the clusters in use; ceil(log2 R) for R starts ..
      -- after the last one --
      CodedValues  "end" ------------------------------------------->
      Finished  ---------------------------------------------------->
                       <--------------------------------------------  Roll  who is there (if centres are revealed)
      CenterShares     <------->    l + t clients to all clients

Payload is field elements and sealed tags; signs are link bytes.
"""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.hybrid import TAG_BYTES as SEAL_BYTES
from fastlloyd.lifecycle.hello import Ready
from fastlloyd.lifecycle.messages import CLOSING, OPENING, SEED
from fastlloyd.lifecycle.shared_secrets import SetupBytes
from fastlloyd.party.declaration import ACROSS, DOWN, UP, Declared, Messages, OfPlan, Seen
from fastlloyd.party.message import FixedBytes, NoPayload, Presence, check_size
from fastlloyd.protocols.secfc.field.prime import Elements, Field
from fastlloyd.protocols.secfc.math.onion import TAG_BYTES, sealed_bytes
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.wire.header import PartyId, decode_included, encode_included

_NUMBER = struct.Struct("<Q")
_BLOCK = struct.Struct("<I")
# Values of one block: enough for matrix products to be fast, few enough to fit the cache.
_BLOCK_VALUES = 1 << 15
_KINDS = ("more", "last", "end")


def _bitmap_bytes(plan: Plan) -> int:
    return (plan.clients + 7) // 8


def blocks(values: int) -> list[slice]:
    """Return the blocks of an answer's values for which a party computes and draws masks at a time."""
    return [slice(i, min(i + _BLOCK_VALUES, values)) for i in range(0, values, _BLOCK_VALUES)]


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
        check_size(body, _NUMBER.size)
        value = int(_NUMBER.unpack(body)[0])
        if value > format:
            raise ValueError(f"expected a number of at most {format}, got {value}")
        return cls(value)


class Size(_Number):
    """The number of a client's records, or its public padded size; in the plan for all."""

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
    """A client's public key for its layer of the tags; it reveals nothing by itself."""

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
        """Check the length and split the body."""
        count, rest = divmod(len(body), format.length)
        fits = count == format.count if format.count is not None else count <= format.most
        if rest or not fits:
            expected = format.most if format.count is None else format.count
            raise ValueError(f"expected {expected} tags of {format.length} bytes, got {len(body)} bytes")
        return cls(tuple(body[i : i + format.length] for i in range(0, len(body), format.length)))


class SealedTags(_Tags):
    """From each client to client 1, then from client j to client j + 1, who cannot link them to their owners."""

    __slots__ = ()
    TYPE = 74
    MOST_BYTES = OfPlan(lambda plan: sum(plan.sizes) * sealed_bytes(plan.clients) + SEAL_BYTES)
    SEEN = ()

    @property
    def payload_bytes(self) -> int:
        """Ciphertexts are payload."""
        return sum(map(len, self.entries))


class Union(NoPayload, _Tags):
    """From client n to the others: random tags of all records, in no client's order."""

    __slots__ = ()
    TYPE = 75
    MOST_BYTES = OfPlan(lambda plan: sum(plan.sizes) * TAG_BYTES + SEAL_BYTES)
    SEEN = ()


@dataclass(frozen=True, slots=True)
class ArrayFormat:
    """The public shape of an array of field elements, and the number of a block of shares."""

    field: Field
    shape: tuple[int, int]
    block: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Shares(Declared):
    """Shares, float64 array, shape (primes, rows, width)."""

    elements: Elements = dataclasses.field(repr=False)
    field: Field

    def body(self) -> bytes:
        """Return the elements."""
        return self.field.to_bytes(self.elements)

    @property
    def payload_bytes(self) -> int:
        """The elements are payload."""
        return int(self.elements[0].size) * self.field.element_bytes


@dataclass(frozen=True, slots=True, eq=False)
class DataShares(_Shares):
    """The receiver's own shares of a block of records, by its number: any t receivers together learn nothing.

    An empty block keeps the clients in step.
    """

    TYPE = 76
    MOST_BYTES = OfPlan(
        lambda plan: (
            _BLOCK.size + min(plan.block_rows, sum(plan.sizes)) * plan.width * plan.field.element_bytes + SEAL_BYTES
        )
    )
    SEEN = Seen(
        ACROSS,
        "a secret share of every record of this site, another one for each client",
        server="nothing",
        others="one share of each record, as good as random for any t clients together",
    )
    block: int

    def body(self) -> bytes:
        """Return the number of the block, then the elements."""
        return _BLOCK.pack(self.block) + self.field.to_bytes(self.elements)

    @classmethod
    def read(cls, body: bytes, format: ArrayFormat) -> Self:
        """Check number, length and range."""
        if len(body) < _BLOCK.size or _BLOCK.unpack_from(body)[0] != format.block:
            raise ValueError(f"expected block {format.block}")
        elements = format.field.from_bytes(memoryview(body)[_BLOCK.size :], format.shape)
        return cls(elements, format.field, format.block)


class Shared(_Number):
    """Sharing is done; the number of records of all clients."""

    __slots__ = ()
    TYPE = 77
    SEEN = Seen(UP, "the shares are there", server="number of records of all clients", others="-")


@dataclass(frozen=True, slots=True)
class ValuesFormat:
    """The public shape of one round's answer: at most `most` values."""

    field: Field
    most: int


@dataclass(frozen=True, slots=True)
class CodedValues(Declared):
    """Masked coded values, or the end.

    Attributes
    ----------
    data : bytes
        Field elements. Empty at the end.
    kind : {'more', 'last', 'end'}
        Whether the step goes on after this message, ends with it, or the computation has ended.
    """

    TYPE = 78
    MOST_BYTES = OfPlan(lambda plan: 1 + plan.answer_values * plan.field.element_bytes)
    SEEN = Seen(
        UP,
        "comparisons of distances and of their totals, computed on shares, masked, blurred and in a secret order",
        server="with the others: how close comparisons are, blurred over 64 octaves, of records, clusters and "
        "starts that it cannot tell; how many clusters are in use",
        others="never sent to them",
        network="length, time",
    )
    data: bytes = dataclasses.field(repr=False)
    kind: str

    def body(self) -> bytes:
        """Return a byte for the kind, then the elements."""
        return bytes([_KINDS.index(self.kind)]) + self.data

    @property
    def payload_bytes(self) -> int:
        """The elements."""
        return len(self.data)

    @classmethod
    def read(cls, body: bytes, format: ValuesFormat) -> Self:
        """Check kind and length."""
        if not body or body[0] >= len(_KINDS):
            raise ValueError("expected an answer that is marked 0, 1 or 2")
        kind, width = _KINDS[body[0]], format.field.element_bytes
        count, rest = divmod(len(body) - 1, width)
        if rest or count > (0 if kind == "end" else format.most):
            raise ValueError(
                f"expected 0 to {format.most} times {width} payload bytes, and none at the end, got {len(body) - 1}"
            )
        return cls(body[1:], kind)

    def values(self, field: Field) -> int:
        """Return the number of values."""
        return len(self.data) // field.element_bytes

    def read_block(self, field: Field, part: slice, *, out: Elements) -> None:
        """Read the elements of one block, residues in 0..p - 1, into shape (primes, values of the block).

        Raises
        ------
        ValueError
            A residue is not below its prime: the sender is at fault.
        """
        width = field.element_bytes
        data = memoryview(self.data)[part.start * width : part.stop * width]
        field.read_residues(data, out=out)


@dataclass(frozen=True, slots=True)
class SignsFormat:
    """The public shape of the server's reply to comparisons: values, clients."""

    values: int
    clients: int


@dataclass(frozen=True, slots=True)
class Signs(NoPayload):
    """The signs of the decoded values; only the clients know their meaning.

    Attributes
    ----------
    positive : bool array, shape (values,)
        In the order in which the values were sent.
    included : tuple of PartyId
        Whose answers they were decoded from.
    format : SignsFormat
    """

    TYPE = 83
    MOST_BYTES = OfPlan(lambda plan: _bitmap_bytes(plan) + (plan.answer_values + 7) // 8)
    SEEN = Seen(
        DOWN,
        "the outcome of the comparisons",
        server="fair coins",
        others="who won each comparison, hence the cluster of every record, in every iteration of every start; which "
        "records are seeds; which start won",
    )
    positive: NDArray[np.bool_] = dataclasses.field(repr=False)
    included: tuple[PartyId, ...]
    format: SignsFormat

    def body(self) -> bytes:
        """Return the bitmap of the clients included, then a bit for each value, the first one the lowest."""
        return (
            encode_included(self.included, self.format.clients)
            + np.packbits(self.positive, bitorder="little").tobytes()
        )

    @classmethod
    def read(cls, body: bytes, format: SignsFormat) -> Self:
        """Check bitmap and length, and that the unused bits are zero."""
        width = (format.clients + 7) // 8
        if len(body) != width + (format.values + 7) // 8:
            raise ValueError(f"expected {format.values} signs, got {len(body) - width} bytes")
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8, offset=width), bitorder="little")
        if bits[format.values :].any():
            raise ValueError(f"expected {format.values} signs, and zeros after them")
        return cls(bits[: format.values].astype(np.bool_), decode_included(body[:width], format.clients), format)


@dataclass(frozen=True, slots=True)
class Finished(FixedBytes):
    """The client has the last assignment; the message is empty."""

    TYPE = 80
    SIZES = ()
    SEEN = Seen(UP, "the last assignment came", server="that it came", others="-")


class Roll(Presence):
    """The clients that are present; the first l + t of them reveal."""

    __slots__ = ()
    TYPE = 81
    MOST_BYTES = OfPlan(_bitmap_bytes)
    SEEN = Seen(
        "server; client to client",
        "open the final centres to the clients",
        server="who was there",
        others="the sums, hence the centres, of the final clusters",
        variant="reveal",
        when=lambda facts: bool(facts.get("reveal_centers")),
    )


class CenterShares(_Shares):
    """Shares of clusters' sums, from each of l + t clients to all others, who together open the sums."""

    __slots__ = ()
    TYPE = 82
    MOST_BYTES = OfPlan(lambda plan: plan.k * plan.width * plan.field.element_bytes + SEAL_BYTES)
    SEEN = ()

    @classmethod
    def read(cls, body: bytes, format: ArrayFormat) -> Self:
        """Check length and range; the sender decides the number of clusters, up to that of the format."""
        most, width = format.shape
        rows = min(len(body) // (width * format.field.element_bytes), most)
        return cls(format.field.from_bytes(body, (rows, width)), format.field)


BETWEEN_CLIENTS = (SealedTags, Union, DataShares, CenterShares)
"""What two clients seal for each other (`lifecycle/sealed_messages.py`): from all shares follow the records."""

MESSAGES: Messages = (
    *(Size, *OPENING, *SEED),
    *(LayerPublicKey, SealedTags, Union, DataShares, Shared, Ready),
    *(CodedValues, Signs, Finished, Roll, CenterShares),
    *CLOSING,
)
