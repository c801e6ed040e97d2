"""SecFC, Algorithm 1, from client j's side: values of its shares, up to the last assignment.

Source: SecFC, Alg. 1, lines 9 to 16.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import PeerError
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.protocols.party import Attest, Party, Publish, Receive, Record, Send
from fastlloyd.protocols.secfc.clusters import Clusters
from fastlloyd.protocols.secfc.coded import Coder
from fastlloyd.protocols.secfc.masks import RoundMasks
from fastlloyd.protocols.secfc.messages import Assignment, AssignmentFormat, CodedValues, Finished
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.protocols.secfc.reveal import local_inertia, reveal_centers
from fastlloyd.protocols.secfc.sharing import Shares
from fastlloyd.protocols.secfc.start import first_labels
from fastlloyd.protocols.secfc.turn import turn_back
from fastlloyd.wire import SERVER, PartyId


@dataclass(frozen=True, slots=True)
class ClientResult:
    """What a client has at the end.

    Attributes
    ----------
    labels : int64 array, shape (m,)
        Of all points, in the common order; known to all parties.
    raw_rows : int64 array, shape (own points,)
        Where the own records stand in that order; with membership privacy only their owner knows.
    raw_labels : int64 array, shape (own points,)
        Of the own records, in their own order.
    sizes : int64 array, shape (k,)
        Points in each cluster.
    centers : float64 array, shape (k, d), or None
        Scaled domain; a row of NaN for a cluster of too few points. None where they are not revealed.
    raw_inertia : float or None
        Sum of squared distances of the own records from their centres; stays here. None where some centre of a
        cluster with points is not revealed.
    included : tuple
        Per round, the clients whose answers were decoded.
    present : tuple of PartyId
        Who has all that a client can have at the end: where centres are revealed, who has them.
    state : {'repeated', 'limit'}
        Why the iterations ended.
    """

    labels: NDArray[np.int64] = field(repr=False)
    raw_rows: NDArray[np.int64] = field(repr=False)
    raw_labels: NDArray[np.int64] = field(repr=False)
    sizes: NDArray[np.int64]
    centers: NDArray[np.float64] | None
    raw_inertia: float | None = field(repr=False)
    included: tuple[tuple[PartyId, ...], ...]
    present: tuple[PartyId, ...]
    state: str


def client(
    me: PartyId,
    shares: Shares,
    raw_points: GridPoints,
    plan: Plan,
    *,
    rotation: NDArray[np.float64],
    seed: bytes,
    run_id: bytes,
) -> Party[ClientResult]:
    """Run one client.

    Parameters
    ----------
    me : PartyId
    shares : Shares
        From `sharing.share_points`.
    raw_points : GridPoints
        Own records, rotated.
    plan : Plan
    rotation : float64 array, shape (d, d)
        From `turn.draw_rotation`; turns revealed centres back.
    seed : bytes of length 32
        The clients' common seed (`protocols/seed.py`), which the server does not know.
    run_id : bytes

    Raises
    ------
    PeerError
        The server's assignment does not go with the plan.

    Notes
    -----
    Sees: the cluster of every point in every round; the centres at the end where the run reveals them. Up to t
    clients together learn nothing else about a point.
    """
    coder = Coder(plan.code, shares.elements)
    shape = AssignmentFormat(shares.records, plan.k, plan.clients)
    labels = first_labels(plan, shares.records)
    history: list[tuple[PartyId, ...]] = []
    state, t = "on", 0
    yield Record(plan.all_releases())
    while state == "on":
        masks = RoundMasks(plan.code, me.rank, labels, seed=seed, run_id=run_id, iteration=t)
        started = t >= plan.start_rounds
        order = masks.shuffled() if started else np.arange(shares.records)
        if started:
            answer = coder.ordered(labels, plan.k, order, masks)
        else:
            answer = coder.distances(int(np.flatnonzero(labels == 0)[0]), masks)
        yield Send((SERVER,), CodedValues(answer), t)
        reply: Assignment = yield Receive(SERVER, Assignment, t, shape)
        yield Attest(SERVER, reply, t)
        _check(reply, labels, plan, t)
        before, labels = labels, np.empty_like(labels)
        labels[order] = reply.labels
        history.append(reply.included)
        yield Publish("round", {"round": t, "rounds": plan.rounds, "clients": len(reply.included)})
        t += 1
        if started and (labels == before).all():
            state = "repeated"
        elif t == plan.rounds:
            state = "limit"
    if t < plan.rounds:
        yield Send((SERVER,), CodedValues(b"", repeated=True), t)
        t += 1
    yield Send((SERVER,), Finished(), t)
    turned, present = None, history[-1]
    if plan.reveal_centers:
        turned, present = yield from reveal_centers(me, coder, labels, plan, t)
    raw_labels = labels[shares.raw_rows]
    sizes = np.bincount(labels, minlength=plan.k).astype(np.int64)
    kept = bool(((sizes == 0) | (sizes >= plan.least_revealed)).all())
    return ClientResult(
        labels=labels,
        raw_rows=shares.raw_rows,
        raw_labels=raw_labels,
        sizes=sizes,
        centers=None if turned is None else turn_back(turned, rotation),
        raw_inertia=local_inertia(raw_points, raw_labels, turned) if turned is not None and kept else None,
        included=tuple(history),
        present=present,
        state=state,
    )


def _check(reply: Assignment, before: NDArray[np.int64], plan: Plan, t: int) -> None:
    """Refuse an assignment that no round of the plan can give."""
    if len(reply.included) < plan.needed_answers:
        raise _wrong(t, f"was decoded from {len(reply.included)} answers, expected at least {plan.needed_answers}")
    if t >= plan.start_rounds and not np.isin(reply.labels, Clusters.of(before, plan.k).used).all():
        raise _wrong(t, "names a cluster without a centre")
    if not (reply.labels < plan.k).any():
        raise _wrong(t, "has no point in any cluster")


def _wrong(t: int, text: str) -> PeerError:
    """Blame the server for an assignment."""
    return PeerError(f"the server's assignment of round {t} {text}; look at its version", rank=SERVER.rank)
