"""GlobalMSA: noisy masked sums over the clients, round after round, from a client's side and from the server's.

FastLloyd's Algorithm 1 calls it for the relative sums (line 15) and for the counts (line 16); there both travel in one
vector. With pairwise masking the server has nothing to take off and no noise to add: the clients' masks cancel in the
sum of all of them, and their shares of noise add up in it. The server then sees the noisy sums, as the clients do.

Source: FastLloyd, §5.3.4, Figure 1; `rounds.py` sends, receives and resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError, PeerError
from fastlloyd.lifecycle.masked_messages import MESSAGES, MaskedUpdate, NoisyMaskedSum, VectorPlan, vector_format
from fastlloyd.lifecycle.messages import plan_bounds
from fastlloyd.lifecycle.rounds import Ahead, ClientRounds, Draw, MessageFormat, ServerRounds
from fastlloyd.masking.fixed import RingArray
from fastlloyd.masking.mask import Masks
from fastlloyd.party.effects import Party
from fastlloyd.party.message_bounds import MessageBounds
from fastlloyd.party.stored import StoredRounds
from fastlloyd.privacy.release import Release
from fastlloyd.wire.header import SERVER, PartyId, clients

LocalUpdate = Callable[[], NDArray[np.int64]]
"""This client's vector of the round, shape (plan.elements(t),); asked for only if it was not sent before."""


class MaskedPlan(VectorPlan, Protocol):
    """What a plan says of its masked sums."""

    @property
    def min_clients(self) -> int:
        """How many a round needs."""

    @property
    def masking(self) -> str:
        """How vectors are masked: 'common' or 'pairwise'."""

    @property
    def rounds(self) -> Sized:
        """One entry for each round."""

    def releases(self, t: int) -> tuple[Release, ...]:
        """Return what round t releases."""

    def rounds_ahead(self, t: int) -> range:
        """Return the rounds from t on whose noise is worth having ready: bounded in memory."""


def bounds(plan: MaskedPlan) -> MessageBounds:
    """Return the bounds of what a peer may send once the plan is known."""
    return plan_bounds(MESSAGES, plan, facts={"masking": plan.masking})


class GlobalMsa:
    """One client's masked sums, round after round.

    Parameters
    ----------
    me : PartyId
    plan : MaskedPlan
    masks : Masks
        Of any shape; each round's vector has its own.
    share : callable or None
        With pairwise masking: round number to this client's fresh share of the noise.
    stored : StoredRounds
        On resume: stored uplinks are sent again byte for byte, stored replies are not asked for again.
    """

    def __init__(
        self, me: PartyId, plan: MaskedPlan, masks: Masks, *, share: Draw | None, stored: StoredRounds
    ) -> None:
        if plan.masking == "pairwise" and share is None:
            raise InternalError("a client with pairwise masks has no source of its share of the noise")
        self._plan = plan
        self._everybody = clients(plan.clients)
        ahead = Ahead(len(plan.rounds), plan.releases, share)
        ahead.stock(plan.rounds_ahead(len(stored.replies)))
        self._rounds = ClientRounds(me, ahead, stored, masks)

    def add_up(self, t: int, local_update: LocalUpdate) -> Party[tuple[NDArray[np.int64], tuple[PartyId, ...]]]:
        """Add round t's updates of all clients up, masked; return the noisy sum and the clients in it.

        Raises
        ------
        PeerError
            The server's sum includes fewer clients than agreed: it could single one out.

        Notes
        -----
        Sees: the noisy sum. Privacy: the round's releases are in the ledger before the update is computed.
        """
        shape = vector_format(self._plan, t)
        masks, history = self._rounds.masks_of(shape), self._rounds.history
        of_all: list[RingArray] = []

        def expand() -> None:  # Figure 1: r = r_1 + ... + r_M
            of_all.append(masks.total(t, self._everybody, history))

        # Figure 1: Enc_i(v_i) up, Enc(v + gamma) down
        reply = yield from self._rounds.masked(
            t, MessageFormat(MaskedUpdate, shape), local_update, MessageFormat(NoisyMaskedSum, shape), meanwhile=expand
        )
        self._check(reply, t)
        ready = of_all and reply.included == self._everybody
        mask = of_all[0] if ready else masks.total(t, reply.included, history)
        noisy = shape.ring.decode(reply.elements(shape) - mask)  # Figure 1: Enc(v + gamma) - r, times 2^q
        return noisy, reply.included

    def _check(self, reply: NoisyMaskedSum, t: int) -> None:
        """Refuse a sum over fewer clients than agreed."""
        if len(reply.included) < self._plan.min_clients:
            raise PeerError(
                f"the server's sum of round {t} includes {len(reply.included)} clients, expected at least "
                f"{self._plan.min_clients} (--min-clients)",
                rank=SERVER.rank,
            )


@dataclass(frozen=True, slots=True)
class Served:
    """What the server has at the end: who was included in each round, and who is behind."""

    included: tuple[tuple[PartyId, ...], ...]
    late: frozenset[PartyId]


def server(
    plan: MaskedPlan,
    noise: Draw,
    *,
    stored: Mapping[int, bytes] | None = None,
    rounds_done: Mapping[PartyId, int] | None = None,
) -> Party[Served]:
    """Run the server.

    Parameters
    ----------
    plan : MaskedPlan
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
    return Served(tuple(included), rounds.late)
