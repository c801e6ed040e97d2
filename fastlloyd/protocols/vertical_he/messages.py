"""The messages of vertical-he, in the order they are sent.

::

    key holder                                     computing party
      KeyMaterial      public key, and a
                       relinearisation key
                       for circuits        ----->
                                           ----->  further owners (the public key alone)
    every owner of encrypted columns
      EncryptedBlock   one block of records ----->  ... as many as there are blocks; not for projection
    each round
      EncryptedBlock   projection only      ----->  all blocks, encrypted anew for this round's centres
      NoisySamples                          <-----  sums + noise of the computing party, one LWE sample per output
      open, add own noise
      NoisySums        integers             ----->  and to the further owners
      new centres, alike at all parties

In threshold mode every party makes a share of the key (`crypto.he.keyshare`). Who leads is the key holder of two
parties, and the computing party of more::

    who leads           KeyMaterial      (z, a) of the public key, and of each      -----> everybody else
                                         part of a relinearisation key (circuits)
    everybody else      KeyContribution  its z for each a but who leads, its g for  -----> computing party
                                         each part; nothing if both are none
    computing party     KeyMaterial      the common public key, the sums z and g    -----> everybody else
    everybody else      KeyContribution  its r for each part; circuits only         -----> computing party

Where fewer than all parties open (t of P), each group of P - t + 1 owners first shares a piece of the key::

    first of a group    KeyPiece         a secret, and the noise that goes with it  -----> the others of the group

of which the first one contributes to the keys as above. With more than two parties in each round::

    computing party     NoisySamples     the vectors alone, constants of zero       -----> everybody else
    everybody else      PartialOpenings  its part of each opening, with its noise   -----> computing party
                                         (one for each piece that it holds)
    open, add own noise
    computing party     NoisySums                                                   -----> everybody else

and after the last round::

    computing party     Present          who helped to open it                      -----> everybody else

All of it is payload but KeyPiece and Present. A block is a list of ciphertexts or keys as bare numbers
(`crypto.he.residues`); how many there are and how long each is follows from the plan.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.party.message import NoPayload, Payload
from fastlloyd.wire import numbers
from fastlloyd.wire.header import PartyId, decode_included, encode_included


@dataclass(frozen=True, slots=True)
class ListFormat:
    """How long each of a message's byte strings is."""

    lengths: tuple[int, ...]

    @property
    def total(self) -> int:
        """Bytes of all of them."""
        return sum(self.lengths)


@dataclass(frozen=True, slots=True)
class SumsFormat:
    """How many integers a message holds, and how large they may be."""

    count: int
    most: int


@dataclass(frozen=True, slots=True)
class _ByteStrings:
    """Byte strings of known lengths, one after the other."""

    TYPE: ClassVar[int]
    parts: tuple[bytes, ...] = field(repr=False)

    def body(self) -> bytes:
        """Return the parts."""
        return b"".join(self.parts)

    @property
    def payload_bytes(self) -> int:
        """All of it is payload."""
        return sum(map(len, self.parts))

    @classmethod
    def read(cls, body: bytes, format: ListFormat) -> Self:
        """Check the length, and part."""
        if len(body) != format.total:
            count = len(format.lengths)
            raise ValueError(f"expected {format.total} bytes of {count} ciphertexts or keys, got {len(body)}")
        ends = itertools.accumulate(format.lengths)
        return cls(tuple(body[end - length : end] for length, end in zip(format.lengths, ends, strict=True)))


class KeyMaterial(_ByteStrings):
    """Public keys. Sender: the key holder. Receivers: the computing party, and further owners.

    In threshold mode the computing party sends the common public key to everybody, for a circuit with the sums that the
    relinearisation key is made of; with more than two parties it sends the first ones, too.
    """

    __slots__ = ()
    TYPE: ClassVar[int] = numbers.KEY_MATERIAL


class KeyContribution(_ByteStrings):
    """Sender: a party with a share of the key. Receiver: the computing party. Looks random to all without the share."""

    __slots__ = ()
    TYPE: ClassVar[int] = numbers.KEY_CONTRIBUTION


class EncryptedBlock(_ByteStrings):
    """Sender: an owner. Receiver: the computing party, which cannot open it, and nobody else (the holder could)."""

    __slots__ = ()
    TYPE: ClassVar[int] = numbers.ENCRYPTED_BLOCK


class NoisySamples(Payload):
    """Sender: the computing party. Receiver: the key holder, who can open it: sums with the sender's noise.

    Where more than two parties share the key, all others get it with constants of zero, and without noise.

    Attributes
    ----------
    data : bytes
        One LWE sample of N + 1 numbers per output, and nothing else.
    """

    __slots__ = ()
    TYPE: ClassVar[int] = numbers.NOISY_SAMPLES

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the length, `format` bytes."""
        if len(body) != format:
            raise ValueError(f"expected {format} bytes of samples, got {len(body)}")
        return cls(body)


class PartialOpenings(Payload):
    """Sender: an owner with a share of the key. Receiver: the computing party. Its parts of openings, with its noise.

    Attributes
    ----------
    data : bytes
        One number modulo 2^w per output, for each piece that the sender holds.
    """

    __slots__ = ()
    TYPE: ClassVar[int] = numbers.PARTIAL_OPENINGS

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the length, `format` bytes."""
        if len(body) != format:
            raise ValueError(f"expected {format} bytes of parts of openings, got {len(body)}")
        return cls(body)


@dataclass(frozen=True, slots=True)
class PieceFormat:
    """How long a piece of the key and its noise are, and how large the noise may be."""

    ring: int
    rounds: int
    outputs: int
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class KeyPiece(NoPayload):
    """Sender: the first of a group of owners. Receiver: each other one. A piece of the key, and its noise.

    Attributes
    ----------
    coefficients : int64 array, shape (N,)
        -1, 0 or 1.
    noise : int64 array, shape (rounds, outputs)
        In steps of the numbers on the way.
    """

    TYPE: ClassVar[int] = numbers.KEY_PIECE
    coefficients: NDArray[np.int64] = field(repr=False)
    noise: NDArray[np.int64] = field(repr=False)

    def body(self) -> bytes:
        """Return the coefficients, a byte each, then the noise."""
        return self.coefficients.astype("<i1").tobytes() + self.noise.astype("<i8").tobytes()

    @classmethod
    def read(cls, body: bytes, format: PieceFormat) -> Self:
        """Check the length, that coefficients are -1, 0 or 1, and that no noise is larger than it can be."""
        expected = format.ring + 8 * format.rounds * format.outputs
        if len(body) != expected:
            raise ValueError(f"expected {expected} bytes of a piece of the key, got {len(body)}")
        coefficients = np.frombuffer(body, "<i1", format.ring).astype(np.int64)
        noise = np.frombuffer(body, "<i8", -1, format.ring).astype(np.int64)
        if coefficients.max() > 1 or coefficients.min() < -1:
            raise ValueError("expected a piece of the key with coefficients -1, 0 and 1, got another number")
        if noise.max() > format.most or noise.min() < -format.most:
            raise ValueError(f"expected noise from -{format.most} to {format.most}, got a larger one")
        return cls(coefficients, noise.reshape(format.rounds, format.outputs))


@dataclass(frozen=True, slots=True)
class Present(NoPayload):
    """Sender: the computing party. Receiver: every owner. Who helped to open the last round, as a bitmap."""

    TYPE: ClassVar[int] = numbers.PRESENT
    owners: tuple[PartyId, ...]
    clients: int

    def body(self) -> bytes:
        """Return the bitmap."""
        return encode_included(self.owners, self.clients)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the bitmap of `format` clients."""
        return cls(decode_included(body, format), format)


class NoisySums(Payload):
    """Sender: who opens. Receivers: everybody else. Sums and counts with the noise of all who add it; released.

    Attributes
    ----------
    data : bytes
        k (d + 1) integers of 64 bits, little endian.
    """

    __slots__ = ()
    TYPE: ClassVar[int] = numbers.NOISY_SUMS

    @classmethod
    def read(cls, body: bytes, format: SumsFormat) -> Self:
        """Check the length, and that no integer is larger than sums and noise can be."""
        if len(body) != 8 * format.count:
            raise ValueError(f"expected {format.count} integers of 8 bytes, got {len(body)} bytes")
        numbers = np.frombuffer(body, dtype="<i8")
        if numbers.max(initial=0) > format.most or numbers.min(initial=0) < -format.most:
            raise ValueError(f"expected integers from -{format.most} to {format.most}, got a larger one")
        return cls(body)

    @classmethod
    def of(cls, integers: NDArray[np.int64]) -> Self:
        """Write integers."""
        return cls(integers.astype("<i8").tobytes())

    def integers(self) -> NDArray[np.int64]:
        """Return the integers, shape (k (d + 1),)."""
        return np.frombuffer(self.data, dtype="<i8").astype(np.int64)
