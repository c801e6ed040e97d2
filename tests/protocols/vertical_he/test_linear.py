from __future__ import annotations

import ast
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tenseal")

from fastlloyd.crypto.he import ckks
from fastlloyd.crypto.he.keyshare import KeyShare, draw_error
from fastlloyd.crypto.he.lattice import ERROR_BOUND
from fastlloyd.errors import PeerError
from fastlloyd.protocols.vertical_he import computing
from fastlloyd.protocols.vertical_he.frame import block_format, key_format
from fastlloyd.protocols.vertical_he.math import engine, linear, lwe
from fastlloyd.protocols.vertical_he.math.engine import make_engine
from fastlloyd.protocols.vertical_he.math.linear import LinearEngine, short_steps
from fastlloyd.protocols.vertical_he.math.lwe import common_key
from fastlloyd.protocols.vertical_he.math.window import features, jackson
from fastlloyd.protocols.vertical_he.math.workers import WorkerEngine
from fastlloyd.protocols.vertical_he.messages import EncryptedBlock, KeyMaterial, NoisySamples
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.protocols.vertical_he.reference import soft_steps, soft_sums
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Tap
from fastlloyd.wire.header import Header, PartyId
from tests.protocols.vertical_he.support import (
    blobs,
    columns,
    linear_plan,
    lloyd,
    loss,
    names,
    parameters,
    simulate,
)

ALICE, BOB = PartyId(0), PartyId(1)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("workers", [1, 3])
def test_opened_sums_of_steps_are_the_reference_s(k: int, workers: int) -> None:
    points, start = blobs(2500, k, 3, seed=k)
    plan = make_plan(parameters(2500, k, rounds=6, degree=30, scheme="linear"), names(2, 1))
    assert plan.stepping == (0, 1)
    seen: list[np.ndarray] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == 123 and header.round == 0:
            seen.append(np.frombuffer(body, "<i8") / plan.unit)
        return body

    with WorkerEngine(plan, columns(plan, points, 0), workers) if workers > 1 else nullcontext() as engine:
        results, _ = simulate(plan, points, start, tap, engine=engine, quiet=True)
    expected = soft_steps(points, start, hidden=2, degree=30, radius=plan.radius).reshape(-1)
    rounding = np.sqrt(2500 * 32) * 2.0**-plan.scales.weight_bits
    assert np.abs(seen[0] - expected).max() < plan.scales.flood + 6.0 * rounding
    np.testing.assert_array_equal(results[ALICE].centers, results[BOB].centers)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(2, 4), st.data())
def test_one_record_moves_the_sums_of_steps_by_no_more_than_claimed(k: int, own: int, data: st.DataObject) -> None:
    plan = make_plan(parameters(100, k, rounds=6, scheme="linear", computing=0), names(own, 1))
    value = st.one_of(st.floats(-1, 1), st.sampled_from([-1.0, 1.0, 0.0]))
    draw = lambda count: np.array([data.draw(value) for _ in range(count)])  # noqa: E731
    centers, values, hidden = draw((own + 1) * k).reshape(k, own + 1), draw(own), draw(1)
    computer = LinearEngine(plan, np.repeat(values[:, None], 100, axis=1))
    whole = np.rint(features(hidden, plan.degree + 2)[:, 0] * 2.0**plan.scales.data_bits)
    moved = np.zeros((k, own, plan.degree + 2))
    for output, weights in computer._weights(centers, 0):
        cluster, place = divmod(output, own + 2)
        if 1 <= place <= own:
            moved[cluster, place - 1, : len(weights)] = weights[:, 0]
    sign = np.where(np.arange(plan.degree + 2) % 2, 1.0, -1.0) * np.sign(moved.sum(axis=(0, 1)) + 1e-300)
    release = plan.releases(0, seen_by="another party")[2]
    assert release.name == "soft steps" and release.noise_scale < plan.step_scale
    for error in (0.0, ERROR_BOUND * sign, -ERROR_BOUND * sign):
        assert np.linalg.norm(moved @ (whole + error)) <= release.sensitivity


def test_a_record_far_away_moves_the_sums_of_steps_by_the_whole_radius_and_no_farther() -> None:
    far = short_steps(np.array([[1.0, 0.01], [1.0, 0.0]]), np.array([-1.0, -1.0]) * 0.0, 0.25)
    np.testing.assert_allclose(np.linalg.norm(far, axis=0), [1.0, 0.04], atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_opened_sums_are_the_soft_rule_s(k: int) -> None:
    points, start = blobs(2500, k, 2, seed=k)
    plan = linear_plan(2500, k, noise="flooding", degree=30)
    seen: list[np.ndarray] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == 123:
            seen.append(np.frombuffer(body, "<i8") / plan.unit)
        return body

    results, _ = simulate(plan, points, start, tap)
    expected = soft_sums(points, start, hidden=1, degree=30).reshape(-1)
    flooding = np.sqrt(2.0) * plan.count_scale / plan.unit
    # Rounding of the weights: 32 of at most 2^-w each, of random sign, for each record.
    rounding = np.sqrt(2500 * 32) * 2.0**-plan.scales.weight_bits
    assert np.abs(seen[0] - expected).max() < 6.0 * (flooding + rounding)
    np.testing.assert_array_equal(results[ALICE].centers, results[BOB].centers)


def test_ten_rounds_are_as_good_as_lloyd_s() -> None:
    points, start = blobs(4000, 5, 2, seed=3)
    plan = linear_plan(4000, 5, noise="flooding")
    results, _ = simulate(plan, points, start)
    assert loss(points, results[ALICE].centers) <= 1.01 * loss(points, lloyd(points, start, 2))


def test_the_key_holder_gets_one_sample_per_output_and_nothing_else() -> None:
    points, start = blobs(500, 3, 2)
    plan = linear_plan(500, 3)
    bytes_of: dict[int, list[bytes]] = {}

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if receiver == BOB:
            bytes_of.setdefault(header.type, []).append(body)
        return body

    simulate(plan, points, start, tap)
    assert set(bytes_of) == {NoisySamples.TYPE}
    size = (plan.scales.ring + 1) * plan.scales.wire_bits // 8
    assert [len(body) for body in bytes_of[NoisySamples.TYPE]] == [plan.outputs * size] * plan.rounds


def test_samples_of_one_sum_look_fresh() -> None:
    points, start = blobs(500, 2, 2)
    plan = linear_plan(500, 2)
    bodies: list[bytes] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == NoisySamples.TYPE:
            bodies.append(body)
        return body

    simulate(plan, points, start, tap)
    sample = lwe.decode(bodies[0], plan.outputs, plan.scales.ring, plan.scales.wire_bits)
    # The two clusters' counts add up to a sum of all records: without fresh zeros the vectors would be T_0's own.
    low_bits = (sample.vectors >> 20) & 0xFFF
    counts = np.bincount(low_bits.reshape(-1) >> 8, minlength=16)
    expected = low_bits.size / 16
    assert ((counts - expected) ** 2 / expected).sum() < 80.0  # chi-square, 15 degrees: 7e-11


def test_the_computing_party_never_has_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    original = ckks.KeyHolder.__init__

    def counting(self: ckks.KeyHolder, context: ckks.Context) -> None:
        made.append("key")
        original(self, context)

    monkeypatch.setattr(ckks.KeyHolder, "__init__", counting)
    points, start = blobs(300, 2, 2)
    simulate(linear_plan(300, 2), points, start)
    assert made == ["key"]
    for module in (computing, engine):
        tree = ast.parse(Path(module.__file__ or "").read_text("utf-8"))
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert "KeyHolder" not in used


@pytest.mark.parametrize("kind", [KeyMaterial.TYPE, EncryptedBlock.TYPE])
@pytest.mark.parametrize("how", ["cut", "longer", "too large", "other parameters"])
def test_damaged_messages_are_the_sender_s_fault(kind: int, how: str) -> None:
    points, start = blobs(300, 2, 2)
    plan = linear_plan(300, 2)
    other = ckks.Context(ckks.Parameters(2048, (53,)))
    foreign = ckks.KeyHolder(other)

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes | None:
        if header.type != kind:
            return body
        if how == "cut":
            return body[:-1]
        if how == "longer":
            return body + b"\0"
        if how == "too large":
            return b"\xff" * 8 + body[8:]
        if kind == KeyMaterial.TYPE:
            return KeyMaterial((foreign.public_key(),)).body()
        parts = ckks.encrypt_integers(other, foreign, np.zeros((plan.parts(1), 2048), dtype=np.int64))
        return EncryptedBlock(tuple(parts)).body()

    with pytest.raises(PeerError) as caught:
        simulate(plan, points, start, tap)
    assert caught.value.rank == 1


def degenerate(context: ckks.Context, kind: str) -> bytes:
    """A ciphertext whose second half is 0, 1, a power of X or small."""
    n = context.degree
    coefficients = {
        "zero": np.zeros(n),
        "one": np.eye(1, n)[0],
        "power": np.eye(1, n, 5)[0],
        "small": np.random.default_rng(0).integers(-50, 51, n).astype(np.float64),
    }[kind]
    cipher = context.assemble(np.arange(n), np.arange(1, n + 1))
    if kind == "zero":
        return context.save(context.assemble(np.arange(n), np.zeros(n, dtype=np.int64)))
    # The sum of a ciphertext of ones and a plaintext has that plaintext's stored numbers in its first half.
    ones = context.assemble(np.ones(n, dtype=np.int64), np.ones(n, dtype=np.int64))
    plain = context.encode_integers(context.transform(coefficients))
    context.evaluator.add_plain_inplace(ones, plain)
    stored = (context.numbers(ones)[0, 0] - 1) % context.modulus
    return context.save(context.assemble(context.numbers(cipher)[0, 0], stored))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("scheme", "kind"), [("linear", "zero"), ("linear", "one"), ("projection", "power"), ("projection", "small")]
)
def test_a_ciphertext_that_hides_nothing_is_the_sender_s_fault(scheme: str, kind: str, workers: int) -> None:
    points, start = blobs(5000, 2, 3, seed=9)
    widths = (2, 1) if scheme == "linear" else (1, 2)
    plan = make_plan(parameters(5000, 2, scheme=scheme, degree=6, mode="threshold"), names(*widths))
    open_one = degenerate(ckks.Context(plan.encryption), kind)
    blocks = 0

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        nonlocal blocks
        if header.type != EncryptedBlock.TYPE:
            return body
        parts = list(EncryptedBlock.read(body, block_format(plan, sender.rank)).parts)
        blocks += 1
        if blocks == plan.blocks + 2 or (scheme == "linear" and blocks == 2):
            parts[3] = open_one
        return EncryptedBlock(tuple(parts)).body()

    own = columns(plan, points, plan.computing)
    with (
        WorkerEngine(plan, own, workers) if workers > 1 else nullcontext() as engine,
        pytest.raises(PeerError, match="hides nothing") as caught,
    ):
        simulate(plan, points, start, tap, engine=engine)
    assert caught.value.rank == plan.holder


@pytest.mark.parametrize("kind", [KeyMaterial.TYPE, EncryptedBlock.TYPE])
def test_where_a_seed_is_agreed_no_second_half_can_be_chosen(kind: int) -> None:
    points, start = blobs(300, 2, 2)
    plan = linear_plan(300, 2, degree=6)
    chosen = degenerate(ckks.Context(plan.encryption), "one")
    count = 1 if kind == KeyMaterial.TYPE else plan.parts(plan.holder)

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        return chosen * count if header.type == kind else body

    with pytest.raises(PeerError, match=rf"{PartyId(plan.holder)} sent a malformed \w+: expected \d+ bytes") as caught:
        simulate(plan, points, start, tap)
    assert caught.value.rank == plan.holder


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("mode", ["two-party", "threshold"])
def test_a_key_with_too_large_numbers_is_the_sender_s_fault(mode: str, workers: int) -> None:
    points, start = blobs(3000, 2, 2, seed=9)
    plan = make_plan(parameters(3000, 2, mode=mode, scheme="linear", degree=6), names(1, 1))

    def sent_by(rank: int) -> Tap:
        return lambda sender, receiver, header, body: (
            b"\xff" * 8 + body[8:] if header.type == KeyMaterial.TYPE and sender.rank == rank else body
        )

    own = columns(plan, points, plan.computing)
    for rank in (plan.holder, plan.computing) if mode == "threshold" else (plan.holder,):
        with (
            WorkerEngine(plan, own, workers) if workers > 1 else nullcontext() as engine,
            pytest.raises(PeerError, match=r"key that was refused.*not below its prime") as caught,
        ):
            simulate(plan, points, start, sent_by(rank), engine=engine)
        assert caught.value.rank == rank


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.data())
def test_one_record_moves_the_sums_by_no_more_than_claimed(k: int, data: st.DataObject) -> None:
    plan = linear_plan(100, k)
    value = st.one_of(st.floats(-1, 1), st.sampled_from([-1.0, 1.0, 0.0]))
    draw = lambda count: np.array([data.draw(value) for _ in range(count)])  # noqa: E731
    centers, own, hidden = draw(2 * k).reshape(k, 2), draw(1), draw(1)
    computer = LinearEngine(plan, np.repeat(own, 100)[None])
    whole = np.rint(features(hidden, plan.degree + 2)[:, 0] * 2.0**plan.scales.data_bits)
    steps = np.zeros((k, 3, plan.degree + 2))
    for output, weights in computer._weights(centers, 0):
        steps[output // 3, output % 3, : len(weights)] = weights[:, 0]
    clusters = steps.copy()
    clusters[:-1] -= steps[1:]
    # The worst encryption errors: one sign for everything that one feature meets.
    sign = np.where(np.arange(plan.degree + 2) % 2, 1.0, -1.0) * np.sign(clusters.sum(axis=(0, 1)) + 1e-300)
    for error in (0.0, ERROR_BOUND * sign, -ERROR_BOUND * sign):
        moved = clusters @ (whole + error)
        counts, sums = (release.sensitivity for release in plan.releases(0, seen_by="another party"))
        assert np.linalg.norm(moved[:, 0]) <= counts
        assert np.linalg.norm(moved[:, 1:]) <= sums


def test_a_record_that_is_replaced_by_nothing_adds_nothing() -> None:
    plan = linear_plan(64, 3)
    points, start = blobs(64, 3, 2)
    computer = LinearEngine(plan, columns(plan, points, 0))
    context = computer._context
    holder = ckks.KeyHolder(context)
    coefficients = np.zeros((plan.degree + 2, context.degree), dtype=np.int64)  # nobody's features, T_0 included
    computer.keys((holder.public_key(),))
    computer.load(1, 0, ckks.encrypt_integers(context, holder, coefficients))
    work = computer.evaluate(start)
    while True:
        try:
            next(work)
        except StopIteration as end:
            sample = lwe.switch(end.value, context.modulus, 40)
            break
    values = lwe.open_samples(sample, holder.coefficients(), context.modulus, 40) / plan.unit
    assert np.abs(values).max() <= plan.scales.flood


@pytest.mark.parametrize("noise", ["dp", "flooding"])
def test_with_a_common_key_the_sums_are_the_same(noise: str) -> None:
    points, start = blobs(1000, 3, 3, seed=9)
    public = parameters(1000, 3, rounds=1, mode="threshold", noise=noise, degree=30)
    plan = make_plan(public, names(2, 1))
    seen: list[np.ndarray] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == 123:
            seen.append(np.frombuffer(body, "<i8") / plan.unit)
        return body

    results, _ = simulate(plan, points, start, tap, quiet=True)
    expected = soft_sums(points, start, hidden=2, degree=30).reshape(-1)
    rounding = np.sqrt(1000 * 32) * 2.0**-plan.scales.weight_bits
    assert np.abs(seen[0] - expected).max() < plan.scales.flood + 6.0 * rounding
    np.testing.assert_array_equal(results[ALICE].centers, results[BOB].centers)


def test_one_share_of_a_common_key_opens_nothing() -> None:
    context = ckks.Context(ckks.Parameters(4096, (60,)))
    first, second = ckks.KeyHolder(context), KeyShare(context, SecretRandom())
    public = ckks.Refresher(context, context.load_public_key(second.join(first.public_key())))
    zeros, q = public.zeros(8), context.modulus
    for share in (first, second):
        part = lwe.open_part(zeros, share.coefficients(), q).constants.astype(np.float64)
        assert np.abs(np.where(part > q / 2, part - q, part)).min() > 2.0**30  # once in 2^26 for uniform numbers
    both = lwe.open_part(lwe.open_part(zeros, first.coefficients(), q), second.coefficients(), q).constants
    assert np.abs(np.where(both > q // 2, both - q, both)).max() < common_key(4096).bound * 2
    assert repr(second) == "KeyShare()"


def test_the_second_share_s_errors_are_seal_s() -> None:
    errors = draw_error(200_000, SecretRandom())
    assert np.abs(errors).max() <= ERROR_BOUND
    # Variance 10.5, its estimate's deviation 10.5 sqrt(2 / 200,000) = 0.033; six of them.
    assert abs(errors.var() - 10.5) < 0.2 and abs(errors.mean()) < 6 * np.sqrt(10.5 / 200_000)


def test_a_common_key_that_was_not_made_from_the_holder_s_is_refused() -> None:
    points, start = blobs(300, 2, 2, seed=9)
    plan = make_plan(parameters(300, 2, rounds=1, mode="threshold", degree=8), names(1, 1))
    context = ckks.Context(plan.encryption)
    foreign = ckks.KeyHolder(context).public_key()
    sent: list[KeyMaterial] = []

    def other(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == KeyMaterial.TYPE and sender.rank == plan.computing:
            return KeyMaterial((foreign,)).body()
        return body

    def back(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == KeyMaterial.TYPE and sender.rank == plan.holder:
            sent.append(KeyMaterial.read(body, key_format(plan)))
        elif header.type == KeyMaterial.TYPE:
            return sent[-1].body()
        return body

    for tap in (other, back):
        with pytest.raises(PeerError, match="not made from this party") as caught:
            simulate(plan, points, start, tap)
        assert caught.value.rank == plan.computing


def test_own_columns_beyond_the_bounds_are_brought_back() -> None:
    plan = linear_plan(40, 2, degree=8)
    wide = np.linspace(-3.0, 3.0, 40)[None]
    assert np.abs(make_engine(plan, wide)._columns).max() == 1.0
    assert make_engine(plan, wide)._columns.min() == -1.0


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("degree", [4, 33])
def test_products_are_made_for_all_weights_rounded_away_from_zero(
    degree: int, steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaches: list[float] = []

    class Recording(linear.Products):
        def __init__(self, context: ckks.Context, most: int, reach: float) -> None:
            reaches.append(reach)
            super().__init__(context, most, reach)

    monkeypatch.setattr(linear, "Products", Recording)
    public = parameters(40, 2, degree=degree, rounds=6, scheme="linear", shrink=steps)
    plan = make_plan(public, names(2, 1))
    assert bool(plan.stepping) == steps
    make_engine(plan, np.zeros((2, 40)))
    factors = jackson(degree)
    # Of the difference of two soft steps twice as much, but for T_0, whose weight is within [0, 1].
    largest = 1.0 + (1 + steps) * sum(2.0 * factors[m - 1] / (m * np.pi) for m in range(1, degree + 1))
    assert reaches == [pytest.approx(largest * 2.0**plan.scales.weight_bits + (degree + 2) / 2.0, rel=1e-12)]
