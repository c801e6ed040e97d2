from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tenseal")

from fastlloyd.errors import ConfigError
from fastlloyd.protocols.vertical_he.frame import block_format
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder
from fastlloyd.protocols.vertical_he.he.lattice import ERROR_BOUND
from fastlloyd.protocols.vertical_he.math.choose import options
from fastlloyd.protocols.vertical_he.math.landmarks import count_landmarks, places, pulls, shares
from fastlloyd.protocols.vertical_he.math.renewed import RenewedEngine, encrypt_block
from fastlloyd.protocols.vertical_he.math.workers import round_seconds
from fastlloyd.protocols.vertical_he.messages import EncryptedBlock, NoisySums
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.protocols.vertical_he.reference import landmarks, opened
from fastlloyd.wire.header import Header, PartyId
from tests.protocols.vertical_he.support import blobs, names, parameters, simulate


@cache
def landmark_plan(n: int = 600, k: int = 3, widths: tuple[int, int] = (3, 3), **options: Any) -> Plan:
    return make_plan(parameters(n, k, scheme="landmarks", **options), names(*widths))


@pytest.mark.parametrize(
    ("degree", "k", "count"),
    [(62, 3, 64), (62, 4, 128), (62, 32, 128), (62, 33, 256), (30, 4, 64), (510, 3, 512), (4, 3, 16)],
)
def test_there_are_as_many_landmarks_as_is_said(degree: int, k: int, count: int) -> None:
    assert count_landmarks(degree, k) == count
    assert landmark_plan(k=k, degree=degree).corners == count


def test_landmarks_are_the_centres_parts_and_public_points_around_them() -> None:
    plan, start = landmark_plan(), blobs(10, 3, 6)[1]
    held = start[:, list(plan.columns(plan.holder))]
    found = places(plan, 0, start)
    assert found.shape == (64, 3) and np.abs(found).max() <= 1.0
    np.testing.assert_array_equal(found[:3], held)
    public = landmarks(start, plan.columns(plan.holder), plan.seed, count=64, t=0)
    np.testing.assert_allclose(found, public, rtol=1e-12)
    # Centres in the middle cut nothing, so the spread is the stated one; 183 numbers, five deviations.
    around = places(plan, 0, np.zeros((3, 6)))[3:]
    assert around.std() == pytest.approx(0.3, rel=5.0 / np.sqrt(2.0 * around.size))
    for other in (places(plan, 1, start), places(dataclasses.replace(plan, seed=2), 0, start)):
        assert (other[3:] != found[3:]).any(axis=1).all()  # each round and seed has its own


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_each_record_stands_at_the_nearest_landmark_whatever_is_beside_it(data: st.DataObject) -> None:
    plan = landmark_plan(k=4, degree=14)
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    centers, own = rng.uniform(-1, 1, (4, 6)), rng.uniform(-1, 1, (3, 37))
    if data.draw(st.booleans()):
        centers, own = np.rint(2.0 * centers) / 2.0, np.rint(2.0 * own) / 2.0  # ties
    found = shares(plan, own, 1, centers)
    assert found.shape == (32, 37) and set(found.flatten()) <= {0.0, 1.0} and (found.sum(axis=0) == 1.0).all()
    for i in range(37):  # alone, and in another place of another batch
        np.testing.assert_array_equal(shares(plan, own[:, [i]], 1, centers)[:, 0], found[:, i])
    np.testing.assert_array_equal(shares(plan, np.ascontiguousarray(own[:, ::-3]), 1, centers), found[:, ::-3])
    marks, held = places(plan, 1, centers), centers[:, list(plan.columns(plan.holder))]
    along = (held - held.mean(axis=0)) @ (own[:, None] - marks.T[:, :, None]).reshape(3, -1)
    squares = (along**2).sum(axis=0).reshape(32, 37)
    assert ((squares * found).sum(axis=0) <= squares.min(axis=0) + 1e-9).all()  # but for rounding


@settings(max_examples=30, deadline=None)
@given(st.data(), st.sampled_from([1, 6]))
def test_one_record_moves_the_sums_by_no_more_than_claimed(data: st.DataObject, rounds: int) -> None:
    plan = landmark_plan(n=100, rounds=rounds)
    assert len(plan.stepping) == (3 if rounds == 6 else 0)
    value = st.one_of(st.floats(-1, 1), st.sampled_from([-1.0, 1.0, 0.0]))
    draw = lambda *shape: np.array([data.draw(value) for _ in range(np.prod(shape))]).reshape(shape)  # noqa: E731
    centers, own, hidden = draw(3, 6), draw(3), draw(3)
    place = shares(plan, hidden[:, None], 0, centers)[:, 0]
    whole = np.rint(np.concatenate([place, *(value * place for value in hidden)]) * 2.0**plan.scales.data_bits)
    engine, everything, count = (
        RenewedEngine(plan, np.repeat(own[:, None], 100, axis=1)),
        slice(0, plan.corners),
        plan.corners,
    )
    engine.begin(0, centers)
    labels, factors = engine.labels(centers, 0, everything)[:, 0], engine.factors(everything)
    clusters = np.zeros((3, 7, 4 * count))
    for j in range(3):
        weights = (labels == j) * factors[0]
        clusters[j, 0, :count] = weights
        clusters[j, 1:4, :count] = (labels == j) * engine.values(centers, 0, j)[:, :1]
        for column in range(3):
            clusters[j, 4 + column, (1 + column) * count : (2 + column) * count] = weights
    sign = np.sign(clusters.sum(axis=(0, 1)) + 1e-300)
    known = slice(1, 4)
    limits = {release.name: release.sensitivity for release in plan.releases(0, seen_by="another party")}
    for error in (0.0, ERROR_BOUND * sign, -ERROR_BOUND * sign):
        moved = clusters @ (whole + error)
        assert np.linalg.norm(moved[:, 0]) <= limits["soft counts"]
        if plan.stepping:
            assert np.linalg.norm(moved[:, known]) <= limits["soft steps"]
            assert np.linalg.norm(moved[:, 4:]) <= limits["soft sums"]
        else:
            assert np.linalg.norm(moved[:, 1:]) <= limits["soft sums"]
    exact = clusters @ whole / plan.unit
    assert exact[:, 0].tolist().count(1.0) == 1 and exact[:, 0].sum() == 1.0  # one-hot, exactly


@pytest.mark.parametrize("mode", ["two-party", "threshold"])
def test_opened_sums_are_those_in_clear_and_no_ciphertext_comes_twice(mode: str) -> None:
    points, start = blobs(2100, 3, 6, seed=3)
    plan = landmark_plan(2100, mode=mode, degree=4, noise="flooding")
    seen: list[np.ndarray] = []
    blocks: list[tuple[int, bytes]] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == NoisySums.TYPE:
            seen.append(np.frombuffer(body, "<i8") / plan.unit)
        if header.type == EncryptedBlock.TYPE:
            blocks.append((header.round, bytes(body)))
        return body

    results, _ = simulate(plan, points, start, tap, quiet=True)
    rounding = np.sqrt(2100) * 2.0**-plan.scales.weight_bits
    for t, centers in enumerate((start, results[PartyId(0)].path[1])):
        apart = np.abs(seen[t] - opened(points, centers, plan, t).reshape(-1)).max()
        assert apart < plan.scales.flood + 6.0 * rounding and apart < 0.5
    np.testing.assert_array_equal(results[PartyId(0)].centers, results[PartyId(1)].centers)
    assert [t for t, _ in blocks] == [0] * plan.blocks + [1] * plan.blocks  # nothing before the first round
    (length,) = set(block_format(plan, plan.holder))
    ciphers = [body[start : start + length] for _, body in blocks for start in range(0, len(body), length)]
    assert len(set(ciphers)) == len(ciphers) == 2 * plan.blocks * 4 * plan.corners


def test_the_same_block_is_encrypted_afresh_in_both_halves() -> None:
    plan, (points, start) = landmark_plan(40, degree=4), blobs(40, 3, 6)
    context = Context(plan.encryption)
    once, again = (
        encrypt_block(plan, context, holder, points.T[:3], 0, t=0, centers=start) for holder in [KeyHolder(context)] * 2
    )
    seed = 32
    assert len({*(part[:-seed] for part in (*once, *again))}) == len({part[-seed:] for part in (*once, *again)})
    assert len({*once, *again}) == 2 * len(once)


def test_it_is_chosen_for_three_columns_at_both_and_costs_what_is_said() -> None:
    public = parameters(10_000, 3, rounds=10)
    plan = make_plan(public, names(3, 4))
    assert (plan.scheme, plan.computing, plan.movement) == ("landmarks", 1, 1.0)
    assert plan.stepping == (3, 4, 5, 6) and plan.releases(0, seen_by="-")[0].neighbours.startswith("zero-out")
    assert round_seconds(plan, 1) == pytest.approx(options(public, (3, 4))[0].round_seconds)
    assert [choice.scheme for choice in options(public, (3, 4))] == ["landmarks"] * 2 + ["pairwise"] * 2
    assert make_plan(parameters(10_000, 3, mode="threshold"), names(3, 3)).scheme == "landmarks"
    assert make_plan(parameters(10_000, 3, scheme="pairwise"), names(3, 3)).scheme == "pairwise"
    assert make_plan(parameters(10_000, 3), names(2, 9)).scheme == "linear"
    for k, widths in ((2, (3, 3)), (3, (2, 3))):
        with pytest.raises(ConfigError, match="landmarks need two owners with three or more columns each"):
            make_plan(parameters(10_000, k, scheme="landmarks"), names(*widths))


def test_the_estimate_of_the_bytes_is_near() -> None:
    points, start = blobs(2000, 3, 6)
    public = parameters(2000, 3, scheme="landmarks", degree=4, rounds=1)
    plan = make_plan(public, names(3, 3))
    _, simulation = simulate(plan, points, start)
    sent = sum(
        count.payload_bytes for meter in simulation.meters.values() for (_, t), count in meter.sent.items() if t == 0
    )
    (said,) = {choice.round_bytes for choice in options(public, (3, 3)) if choice.scheme == "landmarks"}
    assert 0.7 * said < sent < 1.2 * said


def test_pulls_are_the_landmarks_parts_of_the_distances() -> None:
    plan, start = landmark_plan(degree=4), blobs(10, 3, 6)[1]
    held = start[:, list(plan.columns(plan.holder))]
    np.testing.assert_allclose(pulls(plan, 2, start), 2.0 * places(plan, 2, start) @ held.T, atol=1e-12)
