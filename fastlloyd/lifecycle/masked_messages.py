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

from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.party.message import IncludedPayload, RingPayload
from fastlloyd.wire import numbers


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


class MaskedUpdate(RingPayload):
    """Sender: a client. Receiver: the server and nobody else, for every client can take the mask off.

    Attributes
    ----------
    data : bytes
        The round's ring elements, little endian.
    """

    __slots__ = ()
    TYPE: ClassVar[int] = numbers.MASKED_UPDATE


class NoisyMaskedSum(IncludedPayload):
    """Sender: the server. Receiver: every client. Released to the clients once unmasked.

    Attributes
    ----------
    data : bytes
        The round's ring elements, little endian.
    included : tuple of PartyId
        Whose updates are in the sum.
    clients : int
    """

    __slots__ = ()
    TYPE: ClassVar[int] = numbers.NOISY_MASKED_SUM

    @classmethod
    def read(cls, body: bytes, format: VectorFormat) -> Self:
        """Check bitmap and length; an empty set is refused."""
        included, data = cls.cut(body, format.clients, "a sum over")
        format.ring.from_bytes(data, format.elements)
        return cls(data, included, format.clients)

    def elements(self, format: VectorFormat) -> RingArray:
        """Return the ring elements, shape (elements,)."""
        return format.ring.from_bytes(self.data, format.elements)
