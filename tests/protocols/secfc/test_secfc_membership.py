"""The mix that names points without saying whose they are."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fastlloyd.errors import DataError, PeerError
from fastlloyd.protocols.secfc import membership
from fastlloyd.protocols.secfc.math.onion import LayerKey, seal, sealed_bytes, shuffle
from fastlloyd.protocols.secfc.membership import agree_order
from fastlloyd.protocols.secfc.messages import ArrayFormat, DataShares, LayerPublicKey, SealedTags, Shared, Union
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import PartyId, clients
from tests.protocols.secfc.support import RUN_ID, mixture, plan_for, run

SETTINGS = {"membership": True}


def orders(counts: tuple[int, ...], sizes: tuple[int, ...], tap=None) -> dict[PartyId, tuple[np.ndarray, int]]:
    """Run the mix alone."""
    plan = plan_for(sum(sizes), 2, 1, sizes, clients=len(sizes), settings=SETTINGS)
    parties = {
        me: agree_order(me, counts[me.rank - 1], plan, run_id=RUN_ID, secret=SecretRandom())
        for me in clients(len(sizes))
    }
    return Simulation(parties, tap).run()


@pytest.mark.parametrize("counts,sizes", [((3, 0, 2), (5, 4, 2)), ((1, 1, 1, 1, 7), (1, 2, 3, 4, 7))])
def test_the_union_holds_every_record_once_and_no_padding(counts, sizes) -> None:
    found = orders(counts, sizes)
    rows = np.concatenate([found[party][0] for party in clients(len(sizes))])
    assert sorted(rows) == list(range(sum(counts)))
    assert {records for _, records in found.values()} == {sum(counts)}


def test_the_order_is_uniform_over_the_owners() -> None:
    # Which client owns the first of 4 points, one each; and where client 2's point stands.
    firsts, places = np.zeros(3), np.zeros(3)
    for _ in range(90):
        found = orders((1, 1, 1), (1, 1, 1))
        firsts[next(party.rank for party, (rows, _) in found.items() if rows[0] == 0) - 1] += 1
        places[found[PartyId(2)][0][0]] += 1
    # False alarms: below 1e-6 for both, by the exact multinomial distribution.
    assert stats.chisquare(firsts).pvalue > 3e-7 and stats.chisquare(places).pvalue > 3e-7


def test_shuffles_are_uniform() -> None:
    secret = SecretRandom()
    seen: dict[tuple[bytes, ...], int] = {}
    for _ in range(6000):
        order = tuple(shuffle([b"a", b"b", b"c"], secret))
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6 and stats.chisquare(list(seen.values())).pvalue > 1e-6


def test_each_hop_carries_new_bytes_of_one_length() -> None:
    hops: dict[tuple[int, int], tuple[bytes, ...]] = {}
    union: list[bytes] = []

    def tap(sender, receiver, header, body):
        if header.type == SealedTags.TYPE:
            layers = 4 if receiver == PartyId(1) else 5 - receiver.rank
            width = sealed_bytes(layers)
            hops[sender.rank, receiver.rank] = tuple(body[i : i + width] for i in range(0, len(body), width))
        if header.type == Union.TYPE:
            union.append(body)
        return body

    orders((4, 4, 4, 4), (6, 6, 6, 6), tap)
    assert set(hops) == {(2, 1), (3, 1), (4, 1), (1, 2), (2, 3), (3, 4)}
    assert [len(hops[hop]) for hop in ((1, 2), (2, 3), (3, 4))] == [24, 24, 24]
    for before, after in pairwise([*[hops[j, 1] for j in (2, 3, 4)], hops[1, 2], hops[2, 3], hops[3, 4]]):
        pieces = {entry[i : i + 16] for entry in before for i in range(0, len(entry) - 15)}
        assert not pieces & {entry[i : i + 16] for entry in after for i in range(0, len(entry) - 15, 16)}
    assert len(set(union)) == 1 and len(union[0]) == 16 * 16


def test_owners_cannot_be_told_from_the_shapes_of_what_they_send() -> None:
    # Two clients with the same padded size, one without a record and one full, send the same number of bytes.
    lengths: dict[tuple[int, int], list[int]] = {}

    def tap(sender, receiver, header, body):
        if receiver.rank == 4 and header.type in (SealedTags.TYPE, DataShares.TYPE, Shared.TYPE):
            lengths.setdefault((header.type, sender.rank), []).append(len(body))
        return body

    points = mixture(40, 2, 3)
    parts = [np.arange(0), np.arange(20), np.arange(20, 35), np.arange(35, 40)]
    run(points, 2, clients=4, parts=parts, sizes=(20, 20, 20, 20), tap=tap, settings=SETTINGS)
    assert lengths[DataShares.TYPE, 1] == lengths[DataShares.TYPE, 2] == lengths[DataShares.TYPE, 3]


@pytest.mark.usefixtures("open_messages")
def test_shares_of_zeros_and_of_points_look_alike() -> None:
    bodies: dict[int, bytes] = {}

    def tap(sender, receiver, header, body):
        if header.type == DataShares.TYPE and receiver == PartyId(3):
            bodies[sender.rank] = body
        return body

    points = np.full((1600, 2), 0.75)
    parts = [np.arange(800), np.arange(800, 1600), np.arange(0)]
    outcome = run(points, 1, clients=3, parts=parts, rounds=1, tap=tap, settings=SETTINGS)
    shape = ArrayFormat(outcome.plan.field, (1600, outcome.plan.width))
    # Twelve comparisons or a few more: below 1e-6 for all.
    for rank in (1, 2):
        elements = DataShares.read(bodies[rank], shape).elements
        own = np.zeros(1600, dtype=bool)
        own[outcome.results[PartyId(rank)].raw_rows] = True
        for residues, p in zip(elements, outcome.plan.primes, strict=True):
            classes = ((residues + p // 2) * 16 // p).astype(int)
            for rows in (own, ~own):
                assert stats.chisquare(np.bincount(classes[rows].ravel(), minlength=16)).pvalue > 5e-8


def test_more_records_than_the_padded_size_are_refused() -> None:
    with pytest.raises(DataError, match="has 3 records, expected at most its public padded size of 2"):
        orders((3, 1, 1), (2, 2, 2))


@pytest.mark.parametrize("change", ["drop", "twice", "flip"])
@pytest.mark.parametrize("hop", [(3, 1), (1, 2), (3, 4)])
def test_a_client_that_changes_tags_is_noticed(change: str, hop: tuple[int, int]) -> None:
    def tap(sender, receiver, header, body):
        if header.type != SealedTags.TYPE or (sender.rank, receiver.rank) != hop:
            return body
        width = sealed_bytes(4 if hop[1] == 1 else 5 - hop[1])
        if change == "drop":
            return body[width:]
        if change == "twice":
            return body[:width] + body[:width] + body[2 * width :]
        return bytes([body[0] ^ 1]) + body[1:]

    with pytest.raises(PeerError) as caught:
        orders((3, 3, 3, 3), (3, 3, 3, 3), tap)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "change", [lambda body: body[16:], lambda body: body[16:] + body[:16], lambda body: body[:16] + bytes(16)]
)
def test_a_union_that_does_not_fit_is_refused(change) -> None:
    def tap(sender, receiver, header, body):
        return change(body) if header.type == Union.TYPE else body

    with pytest.raises(PeerError, match="union") as caught:
        orders((2, 0, 0), (2, 1, 1), tap)
    assert caught.value.rank == 3


@pytest.mark.parametrize("liar", [2, 3])
def test_garbage_tags_name_their_owner(liar: int) -> None:
    def tap(sender, receiver, header, body):
        garbage = header.type == SealedTags.TYPE and sender.rank == liar and receiver == PartyId(1)
        return bytes(range(1, 256))[:40] * (len(body) // 40) + bytes(len(body) % 40) if garbage else body

    with pytest.raises(PeerError, match=f"a sealed tag from client {liar} does not open") as caught:
        orders((2, 2, 2), (2, 2, 2), tap)
    assert caught.value.rank == liar


def test_a_key_that_nothing_can_be_sealed_for_names_its_sender() -> None:
    def tap(sender, receiver, header, body):
        return bytes(32) if header.type == LayerPublicKey.TYPE and sender == PartyId(2) else body

    with pytest.raises(PeerError, match="client 2 sent a key"):
        orders((1, 1, 1), (1, 1, 1), tap)


def test_layers_open_with_their_key_in_their_order_and_run_only() -> None:
    secret = SecretRandom()
    first, second = LayerKey(secret), LayerKey(secret)
    sealed = seal(b"tag", [first.public, second.public], run_id=b"run", secret=secret)
    assert second.open(first.open(sealed, layer=0, run_id=b"run"), layer=1, run_id=b"run") == b"tag"
    assert sealed != seal(b"tag", [first.public, second.public], run_id=b"run", secret=secret)
    for key, layer, run_id in ((second, 0, b"run"), (first, 1, b"run"), (first, 0, b"ran")):
        with pytest.raises(ValueError, match="does not open"):
            key.open(sealed, layer=layer, run_id=run_id)
    assert repr(first).find(first.public.hex()) < 0


@pytest.mark.parametrize("marker", [membership._RECORD, membership._PADDING])
def test_a_tag_that_was_passed_on_twice_names_who_did(marker: bytes) -> None:
    plan = SimpleNamespace(everybody=clients(3))
    opened = [b"a" * 16 + membership._RECORD, b"b" * 16 + marker, b"b" * 16 + marker]
    with pytest.raises(PeerError, match="client 2 passed the same tag on twice") as caught:
        next(membership._publish(PartyId(3), opened, plan))
    assert caught.value.rank == 2
