"""The messages of vertical-he, in the order they are sent.

::

    key holder                                     computing party
      KeyMaterial      public key, and a
                       relinearisation key
                       for circuits        ----->
                                           ----->  further owners (the public key alone)
      threshold only                       <-----  KeyMaterial      the common public key
    every owner of encrypted columns
      EncryptedBlock   one block of records ----->  ... as many as there are blocks; not for projection
    each round
      EncryptedBlock   projection only      ----->  all blocks, encrypted anew for this round's centres
      NoisySamples                          <-----  sums + noise of the computing party, one LWE sample per output
      open, add own noise
      NoisySums        integers             ----->  and to the further owners
      new centres, alike at all parties

All of it is payload. A block is a list of SEAL objects, each with its length; how many there are and how long each
may be is public and checked before SEAL reads them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.message import Payload

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class ListFormat:
    """How many byte strings a message holds, and how long each may be."""

    count: int
    most_bytes: int


@dataclass(frozen=True, slots=True)
class _ByteStrings:
    """A fixed number of byte strings, each behind its length (u32, little endian)."""

    TYPE: ClassVar[int]
    parts: tuple[bytes, ...] = field(repr=False)

    def body(self) -> bytes:
        """Give lengths and parts."""
        return b"".join(piece for part in self.parts for piece in (_LENGTH.pack(len(part)), part))

    @property
    def payload_bytes(self) -> int:
        """All but the lengths is payload."""
        return sum(map(len, self.parts))

    @classmethod
    def read(cls, body: bytes, format: ListFormat) -> Self:
        """Check number and lengths."""
        parts, start = [], 0
        for _ in range(format.count):
            if len(body) - start < _LENGTH.size:
                raise ValueError(f"expected {format.count} ciphertexts or keys, got fewer")
            (length,) = _LENGTH.unpack_from(body, start)
            start += _LENGTH.size
            if not 0 < length <= min(format.most_bytes, len(body) - start):
                raise ValueError(f"expected ciphertexts or keys of at most {format.most_bytes} bytes, got {length}")
            parts.append(body[start : start + length])
            start += length
        if start != len(body):
            raise ValueError(f"{len(body) - start} bytes too many after {format.count} ciphertexts or keys")
        return cls(tuple(parts))


class KeyMaterial(_ByteStrings):
    """Public keys. Sender: the key holder. Receivers: the computing party, and further owners.

    In threshold mode the computing party sends one back to the key holder: the common public key.
    """

    __slots__ = ()
    TYPE: ClassVar[int] = 120


class EncryptedBlock(_ByteStrings):
    """Sender: an owner. Receiver: the computing party, which cannot open it, and nobody else (the holder could)."""

    __slots__ = ()
    TYPE: ClassVar[int] = 121


class NoisySamples(Payload):
    """Sender: the computing party. Receiver: the key holder, who can open it: sums with the sender's noise.

    Attributes
    ----------
    data : bytes
        One LWE sample of N + 1 numbers per output, and nothing else.
    """

    __slots__ = ()
    TYPE: ClassVar[int] = 122

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the length, `format` bytes."""
        if len(body) != format:
            raise ValueError(f"expected {format} bytes of samples, got {len(body)}")
        return cls(body)


class NoisySums(Payload):
    """Sender: the key holder. Receivers: everybody else. Sums and counts with the noise of both; released.

    Attributes
    ----------
    data : bytes
        k (d + 1) integers of 64 bits, little endian.
    """

    __slots__ = ()
    TYPE: ClassVar[int] = 123

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the length, `format` integers."""
        if len(body) != 8 * format:
            raise ValueError(f"expected {format} integers of 8 bytes, got {len(body)} bytes")
        return cls(body)

    @classmethod
    def of(cls, integers: NDArray[np.int64]) -> Self:
        """Write integers."""
        return cls(integers.astype("<i8").tobytes())

    def integers(self) -> NDArray[np.int64]:
        """Give the integers, shape (k (d + 1),)."""
        return np.frombuffer(self.data, dtype="<i8").astype(np.int64)
