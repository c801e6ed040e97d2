"""All parties of FedDP-KMeans in memory: against the reference, against scikit-learn, and what they see.

False alarms of the statistical tests: below 1e-6 each.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.cluster import KMeans

from fastlloyd.errors import PeerError
from fastlloyd.kmeans.grid import quantise
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import NO_HISTORY
from fastlloyd.masking.pairwise import PairSecrets, PairwiseMasks
from fastlloyd.protocols.feddp.client import draw_share, statistics_of
from fastlloyd.protocols.feddp.math.record import cut_norm
from fastlloyd.protocols.feddp.math.stage import CLEAR, cluster_projected, elbow, make_projection, margin
from fastlloyd.protocols.feddp.messages import (
    CentersMessage,
    MaskedStatistic,
    ProjectedCentersMessage,
    ProjectionMessage,
)
from fastlloyd.protocols.feddp.plan_lines import noise_of
from fastlloyd.protocols.feddp.reference import run_reference
from fastlloyd.protocols.feddp.settings import OUTER
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.protocols.feddp.support import (
    USERS,
    Data,
    louder,
    mixture,
    no_noise,
    parts_of,
    plan_for,
    run,
)
from tests.protocols.support import RUN_ID, fresh_pairs, pairwise_masks

# For each comparison, of fifteen at most in a test, and twice that with the small cells of a chi-square test.
ALARM = 2e-8
VARIANTS = {
    "record": {"rounds": 0},
    "record, 64 bits, two steps": {"rounds": 2, "ring_bits": 64},
    "record, k chosen": {"rounds": 1, "choose_k": True},
    # So many records that outer products need the coarser grid.
    "record, coarse outer product": {"rounds": 0, "ring_bits": 64, "n_total": 1 << 36},
    "client, coarse outer product": {"settings": {**USERS, "outer_clip": 0.5}, "ring_bits": 64, "n_total": 1 << 36},
    "client": {"settings": USERS},
    "client, tight bounds": {
        "rounds": 1,
        "settings": {**USERS, "outer_clip": 0.05, "weight_clip": 0.5, "mean_clip": 0.4, "count_clip": 1.5},
    },
    "private start": {"settings": {"start": "private"}, "rounds": 1},
    "private start, client": {"settings": {**USERS, "start": "private", "proxies": 30}},
    "server-kmeans++": {"settings": {"start": "server-kmeans++"}, "rounds": 1},
    "server-lloyds": {"settings": {"start": "server-lloyds"}, "rounds": 2},
    "sphere-packing": {"settings": {"start": "sphere-packing"}, "rounds": 2},
}


@pytest.fixture(scope="module")
def data() -> Data:
    return mixture(300, 4, 6)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_parties_equal_the_reference_bit_by_bit_with_the_same_shares(data: Data, changes) -> None:
    # A tenth of the planned noise, so that the centres mean something and a wrong label would show.
    plan = louder(plan_for(data, 4, **changes), 0.1)
    assert (plan.outer_bits < plan.fraction_bits) == ("n_total" in changes)
    secret = SecretRandom()
    drawn: dict[tuple[PartyId, int], np.ndarray] = {}

    def share(me: PartyId, t: int, k: int) -> np.ndarray:
        assert (me, t) not in drawn  # never twice
        drawn[me, t] = draw_share(plan, t, k, secret)
        return drawn[me, t]

    got = run(data, plan, share=share)
    total = lambda t, k: sum(drawn[me, t] for me in clients(3))  # noqa: E731
    expected = run_reference(data.points, data.server_points, plan, total, users=data.users)
    for result in (got.server, *(got.results[me] for me in clients(3))):
        assert result.centers.exact.tobytes() == expected.centers.tobytes()
        assert result.centers.noisy_counts.tobytes() == expected.noisy_counts.tobytes()
        assert result.costs.tobytes() == expected.costs.tobytes()
        assert len(result.centers.exact) == len(expected.centers)
        assert result.included == (clients(3),) * len(plan.rounds)
    if plan.rounds[0].kind == OUTER:
        replies = [got.simulation.saved[SERVER, f"reply-{t}"] for t in range(2)]
        projection = ProjectionMessage.read(replies[0], plan).projection
        assert projection.matrix.tolist() == expected.matrix
        assert projection.server_points.tolist() == expected.pi_q
        assert ProjectedCentersMessage.read(replies[1], plan).found.centers.tolist() == expected.xi


def test_without_noise_it_is_the_algorithm_in_floats(data: Data) -> None:
    plan = plan_for(data, 4, rounds=0)
    result = run(data, plan, share=lambda me, t, k: no_noise(plan)(t, k)).first
    x, q = data.points, data.server_points
    long = np.linalg.norm(x, axis=1) > plan.norm_bound
    x = np.where(long[:, None], x * plan.norm_bound / np.linalg.norm(x, axis=1)[:, None], x)
    _, vectors = np.linalg.eigh(x.T @ x)
    basis = vectors[:, -4:]
    seen, server_seen = x @ basis, q @ basis
    weights = np.bincount(_nearest(seen, server_seen), minlength=len(q))
    xi = KMeans(4, n_init=20, random_state=0).fit(server_seen, sample_weight=weights).cluster_centers_
    labels = _nearest(seen, xi)
    nu = np.stack([x[labels == j].mean(axis=0) for j in range(4)])
    order = _nearest(nu, result.centers.exact)
    assert sorted(order) == [0, 1, 2, 3]
    assert np.abs(result.centers.exact[order] - nu).max() < 2.0**-plan.fraction_bits * 2
    assert (result.centers.noisy_counts[order] == np.bincount(labels)).all()
    own = parts_of(data, 3, by_user=False)[0]
    assert (result.raw_labels == order[_nearest(data.points[own], nu)]).all()


def test_client_level_without_noise_is_a_mean_of_means(data: Data) -> None:
    plan = plan_for(data, 4, settings={**USERS, "mean_clip": 10.0, "count_clip": 4.0})
    result = run(data, plan, share=lambda me, t, k: no_noise(plan)(t, k)).first
    labels = _nearest(data.points, data.means)  # blobs far apart: any sensible projection gives these
    expected = []
    for j in range(4):
        users = np.unique(data.users[labels == j])
        expected.append(np.mean([data.points[(data.users == u) & (labels == j)].mean(axis=0) for u in users], axis=0))
    order = _nearest(np.array(expected), result.centers.exact)
    assert sorted(order) == [0, 1, 2, 3]
    assert np.abs(result.centers.exact[order] - np.array(expected)).max() < 2.0**-plan.fraction_bits * 2
    counts = [len(np.unique(data.users[labels == j])) for j in range(4)]
    assert (result.centers.noisy_counts[order] == counts).all()


def test_the_elbow_chooses_the_true_number_without_noise(data: Data) -> None:
    plan = plan_for(data, 9, choose_k=True)
    outcome = run(data, plan, share=lambda me, t, k: no_noise(plan)(t, k))
    assert len(outcome.server.centers.exact) == len(outcome.first.centers.exact) == 4
    assert len(outcome.server.costs) == 9
    assert (np.diff(outcome.server.costs) <= 1e-12).all()


def test_where_the_elbow_is_not_clear_merging_chooses_as_in_the_reference() -> None:
    chosen = []
    for seed in (3, 7):  # eight clusters, the largest with 64 times the records of the smallest
        means = mixture(1, 8, 3, seed=seed).means
        rng = np.random.default_rng(seed)
        sizes = np.repeat(np.arange(8), np.arange(1, 9) ** 2)
        points = np.clip(means[np.resize(sizes, 600)] + rng.normal(0, 0.1, (600, 3)), -1, 1)
        data = Data(points, np.arange(600) // 10, mixture(1, 8, 3, seed=seed, spread=0.1).server_points, means)
        plan = louder(plan_for(data, 12, choose_k=True), 0.2)
        quiet = no_noise(plan)
        outcome = run(data, plan, share=lambda me, t, k, quiet=quiet: quiet(t, k))
        expected = run_reference(data.points, data.server_points, plan, quiet)
        costs = outcome.server.costs.tolist()
        assert len(expected.noisy_counts) == len(outcome.server.centers.exact) == len(outcome.first.centers.exact)
        assert noise_of(plan, outcome.first.centers, len(points), outcome.first.costs).stands_out is False
        assert 0.0 < margin(costs) < CLEAR
        chosen.append((elbow(costs), len(outcome.server.centers.exact)))
    assert chosen == [(6, 3), (6, 4)]


def _nearest(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    return ((points[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)


# --- who sees what ------------------------------------------------------------------------------------------------


def test_the_server_sees_masked_vectors_and_noisy_sums_and_nothing_else(data: Data) -> None:
    plan = plan_for(data, 4, rounds=1)
    kinds = {m.TYPE: m for m in (MaskedStatistic, ProjectionMessage, ProjectedCentersMessage, CentersMessage)}
    seen: dict[type, set[tuple[int, int]]] = {}
    sums = {t: np.zeros(plan.elements(t), dtype=Ring(plan.ring_of(t)).dtype) for t in range(4)}
    drawn = {t: np.zeros(plan.elements(t), dtype=np.int64) for t in range(4)}
    down: dict[int, set[bytes]] = {}
    secret = SecretRandom()

    def share(me: PartyId, t: int, k: int) -> np.ndarray:
        part = draw_share(plan, t, k, secret)
        drawn[t] += part
        return part

    def tap(sender, receiver, header, body):
        seen.setdefault(kinds[header.type], set()).add((sender.rank, receiver.rank))
        if header.type == MaskedStatistic.TYPE:
            sums[header.round] += np.frombuffer(body, dtype=sums[header.round].dtype)
        elif sender == SERVER:
            down.setdefault(header.round, set()).add(body)
        return body

    outcome = run(data, plan, share=share, tap=tap)
    up = {(i, 0) for i in (1, 2, 3)}
    assert seen[MaskedStatistic] == up
    for reply in (ProjectionMessage, ProjectedCentersMessage, CentersMessage):
        assert seen[reply] == {(0, i) for i in (1, 2, 3)}
    assert all(len(bodies) == 1 for bodies in down.values())  # all clients get the same bytes
    # What the server has in clear is a noisy sum: take the noise off and it is the exact statistic.
    exact = Ring(plan.ring_of(0)).decode(sums[0]) - drawn[0]
    cut = cut_norm(quantise(data.points, plan.fraction_bits), plan.norm_limit).raw_coordinates.astype(np.int64)
    assert (exact == (cut @ cut.T)[np.triu_indices(6)]).all()
    noisy = Ring(plan.ring_bits).decode(sums[3])
    assert (noisy[-4:] / 2.0**plan.fraction_bits == outcome.first.centers.noisy_counts).all()


def _collect(data: Data, plan, runs: int, masks, share) -> dict[int, list[list[bytes]]]:
    """Uplinks of client 1, 2, 3 in each step."""
    found: dict[int, list[list[bytes]]] = {t: [[], [], []] for t in range(len(plan.rounds))}

    def tap(sender, receiver, header, body):
        if header.type == MaskedStatistic.TYPE:
            found[header.round][sender.rank - 1].append(body)
        return body

    for _ in range(runs):
        run(data, plan, share=share, tap=tap, masks=masks)
    return found


def test_an_uplink_is_uniform_and_so_are_two_together(data: Data) -> None:
    # Without noise, so that only the masks can make it so.
    plan = plan_for(data, 4, rounds=0)
    found = _collect(data, plan, 60, None, lambda me, t, k: no_noise(plan)(t, k))
    for t in range(3):
        dtype = Ring(plan.ring_of(t)).dtype
        one, two, three = (np.frombuffer(b"".join(bodies), dtype=dtype) for bodies in found[t])
        for vector in (one, two, three, one + two, two + three):
            octets = vector.view(np.uint8)
            assert stats.chisquare(np.bincount(octets, minlength=256)).pvalue > ALARM
        everything = (one + two + three).view(np.uint8)
        assert stats.chisquare(np.bincount(everything, minlength=256)).pvalue < 1e-30


def test_without_one_pair_s_mask_an_uplink_is_uniform_and_without_all_it_still_carries_the_share(data: Data) -> None:
    plan = plan_for(data, 4, rounds=0)
    pairs = fresh_pairs(3)
    masks = pairwise_masks(pairs)
    secret = SecretRandom()
    share = lambda me, t, k: draw_share(plan, t, k, secret)  # noqa: E731
    (uplink,) = _collect(data, plan, 1, masks, share)[0][0]
    elements = plan.elements(0)
    me, ring = PartyId(1), Ring(64)
    vector = np.frombuffer(uplink, dtype=ring.dtype)
    whole = masks[me].shaped(ring, elements).mask(0, me, NO_HISTORY)
    # Who knows the secret of pair (1, 2) takes that stream off; the stream of pair (1, 3) still covers all.
    only = PairSecrets(me, {PartyId(2): pairs[me].secrets[PartyId(2)]})
    known = PairwiseMasks(only, ring, elements, RUN_ID).mask(0, me, NO_HISTORY)
    left = vector - known
    assert np.abs(ring.decode(left)).max() > 2.0**60  # 21 uniform 64-bit numbers: missed once in 10^25
    rows = parts_of(data, 3, by_user=False)[0]
    cut = cut_norm(quantise(data.points[rows], plan.fraction_bits), plan.norm_limit).raw_coordinates.astype(np.int64)
    noise = ring.decode(vector - whole) - (cut @ cut.T)[np.triu_indices(6)]
    sigma = plan.rounds[0].sigma * np.sqrt(float(plan.share))
    level = stats.chi2(elements).cdf((noise.astype(float) ** 2).sum() / sigma**2)
    assert ALARM / 2 < level < 1 - ALARM / 2


def test_every_party_records_each_release_once_and_tells_of_each_step(data: Data) -> None:
    plan = plan_for(data, 4, rounds=1)
    simulation = run(data, plan).simulation
    for party in (SERVER, *clients(3)):
        assert tuple(simulation.releases[party]) == plan.all_releases()
        told = [p.values["step"] for who, p in simulation.published if who == party]
        assert told == ["outer product", "weights", "centres", "lloyd"]


# --- clean failure and resume -------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [0, 1, 2])
def test_a_missing_client_ends_the_run_before_any_sum_is_used(data: Data, t: int) -> None:
    plan = plan_for(data, 4, rounds=0)
    left: list[int] = []

    def tap(sender, receiver, header, body):
        if sender == SERVER:
            left.append(header.round)
        return None if sender == PartyId(3) and (header.type, header.round) == (MaskedStatistic.TYPE, t) else body

    with pytest.raises(PeerError, match="client 3"):
        run(data, plan, tap=tap)
    assert set(left) == set(range(t))


@pytest.mark.parametrize(
    "changes",
    [{"rounds": 1, "choose_k": True}, {"settings": USERS}, {"settings": {"start": "private"}}],
    ids=["record", "client", "private start"],
)
@pytest.mark.parametrize("closed", [1, 2])
def test_a_resumed_run_sends_the_same_bytes_and_ends_the_same(data: Data, closed: int, changes) -> None:
    # Interrupted after `closed` steps: client 1 has not seen the last reply, client 2 has sent the next uplink.
    plan, masks = plan_for(data, 4, **changes), pairwise_masks(fresh_pairs(3))
    sent: dict[tuple[int, int], bytes] = {}
    secret = SecretRandom()
    drawn: dict[tuple[PartyId, int], np.ndarray] = {}

    def share(me: PartyId, t: int, k: int) -> np.ndarray:
        return drawn.setdefault((me, t), draw_share(plan, t, k, secret))

    def tap(sender, receiver, header, body):
        if header.type == MaskedStatistic.TYPE:
            sent[sender.rank, header.round] = body
        return body

    first = run(data, plan, share=share, tap=tap, masks=masks)
    saved = first.simulation.saved
    uplinks = {me: {t: saved[me, f"uplink-{t}"] for t in range(closed)} for me in clients(3)}
    uplinks[PartyId(2)][closed] = saved[PartyId(2), f"uplink-{closed}"]
    seen = {PartyId(1): closed - 1, PartyId(2): closed, PartyId(3): closed}
    stored = {
        me: StoredRounds(uplinks[me], {t: saved[me, f"reply-{t}"] for t in range(seen[me])}, closed)
        for me in clients(3)
    }
    before = dict(sent)
    sent.clear()
    replies = {t: saved[SERVER, f"reply-{t}"] for t in range(closed)}
    again = run(data, plan, share=share, tap=tap, masks=masks, stored=stored, replies=replies, done=seen)
    assert {t for _, t in sent} == set(range(closed, len(plan.rounds)))  # closed steps are not repeated
    assert all(before[key] == body for key, body in sent.items())
    for party in (SERVER, *clients(3)):
        assert again.results[party].centers.exact.tobytes() == first.results[party].centers.exact.tobytes()
        assert again.results[party].costs.tobytes() == first.results[party].costs.tobytes()


def test_the_server_s_points_lie_in_memory_as_a_stored_reply_gives_them_back(data: Data) -> None:
    # Sums of floats may depend on the order in memory: then a resumed server would find other costs.
    plan = plan_for(data, 4, rounds=0)
    own = quantise(data.points, plan.fraction_bits)
    fresh = make_projection(statistics_of(own, plan).outer_product(), data.server_points, plan)
    stored = ProjectionMessage.read(ProjectionMessage(fresh).body(), plan).projection
    for one, other in ((fresh.matrix, stored.matrix), (fresh.server_points, stored.server_points)):
        assert (one == other).all() and one.dtype == other.dtype
        assert one.flags.c_contiguous and other.flags.c_contiguous


def test_a_weight_below_zero_counts_as_zero(data: Data) -> None:
    plan = plan_for(data, 4, rounds=0)
    own = statistics_of(quantise(data.points, plan.fraction_bits), plan)
    projection = make_projection(own.outer_product(), data.server_points, plan)
    weights = own.weights(projection)
    weights[::3] = 0
    lower = weights.copy()
    lower[::3] = -(1 << 20)
    ours, theirs = (cluster_projected(each, projection, plan, 10).centers for each in (weights, lower))
    assert (ours == theirs).all()


def test_a_stored_uplink_is_sent_as_it_is(data: Data) -> None:
    plan = plan_for(data, 4, rounds=0)
    old = bytes(i % 251 for i in range(plan.elements(0) * 8))
    sent: list[bytes] = []

    def tap(sender, receiver, header, body):
        if sender == PartyId(1) and header.type == MaskedStatistic.TYPE:
            sent.append(body)
        return body

    run(data, plan, tap=tap, stored={PartyId(1): StoredRounds(uplinks={0: old})})
    assert sent[0] == old


@pytest.mark.parametrize(
    "type_,change,rank",
    [
        (MaskedStatistic, lambda body: body[:-1], 1),
        (ProjectionMessage, lambda body: body[:-4], 0),
        (ProjectionMessage, lambda body: b"\xff\xff\xff\x7f" + body[4:], 0),
        (ProjectionMessage, lambda body: body[:-4] + b"\xff\xff\xff\x7f", 0),
        (ProjectedCentersMessage, lambda body: body[:3], 0),
        (ProjectedCentersMessage, lambda body: b"\x05" + body[1:], 0),
        (ProjectedCentersMessage, lambda body: body[:-4] + b"\xff\xff\xff\x7f", 0),
        (ProjectedCentersMessage, lambda body: body + bytes(8), 0),
        (CentersMessage, lambda body: body[:-8], 0),
        (CentersMessage, lambda body: body[:4] + np.float64(1.5).tobytes() + body[12:], 0),
        (CentersMessage, lambda body: body[:4] + np.float64(np.nan).tobytes() + body[12:], 0),
    ],
)
def test_a_malformed_message_names_its_sender(data: Data, type_, change, rank: int) -> None:
    plan = plan_for(data, 4, rounds=0)

    def tap(sender, receiver, header, body):
        hit = header.type == type_.TYPE and 1 in (sender.rank, receiver.rank)
        return change(body) if hit else body

    with pytest.raises(PeerError, match="malformed") as caught:
        run(data, plan, tap=tap)
    assert caught.value.rank == rank


def test_clients_without_records_take_part(data: Data) -> None:
    for changes in ({"rounds": 1}, {"settings": USERS}):
        plan = plan_for(data, 4, **changes)
        alone = Data(data.points[:5], np.zeros(5, dtype=np.int64), data.server_points, data.means)
        outcome = run(alone, plan)
        assert len(outcome.results[PartyId(3)].raw_labels) == (0 if plan.by_user else 1)
        assert np.isfinite(outcome.server.centers.exact).all()
