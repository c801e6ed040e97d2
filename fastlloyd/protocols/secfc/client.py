"""SecFC, Algorithm 1, from client j's side: values of its shares, up to the last assignment.

Source: SecFC, Alg. 1, lines 7, 9 to 16 and 25. `math/coded.py` and `math/signs.py` say how its answers differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import PeerError
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.party.effects import Attest, Party, Publish, Receive, Record, Send
from fastlloyd.protocols.secfc.math.clusters import Clusters
from fastlloyd.protocols.secfc.math.coded import Coder
from fastlloyd.protocols.secfc.math.masks import RoundMasks, Transcript
from fastlloyd.protocols.secfc.math.start import first_labels
from fastlloyd.protocols.secfc.math.tournament import Tournament
from fastlloyd.protocols.secfc.math.turn import turn_back
from fastlloyd.protocols.secfc.messages import (
    Assignment,
    AssignmentFormat,
    CodedValues,
    Finished,
    Signs,
    SignsFormat,
)
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.protocols.secfc.reveal import local_inertia, reveal_centers
from fastlloyd.protocols.secfc.sharing import Shares
from fastlloyd.wire.header import SERVER, PartyId


@dataclass(frozen=True, slots=True)
class ClientResult:
    """What a client has at the end.

    Attributes
    ----------
    labels : int64 array, shape (m,)
        Of all points, in the common order; known to all clients.
    raw_rows : int64 array, shape (own points,)
        Where this party's records stand in that order; with membership privacy only their owner knows.
    raw_labels : int64 array, shape (own points,)
        Of this party's records, in their own order.
    sizes : int64 array, shape (k,)
        Points in each cluster.
    centers : float64 array, shape (k, d), or None
        Scaled domain; a row of NaN for a cluster of too few points. None where they are not revealed.
    raw_inertia : float or None
        Sum of squared distances of this party's records from their centres; stays here. None where some centre of a
        cluster with points is not revealed.
    included : tuple
        Per step, the clients whose answers were decoded.
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
        The clients' common seed (`life/seed.py`), which the server does not know.
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
    exchange = _Exchange(me, plan, seed, run_id)
    labels = first_labels(plan, shares.records)  # line 7, from the public seed
    history: list[tuple[PartyId, ...]] = []
    state, step = "on", 0
    yield Record(plan.all_releases())
    while state == "on":  # line 9
        before = labels
        if step < plan.start_rounds:
            labels, included = yield from exchange.start(coder, labels)  # a round of the separated start, §5
        else:
            labels, included = yield from exchange.iterate(coder, labels)  # lines 10 to 25
            if (labels == before).all():
                state = "repeated"
        history.append(included)
        yield Publish("round", {"round": step, "rounds": plan.rounds, "clients": len(included)})
        step += 1
        if state == "on" and step == plan.rounds:
            state = "limit"
    t = yield from exchange.end()
    turned, present = None, history[-1]
    if plan.reveal_centers:
        turned, present = yield from reveal_centers(me, coder, labels, plan, t)  # §7
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


class _Exchange:
    """What a client sends the server and gets back, one numbered message after the other."""

    def __init__(self, me: PartyId, plan: Plan, seed: bytes, run_id: bytes) -> None:
        self._me, self._plan, self._seed = me, plan, seed
        self._replies = Transcript(run_id)
        self._t = 0

    def start(self, coder: Coder, labels: NDArray[np.int64]) -> Party[tuple[NDArray[np.int64], tuple[PartyId, ...]]]:
        """Send distances from the point in cluster 0; return the next assignment, and whose answers it is from."""
        shape = AssignmentFormat(len(labels), self._plan.k, self._plan.clients)
        data = coder.distances(int(np.flatnonzero(labels == 0)[0]), self._masks())
        reply: Assignment = yield from self._ask(data, "last", Assignment, shape)
        if not (reply.labels < self._plan.k).any():
            raise self._wrong("has no point in any cluster")
        return reply.labels, reply.included

    def iterate(self, coder: Coder, labels: NDArray[np.int64]) -> Party[tuple[NDArray[np.int64], tuple[PartyId, ...]]]:
        """Run one iteration of Lloyd; return the next assignment, and whose answers it is from."""
        clusters = Clusters.of(labels, self._plan.k)
        scores = coder.scores(labels, clusters, self._plan.k)  # line 11
        tournament, included, last = Tournament(clusters, len(labels)), set[PartyId](), False
        while not last:
            last, masks = tournament.last, self._masks()
            pairs = tournament.pairs()
            count = pairs[0].size
            order, secrets = masks.shuffled(count), masks.signs(count)
            data = coder.compare(scores, pairs, order, secrets, masks)  # lines 12 and 13, two centres at a time
            shape = SignsFormat(count, self._plan.clients)
            reply: Signs = yield from self._ask(data, "last" if last else "more", Signs, shape)  # lines 18 to 23
            positive = np.empty(count, dtype=np.bool_)
            positive[order] = reply.positive
            tournament.settle((positive ^ secrets.flipped).reshape(pairs[0].shape))  # line 25
            included |= set(reply.included)
        return tournament.labels, tuple(sorted(included))

    def end(self) -> Party[int]:
        """Tell the server that there is nothing more to compute; return the number of the message after the last."""
        yield Send((SERVER,), CodedValues(b"", "end"), self._t)
        yield Send((SERVER,), Finished(), self._t + 1)
        return self._t + 1

    def _masks(self) -> RoundMasks:
        """Return the masks of the next answer."""
        # Differs from the paper: without them the server could decode what each segment adds.
        plan, replies = self._plan, self._replies.digest
        return RoundMasks(plan.code, self._me.rank, seed=self._seed, replies=replies, round_=self._t)

    def _ask(self, data: bytes, kind: str, type_: type[Any], shape: Any) -> Party[Any]:
        """Send an answer and take the reply to it."""
        yield Send((SERVER,), CodedValues(data, kind), self._t)
        reply = yield Receive(SERVER, type_, self._t, shape)
        yield Attest(SERVER, reply, self._t)
        if len(reply.included) < self._plan.needed_answers:
            raise self._wrong(
                f"was decoded from {len(reply.included)} answers, expected at least {self._plan.needed_answers}"
            )
        self._replies.add(reply.body())
        self._t += 1
        return reply

    def _wrong(self, text: str) -> PeerError:
        """Blame the server for a reply."""
        return PeerError(f"the server's reply to message {self._t} {text}; look at its version", rank=SERVER.rank)
