"""What the parties of SecFC can and cannot see in what they receive."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from scipy import stats

from fastlloyd.protocols.secfc import client as client_module
from fastlloyd.protocols.secfc.messages import ArrayFormat, CodedValues, DataShares, ValuesFormat
from fastlloyd.ring.lagrange import Code
from fastlloyd.wire import PartyId
from tests.protocols.secfc.support import Run, mixture, plan_for, run

# For each of at most a few hundred comparisons: below 1e-6 for all of them together.
ALARM = 1e-9
BINS = 8


def answers_of(outcome: Run, bodies: dict[PartyId, bytes], clusters: int) -> tuple[Code, np.ndarray, list[int]]:
    """Everything the server received in one round, as field elements, shape (primes, clients, c, m)."""
    plan = outcome.plan
    shape = ValuesFormat(plan.field, clusters, len(outcome.points))
    parties = sorted(bodies)
    (rows,) = shape.blocks
    stacked = np.stack([CodedValues.read(bodies[party], shape).block(shape, rows) for party in parties], axis=1)
    return plan.code, stacked, [party.rank for party in parties]


def recorded_round(mode: str, t: int = 1) -> tuple[Run, dict[PartyId, bytes]]:
    """A run, and the server's view of one round."""
    bodies: dict[PartyId, bytes] = {}

    def tap(sender, receiver, header, body):
        if header.type == CodedValues.TYPE and header.round == t:
            bodies[sender] = body
        return body

    points = mixture(500, 3, 6, sigma=4.0, seed=8)
    outcome = run(points, 3, clients=9, tap=tap, settings={"segments": 3, "threshold": 2, "mode": mode})
    assert len(bodies) == 9 and len(outcome.history) > t + 1
    return outcome, bodies


def parts_of_segments(outcome: Run, mode: str, t: int = 1) -> np.ndarray:
    """What each segment adds to each value, in integers, shape (l, c, m)."""
    plan, labels, x = outcome.plan, outcome.history[t], outcome.points
    segments = np.zeros((len(x), plan.segments * plan.width), dtype=np.int64)
    segments[:, : plan.d] = x
    segments = segments.reshape(len(x), plan.segments, plan.width)
    parts = np.empty((plan.segments, plan.k, len(x)), dtype=object)
    for h in range(plan.k):
        size = int((labels == h).sum())
        for u in range(plan.segments):
            own = segments[:, u].astype(object)
            mu = own[labels == h].sum(axis=0)
            if mode == "distances":
                parts[u, h] = ((mu - size * own) ** 2).sum(axis=1)
            else:
                parts[u, h] = (mu**2).sum() - 2 * size * (own * mu).sum(axis=1)
    return parts


@pytest.mark.parametrize("mode", ["scores", "distances"])
def test_the_server_decodes_the_sums_and_no_segment(mode: str) -> None:
    outcome, bodies = recorded_round(mode)
    code, answers, ranks = answers_of(outcome, bodies, 3)
    parts = parts_of_segments(outcome, mode)
    assert (code.field.decode(code.decode_sums(answers, ranks)) == parts.sum(axis=0)).all()
    decoded = code.decode_segments(answers, ranks, degree=code.recovery - 1)
    assert not (code.field.decode(decoded) == parts).any()
    # Each segment's value, and each joint value of two of the three, is uniform: no more than the sum is left.
    for residues, p in zip(decoded, code.field.primes, strict=True):
        classes = ((residues + p // 2) * BINS // p).astype(int)
        for u, v in ((0, 1), (0, 2), (1, 2)):
            joint = np.bincount((classes[u] * BINS + classes[v]).ravel(), minlength=BINS**2)
            assert stats.chisquare(joint).pvalue > ALARM


@pytest.mark.parametrize("mode", ["scores", "distances"])
def test_without_the_masks_the_server_would_see_every_segment(mode: str, monkeypatch) -> None:
    def no_mask(code, client, shape, **_):
        return code.field.zeros(shape)

    monkeypatch.setattr(client_module, "zero_sum_mask", no_mask)
    outcome, bodies = recorded_round(mode)
    code, answers, ranks = answers_of(outcome, bodies, 3)
    decoded = code.decode_segments(answers, ranks, degree=code.recovery - 1)
    assert (code.field.decode(decoded) == parts_of_segments(outcome, mode)).all()


def test_masks_differ_from_round_to_round() -> None:
    # The same assignment twice gives the same values; what the clients send must not be the same.
    rounds: dict[int, set[bytes]] = defaultdict(set)

    def tap(sender, receiver, header, body):
        if header.type == CodedValues.TYPE:
            rounds[header.round].add(body)
        return body

    points = np.repeat([[0.5, -0.25], [-0.5, 0.25]], 30, axis=0)
    for _ in range(2):
        run(points, 1, clients=3, tap=tap)
    sent = [body for bodies in rounds.values() for body in bodies]
    assert len(sent) == len(set(sent)) == 3 * 2 * len(rounds)


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


def test_any_l_plus_t_clients_recover_the_points() -> None:
    points = mixture(40, 2, 5, seed=2)
    outcome, shares = shares_of_one_point(points, 40)
    code = outcome.plan.code
    for ranks in ([2, 3, 4, 5], [7, 2, 6, 3], [4, 5, 6, 7]):
        stacked = np.stack([shares[rank] for rank in ranks], axis=1)
        segments = code.decode_segments(stacked, ranks)
        assert (code.field.decode(code.join(segments, 5)) == outcome.own[PartyId(1)]).all()


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
    for mode, factor in (("scores", 6), ("distances", 8)):
        plan = plan_for(16_384, 100, 16, clients=16, settings={"mode": mode})
        assert plan.field.modulus > factor * 16_384**2 * 100 * (1 << 32)
    # The worst case itself: all points in two opposite corners, one cluster of all, and the farthest point.
    points = np.ones((60, 8))
    points[-1] = -1.0
    for mode in ("scores", "distances"):
        outcome = run(points, 1, clients=3, rounds=1, settings={"mode": mode})
        assert (outcome.first.labels == 0).all()


def test_nothing_secret_is_shown() -> None:
    outcome = run(mixture(30, 2, 3), 2, clients=3, settings={"reveal_centers": True})
    text = repr(outcome.first) + repr(outcome.server)
    assert "raw" not in text and "labels" not in text
