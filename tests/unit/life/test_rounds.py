"""The two halves of a round: what is kept before anything leaves."""

from __future__ import annotations

from fastlloyd.life.hello import Go, Ready
from fastlloyd.life.rounds import Ahead, ClientRounds, MessageFormat, ServerRounds
from fastlloyd.party.effects import Effect, Gather, Party, Receive, Record, Save, Send
from fastlloyd.wire.header import PartyId, clients


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
    half = ClientRounds(PartyId(1), Ahead(1, lambda t: ()))
    asked = effects_of(half.plain(0, MessageFormat(Ready), Ready, MessageFormat(Go)), {Receive: Go()})
    kinds = [type(effect) for effect in asked]
    assert kinds[:4] == [Record, Save, Send, Receive]
    assert [effect.name for effect in asked if isinstance(effect, Save)] == ["uplink-0", "reply-0"]


def test_a_server_keeps_its_reply_before_it_sends_it() -> None:
    half = ServerRounds(2, 1, Ahead(1, lambda t: ()), at_least=2)
    told = {party: Ready() for party in clients(2)}
    asked = effects_of(half.plain(0, MessageFormat(Ready), MessageFormat(Go), lambda *_: Go()), {Gather: told})
    kinds = [type(effect) for effect in asked]
    assert kinds[:4] == [Record, Gather, Save, Send]
