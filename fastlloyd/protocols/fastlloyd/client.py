"""FastLloyd, Algorithm 1, from client p_i's side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.mask import Masks
from fastlloyd.errors import InternalError, PeerError
from fastlloyd.kmeans.assign import assign
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.fastlloyd.messages import MaskedUpdate, NoisyMaskedSum, VectorFormat
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.rounds import Centers, first_centers, local_update, post_process
from fastlloyd.protocols.party import Party, Publish, Receive, Record, Save, Send
from fastlloyd.ring.fixed import Ring, RingArray
from fastlloyd.wire import SERVER, PartyId, clients


@dataclass(frozen=True, slots=True)
class StoredRounds:
    """What a client kept of an interrupted run.

    Attributes
    ----------
    uplinks, replies : mapping from round to the bytes that were sent or accepted
    server_done : int
        Rounds that the server has closed.
    """

    uplinks: Mapping[int, bytes] = field(default_factory=dict)
    replies: Mapping[int, bytes] = field(default_factory=dict)
    server_done: int = 0


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
    history: list[tuple[PartyId, ...]] = []
    if plan.masking == "pairwise" and share is None:
        raise InternalError("a client with pairwise masks has no source of its share of the noise")
    ahead = _Ahead(me, plan, masks, share)
    ahead.stock(len(stored.replies))
    for t in range(len(plan.rounds)):
        if t in stored.replies:
            reply = NoisyMaskedSum.read(stored.replies[t], shape)
        else:
            if t >= stored.server_done:
                yield from ahead.record(t)
                if t in stored.uplinks:
                    update = MaskedUpdate.read(stored.uplinks[t], shape)
                else:
                    raw_update = local_update(raw_points, centers, plan, t)
                    update = MaskedUpdate((shape.ring.encode(raw_update) + ahead.pad(t)).tobytes())
                    yield Save(f"uplink-{t}", update.data)
                yield Send((SERVER,), update, t)
            # Nothing here depends on the answer: do it while the server works.
            yield from ahead.prepare(t)
            reply = yield Receive(SERVER, NoisyMaskedSum, t, shape)
            yield Save(f"reply-{t}", reply.body())
        if len(reply.included) < plan.min_clients:
            raise PeerError(
                f"the server's sum of round {t} includes {len(reply.included)} clients, expected at least "
                f"{plan.min_clients} (--min-clients)",
                rank=SERVER.rank,
            )
        noisy = shape.ring.decode(reply.elements(shape) - ahead.total(t, reply.included))
        centers = post_process(noisy, centers, plan, t)
        history.append(reply.included)
        yield Publish("round", {"round": t, "rounds": len(plan.rounds), "clients": len(reply.included)})
    return ClientResult(centers, assign(raw_points, centers.grid), tuple(history))


class _Ahead:
    """Masks, shares and ledger entries made before they are needed; each belongs to its round's number."""

    def __init__(self, me: PartyId, plan: Plan, masks: Masks, share: Callable[[int], NDArray[np.int64]] | None) -> None:
        self._me = me
        self._plan = plan
        self._masks = masks
        self._share = share
        self._everybody = clients(plan.clients)
        self._own: dict[int, RingArray] = {}
        self._totals: dict[int, RingArray] = {}
        self._releases: dict[int, tuple[Release, ...]] = {}
        self._recorded: set[int] = set()
        self._filled: set[int] = set()

    def record(self, t: int) -> Party[None]:
        """Write round t's releases to the ledger, once."""
        if t not in self._recorded:
            self._recorded.add(t)
            yield Record(self._releases.pop(t, ()) or self._plan.releases(t))

    def prepare(self, t: int) -> Party[None]:
        """Make round t's total mask and what round t + 1 needs, unless they are ready."""
        self._fill(t)
        if t + 1 < len(self._plan.rounds):
            self._fill(t + 1)
            yield from self.record(t + 1)

    def stock(self, t: int) -> None:
        """Make masks, shares and entries of the rounds from t on, as far as memory is set aside for them."""
        for later in self._plan.rounds_ahead(t):
            self._fill(later)
            self._releases[later] = self._plan.releases(later)

    def _fill(self, t: int) -> None:
        """Make what round t needs, once."""
        if t not in self._filled:
            self._filled.add(t)
            self._own[t] = self._make_pad(t)
            self._totals[t] = self._masks.total(t, self._everybody)

    def pad(self, t: int) -> RingArray:
        """Give what hides the own update of round t: the mask, and the share of noise where there are shares."""
        ready = self._own.pop(t, None)
        return self._make_pad(t) if ready is None else ready

    def _make_pad(self, t: int) -> RingArray:
        mask = self._masks.mask(t, self._me)
        return mask if self._share is None else mask + Ring(self._plan.ring_bits).reduce(self._share(t))

    def total(self, t: int, included: tuple[PartyId, ...]) -> RingArray:
        """Give the sum of the masks of the clients included in round t."""
        ready = self._totals.pop(t, None)
        if ready is not None and included == self._everybody:
            return ready
        return self._masks.total(t, included)
