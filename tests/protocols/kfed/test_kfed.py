"""k-FED: the parties against the reference, and what travels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fastlloyd.data.public.mixture import Mixture, make_mixture
from fastlloyd.errors import ConfigError, PeerError
from fastlloyd.kmeans.grid import GridPoints, quantise
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.protocols.kfed.client import client
from fastlloyd.protocols.kfed.messages import LocalCenters, MergedCenters
from fastlloyd.protocols.kfed.plan import Plan, PublicParameters, check_plan, make_plan
from fastlloyd.protocols.kfed.reference import reference
from fastlloyd.protocols.kfed.server import merge_centers, server
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.protocols.support import blobs


def public_for(n: int, k: int, **changes: Any) -> PublicParameters:
    return PublicParameters(**{"protocol": "kfed", "clients": 3, "k": k, "n_total": n, "seed": 0, **changes})


def plan_for(n: int, k: int, d: int, **changes: Any) -> Plan:
    return make_plan(public_for(n, k, **changes), d=d, names=tuple(f"x{h + 1}" for h in range(d)))


def split(points: np.ndarray, plan: Plan) -> list[GridPoints]:
    return [quantise(part, plan.fraction_bits) for part in np.array_split(points, plan.clients)]


def run(
    parts: list[GridPoints],
    plan: Plan,
    *,
    tap: Tap | None = None,
    stored: Mapping[int, StoredRounds] | None = None,
    fixed: Mapping[str, Any] | None = None,
):
    stored = stored or {}
    parties = {me: client(me, parts[me.rank - 1], plan, stored=stored.get(me.rank)) for me in clients(plan.clients)}
    simulation = Simulation({SERVER: server(plan, **(fixed or {})), **parties}, tap)
    return simulation, simulation.run()


@pytest.mark.parametrize("settings", [{}, {"local_k": 2}, {"local_k": 7, "restarts": 1}])
@pytest.mark.parametrize("m", [1, 3])
def test_parties_equal_the_reference(settings, m) -> None:
    points = blobs(240, 4, 3, seed=m)
    plan = plan_for(240, 4, 3, settings=settings, clients=m)
    parts = split(points, plan)
    _, results = run(parts, plan)
    expected = reference(parts, plan)
    assert np.abs(results[SERVER].centers - expected).max() < 1e-12
    for me in clients(m):
        assert (results[me].centers == results[SERVER].centers).all()
        grid = parts[me.rank - 1].raw_coordinates.T / 2.0**plan.fraction_bits
        nearest = ((grid[:, None] - expected[None]) ** 2).sum(axis=2).argmin(axis=1)
        assert (results[me].raw_labels == nearest).mean() > 0.99


@pytest.mark.parametrize("rows,d", [(300, 12), (75, 40)])
@pytest.mark.parametrize("spread", [0.05, 0.3])
def test_parties_project_and_start_as_the_reference(rows, d, spread) -> None:
    # More features than clusters, once with fewer records than features; with the larger spread some cores are empty.
    generator = np.random.default_rng(d)
    points = np.clip(
        generator.uniform(-0.6, 0.6, (4, d))[np.arange(rows) % 4] + generator.normal(0, spread, (rows, d)), -1, 1
    )
    plan = plan_for(rows, 4, d)
    parts = split(points, plan)
    _, results = run(parts, plan)
    assert np.abs(results[SERVER].centers - reference(parts, plan)).max() < 1e-9


def test_separated_clusters_are_found_from_clients_that_hold_few_of_them() -> None:
    mixture = Mixture(clients=12, points=150, d=20, k=9, variance=0.01, local=3)
    data = make_mixture(mixture, 4)
    scaled = (data.points - mixture.bounds.middle) / mixture.bounds.half_width
    means = (data.means - mixture.bounds.middle) / mixture.bounds.half_width
    plan = plan_for(mixture.n, 9, 20, clients=12, settings={"local_k": 3})
    _, results = run(split(scaled, plan), plan)
    distance = np.linalg.norm(means[:, None] - results[SERVER].centers[None], axis=2)
    assert sorted(distance.argmin(axis=1)) == list(range(9))
    assert distance.min(axis=1).max() < 0.1 * np.linalg.norm(means[0] - means[1])


def test_local_centres_reach_the_server_and_nobody_else_and_bytes_are_counted() -> None:
    points = blobs(90, 3, 2)
    plan = plan_for(90, 3, 2)
    seen: dict[int, set[tuple[int, int]]] = {}

    def tap(sender, receiver, header, body):
        seen.setdefault(header.type, set()).add((sender.rank, receiver.rank))
        return body

    simulation, _ = run(split(points, plan), plan, tap=tap)
    assert seen == {LocalCenters.TYPE: {(1, 0), (2, 0), (3, 0)}, MergedCenters.TYPE: {(0, 1), (0, 2), (0, 3)}}
    for me in clients(3):
        assert simulation.meters[me].sent[SERVER, 0].payload_bytes == 3 * 2 * 8
        assert simulation.meters[SERVER].sent[me, 0].payload_bytes == 3 * 2 * 8


def test_nothing_is_claimed() -> None:
    plan = plan_for(90, 3, 2)
    simulation, _ = run(split(blobs(90, 3, 2), plan), plan)
    for party in (SERVER, *clients(3)):
        assert tuple(simulation.releases[party]) == plan.all_releases()
    assert all(release.mechanism == "none" and release.noise_scale == 0 for release in plan.all_releases())
    assert not plan.private
    assert check_plan(plan, public_for(90, 3), d=2, names=plan.names) == math.inf


def test_a_client_that_is_late_costs_its_centres_only() -> None:
    points = blobs(120, 3, 2)
    plan = plan_for(120, 3, 2, min_clients=2)
    parts = split(points, plan)

    def tap(sender, receiver, header, body):
        return None if (sender.rank, header.type) == (2, LocalCenters.TYPE) else body

    _, results = run(parts, plan, tap=tap)
    assert results[SERVER].included == results[PartyId(2)].included == ((PartyId(1), PartyId(3)),)
    assert results[SERVER].late == {PartyId(2)}
    rest = dataclasses.replace(plan, clients=2)
    # The seed of a client's own clustering is bound to its rank: cluster as client 1 and 3 do.
    from fastlloyd.protocols.kfed.client import local_centers

    own = [local_centers(PartyId(rank), parts[rank - 1], rest) for rank in (1, 3)]
    assert (results[SERVER].centers == merge_centers(own, 3, 2)).all()
    with pytest.raises(PeerError, match="client 2"):
        run(parts, plan_for(120, 3, 2), tap=tap)


def test_resume_sends_what_was_sent() -> None:
    points = blobs(90, 3, 2)
    plan = plan_for(90, 3, 2)
    parts = split(points, plan)
    first, results = run(parts, plan)
    other = split(blobs(90, 3, 2, seed=9), plan)
    kept = {me.rank: StoredRounds({0: first.saved[me, "uplink-0"]}) for me in clients(3)}
    _, again = run(other, plan, stored=kept)
    assert (again[SERVER].centers == results[SERVER].centers).all()
    # Client 1 has the reply, the others do not; the server sends its stored one to those only.
    kept[1] = StoredRounds(replies={0: first.saved[PartyId(1), "reply-0"]})
    replies = {0: first.saved[SERVER, "reply-0"]}
    fixed = {"stored": StoredRounds(replies=replies, clients_done={PartyId(1): 1})}
    simulation, last = run(parts, plan, stored=kept, fixed=fixed)
    assert (last[PartyId(1)].centers == last[PartyId(3)].centers).all()
    assert (SERVER, 0) not in simulation.meters[PartyId(1)].received


def test_few_records_give_few_centres_and_still_k_in_the_end() -> None:
    points = np.array([[0.5, 0.5], [0.5, 0.5], [-0.5, 0.25]])
    plan = plan_for(3, 3, 2, settings={"local_k": 3})
    _, results = run(split(points, plan), plan)
    centers = results[SERVER].centers
    assert centers.shape == (3, 2)
    assert {tuple(row) for row in centers} == {(0.5, 0.5), (-0.5, 0.25)}


@given(
    st.integers(1, 4).flatmap(
        lambda k: st.tuples(
            st.just(k),
            st.lists(
                st.integers(0, 4).flatmap(
                    lambda rows: arrays(np.float64, (rows, 2), elements=st.sampled_from([-1, 0, 0.5, 1]))
                ),
                min_size=1,
                max_size=4,
            ),
        )
    )
)
def test_merged_centres_stay_among_the_local_ones(case) -> None:
    k, local = case
    merged = merge_centers(local, k, 2)
    assert merged.shape == (k, 2)
    every = np.concatenate([np.zeros((0, 2)), *local])
    if len(every):
        assert (merged >= every.min(axis=0)).all() and (merged <= every.max(axis=0)).all()
    else:
        assert (merged == 0).all()


@pytest.mark.parametrize(
    "type_,change",
    [
        (LocalCenters, lambda body: body[:-1]),
        (LocalCenters, lambda body: body + body),
        (LocalCenters, lambda body: np.full(6, 1.5).tobytes()),
        (LocalCenters, lambda body: np.full(6, np.nan).tobytes()),
        (MergedCenters, lambda body: body[:-8]),
        (MergedCenters, lambda body: b"\0" + body[1:]),
        (MergedCenters, lambda body: b"\xff" + body[1:]),
        (MergedCenters, lambda body: body[:1] + np.full(6, np.inf).tobytes()),
    ],
)
def test_malformed_messages_name_their_sender(type_, change) -> None:
    plan = plan_for(90, 3, 2)

    def tap(sender, receiver, header, body):
        return change(body) if header.type == type_.TYPE else body

    with pytest.raises(PeerError, match="malformed") as caught:
        run(split(blobs(90, 3, 2), plan), plan, tap=tap)
    assert caught.value.rank == (0 if type_ is MergedCenters else 1)


def test_centres_of_fewer_clients_than_agreed_are_refused() -> None:
    plan = plan_for(90, 3, 2)

    def tap(sender, receiver, header, body):
        return b"\x01" + body[1:] if header.type == MergedCenters.TYPE else body

    with pytest.raises(PeerError, match="centres of 1 clients, expected at least 3"):
        run(split(blobs(90, 3, 2), plan), plan, tap=tap)


@pytest.mark.parametrize(
    "change", [{"k": 4}, {"local_k": 9}, {"fraction_bits": 10}, {"names": ("a", "b")}, {"seed": 1}]
)
def test_a_client_refuses_a_plan_that_is_not_its_configuration(change) -> None:
    plan = plan_for(90, 3, 2)
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.raises(ValueError, match=next(iter(change))):
        check_plan(dataclasses.replace(plan, **change), public_for(90, 3), d=2, names=plan.names)
    with pytest.raises(ValueError, match="plan: expected the fields"):
        Plan.from_json({**plan.to_json(), "more": 1})


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"k": 0}, "--k"),
        ({"k": 91}, "--k"),
        ({"clients": 0}, "at least one client"),
        ({"min_clients": 4}, "--min-clients"),
        ({"settings": {"local_k": 0}}, "local_k"),
        ({"settings": {"local_k": "many"}}, "whole number"),
        ({"settings": {"restarts": 0}}, "restarts"),
        ({"settings": {"alpha": 1}}, "no setting 'alpha'"),
    ],
)
def test_wrong_public_parameters_are_refused_with_a_sentence(changes, text) -> None:
    with pytest.raises(ConfigError, match=text):
        public_for(90, changes.pop("k", 3), **changes)
