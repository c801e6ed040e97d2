"""The messages of SecFC, in the order they are sent; those before the iterations are in `setup_messages.py`.

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
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.lifecycle.hello import Ready
from fastlloyd.lifecycle.messages import CLOSING, OPENING, SEED
from fastlloyd.party.declaration import DOWN, UP, Declared, Messages, OfPlan, Seen
from fastlloyd.party.message import NoPayload
from fastlloyd.protocols.secfc.field.prime import Elements, Field
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.protocols.secfc.setup_messages import (
    ArrayFormat,
    DataShares,
    LayerPublicKey,
    SealedTags,
    Shared,
    Size,
    Union,
)
from fastlloyd.wire.header import PartyId, decode_included, encode_included

# Values of one block: enough for matrix products to be fast, few enough to fit the cache.
_BLOCK_VALUES = 1 << 15
_KINDS = ("more", "last", "end")


def _bitmap_bytes(plan: Plan) -> int:
    return (plan.clients + 7) // 8


def blocks(values: int) -> list[slice]:
    """Return which values of an answer a party computes on at a time, and draws masks for."""
    return [slice(i, min(i + _BLOCK_VALUES, values)) for i in range(0, values, _BLOCK_VALUES)]


@dataclass(frozen=True, slots=True)
class ValuesFormat:
    """The public shape of one round's answer.

    Attributes
    ----------
    field : Field
    most : int
        Values at most.
    """

    field: Field
    most: int


@dataclass(frozen=True, slots=True)
class CodedValues(Declared):
    """Sender: a client. Receiver: the server. Masked coded values, or that the last assignment came.

    Attributes
    ----------
    data : bytes
        Field elements. Empty at the end.
    kind : {'more', 'last', 'end'}
        Whether the step goes on after this message, or this one ends it, or there is nothing more to compute.
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
        """Return how many values there are."""
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
    """Sender: the server. Receiver: every client, which alone knows what the signs stand for.

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
        """Check bitmap and length, and that no bit is left over."""
        width = (format.clients + 7) // 8
        if len(body) != width + (format.values + 7) // 8:
            raise ValueError(f"expected {format.values} signs, got {len(body) - width} bytes")
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8, offset=width), bitorder="little")
        if bits[format.values :].any():
            raise ValueError(f"expected {format.values} signs, and zeros after them")
        return cls(bits[: format.values].astype(np.bool_), decode_included(body[:width], format.clients), format)


@dataclass(frozen=True, slots=True)
class Finished(NoPayload):
    """Sender: each client. Receiver: the server. The last assignment came; carries nothing."""

    TYPE = 80
    MOST_BYTES = 0
    SEEN = Seen(UP, "the last assignment came", server="that it came", others="-")

    def body(self) -> bytes:
        """Return no bytes."""
        return b""

    @classmethod
    def read(cls, body: bytes, format: None) -> Self:
        """Check that nothing came."""
        if body:
            raise ValueError(f"expected an empty message, got {len(body)} bytes")
        return cls()


@dataclass(frozen=True, slots=True)
class Roll(NoPayload):
    """Sender: the server. Receiver: every client. Which clients are there; the first l + t of them reveal."""

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
    present: tuple[PartyId, ...]
    clients: int

    def body(self) -> bytes:
        """Return the bitmap."""
        return encode_included(self.present, self.clients)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the bitmap of `format` clients."""
        return cls(decode_included(body, format), format)


@dataclass(frozen=True, slots=True, eq=False)
class CenterShares(Declared):
    """Sender: each of l + t clients. Receiver: every other client. Together they give the sums of final clusters.

    Attributes
    ----------
    elements : float64 array, shape (primes, c, width)
    field : Field
    """

    TYPE = 82
    MOST_BYTES = OfPlan(lambda plan: plan.k * plan.width * plan.field.element_bytes)
    SEEN = ()
    elements: Elements = dataclasses.field(repr=False)
    field: Field

    def body(self) -> bytes:
        """Return the elements."""
        return self.field.to_bytes(self.elements)

    @property
    def payload_bytes(self) -> int:
        """All of it is payload."""
        return int(self.elements[0].size) * self.field.element_bytes

    @classmethod
    def read(cls, body: bytes, format: ArrayFormat) -> Self:
        """Check length and range; of how many clusters they are, up to those of the format, is the sender's word."""
        most, width = format.shape
        rows = min(len(body) // (width * format.field.element_bytes), most)
        return cls(format.field.from_bytes(body, (rows, width)), format.field)


MESSAGES: Messages = (
    *(Size, *OPENING, *SEED),
    *(LayerPublicKey, SealedTags, Union, DataShares, Shared, Ready),
    *(CodedValues, Signs, Finished, Roll, CenterShares),
    *CLOSING,
)
