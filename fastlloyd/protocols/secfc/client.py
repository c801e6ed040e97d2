"""SecFC, Algorithm 1, from client j's side: values of its shares, up to the last assignment.

Source: SecFC, Alg. 1, lines 9 to 16.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.prg import derive
from fastlloyd.errors import PeerError
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.protocols.party import Party, Publish, Receive, Record, Send
from fastlloyd.protocols.secfc.coded import Clusters, Coder
from fastlloyd.protocols.secfc.messages import Assignment, AssignmentFormat, CodedValues, Finished
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.protocols.secfc.reveal import local_inertia, reveal_centers
from fastlloyd.protocols.secfc.sharing import Shares
from fastlloyd.protocols.secfc.start import first_labels
from fastlloyd.ring.field import Elements
from fastlloyd.ring.lagrange import Code
from fastlloyd.ring.zero_sum import zero_sum_mask
from fastlloyd.wire import SERVER, PartyId

_PURPOSE = b"fastlloyd secfc zero-sum masks"


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
        Scaled domain; a row of NaN for a cluster without points. None where they are not revealed.
    raw_inertia : float or None
        Sum of squared distances of the own records from their centres; stays here.
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
    me: PartyId, shares: Shares, raw_points: GridPoints, plan: Plan, *, seed: bytes, run_id: bytes
) -> Party[ClientResult]:
    """Run one client.

    Parameters
    ----------
    me : PartyId
    shares : Shares
        From `sharing.share_points`.
    raw_points : GridPoints
        Own records.
    plan : Plan
    seed : bytes of length 32
        The clients' common seed (`protocols/seed.py`), which the server does not know.
    run_id : bytes

    Raises
    ------
    PeerError
        The server's assignment does not go with the plan.

    Notes
    -----
    Sees: the cluster of every point in every iteration; the centres at the end where the run reveals them. Up to t
    clients together learn nothing else about a point.
    """
    code = plan.code
    coder = Coder(plan.field, shares.elements, plan.mode == "distances")
    shape = AssignmentFormat(shares.records, plan.k, plan.clients)
    labels = first_labels(plan, shares.records)
    history: list[tuple[PartyId, ...]] = []
    state, t = "on", 0
    yield Record(plan.all_releases())
    while state == "on":
        # Differs from the paper: without the mask the server could decode what each segment adds. The mask depends on
        # the assignment: a server that shows clients different ones gets masks that do not fit together.
        key = derive(seed, _PURPOSE, run_id + hashlib.sha256(labels.astype("<i8").tobytes()).digest())
        masked = coder.answer(labels, plan.k, partial(_mask, code, me.rank, key=key, iteration=t))
        yield Send((SERVER,), CodedValues(masked), t)
        reply: Assignment = yield Receive(SERVER, Assignment, t, shape)
        _check(reply, labels, plan, t)
        labels, state = reply.labels, reply.state
        history.append(reply.included)
        yield Publish("round", {"round": t, "rounds": plan.rounds, "clients": len(reply.included)})
        t += 1
    yield Send((SERVER,), Finished(), t)
    centers, present = None, history[-1]
    if plan.reveal_centers:
        centers, present = yield from reveal_centers(me, coder, labels, plan, t)
    raw_labels = labels[shares.raw_rows]
    return ClientResult(
        labels=labels,
        raw_rows=shares.raw_rows,
        raw_labels=raw_labels,
        sizes=np.bincount(labels, minlength=plan.k).astype(np.int64),
        centers=centers,
        raw_inertia=None if centers is None else local_inertia(raw_points, raw_labels, centers),
        included=tuple(history),
        present=present,
        state=state,
    )


def _mask(code: Code, rank: int, block: int, shape: tuple[int, ...], *, key: bytes, iteration: int) -> Elements:
    """Give what hides the segments in one block of the answer of one round."""
    return zero_sum_mask(code, rank, shape, key=key, iteration=iteration, block=block)


def _check(reply: Assignment, before: NDArray[np.int64], plan: Plan, t: int) -> None:
    """Refuse an assignment that no iteration of the plan can give."""
    if len(reply.included) < plan.needed_answers:
        raise _wrong(t, f"was decoded from {len(reply.included)} answers, expected at least {plan.needed_answers}")
    started = t >= plan.start_rounds
    if started and not np.isin(reply.labels, Clusters.of(before, plan.k).used).all():
        raise _wrong(t, "names a cluster without a centre")
    if not (reply.labels < plan.k).any():
        raise _wrong(t, "has no point in any cluster")
    last = t + 1 == plan.rounds
    repeated = started and bool((reply.labels == before).all())
    expected = "repeated" if repeated else "limit" if last else "on"
    if reply.state != expected:
        raise _wrong(t, f"says {reply.state!r}, expected {expected!r}")


def _wrong(t: int, text: str) -> PeerError:
    """Blame the server for an assignment."""
    return PeerError(f"the server's assignment of round {t} {text}; look at its version", rank=SERVER.rank)
