"""Parties compare results over their own links: who differs is named, and openings go to nobody without a result."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest

from fastlloyd.errors import Aborted, Reason, SecurityError
from fastlloyd.lifecycle.closing import Chains, ResultDigest, compare_directly
from fastlloyd.lifecycle.masked_sums import NoisyMaskedSum
from fastlloyd.party.transcript import Transcript
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import SERVER, PartyId, clients

EVERYBODY = clients(3)
ONE, TWO, THREE = EVERYBODY
HEARD = Transcript(b"context")
HEARD.add(SERVER, NoisyMaskedSum(b"a", (ONE, TWO), 3), 0)
SAME = dict.fromkeys(EVERYBODY, b"centres")


def opening(me: PartyId) -> bytes:
    return bytes([me.rank]) * 32


def compare(
    contents: Mapping[PartyId, bytes], *, took_part: tuple[PartyId, ...] = EVERYBODY, tap: Tap | None = None
) -> dict[PartyId, dict[PartyId, bytes]]:
    """Let three clients compare; those in `contents` have a result."""
    lives = {}
    for me in EVERYBODY:
        held = ResultDigest(hashlib.sha256(contents[me]).digest(), opening(me)) if me in contents else None
        lives[me] = compare_directly(me, EVERYBODY, took_part, HEARD, held=held, holders=tuple(contents))
    return Simulation(lives, tap).run()


def test_openings_go_to_those_with_the_result_and_to_nobody_else() -> None:
    bodies: dict[tuple[PartyId, PartyId], bytes] = {}

    def watch(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes:
        bodies[sender, receiver] = body
        return body

    found = compare({ONE: b"centres", TWO: b"centres"}, tap=watch)
    assert found == {ONE: {TWO: opening(TWO)}, TWO: {ONE: opening(ONE)}, THREE: {}}
    assert len(bodies) == 6
    for (sender, receiver), body in bodies.items():
        assert (Chains.read(body, None).held is None) == (THREE in (sender, receiver))


@pytest.mark.parametrize("odd", EVERYBODY)
def test_who_has_another_result_than_most_is_named(odd: PartyId) -> None:
    with pytest.raises(SecurityError, match=f"{odd}.* has a different result than the others") as caught:
        compare({**SAME, odd: b"other centres"})
    assert (caught.value.rank, caught.value.reason, caught.value.exit_code) == (odd.rank, Reason.OTHER_RESULT, 3)


def test_without_a_majority_nobody_is_said_to_differ() -> None:
    with pytest.raises(SecurityError, match="client 1 and other parties have different results") as caught:
        compare({me: opening(me) for me in EVERYBODY})
    assert (caught.value.rank, caught.value.reason) == (1, Reason.RESULTS_DIFFER)
    elsewhere = str(Aborted(rank=1, reason=caught.value.reason, code=3, by=1))
    assert "client 1 found that" in elsewhere and "which of them is right is not known" in elsewhere


def test_a_late_client_blocks_nobody() -> None:
    def silent(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes | None:
        return None if sender == THREE else body

    assert compare(SAME, took_part=(ONE, TWO), tap=silent)[ONE] == {TWO: opening(TWO)}


def test_who_took_part_must_say_which_result_it_has() -> None:
    def without(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes:
        return Chains(Chains.read(body, None).chains).body() if sender == TWO else body

    with pytest.raises(SecurityError, match="client 2 did not send the digest of its result") as caught:
        compare(SAME, tap=without)
    assert caught.value.rank == 2
    assert compare(SAME, took_part=(ONE, THREE), tap=without)[ONE] == {THREE: opening(THREE)}
