"""FastLloyd, Figure 1, from the server's side: add up, add noise, reply. It sees masked vectors only.

Its part of GlobalMSA is called in each round of Algorithm 1, lines 15 and 16, for sums and counts in one vector.
With pairwise masking it has nothing to take off and no noise to add: the clients' masks cancel in the sum of all
of them, and their shares of noise add up in it. The server then sees the noisy sums, as the clients do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from fastlloyd.lifecycle.rounds import Ahead, Draw, MessageFormat, ServerRounds
from fastlloyd.masking.fixed import RingArray
from fastlloyd.party.effects import Party
from fastlloyd.protocols.fastlloyd.messages import MaskedUpdate, NoisyMaskedSum, vector_format
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.wire.header import PartyId


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
    # With pairwise masks the clients add the noise, in shares.
    ahead = Ahead(len(plan.rounds), plan.releases, noise)
    rounds = ServerRounds(
        plan.clients, len(plan.rounds), ahead, at_least=plan.min_clients, stored=stored, rounds_done=rounds_done
    )
    included: list[tuple[PartyId, ...]] = []

    def answer(total: RingArray, among: tuple[PartyId, ...]) -> NoisyMaskedSum:
        return NoisyMaskedSum(total.tobytes(), among, plan.clients)

    for t in range(len(plan.rounds)):  # Alg. 1, line 4; all that follows is Figure 1
        shape = vector_format(plan, t)
        # Figure 1: "Compute sum", "Add noise value", send Enc(v + gamma)
        up, down = MessageFormat(MaskedUpdate, shape), MessageFormat(NoisyMaskedSum, shape)
        reply = yield from rounds.masked(t, up, down, answer, stock=partial(plan.rounds_ahead, t))
        included.append(reply.included)
    return ServerResult(tuple(included), rounds.late)
