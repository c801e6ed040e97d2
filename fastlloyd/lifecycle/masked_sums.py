"""GlobalMSA: noisy masked sums over the clients, round after round, at a client and at the server.

FastLloyd's Algorithm 1 calls it for the relative sums (line 15) and for the counts (line 16); here both travel in one
vector.

::

    client i                                         server
      v_i, such as R_i and C_i of FastLloyd (Alg. 1, lines 6 to 13)
      MaskedUpdate  v_i + r_i mod 2^b    -------->     sum over the clients included
                                                       + noise (Fig. 1)
      NoisyMaskedSum  v + r + noise      <--------     the same bytes to all clients
      subtract the masks of the set included

Each round has one message up and one down per client, with as many ring elements as the plan says. FastLloyd has
k (d + 1): the k x d sums, row by row, then the k counts; a round that counts records in cells has only these counts.
The included set travels as a bitmap and counts as link bytes.

With pairwise masking v_i contains the client's share of the noise, all clients are always included, and their r_i add
up to 0: the server removes no mask, adds no noise, and sees the noisy sum, as the clients do. The reply is this sum, in
clear inside TLS.

Source: FastLloyd, §5.3.4, Figure 1; `rounds.py` sends, receives and resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError, PeerError
from fastlloyd.lifecycle.messages import CLOSING_OF_PAIRS, EQUALITY, OPENING, PAIRS, READY, SEALED, plan_bounds
from fastlloyd.lifecycle.rounds import Ahead, ClientRounds, Draw, MessageFormat, ServerRounds, StoredRounds
from fastlloyd.lifecycle.threshold.messages import OPENING_OF_ROUNDS, THRESHOLD
from fastlloyd.lifecycle.threshold.server import ServerOpening
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.masking.mask import Masks
from fastlloyd.party.declaration import DOWN, UP, MessageBounds, Messages, OfPlan, Seen, common, pairwise
from fastlloyd.party.effects import Party
from fastlloyd.party.message import IncludedPayload, RingPayload, cut_silent
from fastlloyd.privacy.release import Release
from fastlloyd.wire.header import SERVER, PartyId, clients, encode_included


class VectorPlan(Protocol):
    """What a plan states about the vectors of its rounds."""

    @property
    def clients(self) -> int:
        """How many clients take part."""

    @property
    def ring_bits(self) -> int:
        """The width of a ring element."""

    @property
    def masking(self) -> str:
        """How vectors are masked: 'common', 'pairwise' or 'threshold'."""

    def elements(self, t: int) -> int:
        """Return the number of ring elements of a message in round t."""


@dataclass(frozen=True, slots=True)
class VectorFormat:
    """The public shape of both messages of a round: ring, number of elements, number of clients.

    With threshold masks (`opened`) a reply also names the clients in the sum that left more of their noise in it.
    """

    ring: Ring
    elements: int
    clients: int
    opened: bool = False


def vector_format(plan: VectorPlan, t: int) -> VectorFormat:
    """Return the shape of round t's messages."""
    return VectorFormat(Ring(plan.ring_bits), plan.elements(t), plan.clients, plan.masking == "threshold")


def _longest(plan: Any) -> int:
    return int(max(map(plan.elements, range(len(plan.rounds)))) * plan.ring_bits // 8)


def _longest_covered(plan: Any) -> int:
    """With threshold masks a box of the same length goes with a vector, if a client may be lost."""
    boxed = plan.masking == "threshold" and plan.min_clients < plan.clients
    return _longest(plan) * (2 if boxed else 1)


def _exact(facts: Mapping[str, Any]) -> bool:
    return not facts.get("private", True)


_sum = partial(Seen, DOWN, network="length, time")


class MaskedUpdate(RingPayload):
    """A masked vector, for the server only: every client could remove the mask.

    Attributes
    ----------
    data : bytes
        The round's ring elements, little endian.
    """

    __slots__ = ()
    TYPE = 32
    MOST_BYTES = OfPlan(_longest_covered)
    SEEN = Seen(
        UP,
        "this site's contribution to a round: sums over its records, under a mask",
        server="uniform random ring elements",
        others="never sent to them",
        network="length, time",
    )


@dataclass(frozen=True, slots=True)
class NoisyMaskedSum(IncludedPayload):
    """The sum with noise, released to the clients, who remove the masks.

    Attributes
    ----------
    data : bytes
        The round's ring elements, little endian.
    included : tuple of PartyId
        The clients whose updates are in the sum.
    clients : int
    silent : tuple of PartyId or None
        With threshold masks, a second bitmap: those of them whose excess of noise was not opened and stays in the sum.
    """

    TYPE = 33
    MOST_BYTES = OfPlan(lambda plan: _longest(plan) + (plan.clients + 7) // 8 * (1 + (plan.masking == "threshold")))
    SEEN = (
        _sum(
            "the sum over all sites, with noise, still under masks",
            server="what it computed: uniform random",
            others="after unmasking: noisy sums and counts",
            when=lambda facts: common(facts) and not _exact(facts),
        ),
        _sum(
            "the noisy sum over all sites",
            server="the noisy sums and counts, hence the centroids",
            others="the same",
            variant="pairwise",
            when=lambda facts: pairwise(facts) and not _exact(facts),
        ),
        _sum(
            "the sum over all sites, without noise, still under masks",
            server="what it computed: uniform random",
            others="after unmasking: exact sums and counts",
            variant="exact",
            when=lambda facts: common(facts) and _exact(facts),
        ),
        _sum(
            "the sum over all sites, without noise",
            server="the exact sums and counts, hence the centroids",
            others="the same",
            variant="exact, pairwise",
            when=lambda facts: pairwise(facts) and _exact(facts),
        ),
    )

    silent: tuple[PartyId, ...] | None = None

    def body(self) -> bytes:
        """Return the bitmap of the clients included, with threshold masks that of the silent ones, then the bytes."""
        silent = b"" if self.silent is None else encode_included(self.silent, self.clients)
        return encode_included(self.included, self.clients) + silent + self.data

    @classmethod
    def read(cls, body: bytes, format: VectorFormat) -> Self:
        """Check bitmaps and length; refuse an empty set, and a silent client that is not in it."""
        included, data = cls.cut(body, format.clients, "a sum over")
        silent = None
        if format.opened:
            silent, data = cut_silent(data, included, format.clients)
        format.ring.from_bytes(data, format.elements)
        return cls(data, included, format.clients, silent)

    def elements(self, format: VectorFormat) -> RingArray:
        """Return the ring elements, shape (elements,)."""
        return format.ring.from_bytes(self.data, format.elements)


MESSAGES: Messages = (
    *(*OPENING, *SEALED, *EQUALITY, *PAIRS, *THRESHOLD, *READY),
    *(MaskedUpdate, *OPENING_OF_ROUNDS, NoisyMaskedSum),
    *CLOSING_OF_PAIRS,
)

LocalUpdate = Callable[[], NDArray[np.int64]]
"""Returns this client's vector of the round, shape (plan.elements(t),); called only if it was not sent before."""


class MaskedPlan(VectorPlan, Protocol):
    """What a plan states about its masked sums."""

    @property
    def min_clients(self) -> int:
        """The least number of clients of a round."""

    @property
    def rounds(self) -> Sized:
        """One entry for each round."""

    def releases(self, t: int) -> tuple[Release, ...]:
        """Return what round t releases."""

    def rounds_ahead(self, t: int) -> range:
        """Return the rounds from t on whose noise is drawn ahead: bounded in memory."""


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
        Of any shape; each round's vector has its own shape.
    share : callable or None
        With pairwise masking: round number to this client's fresh share of the noise.
    stored : StoredRounds
        On resume: stored uplinks are sent again byte for byte, stored replies are not asked for again.

    Attributes
    ----------
    silent : list of tuple of PartyId
        Of each round so far, with threshold masks: the clients in the sum that left more of their noise in it.
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
        self.silent: list[tuple[PartyId, ...]] = []

    def add_up(self, t: int, local_update: LocalUpdate) -> Party[tuple[NDArray[np.int64], tuple[PartyId, ...]]]:
        """Add up all clients' masked updates of round t; return the noisy sum and the clients in it.

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
        if len(reply.included) < self._plan.min_clients:
            raise PeerError(
                f"the server's sum of round {t} includes {len(reply.included)} clients, expected at least "
                f"{self._plan.min_clients} (--min-clients)",
                rank=SERVER.rank,
            )
        self.silent.append(reply.silent or ())
        ready = of_all and reply.included == self._everybody
        mask = of_all[0] if ready else masks.total(t, reply.included, history)
        noisy = shape.ring.decode(reply.elements(shape) - mask)  # Figure 1: Enc(v + gamma) - r, times 2^q
        return noisy, reply.included


@dataclass(frozen=True, slots=True)
class Served:
    """What the server has at the end: the clients included in each round, and those that missed the last one.

    `silent` are those of each round that left more of their noise in it, with threshold masks.
    """

    included: tuple[tuple[PartyId, ...], ...]
    late: frozenset[PartyId]
    silent: tuple[tuple[PartyId, ...], ...] = ()


def server(
    plan: MaskedPlan,
    noise: Draw | None,
    *,
    stored: StoredRounds | None = None,
    opening: ServerOpening | None = None,
) -> Party[Served]:
    """Run the server.

    Parameters
    ----------
    plan : MaskedPlan
    noise : callable or None
        Round number t to fresh secret noise in grid units, int64, shape (plan.elements(t),); zeros or None where the
        clients add it.
    stored : StoredRounds, optional
        On resume: replies of closed rounds, sent again unchanged; their noise is never drawn again.

    opening : ServerOpening, optional
        With threshold masks.

    Notes
    -----
    Sees: masked updates, uniform on the ring; who is included; with pairwise masking the noisy sums. Nothing else.
    Privacy: each reply is the release of `plan.releases(t)`, in the ledger before it leaves.
    """
    # With pairwise masks the clients add the noise, in shares.
    ahead = Ahead(len(plan.rounds), plan.releases, noise)
    rounds = ServerRounds(
        plan.clients, len(plan.rounds), ahead, at_least=plan.min_clients, stored=stored, opening=opening
    )
    included: list[tuple[PartyId, ...]] = []
    silent: list[tuple[PartyId, ...]] = []

    def answer(total: RingArray, among: tuple[PartyId, ...], t: int) -> NoisyMaskedSum:
        return NoisyMaskedSum(total.tobytes(), among, plan.clients, None if opening is None else opening.silent[t])

    for t in range(len(plan.rounds)):  # Alg. 1, line 4; the rest is Figure 1
        shape = vector_format(plan, t)
        # Figure 1: "Compute sum", "Add noise value", send Enc(v + gamma)
        up, down = MessageFormat(MaskedUpdate, shape), MessageFormat(NoisyMaskedSum, shape)
        reply = yield from rounds.masked(t, up, down, partial(answer, t=t), stock=partial(plan.rounds_ahead, t))
        included.append(reply.included)
        silent.append(reply.silent or ())
    return Served(tuple(included), rounds.late, tuple(silent))
