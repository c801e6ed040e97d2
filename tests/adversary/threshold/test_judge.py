"""Random lying servers open nothing with less noise than planned, and the judge sees each rule that a client lacks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.lifecycle.threshold.client import ClientOpening, GivenSet
from fastlloyd.lifecycle.threshold.messages import QuickAnswer, RoundSet, SetAnswer, SetVotes
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.party.effects import Party, Send
from fastlloyd.party.message import RingFormat
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run import horizontal
from fastlloyd.wire.header import PartyId
from tests.adversary.threshold.liar import Tally, campaign
from tests.adversary.threshold.sites import draw_part, make_run

CASES = [(clients, lying, rounds) for clients in range(3, 8) for lying in (0, 1) for rounds in (1, 2)]


def check(tally: Tally) -> None:
    assert not tally.faults, tally.faults[:3]
    # Sums that are opened have exactly the planned noise, so the servers were not merely refused.
    assert min(tally.least) == 1.0
    assert tally.opened >= tally.schedules // 10


@pytest.mark.parametrize(("clients", "lying", "rounds"), CASES)
def test_no_server_opens_a_sum_with_less_noise_than_planned(clients: int, lying: int, rounds: int) -> None:
    check(campaign(make_run(Numbers.settle(clients, lying=lying), rounds), 15, seed=1))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("clients", "lying", "rounds"), CASES)
def test_no_server_of_ten_thousand_does(clients: int, lying: int, rounds: int) -> None:
    check(campaign(make_run(Numbers.settle(clients, lying=lying), rounds), 500, seed=2))


class AnswersWithoutVotes(ClientOpening):
    def _check_votes(self, t: int, history: bytes, included: tuple[PartyId, ...], votes: SetVotes) -> None:
        pass


class ForgetsItsDecisions(ClientOpening):
    def _decide(self, t: int, decision: GivenSet) -> Party[None]:
        self._decisions[t] = decision
        yield from ()


class TakesASetBelowTheThreshold(ClientOpening):
    def _check(self, t: int, history: bytes, said: RoundSet) -> None:
        if len(said.included) >= self._group.numbers.threshold:
            super()._check(t, history, said)

    def _answer(self, t: int, history: bytes, included: tuple[PartyId, ...], shape: RingFormat) -> SetAnswer:
        if len(included) >= self._group.numbers.threshold:
            return super()._answer(t, history, included, shape)
        return SetAnswer(self._secrets.answer(t, included), b"")


class GivesItsExcessAtOnce(ClientOpening):
    def open(self, t: int, history: bytes, shape: RingFormat) -> Party[tuple[PartyId, ...]]:
        party, answer = super().open(t, history, shape), None
        while True:
            try:
                effect = party.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(effect, Send) and isinstance(effect.message, QuickAnswer):
                excess = self._excess(t, history, shape.ring, self._group.numbers.clients)
                effect = replace(effect, message=QuickAnswer(effect.message.shares + excess.tobytes()))
            answer = yield effect


class SendsItsVectorAfterItsVote(ClientOpening):
    def may_send(self, t: int) -> bool:
        return True


class DrawsNoiseAnew(ClientOpening):
    def _draw_parts(self, t: int, history: bytes) -> list[NDArray[np.int64]]:
        return [draw_part(t, shape, SecretRandom()) for shape in self._group.parts.shapes]


def smaller_threshold(numbers: Numbers) -> Numbers:
    """T one too small, which the numbers themselves refuse."""
    smaller = object.__new__(Numbers)
    for name in ("clients", "lying", "known"):
        object.__setattr__(smaller, name, getattr(numbers, name))
    object.__setattr__(smaller, "threshold", numbers.threshold - 1)
    object.__setattr__(smaller, "restored", 0)
    return smaller


LACKING = {
    "votes are not checked": (AnswersWithoutVotes, 5, 0),
    "decisions are forgotten": (ForgetsItsDecisions, 5, 0),
    "a set below T": (TakesASetBelowTheThreshold, 5, 0),
    "its excess at once": (GivesItsExcessAtOnce, 5, 0),
    "a vector after the vote": (SendsItsVectorAfterItsVote, 5, 0),
    "noise drawn anew": (DrawsNoiseAnew, 5, 0),
    "its excess at once, c = 1": (GivesItsExcessAtOnce, 6, 1),
}


@pytest.mark.parametrize("lacking", LACKING)
def test_the_judge_sees_a_client_that_lacks_a_rule(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, clients, lying = LACKING[lacking]
    monkeypatch.setattr(horizontal, "ClientOpening", kind)
    found = campaign(make_run(Numbers.settle(clients, lying=lying)), 1000, seed=3, to_first=True)
    assert found.faults


@pytest.mark.parametrize(("clients", "lying"), [(4, 0), (5, 1)])
def test_the_judge_sees_a_threshold_one_too_small(clients: int, lying: int) -> None:
    numbers = smaller_threshold(Numbers.settle(clients, lying=lying))
    found = campaign(make_run(numbers), 1000, seed=3, to_first=True)
    assert found.faults
