from __future__ import annotations

import ast
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tenseal")

from fastlloyd.errors import PeerError
from fastlloyd.protocols.vertical_he import computing
from fastlloyd.protocols.vertical_he.frame import block_format, key_format
from fastlloyd.protocols.vertical_he.he import ckks
from fastlloyd.protocols.vertical_he.he.keyshare import KeyShare, add_parts, draw_error
from fastlloyd.protocols.vertical_he.he.lattice import ERROR_BOUND
from fastlloyd.protocols.vertical_he.math import linear, lwe, workers
from fastlloyd.protocols.vertical_he.math.grid import shares
from fastlloyd.protocols.vertical_he.math.linear import LinearEngine, short_steps
from fastlloyd.protocols.vertical_he.math.lwe import errors_of
from fastlloyd.protocols.vertical_he.math.workers import WorkerEngine, make_engine
from fastlloyd.protocols.vertical_he.messages import EncryptedBlock, KeyMaterial, NoisySamples
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.protocols.vertical_he.reference import soft_steps, soft_sums
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Tap
from fastlloyd.wire.header import Header, PartyId
from tests.protocols.vertical_he.support import (
    blobs,
    columns_of,
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

    with WorkerEngine(plan, columns_of(plan, points, 0), workers) if workers > 1 else nullcontext() as engine:
        results, _ = simulate(plan, points, start, tap, engine=engine, quiet=True)
    expected = soft_steps(points, start, hidden=(2,), grid=plan.grid, radius=plan.radius).reshape(-1)
    rounding = np.sqrt(2500) * 2.0**-plan.scales.weight_bits
    assert np.abs(seen[0] - expected).max() < plan.scales.flood + 6.0 * rounding
    np.testing.assert_array_equal(results[ALICE].centers, results[BOB].centers)


def moved_by_one(
    plan: Plan, centers: np.ndarray, own: np.ndarray, hidden: np.ndarray, error: float
) -> dict[str, np.ndarray]:
    """What one record adds to counts, sums and steps, with the worst encryption errors: of each corner's own sign."""
    computer = LinearEngine(plan, np.repeat(own[:, None], plan.n_total, axis=1))
    whole = np.rint(shares(hidden[:, None], plan.grid)[:, 0] * 2.0**plan.scales.data_bits)
    everything = slice(0, plan.corners)
    labels, factors = computer.labels(centers, 0, everything)[:, 0], computer.factors(everything)
    found = np.zeros((plan.k, plan.d + 1, plan.corners))
    for j in range(plan.k):
        mask, values = labels == j, computer.values(centers, 0, j)[:, 0]
        found[j, 0] = mask * factors[0]
        for column, weights in zip(plan.columns(plan.holder), factors[1:], strict=True):
            found[j, 1 + column] = mask * weights
        for column, value in zip(plan.columns(plan.computing), values, strict=True):
            found[j, 1 + column] = mask * value
    steps = [1 + column for column in plan.stepping]
    others = [1 + column for column in range(plan.d) if column not in plan.stepping]
    parts = {"soft counts": found[:, 0], "soft sums": found[:, others], "soft steps": found[:, steps]}
    return {
        name: part @ (whole + error * np.sign(part.reshape(-1, plan.corners).sum(axis=0) + 1e-300))
        for name, part in parts.items()
    }


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 2), st.data())
def test_one_record_moves_the_sums_by_no_more_than_claimed(k: int, own: int, hidden: int, data: st.DataObject) -> None:
    plan = make_plan(parameters(100, k, rounds=6, scheme="linear", computing=0), names(own, hidden))
    value = st.one_of(st.floats(-1, 1), st.sampled_from([-1.0, 1.0, 0.0]))
    draw = lambda count: np.array([data.draw(value) for _ in range(count)])  # noqa: E731
    centers, values, secret = draw((own + hidden) * k).reshape(k, own + hidden), draw(own), draw(hidden)
    releases = {release.name: release for release in plan.releases(0, seen_by="another party")}
    assert ("soft steps" in releases) == (own > 1)
    for error in (0.0, ERROR_BOUND, -ERROR_BOUND):
        moved = moved_by_one(plan, centers, values, secret, error)
        for name, release in releases.items():
            assert np.linalg.norm(moved[name]) <= release.sensitivity


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
    expected = soft_sums(points, start, hidden=(1,), grid=plan.grid).reshape(-1)
    flooding = np.sqrt(2.0) * plan.count_scale / plan.unit
    # Rounding of the weights: at most 2^-w, of random sign, for each record.
    rounding = np.sqrt(2500) * 2.0**-plan.scales.weight_bits
    assert np.abs(seen[0] - expected).max() < 6.0 * (flooding + rounding)
    np.testing.assert_array_equal(results[ALICE].centers, results[BOB].centers)


@pytest.mark.parametrize("mode", ["two-party", "threshold"])
@pytest.mark.parametrize("workers", [1, 2])
def test_two_encrypted_columns_are_the_soft_rule_s(mode: str, workers: int) -> None:
    points, start = blobs(2500, 3, 4, seed=5)
    points[0], points[1] = 1.0, -1.0
    public = parameters(2500, 3, rounds=1, mode=mode, scheme="linear", computing=0, degree=30, noise="flooding")
    plan = make_plan(public, names(2, 2))
    hidden = plan.columns(1)
    seen: list[np.ndarray] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == 123 and header.round == 0:
            seen.append(np.frombuffer(body, "<i8") / plan.unit)
        return body

    with WorkerEngine(plan, columns_of(plan, points, 0), workers) if workers > 1 else nullcontext() as engine:
        results, _ = simulate(plan, points, start, tap, engine=engine, quiet=True)
    expected = soft_sums(points, start, hidden=hidden, grid=plan.grid).reshape(-1)
    rounding = np.sqrt(2500) * 2.0**-plan.scales.weight_bits
    assert np.abs(seen[0] - expected).max() < plan.scales.flood + 6.0 * rounding
    np.testing.assert_array_equal(results[ALICE].centers, results[BOB].centers)


def test_rounds_with_two_columns_each_are_as_good_as_lloyd_s() -> None:
    points, start = blobs(2000, 5, 4, seed=3)
    plan = make_plan(parameters(2000, 5, rounds=4, noise="flooding"), names(2, 2))
    assert plan.scheme == "linear"
    results, _ = simulate(plan, points, start)
    assert loss(points, results[ALICE].centers) <= 1.01 * loss(points, lloyd(points, start, 4))


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
    sample = lwe.decode_samples(bodies[0], plan.scales.ring, plan.scales.wire_bits)
    # The two clusters' counts add up to a sum of all records: without fresh zeros the vectors would be the shares' own.
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
    for module in (computing, workers):
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
            parts[1] = open_one
        return EncryptedBlock(tuple(parts)).body()

    own = columns_of(plan, points, plan.computing)
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

    own = columns_of(plan, points, plan.computing)
    for rank in (plan.holder, plan.computing) if mode == "threshold" else (plan.holder,):
        with (
            WorkerEngine(plan, own, workers) if workers > 1 else nullcontext() as engine,
            pytest.raises(PeerError, match=r"key that was refused.*not below its prime") as caught,
        ):
            simulate(plan, points, start, sent_by(rank), engine=engine)
        assert caught.value.rank == rank


def test_a_record_that_is_replaced_by_nothing_adds_nothing() -> None:
    plan = linear_plan(64, 3)
    points, start = blobs(64, 3, 2)
    computer = LinearEngine(plan, columns_of(plan, points, 0))
    context = computer._context
    holder = ckks.KeyHolder(context)
    coefficients = np.zeros((plan.corners, context.degree), dtype=np.int64)  # nobody's shares
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
    expected = soft_sums(points, start, hidden=(2,), grid=plan.grid).reshape(-1)
    rounding = np.sqrt(1000) * 2.0**-plan.scales.weight_bits
    assert np.abs(seen[0] - expected).max() < plan.scales.flood + 6.0 * rounding
    np.testing.assert_array_equal(results[ALICE].centers, results[BOB].centers)


def test_one_share_of_a_common_key_opens_nothing() -> None:
    context = ckks.Context(ckks.Parameters(4096, (60,)))
    first, second = ckks.KeyHolder(context), KeyShare(context, SecretRandom())
    lead, half = first.public_key(), context.parameters.key_half_bytes
    (joined,) = add_parts(context, second.contribute([lead]), [lead[:half]])
    public = ckks.Refresher(context, context.load_public_key(joined + lead[half:]))
    zeros, q = public.zeros(8), context.modulus
    for share in (first, second):
        part = lwe.open_part(zeros, share.coefficients(), q).constants.astype(np.float64)
        assert np.abs(np.where(part > q / 2, part - q, part)).min() > 2.0**30  # once in 2^26 for uniform numbers
    both = lwe.open_part(lwe.open_part(zeros, first.coefficients(), q), second.coefficients(), q).constants
    assert np.abs(np.where(both > q // 2, both - q, both)).max() < errors_of(4096, 2).bound * 2
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


@pytest.mark.parametrize("widths", [(2, 1), (2, 2)])
def test_products_are_made_for_the_largest_weights_and_as_many_corners_as_are_added_up(
    widths: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, float]] = []

    class Recording(linear.Products):
        def __init__(self, context: ckks.Context, least: int, largest: float) -> None:
            made.append((least, largest))
            super().__init__(context, least, largest)

    monkeypatch.setattr(linear, "Products", Recording)
    plan = make_plan(parameters(40, 2, rounds=6, scheme="linear", computing=0), names(*widths))
    computer = LinearEngine(plan, np.ones((widths[0], 40)))
    ((most, claimed),) = made
    assert max(part.stop - part.start for part in computer._parts) == most
    assert [part.start for part in computer._parts[1:]] == [part.stop for part in computer._parts[:-1]]
    assert computer._parts[0].start == 0 and computer._parts[-1].stop >= plan.corners
    largest = [np.abs(computer.factors(part)).max() for part in computer._parts]
    largest.append(np.abs(computer.values(np.zeros((2, plan.d)), 0, 0)).max())
    assert claimed == 2.0**plan.scales.weight_bits >= max(largest)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_added_up_twice_goes_out_under_fresh_encryptions(workers: int) -> None:
    """Else vectors, which the key holder gets in clear, would show with what a column was multiplied."""
    plan = linear_plan(40, 2, degree=8)
    points, start = blobs(40, 2, 2, seed=1)
    context = ckks.Context(plan.encryption)
    holder = ckks.KeyHolder(context)
    own = columns_of(plan, points, plan.computing)
    with WorkerEngine(plan, own, workers) if workers > 1 else nullcontext(make_engine(plan, own)) as engine:
        engine.keys((holder.public_key(),))
        parts = linear.encrypt_block(plan, context, holder, columns_of(plan, points, plan.holder), 0)
        engine.load(plan.holder, 0, parts)
        one, other = (computing._follow(engine.evaluate(start), t) for t in range(2))
        samples = [_end_of(work) for work in (one, other)]
    assert (samples[0].vectors != samples[1].vectors).mean() > 0.999
    opened = [lwe.switch(sample, context.modulus, plan.scales.wire_bits) for sample in samples]
    values = [
        lwe.open_samples(sample, holder.coefficients(), context.modulus, plan.scales.wire_bits) for sample in opened
    ]
    assert np.abs(values[0] - values[1]).max() < plan.scales.flood * plan.unit


def _end_of(work):
    """Let an engine end."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
