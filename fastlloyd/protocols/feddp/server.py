"""FedDP-KMeans from the server's side: noisy sums in, projection and centres out.

The server adds no noise. With pairwise masks it removes none: in the sum over all clients the masks cancel and the
shares of noise add up. With threshold masks clients open the sum over those in the step, which is noisy.

Source: FedDP-KMeans, Alg. 1 lines 6 and 7, 15 to 17, 23 and 24; Alg. 2 lines 10 and 11.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.lifecycle.rounds import Ahead, MessageFormat, ServerRounds, StoredRounds
from fastlloyd.lifecycle.threshold.server import ServerOpening
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.party.effects import Party
from fastlloyd.protocols.feddp.math.projection import Projection
from fastlloyd.protocols.feddp.math.stage import (
    Centers,
    ProjectedCenters,
    cluster_projected,
    make_centers,
    make_projection,
    start_centers,
)
from fastlloyd.protocols.feddp.messages import (
    CentersMessage,
    MaskedStatistic,
    ProjectedCentersMessage,
    ProjectionMessage,
    StatisticFormat,
)
from fastlloyd.protocols.feddp.plan import Plan
from fastlloyd.protocols.feddp.settings import OUTER, START, WEIGHTS
from fastlloyd.wire.header import PartyId, clients

Reply = ProjectionMessage | ProjectedCentersMessage | CentersMessage
_NOTHING = np.zeros(0, dtype=np.int64)
REPLIES: dict[str, type[Reply]] = {OUTER: ProjectionMessage, WEIGHTS: ProjectedCentersMessage}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsEnd:
    """What all parties have at the end, made from noisy sums and the server's data.

    Attributes
    ----------
    centers : Centers
        Scaled domain, with noisy sizes.
    costs : float64 array, shape (kmax,) or (0,)
        The curve whose elbow chose k; empty if k was given.
    included : tuple
        Per step, the clients in the sum; all of them with pairwise masks, and where nothing is added up.
    silent : tuple
        Per step, with threshold masks: those of them that left more of their noise in the sum.
    path : tuple of float64 arrays, shape (k, d), or None
        The centres before the first step and after each; None until there are any.
    """

    centers: Centers
    costs: NDArray[np.float64]
    included: tuple[tuple[PartyId, ...], ...]
    silent: tuple[tuple[PartyId, ...], ...]
    path: tuple[NDArray[np.float64] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResult(StepsEnd):
    """What the server has at the end, and which clients missed the last step."""

    late: frozenset[PartyId]


@dataclass(slots=True)
class StepState:
    """What the replies so far contain; the same at the server and at every client."""

    plan: Plan
    projection: Projection | None = None
    projected: ProjectedCenters | None = None
    centers: Centers | None = None
    path: list[NDArray[np.float64] | None] = field(default_factory=lambda: [None])
    included: list[tuple[PartyId, ...]] = field(default_factory=list)
    silent: list[tuple[PartyId, ...]] = field(default_factory=list)

    @property
    def k(self) -> int:
        """Number of clusters, or the largest number until it is chosen."""
        if self.centers is not None:
            return len(self.centers.exact)
        return self.plan.k if self.projected is None else len(self.projected.centers)

    def take(self, reply: Reply) -> None:
        """Keep what a reply contains: a fresh one or, on resume, a stored one."""
        if isinstance(reply, ProjectionMessage):
            self.projection = reply.projection  # Alg. 1, line 10
        elif isinstance(reply, ProjectedCentersMessage):
            self.projected = reply.found  # Alg. 1, line 19
        else:
            self.centers = reply.found  # Alg. 2, line 4
        self.included.append(reply.included or clients(self.plan.clients))
        self.silent.append(reply.silent)
        self.path.append(None if self.centers is None else self.centers.exact)

    @property
    def end(self) -> dict[str, Any]:
        """The fields of `StepsEnd` by name."""
        return {
            "centers": self.centers or Centers(np.zeros((0, self.plan.d)), np.zeros(0)),
            "costs": np.zeros(0) if self.projected is None else self.projected.costs,
            "included": tuple(self.included),
            "silent": tuple(self.silent),
            "path": tuple(self.path),
        }


@dataclass(slots=True, kw_only=True)
class _Server(StepState):
    """The server's progress, its own points, and with threshold masks what opens the sums."""

    server_points: NDArray[np.float64] | None = field(repr=False)
    restarts: int
    opening: ServerOpening | None = None

    def answer(self, t: int, noisy: NDArray[np.int64] = _NOTHING, among: tuple[PartyId, ...] | None = None) -> Reply:
        """Return the reply of step t from its noisy sum and who is in it; a start has neither."""
        plan, kind = self.plan, self.plan.rounds[t].kind
        among = clients(plan.clients) if among is None else among
        silent = () if self.opening is None else self.opening.silent.get(t, ())
        said: dict[str, Any] = {}
        if self.opening is not None:
            said = {"included": among, "silent": silent, "clients": plan.clients}
        noise = plan.noise_with(len(among), len(silent))
        if kind == START:
            exact = start_centers(plan, self.server_points, self.restarts)  # a baseline, App. G.3
            return CentersMessage(Centers(exact, np.zeros(plan.k)), **said)
        if kind == OUTER:
            return ProjectionMessage(make_projection(noisy, self.server_points, plan, noise), **said)  # Alg. 1, line 7
        if kind == WEIGHTS and self.projection is not None:  # Alg. 1, line 17
            found = cluster_projected(noisy, self.projection, plan, self.restarts, noise)
            return ProjectedCentersMessage(found, **said)
        return CentersMessage(make_centers(noisy, self.k, plan), **said)  # Alg. 1, line 24; Alg. 2, line 11


def server(
    plan: Plan,
    server_points: NDArray[np.float64] | None,
    *,
    restarts: int = 10,
    stored: StoredRounds | None = None,
    opening: ServerOpening | None = None,
) -> Party[ServerResult]:
    """Run the server.

    Parameters
    ----------
    plan : Plan
    server_points : float64 array, shape (n_server, d), or None
        Its own data, scaled by the public bounds; None only with the starts 'private' and 'sphere-packing'.
    restarts : int
        Number of starts of each clustering of its own points.
    stored : StoredRounds, optional
        On resume: replies of closed steps, sent again unchanged.
    opening : ServerOpening, optional
        With threshold masks.

    Notes
    -----
    Sees: masked statistics, uniform on the ring; the noisy sum of each step; nothing else of the clients' records.
    Privacy: each noisy sum is the release of `plan.releases(t)`, in the ledger before the server gathers it. Replies
    are made from these sums and from the server's own points, which are not protected.
    """
    progress = _Server(plan=plan, server_points=server_points, restarts=restarts, opening=opening)
    rounds = ServerRounds(
        plan.clients,
        len(plan.rounds),
        Ahead(len(plan.rounds), plan.releases, record_ahead=False),
        at_least=plan.min_clients,
        stored=stored,
        opening=opening,
    )
    for t, step in enumerate(plan.rounds):
        down: MessageFormat[Reply] = MessageFormat(REPLIES.get(step.kind, CentersMessage), plan)
        values = {"step": step.kind}
        if step.kind == START:
            reply = yield from rounds.spoken(t, down, partial(progress.answer, t), values=values)
        else:
            # Alg. 1, lines 6, 15, 23; Alg. 2, line 10.
            shape = StatisticFormat(Ring(plan.ring_of(t)), plan.elements(t, progress.k))
            answer = partial(_answer, progress, t, shape)
            reply = yield from rounds.masked(t, MessageFormat(MaskedStatistic, shape), down, answer, values=values)
        progress.take(reply)
    return ServerResult(**progress.end, late=rounds.late)


def _answer(progress: _Server, t: int, shape: StatisticFormat, total: RingArray, among: tuple[PartyId, ...]) -> Reply:
    """Return the reply of step t from the sum of the clients' uplinks."""
    return progress.answer(t, shape.ring.decode(total), among)
