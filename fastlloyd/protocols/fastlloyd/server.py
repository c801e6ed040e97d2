"""FastLloyd, Figure 1, from the server's side: add up, add noise, reply. It sees masked vectors only.

With pairwise masking it has nothing to take off and no noise to add: the clients' masks cancel in the sum of all
of them, and their shares of noise add up in it. The server then sees the noisy sums, as the clients do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.party.effects import Attest, Gather, Party, Publish, Record, Save, Send
from fastlloyd.party.message import recall
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.fastlloyd.messages import MaskedUpdate, NoisyMaskedSum, VectorFormat
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.wire.header import SERVER, PartyId, clients


@dataclass(frozen=True, slots=True)
class ServerResult:
    """What the server has at the end: who was included in each round, and who is behind."""

    included: tuple[tuple[PartyId, ...], ...]
    late: frozenset[PartyId]


def server(
    plan: Plan,
    noise: Callable[[int], NDArray[np.int64]],
    *,
    stored: Mapping[int, bytes] | None = None,
    rounds_done: Mapping[PartyId, int] | None = None,
) -> Party[ServerResult]:
    """Run the server.

    Parameters
    ----------
    plan : Plan
    noise : callable
        Round number to fresh secret noise in grid units, int64, shape (k (d + 1),); zeros with pairwise masking.
    stored : mapping from round to reply bytes, optional
        On resume: replies that were fixed before; sent again as they are, never drawn again.
    rounds_done : mapping from client to its number of accepted replies, optional

    Notes
    -----
    Sees: masked updates, uniform on the ring; who is included; with pairwise masking the noisy sums. Nothing else.
    Privacy: each reply is the release of `plan.releases(t)`, in the ledger before it leaves.
    """
    stored, rounds_done = stored or {}, rounds_done or {}
    shape = VectorFormat(Ring(plan.ring_bits), plan.elements, plan.clients)
    everybody = clients(plan.clients)
    history: list[tuple[PartyId, ...]] = []
    late: frozenset[PartyId] = frozenset()
    first_open = len(stored)
    drawn: dict[int, RingArray] = {}
    releases: dict[int, tuple[Release, ...]] = {}
    for t in range(len(plan.rounds)):
        if t in stored:
            reply = recall(NoisyMaskedSum, stored[t], shape, f"reply-{t}")
            behind = tuple(party for party in everybody if rounds_done.get(party, 0) <= t)
            yield Attest(SERVER, reply, t)
            yield Send(behind, reply, t)
            history.append(reply.included)
            continue
        if t == first_open:
            drawn = {later: shape.ring.reduce(noise(later)) for later in plan.rounds_ahead(t)}
            releases = {later: plan.releases(later) for later in plan.rounds_ahead(t)}
            yield Record(releases.pop(t))
        updates = yield Gather(everybody, MaskedUpdate, t, plan.min_clients, shape, late)
        included = tuple(party for party in everybody if party in updates)
        total = np.zeros(plan.elements, dtype=shape.ring.dtype) + drawn.pop(t)
        for party in included:
            total += updates[party].elements(shape)
        reply = NoisyMaskedSum(total.tobytes(), included, plan.clients)
        yield Save(f"reply-{t}", reply.body())
        yield Send(everybody, reply, t)
        yield Attest(SERVER, reply, t)
        late = frozenset(everybody) - frozenset(included)
        history.append(included)
        yield Publish("round", {"round": t, "rounds": len(plan.rounds), "clients": len(included)})
        if t + 1 < len(plan.rounds):  # while the clients compute
            if t + 1 not in drawn:
                drawn[t + 1] = shape.ring.reduce(noise(t + 1))
            yield Record(releases.pop(t + 1, ()) or plan.releases(t + 1))
    return ServerResult(tuple(history), late)
