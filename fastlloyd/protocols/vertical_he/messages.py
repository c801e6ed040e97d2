"""The messages of vertical-he, in the order they are sent.

::

    key holder                                     computing party
      KeyMaterial      public key, and a
                       relinearisation key
                       for circuits        ----->
                                           ----->  further owners (the public key alone)
    every owner of encrypted columns
      EncryptedBlock   one block of records ----->  ... as many as there are blocks; not for
                                                  projection and landmarks
    each round
      EncryptedBlock   projection and
                       landmarks only      ----->  all blocks, encrypted anew for this round's centres
      NoisySamples                          <-----  sums + noise of the computing party, one LWE sample per output
      open, add own noise
      NoisySums        integers             ----->  and to the further owners
      new centres, the same at all parties

In threshold mode every party makes a share of the key (`he/keyshare.py`). The leader is the key holder of two parties,
and the computing party of more::

    leader              KeyMaterial      (z, a) of the public key, and of each      -----> everybody else
                                         part of a relinearisation key (circuits)
    everybody else      KeyContribution  its z for each a (not the leader's), its   -----> computing party
                                         g for each part; not sent if both are empty
    computing party     KeyMaterial      the common public key, the sums z and g    -----> everybody else
    everybody else      KeyContribution  its r for each part; circuits only         -----> computing party

Where fewer than all parties open (t of P), each group of P - t + 1 owners first shares a piece of the key::

    first of a group    KeyPiece         a secret, and its noise                    -----> the others of the group

The first of a group contributes to the keys as above. With more than two parties, in each round::

    computing party     NoisySamples     the vectors alone, constants of zero       -----> everybody else
    everybody else      PartialOpenings  its part of each opening, with its noise   -----> computing party
                                         (one for each piece that it holds)
    open, add own noise
    computing party     NoisySums                                                   -----> everybody else

and after the last round::

    computing party     Present          who helped to open it                      -----> everybody else

All but KeyPiece and Present is payload. A block is a list of ciphertexts or keys as bare numbers (`he/residues.py`);
the plan determines their number and lengths.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.hybrid import TAG_BYTES as SEAL_BYTES
from fastlloyd.lifecycle.align.columns import Columns, RecordCount
from fastlloyd.lifecycle.align.ids import ALIGNMENT, BlindedIds, IdTag, OpenedIds, lists_ahead
from fastlloyd.lifecycle.closing import Chains
from fastlloyd.lifecycle.hello import PlanProposal, Ready
from fastlloyd.lifecycle.messages import COUNTED, plan_bounds
from fastlloyd.lifecycle.shared_secrets import PairCiphertext, PairPublicKey, SeedConfirmation
from fastlloyd.party.declaration import Declared, MessageBounds, Messages, OfPlan, Seen, always, largest_bodies, seen_as
from fastlloyd.party.message import NoPayload, Payload, Presence, check_size
from fastlloyd.protocols.vertical_he.frame import (
    Lengths,
    block_bytes,
    key_bytes,
    parts_bytes,
    piece_bytes,
    sums_bytes,
)
from fastlloyd.protocols.vertical_he.parameters import PAIRWISE, THRESHOLD
from fastlloyd.protocols.vertical_he.plan import Plan

_SHARED_KEY = "what a shared key begins with, and the common public keys"
_TWO, _MORE = "threshold, two", "threshold, more than two"
# A public key of the largest ring and modulus that any plan may choose. Its sender sends it as soon as it has the plan,
# perhaps before its receiver has it.
_MOST_PUBLIC_KEY_BYTES = 1 << 24


def shares_key(facts: Mapping[str, Any]) -> bool:
    """Whether the parties share the key."""
    return bool(facts.get("mode") == THRESHOLD)


def several_parties(facts: Mapping[str, Any]) -> bool:
    """Whether there are more than two parties."""
    return bool(facts.get("parties", 3) > 2)


def _held(facts: Mapping[str, Any]) -> bool:
    return not shares_key(facts)


def _shared_by_two(facts: Mapping[str, Any]) -> bool:
    return shares_key(facts) and not several_parties(facts)


def _opened_in_parts(facts: Mapping[str, Any]) -> bool:
    return shares_key(facts) and several_parties(facts)


def _contributes(facts: Mapping[str, Any]) -> bool:
    """Two parties whose scheme needs no relinearisation key need not contribute to a shared key."""
    return shares_key(facts) and (several_parties(facts) or facts.get("scheme") == PAIRWISE)


def _fewer_open(facts: Mapping[str, Any]) -> bool:
    threshold = facts.get("threshold")
    return _opened_in_parts(facts) and threshold is not None and threshold != facts.get("parties")


_timed = partial(Seen, network="length, time")
_public = partial(Seen, server="public keys", others="public keys")
_block = partial(
    Seen,
    "owner to computing party",
    "an owner's columns, encrypted",
    server="ciphertexts that the computing party cannot open",
)


@dataclass(frozen=True, slots=True)
class _ByteStrings(Declared):
    """Byte strings of known lengths, one after the other."""

    parts: tuple[bytes, ...] = field(repr=False)

    def body(self) -> bytes:
        """Return the parts."""
        return b"".join(self.parts)

    @property
    def payload_bytes(self) -> int:
        """All of it is payload."""
        return sum(map(len, self.parts))

    @classmethod
    def read(cls, body: bytes, format: Lengths) -> Self:
        """Check the total length and split the body."""
        if len(body) != sum(format):
            raise ValueError(f"expected {sum(format)} bytes of {len(format)} ciphertexts or keys, got {len(body)}")
        ends = itertools.accumulate(format)
        return cls(tuple(body[end - length : end] for length, end in zip(format, ends, strict=True)))


class KeyMaterial(_ByteStrings):
    """Public keys.

    In threshold mode the computing party sends the common public key to everybody, for a circuit with the sums for the
    relinearisation key; with more than two parties it also sends the first keys.
    """

    __slots__ = ()
    TYPE = 120
    MOST_BYTES = OfPlan(key_bytes)
    SEEN = (
        _public("key holder to computing party and owners", "public keys", when=_held),
        _public("each of the two to the other", _SHARED_KEY, variant=_TWO, when=_shared_by_two),
        _public("computing party to owners", _SHARED_KEY, variant=_MORE, when=_opened_in_parts),
    )


class KeyContribution(_ByteStrings):
    """A part of the common keys; it looks random to everybody without the sender's share of the key."""

    __slots__ = ()
    TYPE = 124
    MOST_BYTES = OfPlan(key_bytes)
    SEEN = Seen(
        "party to computing party",
        "one party's part of the common keys",
        server="what looks random without the sender's share of the key",
        others="never sent to them",
        variant="threshold",
        when=_contributes,
    )


class EncryptedBlock(_ByteStrings):
    """The ciphertexts of one block of an owner's records."""

    __slots__ = ()
    TYPE = 121
    MOST_BYTES = OfPlan(block_bytes)
    SEEN = (
        _block(others="never sent to them (the key holder could open them)", when=_held),
        _block(
            others="never sent to them (as many shares of the key as it takes, put together, could open them)",
            variant="threshold",
            when=shares_key,
        ),
    )


class _ExactPayload(Payload):
    """Bytes of a known number."""

    __slots__ = ()

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the length, `format` bytes."""
        check_size(body, format)
        return cls(body)


class NoisySamples(_ExactPayload):
    """Encrypted sums of a round with the computing party's noise: one LWE sample of N + 1 numbers per output.

    Where more than two parties share the key, the others receive it with constants of zero and without noise.
    """

    __slots__ = ()
    TYPE = 122
    MOST_BYTES = OfPlan(sums_bytes)
    SEEN = (
        _timed(
            "computing party to key holder",
            "the sums of a round, encrypted, with the computing party's noise",
            server="what the computing party made: ciphertexts",
            others="the key holder: sums with the computing party's noise",
            when=_held,
        ),
        _timed(
            "computing party to the other",
            "the sums of a round, opened in part, with the computing party's noise",
            server="what the computing party made: ciphertexts",
            others="sums with the computing party's noise",
            variant=_TWO,
            when=_shared_by_two,
        ),
        _timed(
            "computing party to owners",
            "what the others need to make their parts of opening a round's sums",
            server="what the computing party made: ciphertexts",
            others="the vectors of ciphertexts, without the numbers that the sums are in",
            variant=_MORE,
            when=_opened_in_parts,
        ),
    )


class PartialOpenings(_ExactPayload):
    """An owner's parts of the openings with its noise: a number modulo 2^w per output, for each piece that it holds."""

    __slots__ = ()
    TYPE = 125
    MOST_BYTES = OfPlan(parts_bytes)
    SEEN = _timed(
        "owner to computing party",
        "one party's part of opening a round's sums, with its noise",
        server="sums with the noise of all others",
        others="never sent to them",
        variant="threshold",
        when=_opened_in_parts,
    )


@dataclass(frozen=True, slots=True, eq=False)
class KeyPiece(NoPayload):
    """A piece of the key and its noise, from the first of its group to the others.

    Attributes
    ----------
    coefficients : int64 array, shape (N,)
        -1, 0 or 1.
    noise : int64 array, shape (rounds, outputs)
        In steps of the numbers on the wire.
    """

    TYPE = 126
    MOST_BYTES = OfPlan(lambda plan: piece_bytes(plan) + SEAL_BYTES)
    SEEN = Seen(
        "owner to owner of its group",
        "a piece of the key that a group of owners shares, and its noise",
        server="never sent to it",
        others="the piece and its noise, which are the group's",
        variant="threshold",
        when=_fewer_open,
    )
    coefficients: NDArray[np.int64] = field(repr=False)
    noise: NDArray[np.int64] = field(repr=False)

    def body(self) -> bytes:
        """Return the coefficients, a byte each, then the noise."""
        return self.coefficients.astype("<i1").tobytes() + self.noise.astype("<i8").tobytes()

    @classmethod
    def read(cls, body: bytes, format: Plan) -> Self:
        """Check the length, that coefficients are -1, 0 or 1, and that the noise is below the wire's modulus."""
        ring, most = format.scales.ring, 1 << (format.scales.wire_bits - 1)
        if len(body) != piece_bytes(format):
            raise ValueError(f"expected {piece_bytes(format)} bytes of a piece of the key, got {len(body)}")
        coefficients = np.frombuffer(body, "<i1", ring).astype(np.int64)
        noise = np.frombuffer(body, "<i8", -1, ring).astype(np.int64)
        if coefficients.max() > 1 or coefficients.min() < -1:
            raise ValueError("expected a piece of the key with coefficients -1, 0 and 1, got another number")
        if noise.max() > most or noise.min() < -most:
            raise ValueError(f"expected noise from -{most} to {most}, got a larger one")
        return cls(coefficients, noise.reshape(format.rounds, format.outputs))


class Present(Presence):
    """Who helped to open the last round, as a bitmap."""

    __slots__ = ()
    TYPE = 127
    MOST_BYTES = OfPlan(lambda plan: plan.parties // 8 + 1)
    SEEN = _timed(
        "computing party to owners",
        "who helped to open the last round",
        server="nothing new",
        others="who is there",
        variant="threshold",
        when=_opened_in_parts,
    )


class NoisySums(Payload):
    """Sums and counts with everybody's noise, released: k (d + 1) integers of 64 bits, little endian."""

    __slots__ = ()
    TYPE = 123
    MOST_BYTES = OfPlan(lambda plan: 8 * plan.outputs)
    SEEN = (
        _timed(
            "key holder to all",
            "the sums of a round, opened, with the noise of both sides",
            server="sums with both sides' noise, hence with the key holder's alone",
            others="sums with both sides' noise; the key holder: with the computing party's alone",
            when=_held,
        ),
        _timed(
            "the other party to computing party",
            "the sums of a round, opened, with the noise of both sides",
            server="sums with both sides' noise, hence with the other party's alone",
            others="sums with both sides' noise, hence with the computing party's alone",
            variant=_TWO,
            when=_shared_by_two,
        ),
        _timed(
            "computing party to owners",
            "the sums of a round, opened, with the noise of all pieces of the key",
            server="sums with all noise, part of which it does not know",
            others="the same",
            variant=_MORE,
            when=_opened_in_parts,
        ),
    )

    @classmethod
    def read(cls, body: bytes, format: Plan) -> Self:
        """Check the length, and the size of each integer: opened number and noise are below q / 2."""
        if len(body) != 8 * format.outputs:
            raise ValueError(f"expected {format.outputs} integers of 8 bytes, got {len(body)} bytes")
        numbers, most = np.frombuffer(body, dtype="<i8"), 1 << format.scales.prime_bits[0]
        if numbers.max(initial=0) > most or numbers.min(initial=0) < -most:
            raise ValueError(f"expected integers from -{most} to {most}, got a larger one")
        return cls(body)

    @classmethod
    def of(cls, integers: NDArray[np.int64]) -> Self:
        """Write integers."""
        return cls(integers.astype("<i8").tobytes())

    def integers(self) -> NDArray[np.int64]:
        """Return the integers, shape (k (d + 1),)."""
        return np.frombuffer(self.data, dtype="<i8").astype(np.int64)


_BETWEEN_OWNERS = {"route": "owner to owner", "server": "nothing, unless it holds columns: then as the others"}
_BEFORE_PLAN: Messages = (
    seen_as(
        *(PairPublicKey, PairCiphertext, SeedConfirmation),
        about="agree on a secret to compare ids with",
        others="what makes the pair's secret",
        variant="",
        when=always,
        **_BETWEEN_OWNERS,
    ),
    seen_as(BlindedIds, OpenedIds, others="the common ids", network="length", **_BETWEEN_OWNERS),
    seen_as(IdTag, **_BETWEEN_OWNERS),
    *(Columns, RecordCount, PlanProposal),
)
_WITH_PLAN: Messages = (
    *(Ready, KeyMaterial, KeyPiece, KeyContribution, EncryptedBlock),
    *(NoisySamples, PartialOpenings, NoisySums, Present),
    seen_as(
        Chains,
        route="party to party",
        server="digests of what the sender received, and of the result",
        others="the same",
        variant="every party",
    ),
    *COUNTED,
)

MESSAGES: Messages = (*_BEFORE_PLAN, *_WITH_PLAN)


def early(public: Any) -> tuple[dict[int, int], int]:
    """Return the largest sizes of messages that may come before the plan, and how many bytes of them may wait."""
    sizes = {**largest_bodies(ALIGNMENT, public), KeyMaterial.TYPE: _MOST_PUBLIC_KEY_BYTES}
    return sizes, _MOST_PUBLIC_KEY_BYTES + lists_ahead(public.parties, public.n_total)


def bounds(plan: Plan) -> MessageBounds:
    """Return the bounds of what a peer may send once the plan is known.

    An owner sends pieces of the key and all its encrypted blocks without an answer, so all of them may wait here.
    """
    pieces = len(plan.held(plan.openers[0])) if plan.openers else 0
    ahead = key_bytes(plan) + pieces * (piece_bytes(plan) + SEAL_BYTES) + (plan.blocks + 1) * block_bytes(plan)
    return plan_bounds(_WITH_PLAN, plan, ahead_bytes=ahead)
