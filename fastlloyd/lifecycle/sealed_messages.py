"""The messages with which clients agree on a seed through the server; `lifecycle/sealed.py` draws the exchange.

Source: docs/protocol.md, "Seed".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from fastlloyd.crypto.link.identity import SIGNATURE_BYTES
from fastlloyd.crypto.sealing import TAG_BYTES
from fastlloyd.party.declaration import DOWN, UP, OfPlan, Seen, common
from fastlloyd.party.message import NoPayload
from fastlloyd.randomness.prg import KEY_BYTES

CONTRIBUTORS = 3
"""How many clients contribute, the first ones: nobody alone chooses the seed, and one good source of bits is enough."""
SEAL_KEY_BYTES = KEY_BYTES + SIGNATURE_BYTES
BOX_BYTES = KEY_BYTES + TAG_BYTES + SIGNATURE_BYTES
_SAID_BYTES = 2 * KEY_BYTES
SEALED_SEED_BYTES = KEY_BYTES + _SAID_BYTES + BOX_BYTES


def sealed_parts_bytes(clients: int) -> int:
    """Return the length of what one contributor sends."""
    return _SAID_BYTES + BOX_BYTES * (clients - 1)


@dataclass(frozen=True, slots=True)
class SealKey(NoPayload):
    """A client's key of this run, which the server passes on to those that contribute.

    Attributes
    ----------
    public : bytes of length 32
        X25519 key of this run.
    signature : bytes of length 64
        Zeros without a roster.
    """

    TYPE = 19
    MOST_BYTES = SEAL_KEY_BYTES
    SEEN = Seen(
        UP,
        "agree on the seed of the masks: keys of this run, and parts sealed for the other clients",
        server="public keys, and parts that it cannot open",
        others="- (they come back in SealKeys and SealedSeed)",
        when=common,
    )
    public: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    def body(self) -> bytes:
        """Return key and signature."""
        return self.public + self.signature

    @classmethod
    def read(cls, body: bytes, format: Any) -> Self:
        """Check the length."""
        _check(body, SEAL_KEY_BYTES)
        return cls(body[:KEY_BYTES], body[KEY_BYTES:])


@dataclass(frozen=True, slots=True)
class SealKeys(NoPayload):
    """The keys of all clients, in the order of ranks."""

    TYPE = 20
    MOST_BYTES = OfPlan(lambda plan: SEAL_KEY_BYTES * plan.clients)
    SEEN = Seen(
        DOWN,
        "the same, passed on to the clients that they are for",
        server="public keys, and parts that it cannot open",
        others="32 bytes from each that contributes, hence the seed",
        when=common,
    )
    keys: tuple[SealKey, ...]

    def body(self) -> bytes:
        """Return one after the other."""
        return b"".join(key.body() for key in self.keys)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Decode `format` keys."""
        _check(body, format * SEAL_KEY_BYTES)
        return cls(tuple(SealKey.read(piece, None) for piece in _cut(body, SEAL_KEY_BYTES)))


@dataclass(frozen=True, slots=True)
class Box:
    """One sealed part, for one client.

    Attributes
    ----------
    sealed : bytes of length 48
    signature : bytes of length 64
        Of its sender; zeros without a roster.
    """

    sealed: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    def body(self) -> bytes:
        """Return both."""
        return self.sealed + self.signature

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Cut what `body` returned."""
        return cls(body[:-SIGNATURE_BYTES], body[-SIGNATURE_BYTES:])


@dataclass(frozen=True, slots=True)
class SealedParts(NoPayload):
    """What one client contributes, sealed: the server passes each part on to whom it is for.

    Attributes
    ----------
    context : bytes of length 32
        Digest of the public set-up, as the sender knows it.
    digest : bytes of length 32
        Of its part, keyed: the same for all.
    boxes : tuple of Box
        For the other clients, in the order of ranks.
    """

    TYPE = 21
    MOST_BYTES = OfPlan(lambda plan: sealed_parts_bytes(plan.clients))
    SEEN = ()
    context: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    boxes: tuple[Box, ...] = field(repr=False)

    def body(self) -> bytes:
        """Return context, digest and boxes."""
        return self.context + self.digest + b"".join(box.body() for box in self.boxes)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Decode what one of `format` clients sends."""
        _check(body, sealed_parts_bytes(format))
        said, boxes = body[:_SAID_BYTES], body[_SAID_BYTES:]
        return cls(said[:KEY_BYTES], said[KEY_BYTES:], tuple(map(Box.read, _cut(boxes, BOX_BYTES))))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the seed as it comes to one client: who sent it is known by its place."""

    public: bytes = field(repr=False)
    context: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    box: Box = field(repr=False)


@dataclass(frozen=True, slots=True)
class SealedSeed(NoPayload):
    """What the others that contribute have sealed for it, by ranks."""

    TYPE = 22
    MOST_BYTES = SEALED_SEED_BYTES * CONTRIBUTORS
    SEEN = ()
    parts: tuple[Part, ...]

    def body(self) -> bytes:
        """Return, of each, key, context, digest and box."""
        return b"".join(part.public + part.context + part.digest + part.box.body() for part in self.parts)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Decode `format` parts."""
        _check(body, format * SEALED_SEED_BYTES)
        parts = []
        for piece in _cut(body, SEALED_SEED_BYTES):
            public, context, digest = _cut(piece[: 3 * KEY_BYTES], KEY_BYTES)
            parts.append(Part(public, context, digest, Box.read(piece[3 * KEY_BYTES :])))
        return cls(tuple(parts))


def _check(body: bytes, size: int) -> None:
    if len(body) != size:
        raise ValueError(f"expected {size} bytes, got {len(body)}")


def _cut(body: bytes, size: int) -> Iterator[bytes]:
    return (body[i : i + size] for i in range(0, len(body), size))
