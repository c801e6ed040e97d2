"""k-FED from the server's side: collect the clients' centres, merge them, send the result to all.

Source: Dennis, Li, Smith (2021), Algorithm 2, on the central node; `merge.py` for what it computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.party.effects import Attest, Gather, Party, Publish, Record, Save, Send
from fastlloyd.party.message import recall
from fastlloyd.protocols.kfed.client import centers_format
from fastlloyd.protocols.kfed.merge import merge_centers
from fastlloyd.protocols.kfed.messages import LocalCenters, MergedCenters, encode_centers
from fastlloyd.protocols.kfed.plan import Plan
from fastlloyd.wire.header import SERVER, PartyId, clients


@dataclass(frozen=True, slots=True)
class ServerResult:
    """What the server has at the end.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
        Scaled domain; not private.
    included : tuple of PartyId
    late : frozenset of PartyId
    """

    centers: NDArray[np.float64] = field(repr=False)
    included: tuple[PartyId, ...]
    late: frozenset[PartyId]


def server(
    plan: Plan, *, stored: bytes | None = None, rounds_done: Mapping[PartyId, int] | None = None
) -> Party[ServerResult]:
    """Run the server.

    Parameters
    ----------
    plan : Plan
    stored : bytes, optional
        On resume: the reply that was fixed before.
    rounds_done : mapping from client to 0 or 1, optional
        Who accepted it.

    Notes
    -----
    Sees: each client's centres in clear, each a mean of some of its records. Privacy: none.
    """
    shape = centers_format(plan)
    everybody = clients(plan.clients)
    if stored is not None:
        reply = recall(MergedCenters, stored, shape, "reply-0")
        behind = tuple(party for party in everybody if (rounds_done or {}).get(party, 0) == 0)
        yield Send(behind, reply, 0)
    else:
        yield Record(plan.releases(0))
        # Alg. 2, on the central node: Theta^(z) of each device z.
        uplinks = yield Gather(everybody, LocalCenters, 0, plan.min_clients, shape)
        included = tuple(party for party in everybody if party in uplinks)
        # Alg. 2: k of all these centres are chosen, then one round of Lloyd's.
        centers = merge_centers([uplinks[party].centers(plan.d) for party in included], plan.k, plan.d)
        reply = MergedCenters(encode_centers(centers), included, plan.clients)
        yield Save("reply-0", reply.body())
        yield Send(everybody, reply, 0)
    yield Attest(SERVER, reply, 0)
    yield Publish("round", {"round": 0, "rounds": 1, "clients": len(reply.included)})
    late = frozenset(everybody) - frozenset(reply.included)
    return ServerResult(reply.centers(plan.d), reply.included, late)
