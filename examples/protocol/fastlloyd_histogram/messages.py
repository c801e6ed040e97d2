"""What the parties send: masked counts up, the noisy masked sum down. Numbers from 128 on are for other packages.

::

    client i                                  server
      MaskedCounts  counts_i + r_i    ----->    sum over all clients + noise
      NoisyCounts   sum + r + noise   <-----    the same bytes to all clients
      take the masks off
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fastlloyd.lifecycle.sizes import plan_bounds
from fastlloyd.masking.fixed import Ring
from fastlloyd.party.message import RingPayload
from fastlloyd.party.message_bounds import MessageBounds
from fastlloyd.wire.numbers import FIRST_OUTSIDE
from fastlloyd_histogram.plan import RING_BITS, Plan


@dataclass(frozen=True, slots=True)
class CountsFormat:
    """The shape of both messages: k elements of the ring."""

    ring: Ring
    elements: int


class MaskedCounts(RingPayload):
    """Sender: a client. Receiver: the server and nobody else, for every client can take the mask off."""

    __slots__ = ()
    TYPE: ClassVar[int] = FIRST_OUTSIDE


class NoisyCounts(RingPayload):
    """Sender: the server. Receiver: every client. Released to the clients once unmasked."""

    __slots__ = ()
    TYPE: ClassVar[int] = FIRST_OUTSIDE + 1


def counts_format(plan: Plan) -> CountsFormat:
    """Return the format of a run's messages."""
    return CountsFormat(Ring(RING_BITS), plan.k)


def bounds(plan: Plan) -> MessageBounds:
    """Return the bounds of what a peer may send once the plan is known."""
    most = plan.k * RING_BITS // 8
    return plan_bounds({MaskedCounts.TYPE: most, NoisyCounts.TYPE: most}, clients=plan.clients)
