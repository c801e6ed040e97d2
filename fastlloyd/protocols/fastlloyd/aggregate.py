"""GlobalMSA from client p_i's side: one masked sum over the clients, and what resume and the ledger ask of it.

Algorithm 1 calls it for the relative sums (line 15) and for the counts (line 16); here both travel in one vector.

Source: FastLloyd, §5.3.4, Figure 1; docs/protocol.md, "Rounds" and "Resume".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError, PeerError
from fastlloyd.masking.fixed import RingArray
from fastlloyd.masking.mask import NO_HISTORY, Masks, continue_history
from fastlloyd.party.effects import Attest, Party, Receive, Save, Send
from fastlloyd.party.message import recall
from fastlloyd.party.stored import StoredRounds
from fastlloyd.protocols.fastlloyd.drawn_ahead import Ahead, Draw
from fastlloyd.protocols.fastlloyd.messages import MaskedUpdate, NoisyMaskedSum, VectorFormat, vector_format
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
        self._me = me
        self._plan = plan
        self._masks = masks
        self._stored = stored
        self._everybody = clients(plan.clients)
        self._history = NO_HISTORY
        self._ahead = Ahead(plan, share)
        self._ahead.stock(len(stored.replies))

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
        masks = self._masks.shaped(shape.ring, shape.elements)
        mask_of_all: RingArray | None = None
        if t in self._stored.replies:
            reply = recall(NoisyMaskedSum, self._stored.replies[t], shape, f"reply-{t}")
        else:
            yield from self._ahead.record(t)
            if t >= self._stored.server_done:
                update = yield from self._masked_update(t, local_update, shape, masks)
                yield Send((SERVER,), update, t)  # Figure 1: Enc_i(v_i)
                # A ledger that goes further than `run/` explains is refused on resume: only now.
                yield from self._ahead.prepare(t + 1)
            # Nothing here depends on the answer: do it while the server works.
            mask_of_all = masks.total(t, self._everybody, self._history)  # Figure 1: r = r_1 + ... + r_M
            reply = yield Receive(SERVER, NoisyMaskedSum, t, shape)  # Figure 1: Enc(v + gamma)
            yield Save(f"reply-{t}", reply.body())
        yield Attest(SERVER, reply, t)
        self._check(reply, t)
        if mask_of_all is None or reply.included != self._everybody:
            mask_of_all = masks.total(t, reply.included, self._history)
        noisy = shape.ring.decode(reply.elements(shape) - mask_of_all)  # Figure 1: Enc(v + gamma) - r, times 2^q
        self._history = continue_history(self._history, reply.body())
        return noisy, reply.included

    def _masked_update(
        self, t: int, local_update: LocalUpdate, shape: VectorFormat, masks: Masks
    ) -> Party[MaskedUpdate]:
        """Mask the local update and store the bytes; on resume, take the stored ones."""
        if t in self._stored.uplinks:
            return recall(MaskedUpdate, self._stored.uplinks[t], shape, f"uplink-{t}")
        encoded = shape.ring.encode(local_update())  # Figure 1: v_i, on the grid of 2^-q already
        masked = encoded + masks.mask(t, self._me, self._history)  # Figure 1: v_i + r_i
        # Differs from the paper, with pairwise masking only: gamma comes in shares from the clients.
        update = MaskedUpdate(self._ahead.add_noise(masked, t).tobytes())
        yield Save(f"uplink-{t}", update.data)
        return update

    def _check(self, reply: NoisyMaskedSum, t: int) -> None:
        """Refuse a sum over fewer clients than agreed."""
        if len(reply.included) < self._plan.min_clients:
            raise PeerError(
                f"the server's sum of round {t} includes {len(reply.included)} clients, expected at least "
                f"{self._plan.min_clients} (--min-clients)",
                rank=SERVER.rank,
            )
