"""Random lying servers open nothing with less noise than planned, and the judge sees each rule that a client lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.lifecycle.threshold import returning
from fastlloyd.lifecycle.threshold.client import ClientOpening, GivenSet
from fastlloyd.lifecycle.threshold.group import Group
from fastlloyd.lifecycle.threshold.messages import QuickAnswer, RoundSet, SetAnswer, SetVotes
from fastlloyd.lifecycle.threshold.returning import Returned
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.party.effects import Party, Send
from fastlloyd.party.message import RingFormat
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run import horizontal
from fastlloyd.wire.header import PartyId
from tests.adversary.threshold.liar import campaign
from tests.adversary.threshold.sites import draw_parts, make_run


def check(rounds: int, lying: int, each: int, seed: int) -> None:
    opened, least = 0, []
    for clients in range(3, 8):
        tally = campaign(make_run(Numbers.settle(clients, lying=lying), rounds), each, seed)
        assert not tally.faults, (clients, tally.faults[:3])
        opened, least = opened + tally.opened, least + tally.least
    # Sums that are opened have exactly the planned noise, so the servers were not merely refused.
    assert min(least) == 1.0
    assert opened >= each


@pytest.mark.parametrize("lying", [0, 1])
@pytest.mark.parametrize("rounds", [1, 2])
def test_no_server_opens_a_sum_with_less_noise_than_planned(rounds: int, lying: int) -> None:
    check(rounds, lying, 15, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("lying", [0, 1])
@pytest.mark.parametrize("rounds", [1, 2])
def test_no_server_of_ten_thousand_does(rounds: int, lying: int) -> None:
    check(rounds, lying, 500, seed=2)


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
                excess = self._excess(t, history, shape, self._group.numbers.clients)
                effect = replace(effect, message=QuickAnswer(effect.message.shares + excess.tobytes()))
            answer = yield effect


class SendsItsVectorAfterItsVote(ClientOpening):
    def may_send(self, t: int) -> bool:
        return True


class DrawsNoiseAnew(ClientOpening):
    def _draw_parts(self, t: int, history: bytes, elements: int) -> NDArray[np.int64]:
        shapes = self._group.parts.shapes
        return draw_parts(t, elements, shapes, [SecretRandom() for _ in shapes])


def hears_nobody(
    group: Group, me: PartyId, decisions: Mapping[int, GivenSet], replies: int, secret: SecretRandom
) -> Party[Returned]:
    """Come back without a look at what the others state."""
    real = returning.come_back(group, me, decisions, replies, secret)
    answer = None
    for _ in range(4):
        answer = yield real.send(answer)
    return Returned(dict(decisions), {}, returning._returned(group, real.gi_frame.f_locals["nonces"]))


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
    "votes are not checked, c = 1": (AnswersWithoutVotes, 6, 1),
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


def test_the_judge_sees_clients_that_come_back_without_a_look_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horizontal, "come_back", hears_nobody)
    found = campaign(make_run(Numbers.settle(3)), 1000, seed=3, to_first=True)
    assert found.faults


def test_the_judge_sees_clients_that_answer_at_once_in_a_resumed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "opens_at_once", lambda self, included: included == self.everybody)
    found = campaign(make_run(Numbers.settle(3)), 1000, seed=3, to_first=True)
    assert found.faults
