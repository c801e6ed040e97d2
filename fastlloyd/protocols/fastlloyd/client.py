"""FastLloyd, Algorithm 1, from client p_i's side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError, PeerError
from fastlloyd.kmeans.assign import assign
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.masking.mask import NO_HISTORY, Masks, continue_history
from fastlloyd.party.effects import Attest, Party, Publish, Receive, Record, Save, Send
from fastlloyd.party.message import recall
from fastlloyd.party.stored import StoredRounds
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.fastlloyd.messages import MaskedUpdate, NoisyMaskedSum, VectorFormat
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.rounds import Centers, first_centers, local_update, post_process
from fastlloyd.wire.header import SERVER, PartyId, clients


@dataclass(frozen=True, slots=True)
class ClientResult:
    """What a client has at the end.

    Attributes
    ----------
    centers : Centers
        Released.
    raw_labels : int64 array, shape (n,)
        Of its own records; stays here.
    included : tuple
        Per round, the clients whose updates were in the sum.
    """

    centers: Centers
    raw_labels: NDArray[np.int64]
    included: tuple[tuple[PartyId, ...], ...]


def client(
    me: PartyId,
    raw_points: GridPoints,
    plan: Plan,
    masks: Masks,
    *,
    share: Callable[[int], NDArray[np.int64]] | None = None,
    stored: StoredRounds | None = None,
    start: NDArray[np.float64] | None = None,
) -> Party[ClientResult]:
    """Run one client.

    Parameters
    ----------
    me : PartyId
    raw_points : GridPoints
        Own records.
    plan : Plan
    masks : Masks
        From the clients' common seed, or from the secrets of the pairs, as the plan says.
    share : callable, optional
        With pairwise masking: round number to this client's fresh share of noise, int64, shape (k (d + 1),).
    stored : StoredRounds, optional
        On resume: stored uplinks are re-sent byte for byte, never computed again.
    start : float64 array, shape (k, d), optional
        Public centres to start from instead of sphere packing.

    Raises
    ------
    PeerError
        The server's sum includes fewer clients than agreed: it could single one out.

    Notes
    -----
    Sees: the noisy sums and counts of each round, hence the centres. The server sees masked vectors; with pairwise
    masking their sum as well, in which the masks have cancelled and the noise has not.
    """
    stored = stored or StoredRounds()
    shape = VectorFormat(Ring(plan.ring_bits), plan.elements, plan.clients)
    centers = first_centers(plan, start)
    included: list[tuple[PartyId, ...]] = []
    if plan.masking == "pairwise" and share is None:
        raise InternalError("a client with pairwise masks has no source of its share of the noise")
    everybody = clients(plan.clients)
    ahead = _Ahead(plan, share)
    ahead.stock(len(stored.replies))
    history = NO_HISTORY
    for t in range(len(plan.rounds)):
        total: RingArray | None = None
        if t in stored.replies:
            reply = recall(NoisyMaskedSum, stored.replies[t], shape, f"reply-{t}")
        else:
            yield from ahead.record(t)
            if t >= stored.server_done:
                if t in stored.uplinks:
                    update = recall(MaskedUpdate, stored.uplinks[t], shape, f"uplink-{t}")
                else:
                    raw_update = local_update(raw_points, centers, plan, t)
                    masked = shape.ring.encode(raw_update) + masks.mask(t, me, history)
                    update = MaskedUpdate(ahead.add_share(masked, t).tobytes())
                    yield Save(f"uplink-{t}", update.data)
                yield Send((SERVER,), update, t)
                # A ledger that goes further than `run/` explains is refused on resume: only now.
                yield from ahead.prepare(t + 1)
            # Nothing here depends on the answer: do it while the server works.
            total = masks.total(t, everybody, history)
            reply = yield Receive(SERVER, NoisyMaskedSum, t, shape)
            yield Save(f"reply-{t}", reply.body())
        yield Attest(SERVER, reply, t)
        if len(reply.included) < plan.min_clients:
            raise PeerError(
                f"the server's sum of round {t} includes {len(reply.included)} clients, expected at least "
                f"{plan.min_clients} (--min-clients)",
                rank=SERVER.rank,
            )
        if total is None or reply.included != everybody:
            total = masks.total(t, reply.included, history)
        noisy = shape.ring.decode(reply.elements(shape) - total)
        centers = post_process(noisy, centers, plan, t)
        history = continue_history(history, reply.body())
        included.append(reply.included)
        yield Publish("round", {"round": t, "rounds": len(plan.rounds), "clients": len(reply.included)})
    return ClientResult(centers, assign(raw_points, centers.grid), tuple(included))


class _Ahead:
    """Shares of noise and ledger entries made before they are needed; each belongs to its round's number."""

    def __init__(self, plan: Plan, draw: Callable[[int], NDArray[np.int64]] | None) -> None:
        self._plan = plan
        self._ring = Ring(plan.ring_bits)
        self._draw = draw
        self._shares: dict[int, RingArray] = {}
        self._releases: dict[int, tuple[Release, ...]] = {}
        self._recorded: set[int] = set()

    def record(self, t: int) -> Party[None]:
        """Write round t's releases to the ledger, once."""
        if t not in self._recorded:
            self._recorded.add(t)
            yield Record(self._releases.pop(t, ()) or self._plan.releases(t))

    def prepare(self, t: int) -> Party[None]:
        """Make the share of round t and write its releases to the ledger, if there is such a round."""
        if t < len(self._plan.rounds):
            if self._draw is not None and t not in self._shares:
                self._shares[t] = self._ring.reduce(self._draw(t))
            yield from self.record(t)

    def stock(self, t: int) -> None:
        """Make shares and entries of the rounds from t on, as far as memory is set aside for them."""
        for later in self._plan.rounds_ahead(t):
            if self._draw is not None:
                self._shares[later] = self._ring.reduce(self._draw(later))
            self._releases[later] = self._plan.releases(later)

    def add_share(self, masked: RingArray, t: int) -> RingArray:
        """Add this client's share of round t's noise, shape (k (d + 1),), unless the server adds the noise."""
        if self._draw is None:
            return masked
        ready = self._shares.pop(t, None)
        return masked + (self._ring.reduce(self._draw(t)) if ready is None else ready)
