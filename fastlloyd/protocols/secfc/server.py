"""SecFC, Algorithm 1, the server: decode answers and reply with signs.

The masks of `field/zero_sum.py` and `math/signs.py` let it decode only numbers whose signs are fair coins and whose
sizes are blurred over 64 octaves, in an order that it does not know. A client knows all masks, so a server and a client
must not collude.

Source: SecFC, Alg. 1, lines 18 to 23; §4.1 "Coded center update". Differs from the paper: only the clients know the
meaning of the signs, so they make the assignment (line 25) and see when it repeats (line 9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fastlloyd.errors import PeerError, Reason, name_some
from fastlloyd.party.effects import Attest, Gather, Party, Publish, Send
from fastlloyd.protocols.secfc.field.lagrange import Code, Unlocated, locate_wrong
from fastlloyd.protocols.secfc.field.prime import Elements
from fastlloyd.protocols.secfc.messages import CodedValues, Finished, Roll, Signs, SignsFormat, ValuesFormat, blocks
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.wire.header import SERVER, PartyId

# Answers beyond those needed that are compared if they arrive in time.
_SLACK = 2

Answers = Mapping[PartyId, CodedValues]


@dataclass(frozen=True, slots=True)
class ServerResult:
    """What the server has at the end.

    Attributes
    ----------
    included : tuple
        Per step, the clients whose answers were decoded.
    late : frozenset of PartyId
        Clients that did not reach the end in time.
    """

    included: tuple[tuple[PartyId, ...], ...]
    late: frozenset[PartyId]


def server(plan: Plan) -> Party[ServerResult]:
    """Run the server, once all clients have shared their points (`sharing.await_shared`).

    Raises
    ------
    PeerError
        An answer is wrong: names its sender, given two answers more than needed.

    Notes
    -----
    Sees: for each comparison what `signs.py` leaves; how many comparisons there are in each message, hence how many
    clusters all starts together use; no assignment, no share, no segment, no coordinate, no total. It takes the first
    answers that arrive and drops later ones of the same round.
    """
    shape = ValuesFormat(plan.field, plan.answer_values)
    history: list[tuple[PartyId, ...]] = []
    included: set[PartyId] = set()
    kind, t = "more", 0
    while True:
        # No client is waited for by name: the first answers are taken.
        late = frozenset(plan.everybody)
        answers: Answers = yield Gather(plan.everybody, CodedValues, t, plan.needed_answers, shape, late)  # line 13
        kind = _agree(answers, plan, t)
        if kind == "end":
            break
        try:
            reply = _reply(plan, answers, plan.code.recovery + max(_SLACK, plan.extra_answers))
        except Unlocated:
            rest = tuple(party for party in plan.everybody if party not in answers)
            more: Answers = yield Gather(rest, CodedValues, t, 0, shape)
            answers = {**answers, **more}
            reply = _try_all(plan, answers, t)
        yield Send(plan.everybody, reply, t)
        yield Attest(SERVER, reply, t)
        included |= set(answers)
        if kind == "last":
            history.append(tuple(sorted(included)))
            yield Publish("round", {"round": len(history) - 1, "rounds": plan.rounds, "clients": len(included)})
            included = set()
        t += 1
    at_least = plan.revealing if plan.reveal_centers else 1
    finished = yield Gather(plan.everybody, Finished, t + 1, at_least)
    present = tuple(party for party in plan.everybody if party in finished)
    if plan.reveal_centers:
        roll = Roll(present, plan.clients)
        yield Send(plan.everybody, roll, t + 1)
        yield Attest(SERVER, roll, t + 1)
    return ServerResult(tuple(history), frozenset(plan.everybody) - frozenset(present))


def _agree(answers: Answers, plan: Plan, t: int) -> str:
    """Return the kind of the answers.

    Raises
    ------
    PeerError
        They are of different kinds or lengths: names one of the smallest group; or they go on after the last one.
    """
    groups: dict[tuple[str, int], list[PartyId]] = {}
    for party, answer in answers.items():
        groups.setdefault((answer.kind, len(answer.data)), []).append(party)
    if len(groups) > 1:
        fewest = min(groups.values(), key=len)
        raise PeerError(
            f"the answers to message {t} of {', '.join(map(str, fewest))} are of another kind or length than those of "
            "the others: expected all clients to have the same assignment; look at their versions",
            rank=fewest[0].rank,
        )
    ((kind, _),) = groups
    if t == plan.messages and kind != "end":
        party = next(iter(answers))
        raise PeerError(
            f"{party} goes on after message {t}, the last of the plan; look at its version", rank=party.rank
        )
    return kind


def _reply(plan: Plan, answers: Answers, most: int) -> Signs:
    """Decode the answers, comparing at most `most` of them with each other; return the signs."""
    included = tuple(sorted(answers))
    values = answers[included[0]].values(plan.field)
    # Lines 18 and 19. Line 21, which of two distances is smaller, becomes a sign that means nothing to the server.
    positive = (plan.field.positive(block) for block in _decode(plan.code, answers, values, most))
    return Signs(np.concatenate([np.zeros(0, dtype=np.bool_), *positive]), included, SignsFormat(values, plan.clients))


def _try_all(plan: Plan, answers: Answers, t: int) -> Signs:
    """Compare all available answers after some of them contradicted each other."""
    _agree(answers, plan, t)
    try:
        return _reply(plan, answers, plan.clients)
    except Unlocated as error:
        raise PeerError(str(error), rank=SERVER.rank, reason=Reason.CONTRADICTION) from error


def _decode(code: Code, answers: Answers, values: int, most: int) -> Iterator[Elements]:
    """Yield the sums over the segments block by block, shape (primes, values of the block).

    Raises
    ------
    PeerError
        Some answers are wrong, and their senders are known, but not who made them wrong: a client answers from the
        shares that all others sent it.
    Unlocated
        Some are wrong, and their senders are not known.
    """
    parties = sorted(answers)[:most]
    ranks = [party.rank for party in parties]
    for part in blocks(values):
        block = np.empty((len(code.field.primes), len(parties), part.stop - part.start))
        for i, party in enumerate(parties):
            _read(party, answers[party], code, part, out=block[:, i])
        wrong = locate_wrong(code, block, ranks) if len(ranks) > code.recovery else ()
        if wrong:
            names = ", ".join(str(PartyId(rank)) for rank in wrong)
            others = name_some([PartyId(rank) for rank in range(1, code.clients + 1) if rank not in wrong])
            raise PeerError(
                f"the answer of {names} does not fit those of the others: expected values of one polynomial; it is "
                f"wrong, or one of {others} sent {names} a wrong share before, and the answers do not show which: "
                "look at their versions and machines, and start again",
                rank=SERVER.rank,
                reason=Reason.CONTRADICTION,
            )
        yield code.decode_sums(block, ranks)


def _read(party: PartyId, answer: CodedValues, code: Code, part: slice, *, out: Elements) -> None:
    """Decode one block of one answer."""
    try:
        answer.read_block(code.field, part, out=out)
    except ValueError as error:
        raise PeerError(f"{party} sent a malformed CodedValues: {error}; check its version", rank=party.rank) from error
