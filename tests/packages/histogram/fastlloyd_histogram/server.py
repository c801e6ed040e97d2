"""The server: add up, add noise, reply. It sees masked counts only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.lifecycle.rounds import Ahead, MessageFormat, ServerRounds
from fastlloyd.masking.fixed import RingArray
from fastlloyd.party.effects import Party
from fastlloyd.wire.header import PartyId
from fastlloyd_histogram.messages import MaskedCounts, NoisyCounts, counts_format
from fastlloyd_histogram.plan import Plan


@dataclass(frozen=True, slots=True)
class ServerResult:
    """The server has no result; all clients were there."""

    late: frozenset[PartyId] = frozenset()


def server(plan: Plan, noise: Callable[[], NDArray[np.int64]]) -> Party[ServerResult]:
    """Run the server; `noise` draws the noise on all counts, int64, shape (k,)."""
    shape = counts_format(plan)
    rounds = ServerRounds(plan.clients, 1, Ahead(1, plan.releases, lambda t: noise()), at_least=plan.clients)

    def answer(total: RingArray, among: tuple[PartyId, ...]) -> NoisyCounts:
        return NoisyCounts(total.tobytes())

    yield from rounds.masked(0, MessageFormat(MaskedCounts, shape), MessageFormat(NoisyCounts, shape), answer)
    return ServerResult()
