"""GlobalMSA from client p_i's side: one masked sum over the clients.

Algorithm 1 calls it for the relative sums (line 15) and for the counts (line 16); here both travel in one vector.

Source: FastLloyd, §5.3.4, Figure 1; `lifecycle/rounds.py` sends, receives and resumes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError, PeerError
from fastlloyd.lifecycle.rounds import Ahead, ClientRounds, Draw, MessageFormat
from fastlloyd.masking.fixed import RingArray
from fastlloyd.masking.mask import Masks
from fastlloyd.party.effects import Party
from fastlloyd.party.stored import StoredRounds
from fastlloyd.protocols.fastlloyd.messages import MaskedUpdate, NoisyMaskedSum, vector_format
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.wire.header import SERVER, PartyId, clients

LocalUpdate = Callable[[], NDArray[np.int64]]
"""This client's vector of the round, shape (plan.elements(t),); asked for only if it was not sent before."""


class GlobalMsa:
    """One client's masked sums, round after round.

    Parameters
    ----------
    me : PartyId
    plan : Plan
    masks : Masks
        Of any shape; each round's vector has its own.
    share : callable or None
        With pairwise masking: round number to this client's fresh share of the noise.
    stored : StoredRounds
        On resume: stored uplinks are sent again byte for byte, stored replies are not asked for again.
    """

    def __init__(self, me: PartyId, plan: Plan, masks: Masks, *, share: Draw | None, stored: StoredRounds) -> None:
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
