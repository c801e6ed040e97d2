"""Clients find out through the server whether all are alike; a server that lies can end the run and no more."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest

from fastlloyd.errors import PeerError, SecurityError
from fastlloyd.lifecycle.same_secret import (
    EqualityProof,
    EqualityTag,
    NotEqual,
    Tag,
    collect_tags,
    proof_bytes,
    prove_equality,
)
from fastlloyd.party.effects import Gather, Send
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import COMPARE_ROUND, SERVER, PartyId, clients

ONE, TWO, THREE = clients(3)
SECRET = bytes(range(32))
HEARD, RESULT = b"test heard", b"test result"
SAME = {HEARD: b"plan and replies", RESULT: b"centres"}
OTHER = {HEARD: b"other replies", RESULT: b"centres"}
OTHER_RESULT = {HEARD: b"plan and replies", RESULT: b"other centres"}


def compare(
    count: int = 3,
    *,
    tap: Tap | None = None,
    contexts: Mapping[PartyId, Mapping[bytes, bytes]] | None = None,
    required: tuple[PartyId, ...] | None = None,
    server: Any = None,
) -> Simulation:
    everybody = clients(count)
    needed = everybody if required is None else required
    late = set(everybody) - set(needed)
    parties: dict[PartyId, Any] = {SERVER: server or collect_tags(everybody, needed, late, COMPARE_ROUND, len(SAME))}
    for me in everybody:
        parties[me] = prove_equality(
            me,
            everybody,
            needed,
            secret=SECRET,
            things=(contexts or {}).get(me, SAME),
            round_=COMPARE_ROUND,
        )
    simulation = Simulation(parties, tap)
    simulation.run()
    return simulation


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_equal_clients_agree_with_one_message_each_way(count: int) -> None:
    meters = compare(count).meters
    for me in clients(count):
        assert meters[me].total_sent().messages == (count > 1)
    assert meters[SERVER].total_sent().messages == (count if count > 1 else 0)


@pytest.mark.parametrize(("things", "which"), [(OTHER, HEARD), (OTHER_RESULT, RESULT)])
@pytest.mark.parametrize("odd", [ONE, TWO, THREE])
def test_the_client_that_differs_from_most_is_named_and_so_is_the_thing(
    odd: PartyId, things: Mapping[bytes, bytes], which: bytes
) -> None:
    with pytest.raises(NotEqual) as caught:
        compare(contexts={odd: things})
    assert (caught.value.odd, caught.value.rank, caught.value.purpose) == (odd, odd.rank, which)


@pytest.mark.parametrize(("count", "others"), [(2, (ONE,)), (2, (TWO,)), (4, (ONE, TWO))])
def test_without_a_clear_majority_nobody_is_named(count: int, others: tuple[PartyId, ...]) -> None:
    with pytest.raises(NotEqual) as caught:
        compare(count, contexts=dict.fromkeys(others, OTHER))
    assert caught.value.odd == SERVER


def test_who_is_not_required_cannot_cost_the_others_their_result() -> None:
    def tap(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes | None:
        if header.type == EqualityProof.TYPE:
            sets.append(EqualityProof.read(body, (3, 2)).included)
        return bytes(2 * Tag.MOST_BYTES) if sender == THREE else body

    sets: list[tuple[PartyId, ...]] = []
    compare(tap=tap, required=(ONE, TWO))
    assert sets == [(ONE, TWO)] * 3


def test_all_tags_are_equal_and_all_own_bytes_differ() -> None:
    sent: list[EqualityTag] = []

    def watch(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes:
        if header.type == EqualityTag.TYPE:
            sent.append(EqualityTag.read(body, 2))
        return body

    compare(5, tap=watch)
    compare(5, tap=watch, contexts=dict.fromkeys(clients(5), OTHER))
    tags = [tuple(each.tag for each in tag.pieces) for tag in sent]
    assert [len(set(part)) for part in (tags[:5], tags[5:], tags)] == [1, 1, 2]
    # The result is the same in both, the rest is not: 2 tags and 10 pieces of one stream, 1 and 5 of the other.
    assert len({piece for tag in sent for each in tag.pieces for piece in (each.tag, each.own)}) == 18


def count_some(everybody: tuple[PartyId, ...], some: tuple[PartyId, ...]) -> Any:
    """Live as a server that says that all are alike, from what some of them have sent."""
    told = yield Gather(everybody, EqualityTag, COMPARE_ROUND, len(everybody), 2)
    digests = tuple(
        hashlib.sha256(b"".join(told[party].pieces[thing].own for party in some)).digest() for thing in (0, 1)
    )
    yield Send(everybody, EqualityProof(some, len(everybody), (0, 0), digests), COMPARE_ROUND)


def test_a_server_cannot_say_that_all_are_alike_when_one_is_not() -> None:
    with pytest.raises(NotEqual) as caught:
        compare(contexts={TWO: OTHER}, server=count_some(clients(3), clients(3)))
    assert caught.value.odd == SERVER


def changed(change: Any) -> Tap:
    def tap(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes | None:
        passed: bytes | None = change(body) if header.type == EqualityProof.TYPE and receiver == TWO else body
        return passed

    return tap


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[:-1] + bytes([body[-1] ^ 1]),
        lambda body: body[:5] + bytes(32) + body[37:],
        lambda body: b"\x05" + body[1:],
    ],
    ids=["a bit", "zeros", "another set"],
)
def test_a_proof_that_was_changed_is_none(change: Any) -> None:
    with pytest.raises(NotEqual):
        compare(tap=changed(change))


def test_a_name_alone_does_not_end_a_run_in_which_all_are_alike() -> None:
    compare(tap=changed(lambda body: body[:1] + b"\x03" + body[2:]))


@pytest.mark.parametrize(
    "change", [lambda body: body[:-1], lambda body: body + b"\0", lambda body: b"\x08" + body[1:], lambda body: b""]
)
def test_a_malformed_proof_is_the_server_s_fault(change: Any) -> None:
    with pytest.raises(PeerError, match="malformed EqualityProof") as caught:
        compare(tap=changed(change))
    assert caught.value.rank == 0


def test_a_proof_names_no_stranger() -> None:
    proof = EqualityProof((ONE, THREE), 3, (2, 0), (SECRET, SECRET[::-1]))
    assert EqualityProof.read(proof.body(), (3, 2)) == proof and len(proof.body()) == proof_bytes(3, 2)
    with pytest.raises(ValueError, match="rank of one of 3 clients"):
        EqualityProof.read(proof.body()[:1] + b"\x04" + proof.body()[2:], (3, 2))


@pytest.mark.parametrize("size", [0, Tag.MOST_BYTES, 2 * Tag.MOST_BYTES - 1, 2 * Tag.MOST_BYTES + 1])
def test_a_tag_of_another_length_is_its_sender_s_fault(size: int) -> None:
    def tap(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes:
        return bytes(size) if sender == TWO else body

    with pytest.raises(PeerError, match="client 2 sent a malformed EqualityTag") as caught:
        compare(tap=tap)
    assert caught.value.rank == 2


def test_who_is_required_must_be_there_and_others_need_not() -> None:
    def silent(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes | None:
        return None if sender == THREE else body

    compare(tap=silent, required=(ONE, TWO))
    with pytest.raises(PeerError, match="client 3") as caught:
        compare(tap=silent)
    assert caught.value.rank == 3


def test_a_server_that_leaves_out_whom_it_must_not_is_found_out() -> None:
    with pytest.raises(SecurityError, match="server's proof that all clients have the same lacks client 3") as caught:
        compare(server=count_some(clients(3), (ONE, TWO)))
    assert caught.value.rank == 0
