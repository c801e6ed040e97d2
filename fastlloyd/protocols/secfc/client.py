"""SecFC, Algorithm 1, from client j's side: values of its shares, up to the last assignment.

Several starts advance together, each in the same messages as the others; the one of least inertia wins.

Source: SecFC, Alg. 1, lines 7, 9 to 16 and 25. `math/coded.py` and `math/signs.py` say how its answers differ.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import PeerError
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.party.effects import Attest, Party, Publish, Receive, Record, Send
from fastlloyd.protocols.secfc.math.attempt import Attempt, least_inertia, stop_copies
from fastlloyd.protocols.secfc.math.coded import Coder
from fastlloyd.protocols.secfc.math.differences import JoinedDifferences, Question, Step
from fastlloyd.protocols.secfc.math.masks import RoundMasks, turn_back
from fastlloyd.protocols.secfc.math.memory import UNNUMBERED, Memory
from fastlloyd.protocols.secfc.math.signs import dummy_bits
from fastlloyd.protocols.secfc.messages import CodedValues, Finished, Signs, SignsFormat
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.protocols.secfc.reveal import local_inertia, reveal_centers
from fastlloyd.protocols.secfc.sharing import Shares
from fastlloyd.randomness import domains
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
        Clients that have everything a client can have at the end; where centres are revealed, those that have them.
    start : int
        Which start won, from 0; known to all clients.
    state : {'repeated', 'limit'}
        Why its iterations ended.
    """

    labels: NDArray[np.int64] = field(repr=False)
    raw_rows: NDArray[np.int64] = field(repr=False)
    raw_labels: NDArray[np.int64] = field(repr=False)
    sizes: NDArray[np.int64]
    centers: NDArray[np.float64] | None
    raw_inertia: float | None = field(repr=False)
    included: tuple[tuple[PartyId, ...], ...]
    present: tuple[PartyId, ...]
    start: int
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
        From `rotation.draw_rotation`; turns revealed centres back.
    seed : bytes of length 32
        The clients' common seed (`lifecycle/shared_secrets.py`), which the server does not know.
    run_id : bytes

    Raises
    ------
    PeerError
        The server's replies do not fit the plan, or no choice of a seed.

    Notes
    -----
    Sees: the cluster of every point in every round of every start, which points are seeds, and which start won; the
    final centres where the run reveals them. Up to t clients together learn nothing else about a point.
    """
    coder = Coder(plan.code, shares.elements)
    exchange = _Exchange(me, plan, coder, seed, run_id)
    memory, met = exchange.memory, set[bytes]()
    ended: list[Attempt] = []
    yield Record(plan.all_releases())
    for numbers in plan.passes:
        courses = [Attempt(plan, coder, number, memory) for number in numbers]  # line 7, from the public seed
        stop_copies(courses, met)
        while running := [course for course in courses if course.state == "on"]:  # line 9
            yield from exchange.step([course.step() for course in running])  # lines 10 to 25
            stop_copies(running, met)
        ended += [course for course in courses if course.state != "copy"]
    best = 0
    if len(ended) > 1:
        best = int((yield from exchange.step([least_inertia(plan, coder, [course.labels for course in ended])]))[0][0])
    labels, history = ended[best].labels, exchange.history
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
        start=ended[best].number,
        state=ended[best].state,
    )


class _Exchange:
    """A client's exchange with the server, one numbered message after the other."""

    def __init__(self, me: PartyId, plan: Plan, coder: Coder, seed: bytes, run_id: bytes) -> None:
        self._me, self._plan, self._coder, self._seed = me, plan, coder, seed
        self._replies = hashlib.sha256(domains.SECFC_REPLIES + run_id)
        self._t = 0
        self.memory = Memory(coder.records)
        """Comparisons that the server has settled."""
        self.history: list[tuple[PartyId, ...]] = []
        """Per step, the clients whose answers were decoded."""

    def step(self, steps: Sequence[Step]) -> Party[list[NDArray[np.int64]]]:
        """Let some steps ask in the same messages until all have ended; return the result of each."""
        found: dict[Step, NDArray[np.int64]] = {}
        asking = {one: next(one) for one in steps}
        included = set[PartyId]()
        while asking:
            reply, outcomes = yield from self._ask(list(asking.values()))
            included |= set(reply.included)
            following: dict[Step, Question] = {}
            for one, outcome in zip(asking, outcomes, strict=True):
                try:
                    following[one] = one.send(outcome)
                except StopIteration as end:
                    found[one] = end.value
            asking = following
        self.history.append(tuple(sorted(included)))
        step, rounds = len(self.history) - 1, self._plan.rounds
        yield Publish("round", {"round": step, "rounds": rounds, "clients": len(included)})
        return [found[one] for one in steps]

    def end(self) -> Party[int]:
        """Tell the server that the computation has ended; return the number of the message after the last."""
        yield Send((SERVER,), CodedValues(b"", "end"), self._t)
        yield Send((SERVER,), Finished(), self._t + 1)
        return self._t + 1

    def _ask(self, questions: Sequence[Question]) -> Party[tuple[Signs, list[NDArray[np.bool_]]]]:
        """Send an answer; return the reply to it, and for each question where the earlier one wins."""
        joined = JoinedDifferences([question.differences for question in questions])
        kind = "last" if all(question.last for question in questions) else "more"
        masks = self._masks()
        order, secrets = masks.shuffled(joined.count), masks.signs(joined.count)
        numbers, least = _numbers(questions)
        asked = self.memory.unknown(numbers)
        # A known comparison is not sent again: another value takes its place.
        dummies = np.where(asked, -1, dummy_bits(secrets, least, self._plan.dummy_bits))
        data = self._coder.mask(joined, order, secrets, masks, dummies)  # lines 12 and 13
        yield Send((SERVER,), CodedValues(data, kind), self._t)
        shape = SignsFormat(joined.count, self._plan.clients)
        reply: Signs = yield Receive(SERVER, Signs, self._t, shape)  # lines 18 to 23
        yield Attest(SERVER, reply, self._t)
        if len(reply.included) < self._plan.needed_answers:
            raise self._wrong(
                f"was decoded from {len(reply.included)} answers, expected at least {self._plan.needed_answers}"
            )
        body = reply.body()
        # With its length, so that different rows of replies have different digests.
        self._replies.update(struct.pack("<Q", len(body)) + body)
        self._t += 1
        positive = np.empty(joined.count, dtype=np.bool_)
        positive[order] = reply.positive
        ends = np.cumsum([question.differences.count for question in questions])
        return reply, np.split(self.memory.settle(numbers, asked, positive ^ secrets.flipped), ends[:-1])

    def _masks(self) -> RoundMasks:
        """Return the masks of the next answer."""
        # Differs from the paper: without them the server could decode what each segment adds.
        plan, replies = self._plan, self._replies.digest()
        return RoundMasks(
            plan.code, self._me.rank, seed=self._seed, replies=replies, round_=self._t, mantissa=plan.mantissa_bits
        )

    def _wrong(self, text: str) -> PeerError:
        """Blame the server for a reply."""
        return PeerError(f"the server's reply to message {self._t} {text}; look at its version", rank=SERVER.rank)


def _numbers(questions: Sequence[Question]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of all questions' comparisons, and the least bits of the values that may replace them."""
    numbers, least = [], []
    for question in questions:
        nothing = np.full(question.differences.count, UNNUMBERED, dtype=np.int64)
        numbers.append(nothing if question.numbers is None else question.numbers)
        least.append(np.zeros_like(nothing) if question.least_bits is None else question.least_bits)
    return np.concatenate(numbers), np.concatenate(least)
