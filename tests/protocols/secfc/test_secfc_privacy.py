"""What the parties of SecFC can and cannot see in what they receive."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fastlloyd.party.effects import Send
from fastlloyd.protocols.secfc.client import _Exchange
from fastlloyd.protocols.secfc.field.lagrange import Code
from fastlloyd.protocols.secfc.math import masks as masks_module
from fastlloyd.protocols.secfc.math.attempt import Attempt, coins, first_seed
from fastlloyd.protocols.secfc.math.coded import Coder
from fastlloyd.protocols.secfc.math.masks import RoundMasks, squared_norm_bound
from fastlloyd.protocols.secfc.math.signs import largest_difference, largest_value, sign_masks
from fastlloyd.protocols.secfc.messages import ArrayFormat, CodedValues, DataShares, Signs, ValuesFormat
from fastlloyd.randomness.prg import KeyStream
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import PartyId
from tests.privacy.joint import dependent, uniform_scores
from tests.protocols.secfc.support import Run, mixture, plan_for, run

# For each of at most a few hundred comparisons: below 1e-6 for all of them together.
ALARM = 1e-9
BINS = 8


def recorded_round(start: str) -> tuple[Run, Code, np.ndarray, list[int]]:
    """A run, and all that the server received in message 1: field elements, shape (primes, clients, values).

    The second comparison of the first iteration; or, in the separated start, of the first two seeds.
    """
    bodies: dict[PartyId, bytes] = {}

    def tap(sender, receiver, header, body):
        if header.type == CodedValues.TYPE and header.round == 1:
            bodies[sender] = body
        return body

    points = mixture(500, 3, 6, sigma=4.0, seed=8)
    settings = {"segments": 3, "threshold": 2, "start": start, "starts": 1}
    outcome = run(points, 3, clients=9, tap=tap, settings=settings)
    plan, parties = outcome.plan, sorted(bodies)
    assert len(bodies) == 9 and len(outcome.history) > 2
    shape = ValuesFormat(plan.field, 500)
    answers = [plan.field.from_bytes(CodedValues.read(bodies[party], shape).data, (500,)) for party in parties]
    return outcome, plan.code, np.stack(answers, axis=1), [party.rank for party in parties]


def parts_of_segments(outcome: Run, start: str) -> tuple[np.ndarray, np.ndarray]:
    """What each segment adds to each value, shape (l, m), and the noise; in the order that is sent."""
    plan, x = outcome.plan, outcome.points
    segments = np.zeros((len(x), plan.segments * plan.width), dtype=np.int64)
    segments[:, : plan.d] = x
    segments = segments.reshape(len(x), plan.segments, plan.width).transpose(1, 0, 2).astype(object)
    masks = outcome.masks[1]
    secrets, order = masks.signs(len(x)), masks.shuffled(len(x))
    factors, noise = secrets.integers()
    if start == "separated":
        first = first_seed(plan, len(x), 0)
        reached = np.cumsum(((x - x[first]) ** 2).sum(axis=1)).astype(object)
        coin = coins(plan, 0)[0]
        second = next(j for j, sum_ in enumerate(reached) if sum_ << plan.coin_bits > coin * reached[-1])
        near, new = (((segments - segments[:, [seed]]) ** 2).sum(axis=2) for seed in (first, second))
        parts = ((new - near) * factors)[:, order]
        # The first seed is at distance 0 from itself, which everybody knows: a power of two stands for it.
        place = int(np.flatnonzero(order == first)[0])
        power = secrets.spare[first] * plan.dummy_bits >> 25
        parts[:, place], noise[first] = 0, noise[first] + factors[first] * (1 << int(power))
        return parts, noise[order]
    # Of the three clusters the winner of the first two meets the third.
    labels = outcome.history[0]
    exact = scores(x, labels, [0, 1])
    first = np.where(exact[1] < exact[0], 1, 0)
    parts = np.empty((plan.segments, len(x)), dtype=object)
    for u in range(plan.segments):
        sums = [segments[u][labels == h].sum(axis=0) for h in range(3)]
        values = [difference(segments[u][i], sums, labels, int(first[i]), 2) for i in range(len(x))]
        parts[u] = (np.array(values, dtype=object) * factors)[order]
    return parts, noise[order]


def scores(x: np.ndarray, labels: np.ndarray, clusters: list[int]) -> np.ndarray:
    """sigma_h of each point, as fractions."""
    rows = []
    for h in clusters:
        size, mu = int((labels == h).sum()), x[labels == h].sum(axis=0).astype(object)
        rows.append([Fraction(int((mu * mu).sum() - 2 * size * (mu * p).sum()), size**2) for p in x.astype(object)])
    return np.array(rows, dtype=object)


def difference(point: np.ndarray, sums: list[np.ndarray], labels: np.ndarray, h: int, g: int) -> int:
    """T^2 (sigma_g - sigma_h), by its definition."""
    sizes = [int((labels == cluster).sum()) for cluster in range(len(sums))]
    whole = math.lcm(sizes[h], sizes[g])
    of_h, of_g = whole // sizes[h] * sums[h], whole // sizes[g] * sums[g]
    return int((of_g * of_g).sum() - (of_h * of_h).sum() - 2 * whole * ((of_g - of_h) * point).sum())


@pytest.mark.parametrize("start", ["random", "separated"])
def test_the_server_decodes_the_sums_and_no_segment(start: str) -> None:
    outcome, code, answers, ranks = recorded_round(start)
    parts, noise = parts_of_segments(outcome, start)
    assert (code.field.decode(code.decode_sums(answers, ranks)) == parts.sum(axis=0) + noise).all()
    decoded = code.decode_segments(answers, ranks, degree=code.recovery - 1)
    # Each segment's value, and each joint value of two of the three, is uniform: no more than the sum is left.
    for residues, p in zip(decoded, code.field.primes, strict=True):
        classes = ((residues + p // 2) * BINS // p).astype(int)
        for u, v in ((0, 1), (0, 2), (1, 2)):
            joint = np.bincount((classes[u] * BINS + classes[v]).ravel(), minlength=BINS**2)
            assert stats.chisquare(joint).pvalue > ALARM


@pytest.mark.parametrize("start", ["random", "separated"])
def test_without_the_masks_the_server_would_see_every_segment(start: str, monkeypatch) -> None:
    def no_mask(code, client, shape, **_):
        return code.field.zeros(shape)

    monkeypatch.setattr(masks_module, "zero_sum_mask", no_mask)
    outcome, code, answers, ranks = recorded_round(start)
    decoded = code.decode_segments(answers, ranks, degree=code.recovery - 1)
    parts, noise = parts_of_segments(outcome, start)
    # The noise is spread evenly over the segments.
    times = code.field.multiply(decoded, code.field.encode(np.full((1, 1), code.segments)))
    assert (code.field.decode(times) == code.segments * parts + noise).all()


def test_masks_differ_from_round_to_round() -> None:
    # The same assignment twice gives the same values; what the clients send must not be the same.
    rounds: dict[int, set[bytes]] = defaultdict(set)

    def tap(sender, receiver, header, body):
        if header.type == CodedValues.TYPE:
            rounds[header.round].add(body)
        return body

    points = mixture(60, 2, 3, seed=3)
    lengths = [len(run(points, 2, clients=3, tap=tap, settings={"starts": 1}).history) for _ in range(2)]
    sent = [body for bodies in rounds.values() for body in bodies if body != b"\2"]
    assert len(sent) == len(set(sent)) == 3 * sum(length - 1 for length in lengths)


def shares_of_one_point(points: np.ndarray, rows: int, membership: bool = False) -> tuple[Run, dict[int, np.ndarray]]:
    """The shares that clients 2..7 got of client 1's points; shape (primes, rows, width) each."""
    bodies: dict[int, bytes] = {}

    def tap(sender, receiver, header, body):
        if header.type == DataShares.TYPE and sender == PartyId(1):
            bodies[receiver.rank] = body
        return body

    parts = [np.arange(len(points)), *[np.arange(0)] * 6]
    settings = {"segments": 2, "threshold": 2, "membership": membership}
    sizes = (len(points), *[0] * 6) if membership else None
    outcome = run(points, 2, clients=7, parts=parts, sizes=sizes, rounds=1, tap=tap, settings=settings)
    shape = ArrayFormat(outcome.plan.field, (rows, outcome.plan.width))
    return outcome, {rank: DataShares.read(body, shape).elements for rank, body in bodies.items()}


@pytest.mark.usefixtures("open_messages")
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_shares_of_any_t_clients_are_uniform_whatever_the_point(value: float) -> None:
    outcome, shares = shares_of_one_point(np.full((6000, 4), value), 6000)
    plan = outcome.plan
    pairs = [(i, j) for i in shares for j in shares if i < j]
    assert plan.threshold == 2 and len(pairs) == 15
    for index, p in enumerate(plan.primes):
        classes = {rank: ((s[index] + p // 2) * BINS // p).astype(int) for rank, s in shares.items()}
        for i, j in pairs:
            for column in range(plan.width):
                joint = np.bincount(classes[i][:, column] * BINS + classes[j][:, column], minlength=BINS**2)
                assert stats.chisquare(joint).pvalue > ALARM


@pytest.mark.usefixtures("open_messages")
def test_any_l_plus_t_clients_recover_the_points() -> None:
    points = mixture(40, 2, 5, seed=2)
    outcome, shares = shares_of_one_point(points, 40)
    code = outcome.plan.code
    for ranks in ([2, 3, 4, 5], [7, 2, 6, 3], [4, 5, 6, 7]):
        stacked = np.stack([shares[rank] for rank in ranks], axis=1)
        segments = code.decode_segments(stacked, ranks)
        assert (code.field.decode(code.join(segments, 5)) == outcome.own[PartyId(1)]).all()


@pytest.mark.usefixtures("open_messages")
def test_t_plus_1_clients_would_see_more() -> None:
    # The counterpart of the test of t clients: some combination of three shares is free of the two random vectors.
    outcome, shares = shares_of_one_point(np.full((200, 4), 0.5), 200)
    code, ranks = outcome.plan.code, (2, 5, 7)
    noise = code.encoding_matrix()[:, [rank - 1 for rank in ranks], code.segments :]
    for index, p in enumerate(code.field.primes):
        (a, b), (c, d), (e, f) = noise[index].astype(int).tolist()
        weights = (c * f - d * e) % p, (b * e - a * f) % p, (a * d - b * c) % p
        rows = [shares[rank][index, :, 0].astype(int).tolist() for rank in ranks]
        combined = {sum(w * s for w, s in zip(weights, row, strict=True)) % p for row in zip(*rows, strict=True)}
        assert len(combined) == 1


def test_field_values_of_a_run_cannot_wrap() -> None:
    plan = plan_for(16_384, 100, 16, clients=16)
    bound = largest_value(
        largest_difference(n_total=16_384, squared_norm=squared_norm_bound(100, 16)), plan.mantissa_bits
    )
    assert plan.field.largest >= bound > 16_384**4 * 100 * (1 << 30) << (plan.mantissa_bits + 65)
    assert plan.mantissa_bits == 144 and len(plan.primes) == 13


def test_nothing_secret_is_shown() -> None:
    outcome = run(mixture(30, 2, 3), 2, clients=3, settings={"reveal_centers": True})
    text = repr(outcome.first) + repr(outcome.server)
    assert "raw" not in text and "labels" not in text


@pytest.mark.parametrize("changed", [0, 7, 39])
def test_the_masks_of_a_message_follow_every_sign_that_came_before(changed: int) -> None:
    """A server that tells two clients different things, or one client two things, gets values under other masks."""
    plan = plan_for(40, 3, 2, settings={"starts": 1})
    raw = np.random.default_rng(0).integers(-1000, 1000, (40, 3))
    shares = plan.code.share(plan.field.encode(raw), SecretRandom())[:, 0].astype(np.float32)
    orders = []
    for flip in (False, True):
        coder = Coder(plan.code, shares)
        exchange = _Exchange(PartyId(1), plan, coder, bytes(32), bytes(16))
        step = exchange.step([Attempt(plan, coder, 0, exchange.memory).step()])
        assert isinstance(next(step), Send)
        effect = step.send(None)
        signs = np.zeros(effect.format.values, dtype=np.bool_)
        signs[changed] = flip
        before = exchange._masks()
        step.send(Signs(signs, plan.everybody, effect.format))
        with contextlib.suppress(StopIteration):
            step.send(None)
        after = exchange._masks()
        for masks in (before, after):
            values = masks.sums((50,), 0).ravel()[:50]
            orders.append((*masks.shuffled(50), *masks.signs(50).integers()[0], *values))
    assert orders[0] == orders[2]
    assert (np.array(orders[1]) == np.array(orders[3])).mean() < 0.1


def test_messages_have_masks_of_their_own_even_after_the_same_replies() -> None:
    """A second guard: no two messages of a run come after the same replies."""
    code = plan_for(40, 3, 2).code
    first, other = (RoundMasks(code, 1, seed=bytes(32), replies=bytes(32), round_=t, mantissa=64) for t in (0, 1))
    assert (first.sums((64,), 0) != other.sums((64,), 0)).mean() > 0.9
    assert (first.sums((64,), 0) != first.sums((64,), 1)).mean() > 0.9
    assert (first.shuffled(64) != other.shuffled(64)).any()
    assert (first.signs(64).mantissas != other.signs(64).mantissas).mean() > 0.9


def test_no_two_uses_of_a_message_s_masks_read_one_key_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: set[bytes] = set()
    read = KeyStream.read

    def noting(stream, nonce, length, **options):
        content = read(stream, nonce, length, **options)
        begun.add(content[:16])
        return content

    monkeypatch.setattr(KeyStream, "read", noting)
    code = plan_for(40, 3, 2).code
    for client in (1, 2, 3):
        for t in (0, 1):
            masks = RoundMasks(code, client, seed=bytes(32), replies=bytes(32), round_=t, mantissa=128)
            masks.shuffled(64), masks.signs(64), masks.sums((64,), 0), masks.sums((64,), 1)
    # In each of two messages: an order, two streams of signs, and in each of two blocks the sums of all that are drawn.
    assert len(begun) == 2 * (1 + 2 + 2 * min(3, code.recovery - 1))


def test_the_secrets_of_a_comparison_are_independent_of_each_other() -> None:
    count, mantissa = 2000, 128
    secrets = sign_masks(count, key=bytes(range(32)), round_=3, mantissa=mantissa)
    coins = np.random.default_rng(0)
    high = [words[:, -2:].copy().view("<u8").ravel().astype(float) for words in (secrets.mantissas, secrets.positions)]
    last = secrets.low.copy().view("<u8").ravel().astype(float) / 2.0**secrets.octaves
    uniform = {"mantissa": np.log2(high[0] / 2.0**63), "position": high[1] / high[0], "last bits": last}
    bits = {
        **{f"octave's bit {i}": (secrets.octaves - 1) >> i & 1 for i in range(6)},
        "coin": secrets.flipped.astype(int),
        **{f"spare bit {i}": secrets.spare >> i & 1 for i in (*range(7), *range(18, 25))},
        **{
            f"{name}'s word {i}, bit {bit}": words[:, i].astype(int) >> bit & 1
            for name, words in (("mantissa", secrets.mantissas), ("position", secrets.positions))
            for i in range(2)
            for bit in range(0, 32, 5)
        },
    }
    uniform |= {name: (values + coins.random(count)) / 2.0 for name, values in bits.items()}
    assert dependent({name: uniform_scores(values) for name, values in uniform.items()}) == set()
