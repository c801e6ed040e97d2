"""Common masking: every client knows all masks, the server knows none.

Client i sends v_i + r_i modulo 2^b. The server adds up, adds noise and replies with the masked noisy
sum and the set of included clients; each client subtracts the masks of that set. So a client that
misses a round costs only its data: nothing has to be recovered.

Masks telescope. A round has M + 1 key streams r_1, ..., r_(M+1), each uniform on the whole ring, and client i's mask is
r_i - r_(i+1). Without the key the M masks are uniform and independent: r_(M+1) aside, they are a bijection of r_1, ...,
r_M. The masks of neighbours a..b add up to r_a - r_(b+1), so a client expands four streams where all take part, and
two more for each gap, whatever M is.

The streams are one ChaCha20 key stream, cut in pieces. The key is the run's; the nonce is a keyed digest of the round
and its history: a digest of all replies before the round. A client's vector is a function of its records, the plan and
these replies. So a mask covers one vector and never another, whatever state a party was restored to and whatever the
server answers then.

Source: FastLloyd, §5.3.4, Fig. 1; docs/protocol.md, "Masks"; docs/privacy.md, "Masks that telescope".
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Iterable
from copy import copy
from typing import Protocol, Self

import numpy as np

from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import BLOCK_BYTES, KEY_BYTES, NONCE_BYTES, Derivation, KeyStream
from fastlloyd.wire.header import PartyId, clients

TENSOR_UPDATE = 0
NO_HISTORY = bytes(4)
"""The history of a run before its first reply."""
# Streams that lie in the first bytes are read once a round, all in one call of the cipher.
_READ_AHEAD_BYTES = 1024


def continue_history(history: bytes, reply: bytes) -> bytes:
    """Return the history after one more reply, given as the bytes of its body."""
    return hashlib.blake2b(history + reply, digest_size=KEY_BYTES).digest()


class Masks(Protocol):
    """The masks of a client, common or pairwise; `history` is that of all replies before the round."""

    def shaped(self, ring: Ring, elements: int) -> Self:
        """Return the same masks for vectors of another ring or length: rounds may differ in both."""

    def mask(self, round_: int, client: PartyId, history: bytes) -> RingArray:
        """Return one client's mask of one round."""

    def total(self, round_: int, included: Iterable[PartyId], history: bytes) -> RingArray:
        """Return the sum of the masks of all included clients, which remains in the server's sum."""


class MaskStream:
    """Key streams for one vector per round and history.

    Parameters
    ----------
    secret : bytes of length 32
    purpose, context : bytes
        Separate the streams of different uses, runs and pairs.

    Notes
    -----
    Two rounds or histories share a nonce with probability 2^-96: it is a keyed digest, so collisions cannot be
    found without the secret.
    """

    __slots__ = ("_nonce_key", "_stream")

    def __init__(self, secret: bytes, purpose: bytes, context: bytes) -> None:
        keys = Derivation(secret)
        self._stream = KeyStream(keys.derive(purpose, context))
        self._nonce_key = keys.derive(purpose + b" nonce", context)

    def read(self, round_: int, history: bytes, length: int, *, block: int = 0) -> bytes:
        """Return `length` bytes of a round's stream, after these replies; see `KeyStream.read`."""
        place = struct.pack("<II", round_, TENSOR_UPDATE) + history
        nonce = hashlib.blake2b(place, key=self._nonce_key, digest_size=NONCE_BYTES).digest()
        return self._stream.read(nonce, length, block=block)


class MaskGenerator:
    """Common masks of one run.

    Parameters
    ----------
    seed : bytes of length 32
        Common to the clients, unknown to the server; never shown.
    ring : Ring
    elements : int
        Ring elements per vector.
    run_id : bytes
    """

    __slots__ = ("_elements", "_ready", "_ready_for", "_ring", "_stream", "_stride")

    def __init__(self, seed: bytes, ring: Ring, elements: int, run_id: bytes) -> None:
        self._stream = MaskStream(seed, domains.MASK, run_id)
        self._shape(ring, elements)

    def shaped(self, ring: Ring, elements: int) -> Self:
        """Return the same masks for vectors of another ring or length: rounds may differ in both.

        A round's streams start at the same place whatever its shape, so a round has one shape only.
        """
        if (ring, elements) == (self._ring, self._elements):
            return self
        other = copy(self)
        other._shape(ring, elements)
        return other

    def _shape(self, ring: Ring, elements: int) -> None:
        self._ring = ring
        self._elements = elements
        # In blocks: each stream begins at a new block.
        self._stride = -(-elements * ring.element_bytes // BLOCK_BYTES)
        self._ready: RingArray = np.zeros((0, elements), dtype=ring.dtype)
        self._ready_for: tuple[int, bytes] | None = None

    def mask(self, round_: int, client: PartyId, history: bytes) -> RingArray:
        """Return the mask of one client in one round: uniform on the ring, shape (elements,).

        Raises
        ------
        ValueError
            The streams of all clients and elements do not fit the cipher's counter.
        """
        return self._between(round_, history, client.rank, client.rank + 1)

    def total(self, round_: int, included: Iterable[PartyId], history: bytes) -> RingArray:
        """Add the masks of all included clients modulo 2^b.

        Raises
        ------
        As `mask`.
        """
        result = np.zeros(self._elements, dtype=self._ring.dtype)
        for first, after in _runs(tuple(included)):
            result += self._between(round_, history, first, after)
        return result

    def _between(self, round_: int, history: bytes, first: int, after: int) -> RingArray:
        """Return r_first - r_after."""
        ahead = _READ_AHEAD_BYTES // (self._stride * BLOCK_BYTES)
        if after <= ahead:
            if self._ready_for != (round_, history):
                self._ready, self._ready_for = self._streams(round_, history, 1, ahead), (round_, history)
            ends = self._ready[first - 1], self._ready[after - 1]
        elif after == first + 1:
            ends = tuple(self._streams(round_, history, first, 2))
        else:
            ends = self._streams(round_, history, first, 1)[0], self._streams(round_, history, after, 1)[0]
        difference: RingArray = ends[0] - ends[1]
        return difference

    def _streams(self, round_: int, history: bytes, first: int, count: int) -> RingArray:
        """Return r_first and the streams after it, shape (count, elements)."""
        length = count * self._stride * BLOCK_BYTES
        content = self._stream.read(round_, history, length, block=(first - 1) * self._stride)
        return np.frombuffer(content, self._ring.dtype).reshape(count, -1)[:, : self._elements]


def _runs(included: tuple[PartyId, ...]) -> list[tuple[int, int]]:
    """List the first rank of each run of neighbours, and the one after its last."""
    if included == clients(len(included)):  # nearly always: much cheaper than a check of each
        return [(1, len(included) + 1)]
    ranks = sorted({party.rank for party in included})
    leads = [rank - place for place, rank in enumerate(ranks)]  # equal within a run, larger after each gap
    runs, start = [], 0
    while start < len(ranks):
        end = bisect_right(leads, leads[start], start)
        runs.append((ranks[start], ranks[end - 1] + 1))
        start = end
    return runs
