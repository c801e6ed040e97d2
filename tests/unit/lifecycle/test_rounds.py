"""The two halves of a round: what is kept before anything leaves."""

from __future__ import annotations

import numpy as np

from fastlloyd.lifecycle.hello import Go, Ready
from fastlloyd.lifecycle.rounds import Ahead, ClientRounds, MessageFormat, ServerRounds
from fastlloyd.party.effects import Effect, Gather, Party, Receive, Record, Save, Send
from fastlloyd.privacy.release import Release
from fastlloyd.wire.header import PartyId, clients


def releases(t: int) -> tuple[Release, ...]:
    return (Release(round=t, name="sums", mechanism="gaussian", norm="l2", sensitivity=1.0, noise_scale=2.0),)


def effects_of(party: Party[object], answers: dict[type, object]) -> list[Effect]:
    """Carry a half of a round out, and list what it asks for."""
    asked, answer = [], None
    while True:
        try:
            asked.append(party.send(answer))
        except StopIteration:
            return asked
        answer = answers.get(type(asked[-1]))


def test_a_client_keeps_what_it_sends_before_it_sends_it() -> None:
    """Else a crash in between would let it make the message anew: fresh noise, or a second vector under a mask."""
    half = ClientRounds(PartyId(1), Ahead(1, releases))
    asked = effects_of(half.plain(0, MessageFormat(Ready), Ready, MessageFormat(Go)), {Receive: Go()})
    kinds = [type(effect) for effect in asked]
    assert kinds[:4] == [Record, Save, Send, Receive]
    assert [effect.name for effect in asked if isinstance(effect, Save)] == ["uplink-0", "reply-0"]


def test_a_server_keeps_its_reply_before_it_sends_it() -> None:
    half = ServerRounds(2, 1, Ahead(1, releases), at_least=2)
    told = {party: Ready() for party in clients(2)}
    asked = effects_of(half.plain(0, MessageFormat(Ready), MessageFormat(Go), lambda *_: Go()), {Gather: told})
    kinds = [type(effect) for effect in asked]
    assert kinds[:4] == [Record, Gather, Save, Send]


def test_a_round_without_an_uplink_records_its_own_releases_and_draws_the_next_rounds_noise_alone() -> None:
    """A ledger that goes a round further than the stored uplinks is refused on resume."""
    drawn: list[int] = []

    def draw(t: int) -> np.ndarray:
        drawn.append(t)
        return np.zeros(1, dtype=np.int64)

    half = ClientRounds(PartyId(1), Ahead(2, releases, draw))
    asked = effects_of(half.heard(0, MessageFormat(Go)), {Receive: Go()})
    assert [effect.releases for effect in asked if isinstance(effect, Record)] == [releases(0)]
    assert drawn == [1] and not any(isinstance(effect, Send) for effect in asked)
    server = ServerRounds(2, 2, Ahead(2, releases, record_ahead=False), at_least=2)
    asked = effects_of(server.spoken(0, MessageFormat(Go), Go), {})
    assert [type(effect) for effect in asked][:3] == [Record, Save, Send]


def test_a_round_that_releases_nothing_records_nothing() -> None:
    half = ClientRounds(PartyId(1), Ahead(1, lambda t: ()))
    asked = effects_of(half.plain(0, MessageFormat(Ready), Ready, MessageFormat(Go)), {Receive: Go()})
    assert [type(effect) for effect in asked][:2] == [Save, Send]
