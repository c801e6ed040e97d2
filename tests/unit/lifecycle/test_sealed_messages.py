"""Two clients seal messages for each other: only the other opens them, each in its own place."""

from __future__ import annotations

from typing import Any

import pytest

from fastlloyd.crypto.hybrid import TAG_BYTES
from fastlloyd.errors import PeerError, PeerGone
from fastlloyd.lifecycle.sealed_messages import seal_between
from fastlloyd.lifecycle.shared_secrets import SeedConfirmation, SetupBytes
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.party.effects import Receive, Send
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import SETUP_ROUND, Header, PartyId, clients

RUN = bytes(range(16))
ONE, TWO, THREE = clients(3)


class Secret(SetupBytes):
    __slots__ = ()
    TYPE = 130
    SEEN = ()


class Other(SetupBytes):
    __slots__ = ()
    TYPE = 131
    SEEN = ()


def value(text: str) -> bytes:
    return text.encode().ljust(32)


def pairs_of(me: PartyId) -> PairSecrets:
    shared = {frozenset(pair): bytes([sum(pair[0:1]) + sum(pair[1:2])] * 32) for pair in ((1, 2), (1, 3), (2, 3))}
    return PairSecrets(me, {one: shared[frozenset((me.rank, one.rank))] for one in clients(3) if one != me})


def talk(me: PartyId, rounds: tuple[int, ...] = (SETUP_ROUND, 0)) -> Any:
    others = tuple(one for one in clients(3) if one != me)
    heard = []
    for round_ in rounds:
        for part in "ab":
            yield Send(others, Secret(value(f"{part}{me.rank}")), round_)
        yield Send(others, Other(value("open")), round_)
        for one in others:
            for _ in "ab":
                message = yield Receive(one, Secret, round_)
                heard.append(message.value.strip().decode())
            yield Receive(one, Other, round_)
    return heard


def run(tap: Tap | None = None) -> dict[PartyId, Any]:
    lives = {me: seal_between(talk(me), pairs_of(me), (Secret,), run_id=RUN) for me in clients(3)}
    return Simulation(lives, tap).run()


def test_each_hears_what_the_others_sealed_and_nobody_else_could() -> None:
    bodies: list[bytes] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == Secret.TYPE:
            assert len(body) == 32 + TAG_BYTES and not any(value(f"{p}{sender.rank}")[:4] in body for p in "ab")
            bodies.append(body)
        else:
            assert body == value("open")
        return body

    heard = run(tap)
    assert heard[ONE] == ["a2", "b2", "a3", "b3"] * 2
    # Equal messages have different seals: to another receiver, in another round, a second time.
    assert len(set(bodies)) == len(bodies) == 24


@pytest.mark.parametrize("place", [0, 31, 32, 47])
def test_a_changed_message_names_its_sender(place: int) -> None:
    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if (header.type, sender, receiver) == (Secret.TYPE, TWO, THREE):
            return body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        return body

    with pytest.raises(PeerError, match="client 2 sent a malformed Secret: the seal does not open") as caught:
        run(tap)
    assert caught.value.rank == 2


@pytest.mark.parametrize("again", ["earlier", "round", "pair"])
def test_a_message_of_another_place_does_not_open(again: str) -> None:
    kept: list[bytes] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type != Secret.TYPE or sender != TWO:
            return body
        if receiver == ONE:
            kept.append(body)
            if again == "earlier" or (again == "round" and header.round == 0):
                return kept[0]
        return kept[0] if again == "pair" and receiver == THREE else body

    with pytest.raises(PeerError, match="client 2 sent a malformed Secret: the seal does not open"):
        run(tap)


def test_errors_reach_the_party_and_its_result_comes_back() -> None:
    def party() -> Any:
        try:
            yield Receive(TWO, SeedConfirmation, 0)
        except PeerGone:
            return "noticed"

    sealed = seal_between(party(), pairs_of(ONE), (Secret,), run_id=RUN)
    next(sealed)
    with pytest.raises(StopIteration) as end:
        sealed.throw(PeerGone("client 2 is gone", rank=2))
    assert end.value.value == "noticed"
    closed: list[bool] = []

    def waits() -> Any:
        try:
            yield Receive(TWO, Secret, 0)
        finally:
            closed.append(True)

    sealed = seal_between(waits(), pairs_of(ONE), (Secret,), run_id=RUN)
    next(sealed)
    sealed.close()
    assert closed == [True]
