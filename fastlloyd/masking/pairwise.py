"""Pairwise masks: they cancel in the sum over all clients, and in no smaller sum.

Each pair of clients has its own secret, agreed for this run only (`lifecycle/shared_secrets.py`). Client i adds, for
every other client j, the key stream of the pair (i, j): with a plus if i < j, else with a minus. So the sum over all
clients is free of masks, and the server gets it by adding up. A sum without some client still carries that client's
streams with all others, uniform on the ring without these secrets: the sum of fewer clients cannot be unmasked.

The pair's keys are bound to purpose, run and pair, the nonce to round, tensor and history: a digest of all replies
before the round. So a stream never covers two vectors that other replies have led to (`masking/mask.py`). The share of
noise under it is drawn once: `protocols/fastlloyd/client.py` re-sends stored bytes.

Source: Bonawitz et al., "Practical secure aggregation" (2017), §4.0.1 "Masking with one-time pads"; docs/protocol.md,
"Masks".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from fastlloyd.errors import PeerError
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.masking.mask import MaskStream
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.wire.header import SERVER, PartyId


@dataclass(frozen=True, slots=True)
class PairSecrets:
    """The secrets that one client shares with each other client.

    Attributes
    ----------
    me : PartyId
    secrets : mapping from PartyId to bytes of length 32
        Never shown.
    """

    me: PartyId
    secrets: Mapping[PartyId, bytes] = field(repr=False)

    def to_bytes(self) -> bytes:
        """Encode the secrets for the state directory, in the order of ranks."""
        return b"".join(self.secrets[party] for party in sorted(self.secrets))

    @classmethod
    def from_bytes(cls, me: PartyId, others: Iterable[PartyId], content: bytes) -> Self:
        """Decode the output of `to_bytes`.

        Raises
        ------
        ValueError
            The length does not fit the number of clients.
        """
        parties = sorted(others)
        if len(content) != KEY_BYTES * len(parties):
            raise ValueError(f"expected {KEY_BYTES * len(parties)} bytes, got {len(content)}")
        return cls(me, {party: content[KEY_BYTES * i : KEY_BYTES * (i + 1)] for i, party in enumerate(parties)})


class PairwiseMasks:
    """The masks of one client in one run.

    Parameters
    ----------
    pairs : PairSecrets
    ring : Ring
    elements : int
        Ring elements per vector.
    run_id : bytes

    Attributes
    ----------
    me : PartyId
    """

    __slots__ = ("_elements", "_ring", "_streams", "me")

    def __init__(self, pairs: PairSecrets, ring: Ring, elements: int, run_id: bytes) -> None:
        self.me = pairs.me
        self._ring = ring
        self._elements = elements
        self._streams: dict[PartyId, MaskStream] = {}
        for party, secret in pairs.secrets.items():
            first, second = sorted((pairs.me, party))
            context = run_id + struct.pack("<II", first.rank, second.rank)
            self._streams[party] = MaskStream(secret, domains.PAIR_MASK, context)

    def shaped(self, ring: Ring, elements: int) -> Self:
        """Return the same masks for vectors of another ring or length: rounds may differ in both.

        A round's stream starts at the same place whatever its shape, so a round has one shape only.
        """
        other = copy(self)
        other._ring, other._elements = ring, elements
        return other

    def mask(self, round_: int, client: PartyId, history: bytes) -> RingArray:
        """Return this party's mask of one round, shape (elements,): uniform without one of the pairs' secrets.

        Raises
        ------
        ValueError
            The mask is another client's: only that client has it.
        """
        if client != self.me:
            raise ValueError(f"expected {self.me}, the owner of these masks, got {client}")
        length = self._elements * self._ring.element_bytes
        result = np.zeros(self._elements, dtype=self._ring.dtype)
        for party, shared in self._streams.items():
            stream = np.frombuffer(shared.read(round_, history, length), self._ring.dtype)
            if self.me < party:
                result += stream
            else:
                result -= stream
        return result

    def total(self, round_: int, included: Iterable[PartyId], history: bytes) -> RingArray:
        """Return the sum of all clients' masks: zeros, shape (elements,).

        Raises
        ------
        PeerError
            The server's sum lacks a client: its masks cannot be removed, and no such sum was agreed on.
        """
        missing = {self.me, *self._streams} - set(included)
        if missing:
            raise PeerError(
                f"the server's sum of round {round_} lacks {min(missing)}, expected all clients: pairwise masks cancel "
                "in that sum only; start again or --resume with all clients",
                rank=SERVER.rank,
            )
        return np.zeros(self._elements, dtype=self._ring.dtype)
