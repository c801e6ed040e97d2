"""k-FED from the server's side: collect the clients' centres, merge them, send the result to all.

Source: Dennis, Li, Smith (2021), Algorithm 2, on the central node; `merge.py` for what it computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.lifecycle.rounds import Ahead, MessageFormat, ServerRounds, StoredRounds
from fastlloyd.party.effects import Party
from fastlloyd.protocols.kfed.client import centers_format
from fastlloyd.protocols.kfed.merge import merge_centers
from fastlloyd.protocols.kfed.messages import LocalCenters, MergedCenters, encode_centers
from fastlloyd.protocols.kfed.plan import Plan
from fastlloyd.wire.header import PartyId, clients


@dataclass(frozen=True, slots=True)
class ServerResult:
    """What the server has at the end.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
        Scaled domain; not private.
    included : tuple of one tuple of PartyId
    late : frozenset of PartyId
    """

    centers: NDArray[np.float64] = field(repr=False)
    included: tuple[tuple[PartyId, ...], ...]
    late: frozenset[PartyId]


def server(plan: Plan, *, stored: StoredRounds | None = None) -> Party[ServerResult]:
    """Run the server.

    Parameters
    ----------
    plan : Plan
    stored : StoredRounds, optional
        On resume: the stored reply, and who accepted it.

    Notes
    -----
    Sees: each client's centres in clear, each a mean of some of its records. Privacy: none.
    """
    shape = centers_format(plan)

    def answer(uplinks: Mapping[PartyId, LocalCenters], included: tuple[PartyId, ...]) -> MergedCenters:
        # Alg. 2, on the central node: Theta^(z) of each device z; k of all these are chosen, then one round of Lloyd's.
        centers = merge_centers([uplinks[party].centers(plan.d) for party in included], plan.k, plan.d)
        return MergedCenters(encode_centers(centers), included, plan.clients)

    ahead = Ahead(1, plan.releases, record_ahead=False)
    rounds = ServerRounds(plan.clients, 1, ahead, at_least=plan.min_clients, stored=stored)
    reply = yield from rounds.plain(0, MessageFormat(LocalCenters, shape), MessageFormat(MergedCenters, shape), answer)
    late = frozenset(clients(plan.clients)) - frozenset(reply.included)
    return ServerResult(reply.centers(plan.d), (reply.included,), late)
