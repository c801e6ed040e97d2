"""The server: add up, add noise, reply. It sees masked counts only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.party.effects import Attest, Gather, Party, Publish, Record, Send
from fastlloyd.wire.header import SERVER, PartyId, clients
from fastlloyd_histogram.messages import MaskedCounts, NoisyCounts, counts_format
from fastlloyd_histogram.plan import Plan


@dataclass(frozen=True, slots=True)
class ServerResult:
    """The server has no result; all clients were there."""

    late: frozenset[PartyId] = frozenset()


def server(plan: Plan, noise: Callable[[], NDArray[np.int64]]) -> Party[ServerResult]:
    """Run the server; `noise` draws the noise on all counts, int64, shape (k,)."""
    shape, everybody = counts_format(plan), clients(plan.clients)
    yield Record(plan.all_releases())
    updates = yield Gather(everybody, MaskedCounts, 0, plan.clients, shape)
    total = shape.ring.reduce(noise())
    for party in everybody:
        total = total + updates[party].elements(shape)
    reply = NoisyCounts(total.tobytes())
    yield Send(everybody, reply, 0)
    yield Attest(SERVER, reply, 0)
    yield Publish("round", {"round": 0, "rounds": 1, "clients": plan.clients})
    return ServerResult()
