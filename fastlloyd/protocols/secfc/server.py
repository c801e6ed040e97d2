"""SecFC, Algorithm 1, from the server's side: decode, compare, assign.

By the masks of `ring/zero_sum.py` and `order.py` it decodes the order of each point's clusters and blurred ratios, in
an order of the points that it does not know, and nothing more of a polynomial. In the rounds of a separated start it
decodes exact squared distances from k points. A client knows all masks, so a server and a client must not collude.

Source: SecFC, Alg. 1, lines 7, 18 to 25.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import PeerError
from fastlloyd.protocols.party import Attest, Gather, Party, Publish, Send
from fastlloyd.protocols.secfc.compare import with_zeros
from fastlloyd.protocols.secfc.messages import Assignment, AssignmentFormat, CodedValues, Finished, Roll, ValuesFormat
from fastlloyd.protocols.secfc.order import Scale
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.protocols.secfc.start import Course
from fastlloyd.ring.field import Elements
from fastlloyd.ring.lagrange import Code
from fastlloyd.ring.locate import Unlocated, locate_wrong
from fastlloyd.ring.wide import Wide
from fastlloyd.wire import SERVER, PartyId

# Answers beyond those needed that are compared where they happen to be there in time.
_SLACK = 2


@dataclass(frozen=True, slots=True)
class ServerResult:
    """What the server has at the end.

    Attributes
    ----------
    included : tuple
        Per round, the clients whose answers were decoded.
    late : frozenset of PartyId
        Clients that did not reach the end in time.
    """

    included: tuple[tuple[PartyId, ...], ...]
    late: frozenset[PartyId]


def server(plan: Plan, records: int) -> Party[ServerResult]:
    """Run the server.

    Parameters
    ----------
    plan : Plan
    records : int
        Of all clients together, from `sharing.await_shared`.

    Raises
    ------
    PeerError
        An answer is wrong: names its sender, given two answers more than needed.

    Notes
    -----
    Sees: for each round what `order.py` leaves, and so the cluster of each point, in an order of the points that it
    does not know; in the rounds of a separated start distances from the chosen points; no share, no segment, no
    coordinate. It takes the first answers that come; later ones of the same round are dropped.
    """
    course = Course(plan, records)
    shape = AssignmentFormat(records, plan.k, plan.clients)
    history: list[tuple[PartyId, ...]] = []
    for t in range(plan.rounds):
        question = Question.of(course, plan, records)
        answers: dict[PartyId, CodedValues] = yield Gather(
            # Nobody is waited for by name: whoever comes first is taken.
            plan.everybody,
            CodedValues,
            t,
            plan.needed_answers,
            question.format,
            frozenset(plan.everybody),
        )
        if _repeated(answers):
            break
        try:
            course.advance(_decode(plan.code, answers, question, plan.extra_answers), question.weights)
        except Unlocated:
            rest = tuple(party for party in plan.everybody if party not in answers)
            answers |= yield Gather(rest, CodedValues, t, 0, question.format)
            _try_all(course, plan, answers, question)
        included = tuple(sorted(answers))
        assignment = Assignment(course.labels, included, shape)
        yield Send(plan.everybody, assignment, t)
        yield Attest(SERVER, assignment, t)
        history.append(included)
        yield Publish("round", {"round": t, "rounds": plan.rounds, "clients": len(included)})
    # Who says that the assignment repeated does so in a round of its own.
    last = min(len(history) + 1, plan.rounds)
    at_least = plan.revealing if plan.reveal_centers else 1
    finished = yield Gather(plan.everybody, Finished, last, at_least)
    present = tuple(party for party in plan.everybody if party in finished)
    if plan.reveal_centers:
        roll = Roll(present, plan.clients)
        yield Send(plan.everybody, roll, last)
        yield Attest(SERVER, roll, last)
    return ServerResult(tuple(history), frozenset(plan.everybody) - frozenset(present))


@dataclass(frozen=True, slots=True)
class Question:
    """What the clients answer in one round; public.

    Attributes
    ----------
    format : ValuesFormat
    weights : int64 array, shape (c,)
        For `compare.closest`.
    reference : int or None
        Row of the cluster that all others are compared with; None: the values are distances.
    """

    format: ValuesFormat
    weights: NDArray[np.int64]
    reference: int | None

    @classmethod
    def of(cls, course: Course, plan: Plan, records: int) -> Question:
        """Return what is asked next."""
        if course.starting:
            return cls(ValuesFormat(plan.field, 1, records), np.ones(1, dtype=np.int64), None)
        scale = Scale.of(course.clusters)
        return cls(ValuesFormat(plan.field, len(scale.places), records), scale.weights, scale.reference)


def _repeated(answers: Mapping[PartyId, CodedValues]) -> bool:
    """Tell whether the clients say that the assignment repeated.

    Raises
    ------
    PeerError
        They do not agree; names one of the fewer.
    """
    told = [party for party, answer in answers.items() if answer.repeated]
    if told and len(told) < len(answers):
        others = [party for party in answers if party not in told]
        fewer = told if len(told) <= len(others) else others
        raise PeerError(
            f"{', '.join(map(str, told))} told that the assignment repeated, {', '.join(map(str, others))} did not: "
            "expected all clients to have the same assignment; look at the versions of the fewer",
            rank=fewer[0].rank,
        )
    return bool(told)


def _try_all(course: Course, plan: Plan, answers: Mapping[PartyId, CodedValues], question: Question) -> None:
    """Compare all answers there are, once some of them were found to contradict each other."""
    _repeated(answers)
    try:
        course.advance(_decode(plan.code, answers, question, plan.clients), question.weights)
    except Unlocated as error:
        raise PeerError(str(error), rank=SERVER.rank) from error


def _decode(code: Code, answers: Mapping[PartyId, CodedValues], question: Question, extra: int) -> Iterator[Wide]:
    """Return the sums over the segments block by block, shape (c, points of the block).

    Parameters
    ----------
    extra : int
        So many answers beyond those needed are compared with them, 2 at least.

    Raises
    ------
    PeerError
        Some answers are wrong, and it is clear whose.
    Unlocated
        Some are wrong, and it is not clear whose.
    """
    parties = sorted(answers)[: code.recovery + max(_SLACK, extra)]
    ranks = [party.rank for party in parties]
    if not question.format.blocks:
        yield Wide(np.zeros((1, 1, question.format.records), dtype=np.int64))
    for rows in question.format.blocks:
        block = np.stack([_read(party, answers[party], question.format, rows) for party in parties], axis=1)
        wrong = locate_wrong(code, block, ranks) if len(ranks) > code.recovery else ()
        if wrong:
            names = ", ".join(str(PartyId(rank)) for rank in wrong)
            raise PeerError(
                f"the answer of {names} does not fit those of the others: expected values of one polynomial; look at "
                "its version and machine, and start again",
                rank=wrong[0],
            )
        values = code.field.decode_wide(code.decode_sums(block, ranks))
        yield values if question.reference is None else with_zeros(values, question.reference)


def _read(party: PartyId, answer: CodedValues, format_: ValuesFormat, rows: slice) -> Elements:
    """Decode one block of one answer."""
    try:
        return answer.block(format_, rows)
    except ValueError as error:
        raise PeerError(f"{party} sent a malformed CodedValues: {error}", rank=party.rank) from error
