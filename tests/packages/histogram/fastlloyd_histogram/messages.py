"""What the parties send: masked counts up, the noisy masked sum down. Numbers from 128 on are for other packages.

::

    client i                                  server
      MaskedCounts  counts_i + r_i    ----->    sum over all clients + noise
      NoisyCounts   sum + r + noise   <-----    the same bytes to all clients
      take the masks off
"""

from __future__ import annotations

from dataclasses import dataclass

from fastlloyd.lifecycle.messages import CLOSING, OPENING, READY, SEED
from fastlloyd.masking.fixed import Ring
from fastlloyd.party.declaration import DOWN, UP, Messages, OfPlan, Seen
from fastlloyd.party.message import RingPayload
from fastlloyd.wire.numbers import FIRST_OUTSIDE
from fastlloyd_histogram.plan import RING_BITS, Plan


@dataclass(frozen=True, slots=True)
class CountsFormat:
    """The shape of both messages: k elements of the ring."""

    ring: Ring
    elements: int


class MaskedCounts(RingPayload):
    """A masked vector, for the server and nobody else: every client can take the mask off."""

    __slots__ = ()
    TYPE = FIRST_OUTSIDE
    MOST_BYTES = OfPlan(lambda plan: plan.k * RING_BITS // 8)
    SEEN = Seen(UP, "counts", server="uniform random ring elements", others="never sent to them")


class NoisyCounts(RingPayload):
    """The sum with noise; released to the clients once unmasked."""

    __slots__ = ()
    TYPE = FIRST_OUTSIDE + 1
    MOST_BYTES = MaskedCounts.MOST_BYTES
    SEEN = Seen(DOWN, "the result", server="what it computed: uniform random", others="after unmasking: noisy counts")


def counts_format(plan: Plan) -> CountsFormat:
    """Return the format of a run's messages."""
    return CountsFormat(Ring(RING_BITS), plan.k)


MESSAGES: Messages = (*OPENING, *SEED, *READY, MaskedCounts, NoisyCounts, *CLOSING)
