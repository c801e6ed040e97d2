"""FastLloyd, Figure 1, from the server's side: add up, add noise, reply. It sees masked vectors only.

Its part of GlobalMSA is called in each round of Algorithm 1, lines 15 and 16, for sums and counts in one vector.
With pairwise masking it has nothing to take off and no noise to add: the clients' masks cancel in the sum of all
of them, and their shares of noise add up in it. The server then sees the noisy sums, as the clients do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fastlloyd.party.effects import Attest, Gather, Party, Publish, Save, Send
from fastlloyd.party.message import recall
from fastlloyd.protocols.fastlloyd.drawn_ahead import Ahead, Draw
from fastlloyd.protocols.fastlloyd.messages import MaskedUpdate, NoisyMaskedSum, vector_format
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.wire.header import SERVER, PartyId, clients


@dataclass(frozen=True, slots=True)
class ServerResult:
    """What the server has at the end: who was included in each round, and who is behind."""

    included: tuple[tuple[PartyId, ...], ...]
    late: frozenset[PartyId]


def server(
    plan: Plan,
    noise: Draw,
    *,
    stored: Mapping[int, bytes] | None = None,
    rounds_done: Mapping[PartyId, int] | None = None,
) -> Party[ServerResult]:
    """Run the server.

    Parameters
    ----------
    plan : Plan
    noise : callable
        Round number t to fresh secret noise in grid units, int64, shape (plan.elements(t),); zeros with pairwise
        masking.
    stored : mapping from round to reply bytes, optional
        On resume: replies that were fixed before; sent again as they are, never drawn again.
    rounds_done : mapping from client to its number of accepted replies, optional

    Notes
    -----
    Sees: masked updates, uniform on the ring; who is included; with pairwise masking the noisy sums. Nothing else.
    Privacy: each reply is the release of `plan.releases(t)`, in the ledger before it leaves.
    """
    stored, rounds_done = stored or {}, rounds_done or {}
    everybody = clients(plan.clients)
    included: list[tuple[PartyId, ...]] = []
    late: frozenset[PartyId] = frozenset()
    ahead = Ahead(plan, noise)
    for t in range(len(plan.rounds)):  # Alg. 1, line 4; all that follows is Figure 1
        shape = vector_format(plan, t)
        if t in stored:
            reply = recall(NoisyMaskedSum, stored[t], shape, f"reply-{t}")
            yield from _send_again(reply, t, tuple(party for party in everybody if rounds_done.get(party, 0) <= t))
            included.append(reply.included)
            continue
        if t == len(stored):
            ahead.stock(t)
            yield from ahead.record(t)
        updates = yield Gather(everybody, MaskedUpdate, t, plan.min_clients, shape, late, adds=True)  # Enc_i(v_i)
        among = tuple(party for party in everybody if party in updates)
        total = np.zeros(shape.elements, dtype=shape.ring.dtype)
        for party in among:  # Figure 1, "Compute sum"
            total += updates[party].elements(shape)
        total = ahead.add_noise(total, t)  # Figure 1, "Add noise value": gamma, on the grid of 2^-q
        reply = NoisyMaskedSum(total.tobytes(), among, plan.clients)
        yield Save(f"reply-{t}", reply.body())
        yield Send(everybody, reply, t)  # Enc(v + gamma)
        yield Attest(SERVER, reply, t)
        late = frozenset(everybody) - frozenset(among)
        included.append(among)
        yield Publish("round", {"round": t, "rounds": len(plan.rounds), "clients": len(among)})
        yield from ahead.prepare(t + 1)  # while the clients compute
    return ServerResult(tuple(included), late)


def _send_again(reply: NoisyMaskedSum, t: int, behind: tuple[PartyId, ...]) -> Party[None]:
    """On resume, send a reply that was fixed before to the clients that have not accepted it."""
    yield Attest(SERVER, reply, t)
    yield Send(behind, reply, t)
