"""Which ledgers and stored rounds go together: those that crashes can leave behind, and no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import pytest

from fastlloyd.errors import ConfigError, PeerError, Reason
from fastlloyd.kmeans.grid import quantise
from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum, server
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.party.effects import Gather, Party, Receive, Record, Save
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.fastlloyd.client import client
from fastlloyd.run.checks import check_stored, refuse_behind, refuse_forgetful_server
from fastlloyd.wire.header import PartyId, clients
from tests.protocols.support import blobs, no_noise, plan_for
from tests.protocols.test_restored import common

RUN = "ab" * 16
POINTS = blobs(60, 3, 2)
ROUNDS = 4
PLAN = plan_for(POINTS, 3, rounds=ROUNDS)
ME = PartyId(1)
VECTOR = bytes(PLAN.elements(0) * 4)
REPLY = NoisyMaskedSum(VECTOR, clients(2), 2)


State = tuple[frozenset[int], frozenset[int], frozenset[int]]
"""The rounds in the ledger, and those of the stored uplinks and replies."""
NOTHING: State = (frozenset(), frozenset(), frozenset())


def check(state: State, *, ahead: bool = True, **changes: Any) -> None:
    """Resume with these rounds in the ledger and in `run/`."""
    entries, uplinks, replies = state
    ledger = Ledger()
    ledger.record(dataclasses.replace(r, run=RUN, **changes) for r in PLAN.all_releases() if r.round in entries)
    session: Any = SimpleNamespace(run_id=bytes.fromhex(RUN), ledger=ledger)
    check_stored(session, PLAN.all_releases(), uplinks=uplinks, replies=replies, ahead=ahead)


def accepted(state: State, **options: Any) -> bool:
    try:
        check(state, **options)
    except ConfigError as error:
        assert error.reason is Reason.RESUME and "restored from an old copy or changed" in str(error)
        return False
    return True


def crashes(party: Party[Any], before: State) -> Iterator[State]:
    """What a crash leaves after each step of a party that resumes from a state and gets its messages."""
    entries, uplinks, replies = map(set, before)
    answer = None
    while True:
        try:
            effect = party.send(answer)
        except StopIteration:
            return
        answer = None
        if isinstance(effect, Record):
            entries |= {release.round for release in effect.releases}
        elif isinstance(effect, Save):
            kind, _, t = effect.name.partition("-")
            (uplinks if kind == "uplink" else replies).add(int(t))
        elif isinstance(effect, Receive):
            answer = REPLY
        elif isinstance(effect, Gather):
            answer = {party: MaskedUpdate(VECTOR) for party in clients(2)}
        yield frozenset(entries), frozenset(uplinks), frozenset(replies)


def resumed_client(before: State) -> Iterator[State]:
    """The client's next crashes; the server has closed as many rounds as it, or up to two more."""
    _, uplinks, replies = before
    points = quantise(POINTS, PLAN.fraction_bits)
    for ahead in range(3):
        stored = StoredRounds(
            dict.fromkeys(uplinks, VECTOR), dict.fromkeys(replies, REPLY.body()), min(len(replies) + ahead, ROUNDS)
        )
        yield from crashes(client(ME, points, PLAN, common(PLAN), stored=stored), before)


def resumed_server(before: State) -> Iterator[State]:
    """The server's next crashes."""
    stored = StoredRounds(replies=dict.fromkeys(before[2], REPLY.body()))
    return crashes(server(PLAN, no_noise(PLAN), stored=stored), before)


def honest(resumed: Callable[[State], Iterator[State]]) -> set[State]:
    """All that any number of crashes can leave."""
    found, new = {NOTHING}, [NOTHING]
    while new:
        for state in resumed(new.pop()):
            if state not in found:
                found.add(state)
                new.append(state)
    return found


@pytest.mark.parametrize("resumed", [resumed_client, resumed_server])
def test_a_resume_accepts_what_crashes_can_leave_and_nothing_else(resumed: Callable[[State], Iterator[State]]) -> None:
    found = honest(resumed)
    everything = [frozenset(part) for size in range(ROUNDS + 1) for part in combinations(range(ROUNDS), size)]
    for state in product(everything, everything if resumed is resumed_client else [frozenset()], everything):
        assert accepted(state, ahead=resumed is resumed_client) == (state in found), state
    assert 2 * ROUNDS <= len(found) < 100


@pytest.mark.parametrize(
    ("entries", "uplinks", "replies", "said"),
    [
        ({0, 1, 2}, {0, 1, 2}, {0, 2}, "gaps"),
        ({0, 1, 2}, {0, 2}, {0}, "uplink of round 2, but no reply of round 1"),
        ({0}, {0, 1}, {0}, "round 1, but the ledger does not"),
        ({0, 2}, {0}, {0}, "ledger holds round 2"),
        ({0, 1}, set(), set(), "ledger holds round 1"),
        ({0, 1, 2, 3}, {0, 1}, {0}, "ledger holds round 3"),
    ],
)
def test_what_no_crash_leaves_is_named(entries: set[int], uplinks: set[int], replies: set[int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check((frozenset(entries), frozenset(uplinks), frozenset(replies)))


def test_entries_of_another_plan_are_refused() -> None:
    first = (frozenset({0}), frozenset[int](), frozenset[int]())
    check(first)
    with pytest.raises(ConfigError, match="other entries for this run than its plan"):
        check(first, data="ff")


def test_a_torn_pair_of_entries_is_what_a_crash_leaves() -> None:
    ledger = Ledger()
    first: Release = PLAN.all_releases()[0]
    ledger.record([dataclasses.replace(first, run=RUN)])
    session: Any = SimpleNamespace(run_id=bytes.fromhex(RUN), ledger=ledger)
    check_stored(session, PLAN.all_releases(), uplinks=(), replies=())
    with pytest.raises(ConfigError, match="holds round 0, but the ledger does not"):
        check_stored(session, PLAN.all_releases(), uplinks=(0,), replies=())


def test_a_client_that_was_part_of_a_round_has_the_replies_before_it() -> None:
    stored = {0: b"both", 1: b"both", 2: b"first"}
    told = {(0, b"both"): clients(2), (1, b"both"): clients(2), (2, b"first"): clients(1)}

    def included(t: int, reply: bytes) -> tuple[PartyId, ...]:
        return told[t, reply]

    refuse_behind(stored, {PartyId(1): 2, PartyId(2): 1}, included)
    with pytest.raises(
        PeerError, match="client 1 was part of round 2, but has stored the replies of 1 round"
    ) as caught:
        refuse_behind(stored, {PartyId(1): 1, PartyId(2): 1}, included)
    assert (caught.value.rank, caught.value.reason) == (1, Reason.RESUME)
    with pytest.raises(PeerError, match="client 2 was part of round 1"):
        refuse_behind(stored, {PartyId(1): 2}, included)


def test_a_server_that_forgot_rounds_is_named() -> None:
    refuse_forgetful_server(2, 2)
    with pytest.raises(PeerError, match="the server has closed 1 round,") as caught:
        refuse_forgetful_server(2, 1)
    assert (caught.value.rank, caught.value.reason) == (0, Reason.RESUME)
