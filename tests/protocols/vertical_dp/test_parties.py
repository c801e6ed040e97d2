"""The parties of vertical-dp: equal to the reference, and what the server sees."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastlloyd.errors import DataError, InternalError, PeerError
from fastlloyd.lifecycle.align.columns import Columns
from fastlloyd.lifecycle.align.ids import IdTag
from fastlloyd.lifecycle.closing import Counters
from fastlloyd.lifecycle.hello import Ready
from fastlloyd.lifecycle.shared_secrets import PairPublicKey, SeedConfirmation, SeedContribution
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocols.vertical_dp.client import client, prepare
from fastlloyd.protocols.vertical_dp.keys import GroupKeys, derive_keys, set_up
from fastlloyd.protocols.vertical_dp.messages import (
    FinalResult,
    Synopsis,
    SynopsisFormat,
    synopsis_format,
)
from fastlloyd.protocols.vertical_dp.protocol import PROTOCOL
from fastlloyd.protocols.vertical_dp.reference import reference
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.config import RunConfig
from fastlloyd.run.simulation import Simulation, run_together
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.protocols.support import RUN_ID
from tests.protocols.vertical_dp.support import (
    Replay,
    correlated,
    keys_of,
    plan_for,
    run,
    sketch_keys,
    split,
)

SMALL: dict[str, Any] = {"rows": 24, "local_clusters": 3}


@pytest.mark.parametrize(
    "parties,epsilon,settings",
    [
        (2, 20.0, {}),
        (2, 20.0, {"local": "lloyd"}),
        # Where inclusion and exclusion shall leave weight in several cells, it takes more rows and less noise.
        (2, 60.0, {"local": "box-tree", "estimator": "basic", "rows": 64}),
        (3, 20.0, {"fit": "paper"}),
        (3, 60.0, {"weights": "basic", "composition": "paper", "rows": 64}),
        (4, 20.0, {}),
    ],
)
def test_parties_equal_the_reference(parties: int, epsilon: float, settings: dict) -> None:
    points = correlated(150, 4, seed=parties)
    points[:2] = 0.0  # on the border between the first halves
    columns = split(points, parties)
    plan = plan_for(columns, 3, epsilon=epsilon, settings={**SMALL, **settings, "share_result": True})
    keys = sketch_keys(plan)
    synopses: dict[int, bytes] = {}

    def tap(sender, receiver, header, body):
        if header.type == Synopsis.TYPE:
            synopses[sender.rank - 1] = body
        return body

    got = run(columns, plan, keys=keys, secrets=[Replay(i) for i in range(parties)], tap=tap)
    expected = reference(columns, plan, keys, [Replay(i) for i in range(parties)])
    # What the parties send is the same bit by bit: integers, and floats that are multiples of powers of two.
    for place, body in synopses.items():
        form = synopsis_format(plan, place)
        message = Synopsis.read(body, form)
        assert (message.centers(form) == expected.noisy_centers[place]).all()
        assert not form.with_total or message.noisy_total(form) == expected.noisy_total
        own = [found[group.index(place)] for group, found in expected.sketches.items() if place in group]
        assert [sketch.tolist() for sketch in message.sketches(form)] == [sketch.tolist() for sketch in own]
    # What the server makes of it is added up in another order, and by other ways to the same root: 1e-15 seen.
    table = np.zeros_like(expected.table)
    table[tuple(got.server.cells.places.T)] = got.server.cells.weights
    assert len(got.server.cells.weights) >= 4
    assert np.abs(table - expected.table).max() < 1e-9 * got.server.noisy_total
    assert np.abs(got.server.centers - expected.centers).max() < 1e-9
    assert np.abs(got.server.weights - expected.weights).max() < 1e-9 * got.server.noisy_total
    for result in got.clients.values():
        assert result is not None and result.spread is not None and got.server.spread is not None
        assert (result.centers == got.server.centers).all()
        assert (result.weights == got.server.weights).all()
        assert (result.spread.centers == got.server.spread.centers).all()
        assert (result.spread.unsettled == got.server.spread.unsettled).all()
        assert (result.spread.weights == got.server.spread.weights).all()


@pytest.mark.parametrize("parties,settings", [(2, {}), (3, {"weights": "basic"}), (4, {})])
def test_the_server_sees_centres_and_sketches_and_nothing_else(parties: int, settings: dict) -> None:
    columns = split(correlated(120, 4), parties)
    plan = plan_for(columns, 3, settings={**SMALL, **settings})
    to_server: list[tuple[int, int, int]] = []

    def tap(sender, receiver, header, body):
        if receiver == SERVER:
            to_server.append((sender.rank, header.type, len(body)))
        return body

    result = run(columns, plan, tap=tap)
    forms = [synopsis_format(plan, place) for place in range(parties)]
    sent = [entry for entry in to_server if entry[1] != Ready.TYPE]
    assert sent == [(place + 1, Synopsis.TYPE, forms[place].fixed_bytes) for place in range(parties)]
    assert {length for _, kind, length in to_server if kind == Ready.TYPE} == {2}
    # Every byte of the message is a centre, the noisy number of users, or a level of a sketch.
    for place, form in enumerate(forms):
        assert form.with_total == (place == 0)
        assert form.sketches == sum(place in group for group in plan.key_groups)
    assert all(found is None for found in result.clients.values())
    assert not result.simulation.saved


@pytest.mark.parametrize("weights", ["2pest", "basic"])
@pytest.mark.parametrize("align", ["check", "intersect"])
def test_the_parties_compare_ids_and_agree_on_keys_among_themselves(weights: str, align: str) -> None:
    among: set[int] = set()
    to_server: dict[tuple[int, int], list[bytes]] = {}

    def tap(sender, receiver, header, body):
        if SERVER not in (sender, receiver):
            among.add(header.type)
        elif receiver == SERVER:
            to_server.setdefault((header.type, sender.rank), []).append(body)
        return body

    settings = {"vertical-dp": {**SMALL, "weights": weights}, "vertical": {"align": align}}
    run_together(
        RunConfig(protocol="vertical-dp", dataset="vertical-mixture:n=60,d=3,k=3", k=3, settings=settings), 3, tap=tap
    )
    # In set-up the server gets names and bounds of columns, which are public, and a sign that all is ready.
    for party in (1, 2, 3):
        assert to_server.pop((Columns.TYPE, party)) == [Columns((f"x{party}",), (-1.0,), (1.0,)).body()]
        assert to_server.pop((Ready.TYPE, party)) == [Ready().body()]
    assert {entry: len(bodies) for entry, bodies in to_server.items()} == dict.fromkeys(
        ((kind, party) for kind in (Synopsis.TYPE, Counters.TYPE) for party in (1, 2, 3)), 1
    )
    assert {PairPublicKey.TYPE, SeedConfirmation.TYPE, IdTag.TYPE} <= among
    assert Synopsis.TYPE not in among
    assert (SeedContribution.TYPE in among) == (weights == "basic")


def test_equal_runs_share_no_key_and_no_noise() -> None:
    columns = split(correlated(200, 2), 2)
    plan = plan_for(columns, 3, settings=SMALL)
    bodies: list[bytes] = []

    def tap(sender, receiver, header, body):
        if header.type == Synopsis.TYPE:
            bodies.append(body)
        return body

    for _ in range(4):
        first, second = _keys_after_set_up(2)
        assert first == second
        run(columns, plan, keys=first, tap=tap)
    assert len(set(bodies)) == 8
    form = synopsis_format(plan, 0)
    messages = [Synopsis.read(body, form) for body in bodies[::2]]
    first, second = messages[:2]
    # Multiples of 2^-8 with Laplace noise of scale 1 or more: two are equal with a chance below 1e-3, four below 1e-9.
    assert plan.total_scale >= 1.0
    assert len({message.noisy_total(form) for message in messages}) > 1
    assert (first.centers(form) != second.centers(form)).any()
    assert (first.sketches(form)[0] != second.sketches(form)[0]).mean() > 0.5


def test_every_party_records_the_whole_claim_before_it_sends() -> None:
    columns = split(correlated(120, 4), 3)
    plan = plan_for(columns, 3, settings=SMALL)
    seen: dict[int, int] = {}
    simulation: list[Simulation] = []

    def tap(sender, receiver, header, body):
        if header.type == Synopsis.TYPE:
            seen[sender.rank] = len(simulation[0].releases[sender])
        return body

    from fastlloyd.protocols.vertical_dp.server import await_prepared, server

    keys = sketch_keys(plan)

    def one(me: PartyId):
        own = keys_of(plan, keys, me.rank - 1)
        prepared = yield from prepare(me, columns[me.rank - 1], plan, own, secret=SecretRandom())
        # Nobody sends before all have recorded: a party lost now leaves no ledger behind the others'.
        recorded.append([len(simulation[0].releases[party]) for party in clients(3)])
        return (yield from client(prepared, plan))

    def serve():
        yield from await_prepared(plan)
        return (yield from server(plan))

    recorded: list[list[int]] = []
    simulation.append(Simulation({SERVER: serve(), **{me: one(me) for me in clients(3)}}, tap))
    simulation[0].run()
    expected = list(plan.all_releases())
    assert seen == dict.fromkeys((1, 2, 3), len(expected))
    assert recorded == [[len(expected)] * 3] * 3
    for me in clients(3):
        assert simulation[0].releases[me] == expected
        assert 0.995 * plan.epsilon <= spent(simulation[0].releases[me], plan.delta) <= plan.epsilon


def test_keys_are_erased_before_anything_leaves() -> None:
    columns = split(correlated(60, 2), 2)
    plan = plan_for(columns, 2, settings=SMALL)
    keys = keys_of(plan, sketch_keys(plan), 0)
    assert "01" not in repr(keys) and "\\x" not in repr(keys)
    party = prepare(PartyId(1), columns[0], plan, keys, secret=SecretRandom())
    assert keys.of((0, 1)) == bytes([1]) * 32
    next(party)  # Record
    assert all(not any(key) for key in keys.keys.values())
    with pytest.raises(InternalError, match="erased"):
        keys.of((0, 1))


def test_keys_are_erased_when_the_run_ends_early() -> None:
    columns = split(correlated(60, 2), 2)
    plan = plan_for(columns, 2, settings=SMALL)
    keys = keys_of(plan, sketch_keys(plan), 0)
    party = prepare(PartyId(1), columns[0], plan, keys, secret=SecretRandom())
    next(party)
    party.close()
    assert all(not any(key) for key in keys.keys.values())


def test_a_key_belongs_to_its_group() -> None:
    with pytest.raises(InternalError):
        GroupKeys({(0, 1): bytearray(b"x" * 32)}).of((0, 2))


def _keys_after_set_up(parties: int, **settings) -> list[dict]:
    columns = split(correlated(30, parties), parties)
    plan = plan_for(columns, 2, settings={**SMALL, **settings})

    def one(me: PartyId):
        ids = [f"{i:02d}" for i in range(30)]
        return set_up(me, plan, ids, align="check", run_id=RUN_ID, context=b"", secret=SecretRandom())

    results = Simulation({me: one(me) for me in clients(parties)}).run()
    return [{group: bytes(key) for group, key in results[me].keys.keys.items()} for me in clients(parties)]


@pytest.mark.parametrize("parties,settings,groups", [(2, {}, 1), (4, {}, 6), (3, {"weights": "basic"}, 1)])
def test_a_group_shares_one_key_that_nobody_else_has(parties: int, settings: dict, groups: int) -> None:
    own, again = _keys_after_set_up(parties, **settings), _keys_after_set_up(parties, **settings)
    found: dict = {}
    for place, keys in enumerate(own):
        for group, key in keys.items():
            assert place in group
            assert found.setdefault(group, key) == key
    assert len(found) == groups == len(set(found.values()))
    assert not set(found.values()) & {key for keys in again for key in keys.values()}


@pytest.mark.parametrize("align", ["intersect", "check"])
def test_alignment_by_intersection_feeds_the_common_records_in(align: str) -> None:
    settings = {"vertical-dp": {**SMALL, "local_clusters": 4}, "vertical": {"align": align}}
    chosen = RunConfig(
        protocol="vertical-dp", dataset="vertical-mixture:n=240,d=2,k=3", k=3, epsilon=60.0, settings=settings
    )
    chosen, common = PROTOCOL.gather(chosen, 2)
    owned = {}
    for me, kept in zip(clients(2), (slice(220), slice(20, None)), strict=True):
        own = PROTOCOL.load(chosen, common, me)
        owned[me] = dataclasses.replace(own, table=own.table.restrict(own.table.raw_ids[kept]))
    if align == "check":
        with pytest.raises(DataError, match="do not hold the same ids"):
            run_together(chosen, 2, inputs=common, owned=owned)
        return
    result = run_together(chosen, 2, inputs=common, owned=owned).outcomes[SERVER].result
    # 200 common users, 220 at each; Laplace noise of scale below 0.8 exceeds 12 with a chance below 1e-6.
    assert result is not None and result.noisy_sizes is not None
    assert result.common["parameters"]["total_scale"] < 0.8
    assert abs(sum(result.noisy_sizes) - 200) < 12


def test_too_many_users_are_refused_before_anything_leaves() -> None:
    columns = split(correlated(60, 2), 2)
    plan = plan_for([own[:40] for own in columns], 2, settings=SMALL)
    with pytest.raises(DataError, match=r"60 records, expected at most the public N = 40"):
        run(columns, plan, keys=sketch_keys(plan))


def test_without_a_party_nothing_is_computed() -> None:
    columns = split(correlated(60, 3), 3)
    plan = plan_for(columns, 2, settings=SMALL)
    with pytest.raises(PeerError, match="client 2"):
        run(columns, plan, keys=sketch_keys(plan), absent=(PartyId(2),))


def test_plain_counts_the_grid_exactly() -> None:
    points = correlated(400, 4, k=3)
    columns = split(points, 2)
    plan = plan_for(columns, 3, protocol="vertical-plain", settings={"local_clusters": 4})
    assert not plan.private and "not private" in plan.note and plan.key_groups == ()
    result = run(columns, plan)
    assert result.server.noisy_total == 400 and result.server.cells.weights.sum() == 400
    labels = []
    for own, centers in zip(columns, result.server.local_centers, strict=True):
        labels.append(((own[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1))
    for place, weight in zip(result.server.cells.places, result.server.cells.weights, strict=True):
        assert ((labels[0] == place[0]) & (labels[1] == place[1])).sum() == weight
    assert spent(result.simulation.releases[PartyId(1)], plan.delta) == float("inf")


@pytest.mark.parametrize("weights", ["2pest", "basic"])
def test_the_papers_variant_runs_with_one_sketch_per_party(weights: str) -> None:
    columns = split(correlated(600, 3, k=3), 3)
    settings = {"rows": 64, "local_clusters": 3, "phantoms": "paper", "fit": "paper", "weights": weights}
    plan = plan_for(columns, 3, epsilon=60.0, settings={**settings, "share_result": True})
    assert [synopsis_format(plan, place).sketches for place in range(3)] == [1, 1, 1]
    result = run(columns, plan)
    assert result.server.cells.weights.sum() == pytest.approx(result.server.noisy_total)
    assert spent(result.simulation.releases[PartyId(1)], plan.delta) == float("inf")
    shared = result.clients[PartyId(2)]
    assert shared is not None and (shared.centers == result.server.centers).all()


def test_plain_parties_with_other_numbers_of_users_are_refused() -> None:
    columns = split(correlated(40, 2), 2)
    plan = plan_for(columns, 2, protocol="vertical-plain")
    with pytest.raises(PeerError, match="client 1 sent local clusters of 40 users and client 2 of 30, "):
        run([columns[0], columns[1][:30]], plan, keys={})


def _form(**changes) -> SynopsisFormat:
    columns = split(correlated(60, 3), 2)
    plan = plan_for(columns, 2, settings=SMALL)
    return synopsis_format(plan, 0)


def _good(form: SynopsisFormat) -> bytes:
    assert form.shape is not None
    sketch = np.full((form.shape.rows, form.clusters), form.shape.floor)
    centers = np.zeros((form.clusters, form.d), dtype=np.int64)
    return Synopsis.write(centers, form, noisy_total=-1.5, sketches=(sketch,)).data


def test_a_synopsis_comes_back_as_it_was() -> None:
    form = _form()
    message = Synopsis.read(_good(form), form)
    assert message.noisy_total(form) == -1.5 and not message.centers(form).any()
    assert message.payload_bytes == len(message.data) == form.fixed_bytes


@pytest.mark.parametrize("damage", ["short", "long", "center", "level"])
def test_malformed_synopses_are_refused(damage: str) -> None:
    form = _form()
    body = bytearray(_good(form))
    if damage == "short":
        del body[-1]
    elif damage == "long":
        body.append(0)
    elif damage == "center":
        body[:4] = (65537).to_bytes(4, "little")
    else:
        body[-12:] = b"\xff" * 12
    with pytest.raises(ValueError):
        Synopsis.read(bytes(body), form)


def test_a_label_beyond_the_last_cluster_is_refused() -> None:
    columns = split(correlated(40, 2), 2)
    form = synopsis_format(plan_for(columns, 2, protocol="vertical-plain"), 0)
    message = Synopsis.write(np.zeros((2, 1), dtype=np.int64), form, plain_labels=np.array([0, 1, 2]))
    with pytest.raises(ValueError, match="beyond 1"):
        Synopsis.read(message.data, form)
    with pytest.raises(ValueError):
        Synopsis.read(message.data[:-3] + bytes(41), form)


# Two centre coordinates, a weight, and how far off these may be: twice two numbers, and one.
FINE = [0.0, 1.0, 5.0, 0.0, 0.1, 0.0, 3.0, 0.5]


@pytest.mark.parametrize(
    ("shared", "place", "value"),
    [(False, 0, 0.0), (True, 0, 1.5), (True, 2, -1.0), (True, 2, 11.0), (True, 3, -0.1), (True, 5, np.inf)]
    + [(True, place, np.nan) for place in range(8)],
)
def test_a_malformed_result_is_refused(shared: bool, place: int, value: float) -> None:
    form: Any = SimpleNamespace(k=1, d=2, n_total=10, share_result=True, protocol="vertical-dp")
    body = np.array(FINE)
    read = FinalResult.read(body.tobytes(), form).result(form)
    assert read is not None and np.array_equal(FinalResult.write(read).data, body.tobytes())
    body[place] = value
    with pytest.raises(ValueError):
        FinalResult.read(body.tobytes(), SimpleNamespace(**{**vars(form), "share_result": shared}))
    with pytest.raises(ValueError, match="expected 64 bytes"):
        FinalResult.read(body[:-1].tobytes(), form)


def test_a_malformed_synopsis_names_its_sender() -> None:
    columns = split(correlated(60, 2), 2)
    plan = plan_for(columns, 2, settings=SMALL)
    with pytest.raises(PeerError, match="client 2 sent a malformed Synopsis"):
        run(
            columns,
            plan,
            keys=sketch_keys(plan),
            tap=lambda s, r, h, b: b[:-1] if s == PartyId(2) and h.type == Synopsis.TYPE else b,
        )


@pytest.mark.parametrize("parties", [2, 3])
def test_plain_labels_of_fewer_users_name_their_sender(parties: int) -> None:
    columns = split(correlated(60, parties), parties)
    plan = plan_for(columns, 2, protocol="vertical-plain")
    for sender in clients(parties):
        for less in (1, 60):
            with pytest.raises(PeerError, match=f"{sender} sent a malformed Synopsis: expected the local"):
                run(columns, plan, tap=lambda s, r, h, b: b[:-less] if s == sender and h.type == Synopsis.TYPE else b)


def test_of_three_plain_parties_the_one_with_other_users_is_named() -> None:
    columns = split(correlated(60, 3), 3)
    plan = plan_for(columns, 2, protocol="vertical-plain")
    with pytest.raises(PeerError, match="client 1 sent local clusters of 59 users, expected 60 as the others did"):
        run([columns[0][:59], *columns[1:]], plan, keys={})


def test_derived_keys_differ_between_runs() -> None:
    from fastlloyd.masking.pairwise import PairSecrets

    plan = plan_for(split(correlated(30, 2), 2), 2, settings=SMALL)
    pairs = PairSecrets(PartyId(1), {PartyId(2): b"s" * 32})
    one = derive_keys(plan, pairs, b"", run_id=b"1").of((0, 1))
    assert one != derive_keys(plan, pairs, b"", run_id=b"2").of((0, 1)) and one != b"s" * 32


def test_a_party_derives_no_key_of_a_group_that_it_is_not_in() -> None:
    from fastlloyd.masking.pairwise import PairSecrets

    plan = plan_for(split(correlated(30, 3), 3), 2, settings=SMALL)
    pairs = PairSecrets(PartyId(2), {PartyId(1): b"a" * 32, PartyId(3): b"c" * 32})
    keys = derive_keys(plan, pairs, b"s" * 32, run_id=b"1").keys
    assert set(keys) == {group for group in plan.key_groups if 1 in group} != set(plan.key_groups)
