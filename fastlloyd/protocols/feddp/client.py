"""FedDP-KMeans, Algorithms 1 and 2, from client j's side: one masked, noisy statistic up in each step.

Source: FedDP-KMeans, Alg. 1 lines 3 to 6, 9 to 15 and 18 to 23; Alg. 2 lines 3 to 10; App. G.4; docs/privacy.md, "Noise
in shares".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError, PeerError
from fastlloyd.kmeans.assign import assign
from fastlloyd.kmeans.grid import GridPoints, round_centers
from fastlloyd.lifecycle.rounds import Ahead, ClientRounds, MessageFormat, StoredRounds
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import Masks
from fastlloyd.party.effects import Party, Publish
from fastlloyd.privacy.shares import draw_gaussian_parts, draw_laplace_parts
from fastlloyd.protocols.feddp.math.record import RecordStatistics, Statistics
from fastlloyd.protocols.feddp.math.user import UserStatistics
from fastlloyd.protocols.feddp.messages import (
    CentersMessage,
    MaskedStatistic,
    StatisticFormat,
)
from fastlloyd.protocols.feddp.plan import Plan
from fastlloyd.protocols.feddp.server import REPLIES, Reply, StepsEnd, StepState
from fastlloyd.protocols.feddp.settings import OUTER, START, WEIGHTS
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SERVER, PartyId

Share = Callable[[int, int], NDArray[np.int64]]
"""From step and number of clusters to this client's fresh share of noise, int64, shape (plan.elements(t, k),)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResult(StepsEnd):
    """What a client has at the end.

    Attributes
    ----------
    raw_labels : int64 array, shape (n,)
        Nearest centre of each own record in the full space; never sent.
    """

    raw_labels: NDArray[np.int64]


def statistics_of(raw_points: GridPoints, plan: Plan, raw_users: NDArray[np.int64] | None = None) -> Statistics:
    """Return the statistics that the plan's privacy level asks for.

    Parameters
    ----------
    raw_points : GridPoints
    plan : Plan
    raw_users : int64 array, shape (n,), optional
        Which user each record belongs to. Without it, at client level, all records of this client are one user's.
    """
    if not plan.by_user:
        return RecordStatistics(raw_points, plan)
    users = np.zeros(raw_points.n, dtype=np.int64) if raw_users is None else raw_users
    return UserStatistics(raw_points, users, plan)


@dataclass(slots=True, kw_only=True)
class _Client(StepState):
    """A client's progress, and its own statistics, made when the first step needs them."""

    make: Callable[[], Statistics]
    own: Statistics | None = None

    def knows_length(self, t: int) -> bool:
        """Return whether the length of step t's vector is known before its turn."""
        kind = self.plan.rounds[t].kind
        return kind in (OUTER, WEIGHTS) or not self.plan.choose_k or self.projected is not None

    def take(self, reply: Reply) -> None:
        """Keep what a reply contains; refuse another number of clusters than is known, and a sum over too few."""
        if reply.included is not None and len(reply.included) < self.plan.min_clients:
            raise PeerError(
                f"the server's sum of step {len(self.included) + 1} includes {len(reply.included)} clients, "
                f"expected at least {self.plan.min_clients} (--min-clients)",
                rank=SERVER.rank,
            )
        known = self.projected is not None or self.centers is not None or not self.plan.choose_k
        if isinstance(reply, CentersMessage) and known and len(reply.found.exact) != self.k:
            raise PeerError(
                f"the server sent {len(reply.found.exact)} centres, expected {self.k}; look at its version",
                rank=SERVER.rank,
            )
        StepState.take(self, reply)

    def statistic(self, t: int) -> NDArray[np.int64]:
        """Compute step t's statistic of this client's records."""
        if self.own is None:
            self.own = self.make()
        own, kind = self.own, self.plan.rounds[t].kind
        if kind == OUTER:
            return own.outer_product()  # Alg. 1, line 4
        if self.centers is not None:
            return own.lloyd_step(round_centers(self.centers.exact, self.plan.fraction_bits))  # Alg. 2, lines 5 to 8
        if self.projection is None:
            raise InternalError("a step in the projected space came before the projection")
        if kind == WEIGHTS or self.projected is None:
            return own.weights(self.projection)  # Alg. 1, lines 11 to 13
        return own.projected_step(self.projection, self.projected.centers)  # Alg. 1, lines 20 and 21


def client(
    me: PartyId,
    raw_points: GridPoints,
    plan: Plan,
    masks: Masks,
    *,
    share: Share | None,
    raw_users: NDArray[np.int64] | None = None,
    stored: StoredRounds | None = None,
) -> Party[ClientResult]:
    """Run one client.

    Parameters
    ----------
    me : PartyId
    raw_points : GridPoints
        Own records on the plan's grid.
    plan : Plan
    masks : Masks
        Of any shape; each step's vector has its own shape.
    share : callable or None
        With pairwise masks: step and number of clusters to this client's fresh share of noise (`draw_share`). Threshold
        masks draw it in parts.
    raw_users : int64 array, shape (n,), optional
        Client level: which user each record belongs to.
    stored : StoredRounds, optional
        On resume: stored uplinks are sent again byte for byte, never computed again.

    Notes
    -----
    Sees: the projection, the server's projected points and centres, the centres of each step. The server sees masked
    vectors and their sums, which the masks have left and the noise has not.
    """
    state = _Client(plan=plan, make=lambda: statistics_of(raw_points, plan, raw_users))
    stored = stored or StoredRounds()
    # A share is drawn ahead only if its length is known by then.
    draw = None if share is None else partial(_draw, state, share)
    ahead = Ahead(len(plan.rounds), plan.releases, draw, known=state.knows_length, record_ahead=False)
    rounds = ClientRounds(me, ahead, stored, masks)
    for t, step in enumerate(plan.rounds):
        down: MessageFormat[Reply] = MessageFormat(REPLIES.get(step.kind, CentersMessage), plan)
        if step.kind == START:
            reply = yield from rounds.heard(t, down)
        else:
            # This client's part of the aggregate: Alg. 1, lines 6, 15 and 23; Alg. 2, line 10.
            up = MessageFormat(MaskedStatistic, StatisticFormat(Ring(plan.ring_of(t)), plan.elements(t, state.k)))
            reply = yield from rounds.masked(t, up, partial(state.statistic, t), down)
        state.take(reply)
        if t not in stored.replies:
            yield Publish("round", {"round": t, "rounds": len(plan.rounds), "clients": plan.clients, "step": step.kind})
    if state.centers is None:
        raise InternalError("the run has no step that makes centres")
    labels = assign(raw_points, round_centers(state.centers.exact, plan.fraction_bits))
    return ClientResult(**state.end, raw_labels=labels)


def _draw(state: _Client, share: Share, t: int) -> NDArray[np.int64]:
    """Draw step t's share for the number of clusters known by now."""
    return share(t, state.k)


def draw_share(plan: Plan, t: int, k: int, secret: SecretRandom) -> NDArray[np.int64]:
    """Draw one client's share of step t's noise with k clusters, in grid units; shape (plan.elements(t, k),).

    Notes
    -----
    Sees: the client that draws it; the server sees sums of all clients' shares and statistics.
    Privacy: m - t shares together have the scales of the plan (`privacy/shares.py`).
    """
    drawn: NDArray[np.int64] = draw_parts(plan, t, plan.elements(t, k), [plan.share], [secret])[0]
    return drawn


def draw_parts(
    plan: Plan, t: int, elements: int, shares: Sequence[Fraction], secrets: Sequence[SecretRandom]
) -> NDArray[np.int64]:
    """Draw parts of one client's share of step t's noise, in grid units.

    Parameters
    ----------
    plan : Plan
    t : int
    elements : int
        Length of the step's vector: the number of clusters may have been chosen in the run.
    shares : sequence of Fraction
        Each part's share of the variance of each release's planned noise.
    secrets : sequence of SecretRandom
        Each part's own source.

    Returns
    -------
    int64 array, shape (len(shares), elements)

    Notes
    -----
    Sees: as for `draw_share`.
    """
    step = plan.rounds[t]
    gaussian, laplace = noisy_elements(plan, t, elements)
    drawn = [np.zeros((len(shares), 0), dtype=np.int64)]
    if gaussian:
        drawn.append(draw_gaussian_parts([(step.sigma, gaussian)], shares, secrets))
    if laplace:
        drawn.append(draw_laplace_parts([(step.scale, laplace)], shares, secrets))
    return np.concatenate(drawn, axis=1)


def noisy_elements(plan: Plan, t: int, elements: int) -> tuple[int, int]:
    """Return how many of the elements of step t's vector carry Gaussian and Laplace noise."""
    kind = plan.rounds[t].kind
    if kind == OUTER:
        return elements, 0
    if kind == WEIGHTS:
        return 0, elements
    counts = elements // (plan.d + 1)
    return elements - counts, counts
