from __future__ import annotations

import tracemalloc
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tenseal")

from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder
from fastlloyd.protocols.vertical_he.he.lattice import ERROR_BOUND
from fastlloyd.protocols.vertical_he.math.choose import options
from fastlloyd.protocols.vertical_he.math.grid import shares
from fastlloyd.protocols.vertical_he.math.projection import difference
from fastlloyd.protocols.vertical_he.math.renewed import DIVISIONS, RenewedEngine, encrypt_block
from fastlloyd.protocols.vertical_he.math.workers import WorkerEngine, round_seconds
from fastlloyd.protocols.vertical_he.messages import EncryptedBlock, NoisySums
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.protocols.vertical_he.reference import opened
from fastlloyd.wire.header import Header, PartyId
from tests.protocols.vertical_he.support import blobs, columns_of, lloyd, loss, names, parameters, simulate


@cache
def projection_plan(n: int, widths: tuple[int, int], **options: Any) -> Plan:
    return make_plan(parameters(n, 2, scheme="projection", **options), names(*widths))


@pytest.mark.parametrize("mode", ["two-party", "threshold"])
@pytest.mark.parametrize("widths", [(2, 2), (1, 3)])
@pytest.mark.parametrize("apart", [True, False])
def test_opened_sums_are_the_soft_rule_s(mode: str, widths: tuple[int, int], apart: bool) -> None:
    points, start = blobs(2500, 2, 4, seed=3)
    plan = projection_plan(2500, widths, mode=mode, degree=20, noise="flooding")
    if not apart:
        start[1, list(plan.columns(plan.holder))] = start[0, list(plan.columns(plan.holder))]
    seen: list[np.ndarray] = []
    blocks: list[int] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == NoisySums.TYPE:
            seen.append(np.frombuffer(body, "<i8") / plan.unit)
        if header.type == EncryptedBlock.TYPE:
            blocks.append(header.round)
        return body

    results, _ = simulate(plan, points, start, tap, quiet=True)
    rounding = np.sqrt(2500) * 2.0**-plan.scales.weight_bits
    assert np.abs(seen[0] - opened(points, start, plan).reshape(-1)).max() < plan.scales.flood + 6.0 * rounding
    np.testing.assert_array_equal(results[PartyId(0)].centers, results[PartyId(1)].centers)
    assert blocks == [0] * plan.blocks + [1] * plan.blocks  # nothing of the columns before the first round


def test_rounds_are_as_good_as_lloyd_s() -> None:
    points, start = blobs(1500, 2, 4, seed=3)
    plan = projection_plan(1500, (2, 2), noise="flooding", rounds=5)
    results, _ = simulate(plan, points, start)
    assert loss(points, results[PartyId(0)].centers) <= 1.01 * loss(points, lloyd(points, start, 5))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_one_record_moves_the_sums_by_no_more_than_claimed(data: st.DataObject) -> None:
    plan = projection_plan(100, (1, 2))
    value = st.one_of(st.floats(-1, 1), st.sampled_from([-1.0, 1.0, 0.0]))
    draw = lambda count: np.array([data.draw(value) for _ in range(count)])  # noqa: E731
    centers, own, hidden = draw(6).reshape(2, 3), draw(1), draw(2)
    step, spread = difference(centers, plan.columns(plan.holder))
    place = shares(np.array([[step @ hidden / spread if spread else 0.0]]), plan.grid)[:, 0]
    whole = np.rint(np.concatenate([place, *(value * place for value in hidden)]) * 2.0**plan.scales.data_bits)
    engine, everything, count = RenewedEngine(plan, np.repeat(own, 100)[None]), slice(0, plan.corners), plan.corners
    engine.begin(0, centers)
    labels, factors = engine.labels(centers, 0, everything)[:, 0], engine.factors(everything)
    clusters = np.zeros((2, 4, 3 * count))
    for j in range(2):
        weights = (labels == j) * factors[0]
        clusters[j, 0, :count] = weights
        clusters[j, 1, :count] = (labels == j) * engine.values(centers, 0, j)[0, 0]
        clusters[j, 2, count : 2 * count] = clusters[j, 3, 2 * count :] = weights
    sign = np.sign(clusters.sum(axis=(0, 1)) + 1e-300)
    counts, sums = (release.sensitivity for release in plan.releases(0, seen_by="another party"))
    for error in (0.0, ERROR_BOUND * sign, -ERROR_BOUND * sign):
        moved = clusters @ (whole + error)
        assert np.linalg.norm(moved[:, 0]) <= counts
        assert np.linalg.norm(moved[:, 1:]) <= sums


def test_a_record_s_shares_are_the_same_bits_whatever_is_beside_it() -> None:
    plan, rng = projection_plan(100, (1, 9)), np.random.default_rng(4)
    centers, own = rng.uniform(-1, 1, (2, 10)), rng.uniform(-1, 1, (9, 2048))
    found = DIVISIONS["projection"].shares(plan, own, 0, centers)
    for i in range(0, 2048, 41):
        np.testing.assert_array_equal(DIVISIONS["projection"].shares(plan, own[:, [i]], 0, centers)[:, 0], found[:, i])
    some = np.ascontiguousarray(own[:, 5:1300:7])
    np.testing.assert_array_equal(DIVISIONS["projection"].shares(plan, some, 0, centers), found[:, 5:1300:7])


def test_a_round_s_blocks_are_added_up_as_they_come_and_not_kept() -> None:
    plan = projection_plan(4 * 2048, (1, 3), degree=8)
    assert plan.blocks == 4
    points, start = blobs(plan.n_total, 2, 4)
    context = Context(plan.encryption)
    holder = KeyHolder(context)
    engine = RenewedEngine(plan, columns_of(plan, points, plan.computing))
    hidden = columns_of(plan, points, plan.holder)
    held = []
    with pytest.raises(InternalError, match="before the round's centres"):
        engine.load(plan.holder, 0, [b""])
    engine.begin(0, start)
    tracemalloc.start()
    try:
        for block in range(plan.blocks):
            engine.load(plan.holder, block, encrypt_block(plan, context, holder, hidden, block, t=0, centers=start))
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    # A block's numbers alone are 8 bytes for each of two halves of 20 ciphertexts: 0.7 MB.
    assert held[-1] - held[0] < 100_000
    with pytest.raises(InternalError, match="other centres"):
        next(engine.add_up(-start))


def test_workers_take_each_round_s_blocks() -> None:
    points, start = blobs(2000, 3, 6)
    # Landmarks, as they differ from round to round.
    plan = make_plan(parameters(2000, 3, scheme="landmarks", noise="flooding", degree=4), names(3, 3))
    with WorkerEngine(plan, columns_of(plan, points, plan.computing), 2) as engine:
        spread, _ = simulate(plan, points, start, engine=engine, quiet=True)
    alone, _ = simulate(plan, points, start, quiet=True)
    np.testing.assert_allclose(spread[PartyId(0)].centers, alone[PartyId(0)].centers, atol=1e-4)


def test_it_is_chosen_where_there_is_no_other_way_and_costs_what_is_said() -> None:
    assert make_plan(parameters(10_000, 2, rounds=10), names(3, 3)).scheme == "pairwise"
    threshold = parameters(10_000, 2, mode="threshold", rounds=10)
    plan = make_plan(threshold, names(3, 3))
    assert plan.scheme == "projection" and plan.movement == 1.0
    assert plan.releases(0, seen_by="-")[0].neighbours.startswith("zero-out")
    assert round_seconds(plan, 1) == pytest.approx(options(threshold, (3, 3))[0].round_seconds)
    assert make_plan(parameters(10_000, 2, mode="threshold"), names(2, 1)).scheme == "linear"
    for mode in ("two-party", "threshold"):
        with pytest.raises(ConfigError, match="two clusters"):
            make_plan(parameters(10_000, 3, scheme="projection", mode=mode), names(3, 3))


def test_the_estimate_of_the_bytes_is_near() -> None:
    points, start = blobs(4000, 2, 3)
    public = parameters(4000, 2, scheme="projection", rounds=1)
    plan = make_plan(public, names(1, 2))
    _, simulation = simulate(plan, points, start)
    sent = sum(
        count.payload_bytes for meter in simulation.meters.values() for (_, t), count in meter.sent.items() if t == 0
    )
    (said,) = {choice.round_bytes for choice in options(public, (1, 2)) if choice.scheme == "projection"}
    assert 0.7 * said < sent < 1.2 * said
