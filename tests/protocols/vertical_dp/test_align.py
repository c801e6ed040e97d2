"""Alignment of records: equal ids, private set intersection, and the parties' columns."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastlloyd.protocols.vertical_dp.messages as vertical_dp
import fastlloyd.protocols.vertical_he.messages as vertical_he
from fastlloyd.crypto.blinding import Blinding, hash_to_point
from fastlloyd.data.bounds import Bounds
from fastlloyd.data.vertical import PartyFeatures
from fastlloyd.errors import ConfigError, DataError, InternalError, PeerError, RangeError, Reason
from fastlloyd.lifecycle.align.columns import gather_columns, plan_columns, send_columns
from fastlloyd.lifecycle.align.ids import (
    ALIGNMENT,
    MOST_LISTED,
    BlindedIds,
    IdTag,
    OpenedIds,
    check_ids,
    digest_ids,
    intersect_ids,
    lists_ahead,
)
from fastlloyd.lifecycle.messages import setup_bounds
from fastlloyd.party.declaration import MOST_MESSAGE_BYTES, largest_bodies
from fastlloyd.party.effects import Send
from fastlloyd.protocols.vertical_dp.keys import set_up
from fastlloyd.protocols.vertical_dp.plan import make_plan as make_dp_plan
from fastlloyd.protocols.vertical_he.proposal import make_plan as make_he_plan
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inbox import Inbox
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import SERVER, SETUP_ROUND, Header, PartyId, clients
from tests.protocols.support import RUN_ID as RUN
from tests.protocols.support import fresh_pairs
from tests.protocols.vertical_dp.support import correlated, parameters, plan_for, split
from tests.protocols.vertical_he.support import parameters as he_parameters

MOST = 50
ONE, TWO = clients(2)


def compare(tables: Sequence[Sequence[str]], tap=None) -> Simulation:
    pairs = fresh_pairs(len(tables))
    simulation = Simulation({me: check_ids(tables[me.rank - 1], own, run_id=RUN) for me, own in pairs.items()}, tap)
    simulation.run()
    return simulation


def meet(tables: Sequence[Sequence[str]], tap=None, run=RUN) -> list[tuple[str, ...]]:
    parties = clients(len(tables))

    def one(me: PartyId):
        own = tables[me.rank - 1]
        return intersect_ids(me, parties, own, run_id=run, most=MOST, secret=SecretRandom())

    results = Simulation({me: one(me) for me in parties}, tap).run()
    return [results[me] for me in parties]


@pytest.mark.parametrize("m", [2, 3, 4])
def test_equal_ids_pass(m: int) -> None:
    compare([["a", "b", "ß"]] * m)


def test_a_mismatch_says_only_that_and_how_to_mend_it() -> None:
    with pytest.raises(DataError) as caught:
        compare([["anna", "bert"], ["anna", "carl"]])
    text = str(caught.value)
    assert "client 1 and client 2 do not hold the same ids" in text
    assert "vertical.align=intersect" in text
    assert not any(name in text for name in ("anna", "bert", "carl"))


def test_the_one_party_that_differs_is_told_apart() -> None:
    with pytest.raises(DataError, match="client 1 and client 3 do not hold"):
        compare([["a"], ["a"], ["b"]])


@given(st.lists(st.text(max_size=4), max_size=4), st.lists(st.text(max_size=4), max_size=4))
@settings(max_examples=60, deadline=None)
def test_digests_are_equal_for_equal_lists_only(first: list[str], second: list[str]) -> None:
    first, second = sorted(set(first)), sorted(set(second))
    assert (digest_ids(first) == digest_ids(second)) == (first == second)


def test_unsorted_ids_are_a_bug() -> None:
    with pytest.raises(InternalError):
        digest_ids(["b", "a"])


def test_tags_differ_between_pairs_runs_and_directions() -> None:
    tags: list[bytes] = []

    def tap(sender, receiver, header, body):
        if header.type == IdTag.TYPE:
            tags.append(body)
        return body

    for _ in range(2):
        compare([["a", "b"]] * 3, tap)
    assert len(tags) == 12 and len(set(tags)) == 12


NAMES = [f"person {i}" for i in range(12)]


@given(st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=2, max_size=4))
@settings(max_examples=25, deadline=None)
def test_the_intersection_is_found_by_all(sets: list[set[str]]) -> None:
    common = tuple(sorted(set.intersection(*sets)))
    tables = [sorted(own) for own in sets]
    if common:
        assert meet(tables) == [common] * len(sets)
    else:
        with pytest.raises(DataError, match="no id is common"):
            meet(tables)


@pytest.mark.parametrize("m", [2, 3])
def test_what_travels_are_fresh_points_in_sorted_order(m: int) -> None:
    seen: list[bytes] = []
    opened: list[bytes] = []

    def tap(sender, receiver, header, body):
        assert receiver != SERVER
        points = [body[i : i + 32] for i in range(0, len(body), 32)]
        assert points == sorted(points)
        (opened if header.type == OpenedIds.TYPE else seen).extend(points)
        return body

    tables = [NAMES[i : i + 8] for i in range(m)]
    meet(tables, tap)
    hashed = {hash_to_point(name, RUN) for name in NAMES}
    common = {hash_to_point(name, RUN) for name in NAMES[m - 1 : 8]}
    assert not hashed & set(seen)
    assert common <= set(opened) and len(opened) == (m - 1) * MOST
    before = set(seen)
    seen.clear()
    meet(tables, tap)
    assert not before & set(seen)


def test_a_point_off_the_curve_names_its_sender() -> None:
    off = next(bytes([i]) * 32 for i in range(1, 200) if not _on_curve(bytes([i]) * 32))

    def tap(sender, receiver, header, body):
        return off + body[32:] if sender == PartyId(2) and header.type == BlindedIds.TYPE else body

    with pytest.raises(PeerError, match="client 2 sent a blinded id that is not a point") as caught:
        meet([["a"], ["a"]], tap)
    assert caught.value.rank == 2


@pytest.mark.parametrize(
    ("m", "liar", "nth"), [(2, 1, 1), (2, 2, 1), (2, 2, 2), (3, 1, 1), (3, 2, 1), (3, 3, 1), (3, 3, 2)]
)
def test_a_list_that_is_sent_again_in_place_of_the_next_one_names_its_sender(m: int, liar: int, nth: int) -> None:
    """Each list to the next party in the ring, in whatever order its points are."""
    sent: list[bytes] = []
    receiver = liar % m + 1

    def tap(sender, to, header, body):
        if (sender.rank, to.rank) != (liar, receiver) or header.type not in {BlindedIds.TYPE, OpenedIds.TYPE}:
            return body
        sent.append(body)
        again = sent[0] if len(sent) == nth + 1 else body
        return b"".join(sorted((again[i : i + 32] for i in range(0, len(again), 32)), reverse=True))

    with pytest.raises(PeerError, match=f"client {liar} sent a list of ids again") as caught:
        meet([NAMES[i : i + 8] for i in range(m)], tap)
    assert caught.value.rank == liar


@pytest.mark.parametrize("m", [2, 3, 4])
def test_the_same_ids_at_all_parties_without_padding_are_no_list_again(m: int) -> None:
    names = tuple(sorted(f"person {i}" for i in range(MOST)))
    assert meet([names] * m) == [names] * m


def test_nobody_is_named_for_a_list_that_the_one_before_it_made() -> None:
    """A party that gets another's own ids, not blinded, names the one that sent them, and not the next one names it."""
    names = sorted(f"person {i}" for i in range(MOST))  # no padding
    body = b"".join(sorted(hash_to_point(name, RUN) for name in names))
    first: list[PartyId] = []

    def tap(sender, to, header, sent):
        if (sender.rank, to.rank) == (1, 2) and not first:
            first.append(sender)
            return body
        return sent

    with pytest.raises(PeerError, match="client 1 sent a list of ids again, or this party's own") as caught:
        meet([names] * 3, tap)
    assert caught.value.rank == 1


def _on_curve(point: bytes) -> bool:
    try:
        Blinding(SecretRandom()).blind([point])
    except ValueError:
        return False
    return True


def test_what_travels_does_not_tell_how_many_ids_there_are() -> None:
    def lengths(tables: Sequence[Sequence[str]]) -> list[tuple[int, int, int]]:
        seen: list[tuple[int, int, int]] = []

        def tap(sender, receiver, header, body):
            seen.append((sender.rank, receiver.rank, len(body)))
            return body

        meet(tables, tap)
        return seen

    assert lengths([NAMES[:8], NAMES[3:]]) == lengths([NAMES[:2], NAMES[1:]])
    with pytest.raises(DataError, match="51 ids, expected at most the public N = 50"):
        meet([[f"{i:02d}" for i in range(51)], ["00"]])


@pytest.mark.parametrize(("common", "length"), [(1, 4), (4, 4), (5, 8), (12, 12)])
def test_with_a_step_common_ids_are_as_many_as_its_next_multiple_and_all_other_lists_have_n_points(
    common: int, length: int
) -> None:
    seen: list[tuple[PartyId, type, int]] = []

    def tap(sender, receiver, header, body):
        seen.append((sender, header.type, len(body) // 32))
        return body

    most, parties = 30, clients(3)
    tables = [sorted([*NAMES[:common], f"of {me}"]) for me in parties]
    roles = {
        me: intersect_ids(me, parties, own, run_id=RUN, most=most, step=4, secret=SecretRandom())
        for me, own in zip(parties, tables, strict=True)
    }
    assert set(Simulation(roles, tap).run().values()) == {tuple(sorted(NAMES[:common]))}
    lists, opened = seen[:8], seen[8:]  # two rounds of the ring, and two to the first party; then what is unblinded
    assert {(kind, size) for _, kind, size in lists} == {(BlindedIds.TYPE, most)}
    assert [size for _, _, size in opened] == [length] * 4


@pytest.mark.parametrize(("count", "fits"), [(4, True), (8, True), (10, True), (0, False), (3, False), (12, False)])
def test_a_list_of_common_ids_has_a_multiple_of_the_step_or_the_most(count: int, fits: bool) -> None:
    body = b"".join(bytes([i]) * 32 for i in range(count))
    if fits:
        assert len(BlindedIds.read(body, (4, 10)).points) == count
    else:
        with pytest.raises(ValueError, match="expected 10, or a smaller multiple of 4, points of 32 bytes"):
            BlindedIds.read(body, (4, 10))


def test_an_n_whose_lists_no_message_carries_is_refused_beforehand() -> None:
    for protocol in ("vertical-dp", "vertical-he"):
        config = RunConfig(protocol=protocol, n_total=1_000_000_000, k=3, settings={"vertical": {"align": "intersect"}})
        sentence = "--n-total: expected at most 33,423,360 with vertical.align = intersect, got 1,000,000,000"
        with pytest.raises(ConfigError, match=sentence):
            find_protocol(protocol).planned(config, 1, 2)
        with pytest.raises(ConfigError, match=sentence):
            find_protocol(protocol).gather(dataclasses.replace(config, data="own_{client}.csv", bounds="0,1"), 1)
    assert BlindedIds.MOST_BYTES.count(SimpleNamespace(n_total=MOST_LISTED)) <= MOST_MESSAGE_BYTES


@pytest.mark.parametrize("body", [bytes(31), bytes(64), b"".join(bytes([i]) * 32 for i in range(4))])
def test_malformed_lists_of_points_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        BlindedIds.read(body, 3)


def test_blinding_commutes_and_can_be_undone() -> None:
    one, two = Blinding(SecretRandom()), Blinding(SecretRandom())
    points = [hash_to_point(name, RUN) for name in NAMES]
    both = two.blind(one.blind(points))
    assert both == one.blind(two.blind(points))
    assert two.unblind(one.unblind(both)) == points
    assert hash_to_point("a", b"1") != hash_to_point("a", b"2")


def test_a_blinding_key_is_neither_shown_nor_stored() -> None:
    blinding = Blinding(SecretRandom())
    assert repr(blinding) == "Blinding()"
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copied(blinding)


def _features(*names: str) -> PartyFeatures:
    lo = np.arange(len(names), dtype=np.float64)
    return PartyFeatures(names=names, bounds=Bounds(lo, lo + 2.5, names))


def _tell(features: Sequence[PartyFeatures], tap=None):
    parties = clients(len(features))
    told = {me: send_columns(features[me.rank - 1]) for me in parties}
    return Simulation({SERVER: gather_columns(parties), **told}, tap).run()[SERVER]


def test_the_server_learns_names_and_bounds() -> None:
    got = _tell([_features("a", "b"), _features("c")])
    assert [own.names for own in got] == [("a", "b"), ("c",)]
    assert got[0].bounds.lo.tolist() == [0.0, 1.0] and got[0].bounds.hi.tolist() == [2.5, 3.5]


def test_columns_called_alike_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"clients 1 and 3 both have a feature 'a'"):
        _tell([_features("a"), _features("b"), _features("a")])


@pytest.mark.parametrize(
    "body",
    [b'{"names":["a"],"lo":[1],"hi":[0]}', b'{"names":["a"],"lo":["x"],"hi":[0]}', b'{"names":[],"lo":[],"hi":[]}',
     b'{"names":["a"],"lo":[0,1],"hi":[1,2]}'],
)  # fmt: skip
def test_columns_that_do_not_fit_name_their_sender(body: bytes) -> None:
    with pytest.raises(PeerError, match="client 1 (sent columns that do not fit|sent a malformed Columns: (lo|names))"):
        _tell([_features("a"), _features("b")], lambda s, r, h, b: body if s == PartyId(1) else b)


def _many(count: int, start: str) -> PartyFeatures:
    return _features(*(f"{start}{i}" for i in range(count)))


@pytest.mark.parametrize("protocol", ["vertical-dp", "vertical-plain", "vertical-he"])
def test_who_announces_columns_that_no_plan_has_room_for_is_named(protocol: str) -> None:
    def make(features: Sequence[PartyFeatures]) -> object:
        if protocol == "vertical-he":
            own = he_parameters(200, 2, parties=3)
            return make_he_plan(dataclasses.replace(own, epsilon=4.0), [each.names for each in features[:2]])
        public = parameters(200, 2, clients=len(features), protocol=protocol)
        return make_dp_plan(public, features, tight=False)

    honest, wide = _features("a", "b"), _many(30_000, "c")
    assert plan_columns(clients(2), [honest, _many(2, "c")], make)
    with pytest.raises(PeerError, match="^client 2 announced 30,000 columns, for which there is no plan: ") as caught:
        plan_columns(clients(2), [honest, wide], make)
    assert (caught.value.rank, caught.value.reason) == (2, Reason.CONFIG_MISMATCH)


def test_a_configuration_that_has_no_plan_for_any_columns_names_nobody() -> None:
    def never(features: Sequence[PartyFeatures]) -> None:
        raise ConfigError("epsilon is too small")

    def narrow(features: Sequence[PartyFeatures]) -> bool:
        if any(len(own.names) > 2 for own in features):
            raise RangeError("too many")
        return True

    with pytest.raises(ConfigError, match="^epsilon is too small$"):
        plan_columns(clients(2), [_many(9, "a"), _features("b")], never)
    # The server's own columns, which come first, are the widest.
    with pytest.raises(RangeError, match="^too many$"):
        plan_columns(clients(1), [_many(9, "a"), _many(3, "b")], narrow)


def test_an_alignment_that_there_is_not_is_refused() -> None:
    plan = plan_for(split(correlated(20, 2), 2), 2)
    party = set_up(PartyId(1), plan, ["a"], align="guess", run_id=bytes(16), context=b"", secret=SecretRandom())
    with pytest.raises(ConfigError, match="expected 'check' or 'intersect', got 'guess'"):
        next(party)


def most_waiting(parties: int, slow: PartyId) -> int:
    """How many lists one party has sent to a slow one that has not begun, when no other can go on."""
    others = [me for me in clients(parties) if me != slow]
    roles = {me: intersect_ids(me, clients(parties), ["a"], run_id=RUN, most=3, secret=SecretRandom()) for me in others}
    waiting: dict[tuple[PartyId, PartyId], list[object]] = {}
    wanted: dict[PartyId, PartyId] = {}

    def go_on(me: PartyId, answer: object = None) -> None:
        while isinstance(effect := roles[me].send(answer), Send):
            answer = None
            for peer in effect.to:
                waiting.setdefault((me, peer), []).append(effect.message)
        wanted[me] = effect.sender

    for me in others:
        go_on(me)
    while ready := [me for me in others if waiting.get((wanted[me], me))]:
        go_on(ready[0], waiting[wanted[ready[0]], ready[0]].pop(0))
    return max(len(lists) for (_, receiver), lists in waiting.items() if receiver == slow)


@pytest.mark.parametrize("parties", [3, 5, 8])
def test_a_slow_party_takes_all_that_honest_ones_send_ahead(parties: int) -> None:
    most = max(most_waiting(parties, slow) for slow in clients(parties))
    assert most == parties - 1
    records = 100_000
    many = SimpleNamespace(n_total=records, clients=parties)
    inbox = Inbox(setup_bounds(ONE, largest_bodies(ALIGNMENT, many), lists_ahead(parties, records)))
    for _ in range(most):
        inbox.put(TWO, Header(BlindedIds.TYPE, SETUP_ROUND), bytes(32 * records))
    with pytest.raises(PeerError, match="ahead of time"):
        for _ in range(most):
            inbox.put(TWO, Header(BlindedIds.TYPE, SETUP_ROUND), bytes(32 * records))


def test_both_protocols_let_that_much_wait() -> None:
    parties = 5
    columns = correlated(60, parties)
    plan = dataclasses.replace(plan_for(split(columns, parties), parties), n_total=100_000)
    run = SimpleNamespace(n_total=4_000_000, parties=parties)
    assert vertical_dp.bounds(plan).ahead_bytes >= (parties - 1) * 32 * plan.n_total
    assert setup_bounds(ONE, *vertical_he.early(run)).ahead_bytes >= (parties - 1) * 32 * run.n_total
