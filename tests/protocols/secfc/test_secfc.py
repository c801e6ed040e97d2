"""SecFC equals centralised Lloyd, point by point and iteration by iteration."""

from __future__ import annotations

from itertools import pairwise, zip_longest

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin

from fastlloyd.crypto.hybrid import TAG_BYTES
from fastlloyd.protocols.secfc import messages as messages_module
from fastlloyd.protocols.secfc import plan as plan_module
from fastlloyd.protocols.secfc.messages import CenterShares, CodedValues, DataShares, Finished, Signs
from fastlloyd.protocols.secfc.reference import copied_at, course, reference
from fastlloyd.wire.header import SERVER, SETUP_ROUND, PartyId, clients
from tests.protocols.secfc.support import Run, mixture, named, run, uneven

SETS = {
    "iris": (lambda: named("iris"), 3),
    "wine": (lambda: named("wine"), 3),
    "s1": (lambda: named("s1")[::6], 15),
    "mixture": (lambda: mixture(300, 4, 20), 4),
    "wide mixture": (lambda: mixture(240, 4, 100, sigma=20.0, seed=3), 4),
}
CODES = [
    (3, {}),
    (5, {}),
    (7, {"segments": 1, "threshold": 3}),
    (8, {"segments": 3, "threshold": 1, "extra_answers": 1}),
    (10, {"segments": 1, "threshold": 4}),
]


def equals_reference(outcome: Run) -> None:
    assert len(outcome.courses) == outcome.plan.starts
    whole = [course(outcome.points, outcome.plan, number) for number in range(outcome.plan.starts)]
    for ours, theirs, end in zip(outcome.courses, whole, copied_at(whole, outcome.plan), strict=True):
        until = theirs if end is None else theirs[: end + 1]
        assert [labels.tolist() for labels in ours] == [labels.tolist() for labels in until]
    expected = reference(outcome.points, outcome.plan)
    assert [labels.tolist() for labels in outcome.history] == [labels.tolist() for labels in expected]
    for party in clients(outcome.plan.clients):
        result = outcome.results[party]
        assert (result.labels == expected[-1]).all()
        assert (result.raw_labels == expected[-1][result.raw_rows]).all()
        assert (outcome.points[result.raw_rows] == outcome.own[party]).all()
        assert result.included == outcome.server.included


def equals_scikit_learn(outcome: Run) -> int:
    """Compare each step; and the whole course until a cluster is empty, where scikit-learn gives it a far point.

    Gives how many of its iterations were compared as one course.
    """
    points = outcome.points / float(1 << outcome.plan.fraction_bits)
    k, history = outcome.plan.k, outcome.history[outcome.plan.start_rounds :]
    for before, after in pairwise(history):
        used = [h for h in range(k) if (before == h).any()]
        centers = np.stack([points[before == h].mean(axis=0) for h in used])
        assert (np.array(used)[pairwise_distances_argmin(points, centers)] == after).all()
    compared = 0
    start = [points[history[0] == h].mean(axis=0) for h in range(k) if (history[0] == h).any()]
    # It labels by the centres that it found last, so after t updates it has our assignment t + 1.
    for t, ours in enumerate(history[2:], start=1):
        if len(np.unique(history[t])) < k:
            break
        theirs = KMeans(k, init=np.stack(start), n_init=1, algorithm="lloyd", tol=0, max_iter=t).fit(points)
        assert (theirs.labels_ == ours).all()
        compared = t
    return compared


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("start", ["random", "separated"])
def test_each_iteration_equals_scikit_learn_and_the_reference(name: str, start: str) -> None:
    make, k = SETS[name]
    outcome = run(make(), k, clients=5, rounds=12, settings={"start": start})
    equals_reference(outcome)
    compared = equals_scikit_learn(outcome)
    # Random clusters of separated data lose all their points at once; there only single steps can be compared.
    assert compared >= 1 or (start == "random" and name in ("s1", "mixture"))


@pytest.mark.parametrize("m,code", CODES)
@pytest.mark.parametrize("start", ["random", "separated"])
@pytest.mark.parametrize("membership", [False, True])
def test_every_code_and_start_equals_the_reference(m: int, code: dict, start: str, membership: bool) -> None:
    points = named("iris")[::2]
    settings = {**code, "start": start, "membership": membership, "reveal_centers": True}
    parts = uneven(len(points), m, seed=m)
    sizes = tuple(len(part) + 3 * i for i, part in enumerate(parts)) if membership else None
    outcome = run(points, 3, clients=m, parts=parts, sizes=sizes, settings=settings)
    equals_reference(outcome)
    assert outcome.first.state == "repeated" and len(outcome.points) == len(points)


@pytest.mark.parametrize("membership", [False, True])
def test_stragglers_cost_nothing_but_their_answers(membership: bool) -> None:
    points = mixture(90, 3, 7, seed=5)

    def tap(sender, receiver, header, body):
        lost = header.type == CodedValues.TYPE and sender.rank in {1 + header.round % 6, 1 + (header.round + 2) % 6}
        lost = lost and body != b"\2"  # a client does not wait for an answer to "end"
        return None if lost else body

    settings = {"segments": 1, "threshold": 1, "membership": membership, "reveal_centers": True}
    # With two clusters each iteration is one message.
    outcome = run(points, 2, clients=6, tap=tap, settings=settings)
    equals_reference(outcome)
    assert len(set(outcome.first.included)) > 1
    for t, included in enumerate(outcome.first.included):
        assert len(included) >= 3
        assert not {PartyId(1 + t % 6), PartyId(1 + (t + 2) % 6)} & set(included)


def test_ties_go_to_the_lowest_index_and_empty_clusters_stay_empty() -> None:
    # Two places, each with many points: more clusters than places, and centres that coincide.
    points = np.repeat([[0.5, -0.25], [-0.5, 0.25]], 30, axis=0)
    outcome = run(points, 6, clients=3, seed=2)
    equals_reference(outcome)
    assert len(np.unique(outcome.first.labels)) <= 2
    centred = run(np.zeros((12, 2)), 4, clients=3)
    assert (centred.first.labels == centred.history[0].min()).all()


def test_a_single_cluster_and_more_clusters_than_points() -> None:
    points = mixture(7, 2, 3)
    assert (run(points, 1, clients=3).first.labels == 0).all()
    equals_reference(run(points, 7, clients=3, seed=4))
    equals_reference(run(points, 7, clients=3, settings={"start": "separated"}))


def test_the_limit_ends_the_iterations() -> None:
    outcome = run(named("iris"), 3, clients=3, rounds=2)
    assert outcome.first.state == "limit" and len(outcome.history) == 3
    equals_reference(outcome)


@pytest.mark.parametrize("membership", [False, True])
def test_centres_and_inertia_are_those_of_the_final_clusters(membership: bool) -> None:
    points = named("iris")
    settings = {"reveal_centers": True, "membership": membership}
    outcome = run(points, 3, clients=5, settings=settings)
    grid = outcome.points / float(1 << outcome.plan.fraction_bits)
    labels = outcome.first.labels
    # Behind the mix the start is drawn from the parties' entropy: now and then a cluster ends empty.
    nobody = np.full((1, grid.shape[1]), np.nan)
    expected = np.stack([(grid[labels == h] if (labels == h).any() else nobody).mean(axis=0) for h in range(3)])
    turned = np.concatenate([points[part] for part in np.array_split(np.arange(150), 5)])
    rows = np.concatenate([outcome.results[party].raw_rows for party in clients(5)])
    for party in clients(5):
        result = outcome.results[party]
        # The rotated grid's means, turned back; and the records' own, but for the rounding.
        np.testing.assert_allclose(result.centers, expected @ outcome.rotation, rtol=0.0, atol=1e-14)
        for h in np.unique(labels):
            own = turned[labels[rows] == h].mean(axis=0)
            np.testing.assert_allclose(result.centers[h], own, rtol=0.0, atol=2.0**-16)
        assert (result.sizes == np.bincount(labels, minlength=3)).all()
        mine = grid[result.raw_rows]
        assert result.raw_inertia == pytest.approx(((mine - expected[result.raw_labels]) ** 2).sum())


def test_an_empty_cluster_has_no_centre() -> None:
    points = np.repeat([[0.5, -0.25], [-0.5, 0.25]], 10, axis=0)
    result = run(points, 5, clients=3, seed=2, settings={"reveal_centers": True, "starts": 1}).first
    empty = result.sizes == 0
    assert empty.any() and np.isnan(result.centers[empty]).all() and np.isfinite(result.centers[~empty]).all()
    assert result.raw_inertia == pytest.approx(0.0)


def test_the_centre_of_a_small_cluster_is_not_revealed() -> None:
    # A record far away is a cluster of its own, whose centre would be that record.
    points = np.concatenate([mixture(60, 2, 3, seed=3) / 4, [[1.0, 1.0, 1.0]]])
    shown: list[int] = []

    def tap(sender, receiver, header, body):
        if header.type == CenterShares.TYPE:
            shown.append(len(body))
        return body

    for least, kept in ((1, 3), (2, 2), (5, 2)):
        settings = {"starts": 1, "reveal_centers": True, "least_revealed": least}
        outcome = run(points, 3, clients=3, seed=4, tap=tap, settings=settings)
        result, plan = outcome.first, outcome.plan
        assert sorted(result.sizes)[0] == 1
        small = result.sizes < least
        assert np.isnan(result.centers[small]).all() and np.isfinite(result.centers[~small]).all()
        assert (~small).sum() == kept
        assert (result.raw_inertia is None) == bool(small.any())
        # Its shares are not sent to anybody.
        assert set(shown) == {kept * plan.width * plan.field.element_bytes + TAG_BYTES}
        shown.clear()


def test_without_reveal_no_party_gets_centres() -> None:
    seen = set()

    def tap(sender, receiver, header, body):
        seen.add(header.type)
        return body

    outcome = run(named("iris"), 3, clients=5, tap=tap)
    assert CenterShares.TYPE not in seen
    assert all(outcome.results[party].centers is None for party in clients(5))
    assert all(outcome.results[party].raw_inertia is None for party in clients(5))


@pytest.mark.usefixtures("open_messages")
def test_small_blocks_give_the_same_and_keep_the_clients_in_step(monkeypatch) -> None:
    monkeypatch.setattr(plan_module, "_BLOCK_BYTES", 1 << 11)
    sent = dict.fromkeys(clients(5), 0)
    widest = 0

    def tap(sender, receiver, header, body):
        nonlocal widest
        if header.type == DataShares.TYPE:
            sent[sender] = max(sent[sender], int.from_bytes(body[:4], "little"))
            widest = max(widest, max(sent.values()) - min(sent.values()))
        return body

    points = named("iris")
    outcome = run(points, 3, clients=5, parts=uneven(len(points), 5), tap=tap)
    assert min(sent.values()) > 5 and widest <= 1
    equals_reference(outcome)


@pytest.mark.parametrize("settings", [{}, {"start": "separated"}])
def test_answers_in_small_blocks_give_the_same(settings: dict, monkeypatch) -> None:
    monkeypatch.setattr(messages_module, "_BLOCK_VALUES", 50)
    outcome = run(named("iris"), 3, clients=6, settings=settings)
    equals_reference(outcome)


@pytest.mark.parametrize("m,d,starts", [(5, 4, 1), (6, 5, 3)])
@pytest.mark.parametrize("membership", [False, True])
def test_payload_is_what_the_complexity_analysis_says(m: int, d: int, starts: int, membership: bool) -> None:
    points = mixture(60, 3, d, seed=1)
    outcome = run(points, 3, clients=m, rounds=4, settings={"membership": membership, "starts": starts})
    plan, meters = outcome.plan, outcome.meters
    assert plan.width == -(-d // plan.segments)
    # Copies do not take part in the choice.
    whole = [course(outcome.points, plan, number) for number in range(starts)]
    kept = copied_at(whole, plan).count(None)
    for party in clients(m):
        points_shared = 60 if membership else len(outcome.own[party])
        counts = [c for (_, round_), c in meters[party].sent.items() if round_ == SETUP_ROUND]
        sealed = 0
        if membership:
            full = plan.sizes[party.rank - 1] if party.rank > 1 else 0
            sealed = full * (17 + 48 * m) + (sum(plan.sizes) * (17 + 48 * (m - party.rank)) if party.rank < m else 0)
        # m_j d n / l: the client's own share stays where it is.
        expected = points_shared * plan.width * (m - 1) * plan.field.element_bytes
        assert sum(c.payload_bytes for c in counts) == expected + sealed
        used = [[len(np.unique(labels)) for labels in one[:-1]] for one in outcome.courses]
        up = [count for (to, round_), count in meters[party].sent.items() if to == SERVER and round_ < 1000]
        # One value for each comparison of a point, and of two starts.
        values = sum(c - 1 for one in used for c in one) * 60 + kept - 1
        assert sum(count.payload_bytes for count in up) == values * plan.field.element_bytes
        # In ceil(log2 c) messages, the starts together; ceil(log2 R) for the choice; then "end" and Finished.
        steps = [max(c) for c in zip_longest(*used, fillvalue=0)]
        messages = sum(max(1, (c - 1).bit_length()) for c in steps) + (kept - 1).bit_length()
        assert sum(count.messages for count in up) == messages + 2
    assert all(count.payload_bytes == 0 for count in meters[SERVER].sent.values())


def test_who_sends_what_to_whom() -> None:
    seen: dict[int, set[tuple[int, int]]] = {}

    def tap(sender, receiver, header, body):
        seen.setdefault(header.type, set()).add((sender.rank, receiver.rank))
        return body

    run(named("iris"), 3, clients=5, tap=tap, settings={"reveal_centers": True})
    pairs = {(i, j) for i in range(1, 6) for j in range(1, 6) if i != j}
    up = {(i, 0) for i in range(1, 6)}
    assert seen[DataShares.TYPE] == pairs
    assert seen[CodedValues.TYPE] == up == seen[Finished.TYPE]
    assert seen[Signs.TYPE] == {(0, i) for i in range(1, 6)}
    # l + t = 3 clients open the centres, to clients only.
    assert seen[CenterShares.TYPE] == {(i, j) for i, j in pairs if i <= 3}


@pytest.mark.slow
def test_a_large_mixture_with_many_clients_equals_the_reference() -> None:
    outcome = run(mixture(2000, 16, 100, seed=9), 16, clients=16, settings={"reveal_centers": True})
    equals_reference(outcome)
