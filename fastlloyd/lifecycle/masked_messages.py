"""The messages of a noisy masked sum, in the order they are sent.

::

    client i                                         server
      v_i, such as R_i and C_i of FastLloyd (Alg. 1, lines 6 to 13)
      MaskedUpdate  v_i + r_i mod 2^b    -------->     sum over the clients included
                                                       + noise (Fig. 1)
      NoisyMaskedSum  v + r + noise      <--------     the same bytes to all clients
      subtract the masks of the set included

One up and one down per round and client, as many ring elements each as the plan says. Of FastLloyd k (d + 1): first the
k x d sums, row by row, then the k counts; in a round that counts records in cells, these counts alone. The set included
travels as a bitmap and counts as link bytes.

With pairwise masking v_i holds the client's share of the noise, the set is always all clients, and the r_i of all of
them add up to 0: the reply is the noisy sum itself, in clear inside TLS.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from fastlloyd.lifecycle.messages import ALIKE, CLOSING_OF_PAIRS, OPENING, PAIRS, READY, SEALED
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.party.declaration import DOWN, UP, Messages, OfPlan, Seen, common, pairwise
from fastlloyd.party.message import IncludedPayload, RingPayload


class VectorPlan(Protocol):
    """What a plan says of the vectors of its rounds."""

    @property
    def clients(self) -> int:
        """How many clients take part."""

    @property
    def ring_bits(self) -> int:
        """The width of a ring element."""

    def elements(self, t: int) -> int:
        """Return the ring elements of a message in round t."""


@dataclass(frozen=True, slots=True)
class VectorFormat:
    """The public shape of both messages of a round: ring, number of elements, number of clients."""

    ring: Ring
    elements: int
    clients: int


def vector_format(plan: VectorPlan, t: int) -> VectorFormat:
    """Return the shape of round t's messages."""
    return VectorFormat(Ring(plan.ring_bits), plan.elements(t), plan.clients)


def _longest(plan: Any) -> int:
    return int(max(map(plan.elements, range(len(plan.rounds)))) * plan.ring_bits // 8)


def _exact(facts: Mapping[str, Any]) -> bool:
    return not facts.get("private", True)


_sum = functools.partial(Seen, DOWN, network="length, time")


class MaskedUpdate(RingPayload):
    """A masked vector, for the server and nobody else: every client can take the mask off.

    Attributes
    ----------
    data : bytes
        The round's ring elements, little endian.
    """

    __slots__ = ()
    TYPE = 32
    MOST_BYTES = OfPlan(_longest)
    SEEN = Seen(
        UP,
        "this site's contribution to a round: sums over its records, under a mask",
        server="uniform random ring elements",
        others="never sent to them",
        network="length, time",
    )


class NoisyMaskedSum(IncludedPayload):
    """The sum with noise; released to the clients once unmasked.

    Attributes
    ----------
    data : bytes
        The round's ring elements, little endian.
    included : tuple of PartyId
        Whose updates are in the sum.
    clients : int
    """

    __slots__ = ()
    TYPE = 33
    MOST_BYTES = OfPlan(lambda plan: _longest(plan) + (plan.clients + 7) // 8)
    SEEN = (
        _sum(
            "the sum over all sites, with noise, still under masks",
            server="what it computed: uniform random",
            others="after unmasking: noisy sums and counts",
            when=lambda facts: common(facts) and not _exact(facts),
        ),
        _sum(
            "the noisy sum over all sites",
            server="the noisy sums and counts, hence the centroids",
            others="the same",
            variant="pairwise",
            when=lambda facts: pairwise(facts) and not _exact(facts),
        ),
        _sum(
            "the sum over all sites, without noise, still under masks",
            server="what it computed: uniform random",
            others="after unmasking: exact sums and counts",
            variant="exact",
            when=lambda facts: common(facts) and _exact(facts),
        ),
        _sum(
            "the sum over all sites, without noise",
            server="the exact sums and counts, hence the centroids",
            others="the same",
            variant="exact, pairwise",
            when=lambda facts: pairwise(facts) and _exact(facts),
        ),
    )

    @classmethod
    def read(cls, body: bytes, format: VectorFormat) -> Self:
        """Check bitmap and length; an empty set is refused."""
        included, data = cls.cut(body, format.clients, "a sum over")
        format.ring.from_bytes(data, format.elements)
        return cls(data, included, format.clients)

    def elements(self, format: VectorFormat) -> RingArray:
        """Return the ring elements, shape (elements,)."""
        return format.ring.from_bytes(self.data, format.elements)


MESSAGES: Messages = (
    *(*OPENING, *SEALED, *ALIKE, *PAIRS, *READY),
    *(MaskedUpdate, NoisyMaskedSum),
    *CLOSING_OF_PAIRS,
)
