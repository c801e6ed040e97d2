"""SecFC, Algorithm 1, from the server's side: decode, compare, assign.

It decodes the sums over the segments and, by the masks of `ring/zero_sum.py`, nothing more of a polynomial: each
point's score or distance for each centre. These still determine all points up to a rotation about the origin (scores)
or a rigid motion (distances), and the assignments are everybody's; so a server and a client must not collude.

Source: SecFC, Alg. 1, lines 7, 18 to 25.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import PeerError
from fastlloyd.protocols.party import Gather, Party, Publish, Send
from fastlloyd.protocols.secfc.messages import Assignment, AssignmentFormat, CodedValues, Finished, Roll, ValuesFormat
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
    labels : int64 array, shape (m,)
        Of all points, in the common order; known to all parties.
    included : tuple
        Per round, the clients whose answers were decoded.
    late : frozenset of PartyId
        Clients that did not reach the end in time.
    state : {'repeated', 'limit'}
    """

    labels: NDArray[np.int64] = field(repr=False)
    included: tuple[tuple[PartyId, ...], ...]
    late: frozenset[PartyId]
    state: str


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
    Sees: the score or distance of each point for each centre in each iteration, hence all assignments; no share, no
    segment, no coordinate. It takes the first answers that come; later ones of the same round are dropped.
    """
    course = Course(plan, records)
    code = plan.code
    shape = AssignmentFormat(records, plan.k, plan.clients)
    history: list[tuple[PartyId, ...]] = []
    state, t = "on", 0
    while state == "on":
        format_ = ValuesFormat(plan.field, len(course.clusters.used), records)
        answers: dict[PartyId, CodedValues] = yield Gather(
            # Nobody is waited for by name: whoever comes first is taken.
            plan.everybody,
            CodedValues,
            t,
            plan.needed_answers,
            format_,
            frozenset(plan.everybody),
        )
        try:
            state = course.advance(_decode(code, answers, format_, code.recovery + max(_SLACK, plan.extra_answers)))
        except Unlocated:
            rest = tuple(party for party in plan.everybody if party not in answers)
            answers |= yield Gather(rest, CodedValues, t, 0, format_)
            state = _try_all(course, code, answers, format_)
        included = tuple(sorted(answers))
        yield Send(plan.everybody, Assignment(course.labels, state, included, shape), t)
        history.append(included)
        yield Publish("round", {"round": t, "rounds": plan.rounds, "clients": len(included)})
        t += 1
    at_least = plan.revealing if plan.reveal_centers else 1
    finished = yield Gather(plan.everybody, Finished, t, at_least)
    present = tuple(party for party in plan.everybody if party in finished)
    if plan.reveal_centers:
        yield Send(plan.everybody, Roll(present, plan.clients), t)
    return ServerResult(course.labels, tuple(history), frozenset(plan.everybody) - frozenset(present), state)


def _try_all(course: Course, code: Code, answers: Mapping[PartyId, CodedValues], format_: ValuesFormat) -> str:
    """Compare all answers there are, once some of them were found to contradict each other."""
    try:
        return course.advance(_decode(code, answers, format_, code.clients))
    except Unlocated as error:
        raise PeerError(str(error), rank=SERVER.rank) from error


def _decode(code: Code, answers: Mapping[PartyId, CodedValues], format_: ValuesFormat, most: int) -> Iterator[Wide]:
    """Give the sums over the segments block by block, shape (c, points of the block).

    Parameters
    ----------
    most : int
        Of how many answers those beyond the ones needed are compared with them.

    Raises
    ------
    PeerError
        Some answers are wrong, and it is clear whose.
    Unlocated
        Some are wrong, and it is not clear whose.
    """
    parties = sorted(answers)[:most]
    ranks = [party.rank for party in parties]
    for rows in format_.blocks:
        block = np.stack([_read(party, answers[party], format_, rows) for party in parties], axis=1)
        wrong = locate_wrong(code, block, ranks) if len(ranks) > code.recovery else ()
        if wrong:
            names = ", ".join(str(PartyId(rank)) for rank in wrong)
            raise PeerError(
                f"the answer of {names} does not fit those of the others: expected values of one polynomial; look at "
                "its version and machine, and start again",
                rank=wrong[0],
            )
        yield code.field.decode_wide(code.decode_sums(block, ranks))


def _read(party: PartyId, answer: CodedValues, format_: ValuesFormat, rows: slice) -> Elements:
    """Decode one block of one answer."""
    try:
        return answer.block(format_, rows)
    except ValueError as error:
        raise PeerError(f"{party} sent a malformed CodedValues: {error}", rank=party.rank) from error
