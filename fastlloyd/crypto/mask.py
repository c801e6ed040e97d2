"""Common masking: every client knows all masks, the server knows none.

Client i sends v_i + r_i modulo 2^b. The server adds up, adds noise and replies with the masked noisy
sum and the set of clients included; each client subtracts the masks of that set. So a client that
misses a round costs only its data: nothing has to be recovered.

A mask is the ChaCha20 key stream of a key that only the clients have, so it is uniform on the whole
ring. The nonce holds round, client and tensor; the key holds the run and its history: a digest of all replies before
the round. A client's vector is a function of its records, the plan and these replies. So a mask covers one vector and
never another, whatever state a party was restored to and whatever the server answers then.

Source: FastLloyd, §5.3.4, Fig. 1; docs/protocol.md, "Masks".
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np

from fastlloyd.crypto.prg import PURPOSE_MASK, derive, keystream
from fastlloyd.ring.fixed import Ring, RingArray
from fastlloyd.wire import PartyId

TENSOR_UPDATE = 0
NO_HISTORY = bytes(4)
"""The history of a run before its first reply."""


def continue_history(history: bytes, reply: bytes) -> bytes:
    """Return the history after one more reply, given as the bytes of its body."""
    return hashlib.sha256(history + reply).digest()


class Masks(Protocol):
    """What a client needs of its masks, common or pairwise."""

    def after(self, history: bytes) -> Masks:
        """Return the masks of a round that comes after these replies."""
        ...

    def mask(self, round_: int, client: PartyId) -> RingArray:
        """Give one client's mask of one round."""
        ...

    def total(self, round_: int, included: Iterable[PartyId]) -> RingArray:
        """Give the sum of the masks of all clients included: what is left in the server's sum."""
        ...


@dataclass(frozen=True, slots=True)
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
    history : bytes
        Of all replies before the round whose masks are asked for (`continue_history`).
    """

    seed: bytes = field(repr=False)
    ring: Ring
    elements: int
    run_id: bytes
    history: bytes = NO_HISTORY
    _key: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_key", derive(self.seed, PURPOSE_MASK, self.run_id + self.history))

    def after(self, history: bytes) -> Self:
        """Return the masks of a round that comes after these replies."""
        # Spelt out, for it stands between two messages: `replace` takes a third longer.
        return type(self)(self.seed, self.ring, self.elements, self.run_id, history)

    def mask(self, round_: int, client: PartyId) -> RingArray:
        """Give the mask of one client in one round, uniform on the ring; shape (elements,)."""
        nonce = struct.pack("<III", round_, client.rank, TENSOR_UPDATE)
        return np.frombuffer(
            keystream(self._key, nonce, self.elements * self.ring.element_bytes), dtype=self.ring.dtype
        )

    def total(self, round_: int, included: Iterable[PartyId]) -> RingArray:
        """Add the masks of all included clients modulo 2^b."""
        result = np.zeros(self.elements, dtype=self.ring.dtype)
        for client in included:
            result += self.mask(round_, client)
        return result
