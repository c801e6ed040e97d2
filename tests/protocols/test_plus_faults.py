"""fastlloyd-plus when things go wrong: clients that miss rounds, resumed runs, and sums near the edge of the ring."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastlloyd.errors import PeerError, RangeError
from fastlloyd.kmeans.grid import quantise
from fastlloyd.lifecycle.masked_sums import MaskedUpdate
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.plus import first_state, radius, scaled_update
from fastlloyd.protocols.fastlloyd.rounds import Centers, draw_noise, first_centers, local_update, post_process
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.protocols.support import blobs, common_masks, plan_for, run

PLUS = "fastlloyd-plus"
ONE, TWO, THREE = PartyId(1), PartyId(2), PartyId(3)


def noise_for(plan: Plan) -> list[NDArray[np.int64]]:
    secret = SecretRandom()
    return [draw_noise(plan, t, secret) for t in range(len(plan.rounds))]


# -- a client that misses rounds --


@pytest.mark.parametrize("missed", [(0,), (1,), (0, 3), (0, 1, 2, 3, 4, 5)])
def test_a_client_that_misses_rounds_costs_its_records_in_them_only(missed: tuple[int, ...]) -> None:
    points = blobs(240, 4, 3)
    plan = plan_for(points, 4, protocol=PLUS, clients=3, min_clients=2, rounds=6, epsilon=5.0)
    parts = list(np.array_split(np.arange(240), 3))
    noise = noise_for(plan)

    def tap(sender, receiver, header, body):
        lost = sender == TWO and header.type == MaskedUpdate.TYPE and header.round in missed
        return None if lost else body

    outcome = run(points, plan, noise=noise.__getitem__, tap=tap, parts=parts)
    centers: Centers = first_centers(plan)
    for t in range(6):
        there = [part for i, part in enumerate(parts) if not (i == 1 and t in missed)]
        pooled = quantise(points[np.concatenate(there)], plan.fraction_bits)
        centers = post_process(local_update(pooled, centers, plan, t) + noise[t], centers, plan, t)
    for party in clients(3):
        got = outcome.results[party]
        assert got.centers.exact.tobytes() == centers.exact.tobytes()
        assert [len(included) for included in got.included] == [3 - (t in missed) for t in range(6)]


@pytest.mark.parametrize("start", ["survey", "grid"])
def test_too_few_clients_in_the_first_round_end_the_run_and_name_the_missing_one(start: str) -> None:
    points = blobs(90, 3, 2)

    def tap(sender, receiver, header, body):
        return None if sender == THREE and header.type == MaskedUpdate.TYPE else body

    with pytest.raises(PeerError, match="client 3"):
        run(points, plan_for(points, 3, protocol=PLUS, clients=3, settings={"start": start}), tap=tap)


# -- a run that is resumed --


@pytest.mark.parametrize("done", [(1, 0), (1, 1), (5, 4), (10, 9)])
def test_a_resumed_run_ends_where_an_uninterrupted_one_does(done: tuple[int, int]) -> None:
    points = blobs(200, 5, 2)
    plan = plan_for(points, 5, protocol=PLUS, epsilon=2.0)
    assert len(plan.rounds) == 10
    noise, masks = noise_for(plan), common_masks(2)
    uncut = run(points, plan, masks=masks, noise=noise.__getitem__)
    expected, whole = uncut.results, uncut.simulation
    # The server has fixed as many replies as client 1 has; client 2 lacks the last one or has them all.
    fixed, behind = done
    stored = {
        party: StoredRounds(
            uplinks={t: whole.saved[party, f"uplink-{t}"] for t in range(min(fixed + 1, 10))},
            replies={t: whole.saved[party, f"reply-{t}"] for t in range(count)},
            server_done=fixed,
        )
        for party, count in ((ONE, fixed), (TWO, behind))
    }
    replies = {t: whole.saved[SERVER, f"reply-{t}"] for t in range(fixed)}
    fresh = [*[np.full(plan.elements(0), 10**6)] * fixed, *noise[fixed:]]
    resumed = run(points, plan, masks=masks, noise=fresh.__getitem__, replies=replies, stored=stored)
    found, again = resumed.results, resumed.simulation
    for party in clients(2):
        assert found[party].centers.exact.tobytes() == expected[party].centers.exact.tobytes()
        # What was sent before is not made anew: nothing is saved for it a second time.
        uplinks = {name for owner, name in again.saved if owner == party and name.startswith("uplink")}
        assert uplinks == {f"uplink-{t}" for t in range(fixed + 1, 10)}
    released = {release.round for release in again.releases[SERVER]}
    assert released == set(range(fixed, 10)), "a round that was closed is not released a second time"


# -- sums near the ring's edge --


def test_the_plan_fits_32_bits_where_the_bound_on_a_coordinate_does() -> None:
    names: dict[str, Any] = {"protocol": PLUS, "n_total": 1_000_000}
    wide = np.zeros((3, 300))
    with pytest.raises(RangeError, match="set ring_bits = 64"):
        plan_for(wide, 5, **names)
    assert plan_for(wide, 5, **names, ring_bits=64).fraction_bits >= 8
    # Without a survey the radius is sent at most three times: any number of features fits.
    plan = plan_for(wide, 5, **names, settings={"survey": 0.0})
    assert plan.plus is not None
    assert plan.plus.largest_coordinate(5, 300) == 6.0 < plan.plus.nominal_radius(1, 300)


@cache
def planned(k: int, d: int, start: str) -> tuple[Plan, Centers]:
    """A plan and its start; 'none' has neither survey nor histogram."""
    chosen = {"survey": 0.0, "grid": 0.0} if start == "none" else {"start": start if d < 4 else "survey"}
    plan = plan_for(np.zeros((2, d)), k, protocol=PLUS, n_total=5000, ring_bits=64, settings=chosen)
    return plan, first_centers(plan)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2, 7]),
    st.sampled_from([1, 2, 30, 1500]),
    st.sampled_from(["none", "survey", "grid"]),
    st.sampled_from([0.0, 1.0, 1e3, 1e9]),
    st.integers(0, 2**32 - 1),
)
def test_no_record_moves_a_coordinate_by_more_than_the_plan_allows_for(
    k: int, d: int, start: str, scale: float, seed: int
) -> None:
    """Whatever survey or histogram say, and wherever centre and record lie."""
    rng = np.random.default_rng(seed)
    plan, centers = planned(k, d, start)
    if plan.plus is not None and plan.plus.first:
        noisy = np.rint(rng.normal(0.0, scale, plan.elements(0))).astype(np.int64)
        centers = post_process(noisy, centers, plan, 0)
    assert centers.state is not None and plan.plus is not None
    reach, multiple = radius(centers.state, plan, 1)
    grid_unit = 1 << plan.fraction_bits
    limit = plan.plus.largest_coordinate(k, d) * grid_unit
    assert multiple * min(reach, 2 * grid_unit) <= limit
    corner = np.where(rng.random((1, d)) < 0.5, -1.0, 1.0)
    opposite = np.repeat(-quantise(corner, plan.fraction_bits).raw_coordinates.T.astype(np.int64), k, axis=0)
    lone = np.where(np.arange(d) == rng.integers(d), corner, 0.0)
    for record, grid in ((corner, opposite), (lone, np.zeros((k, d), dtype=np.int64)), (lone, opposite)):
        sent = scaled_update(quantise(record, plan.fraction_bits), grid, centers.state, plan, 1)
        assert np.abs(sent[: k * d]).max() <= limit


def test_the_spread_of_the_first_state_is_what_the_bound_rests_on() -> None:
    """Without a survey the multiple is the whole number nearest to 1 / sqrt(0.15)."""
    for d in (1, 2, 50, 1000):
        plan = plan_for(
            np.zeros((2, d)), 3, protocol=PLUS, n_total=5000, ring_bits=64, settings={"survey": 0.0, "grid": 0.0}
        )
        state = first_state(plan, given=False)
        assert radius(state, plan, 0)[1] == 3
        small = dataclasses.replace(state, deviation=np.full(d, np.sqrt(0.003)))
        assert radius(small, plan, 0)[1] == 18
