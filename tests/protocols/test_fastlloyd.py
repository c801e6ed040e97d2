"""FastLloyd and its baselines: the parties against the reference, and the messages themselves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

from fastlloyd.errors import ConfigError, PeerError, RangeError, SecurityError
from fastlloyd.lifecycle.closing import Counters, Totals
from fastlloyd.lifecycle.hello import Go, Hello, PlanProposal, Ready
from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum
from fastlloyd.lifecycle.same_secret import EqualityProof, EqualityTag
from fastlloyd.lifecycle.sealed import SealedParts, SealedSeed, SealKey, SealKeys
from fastlloyd.party.effects import Keep, Record, Save, Send
from fastlloyd.protocols.fastlloyd.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.fastlloyd.reference import reference
from fastlloyd.protocols.fastlloyd.rounds import draw_noise
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation, run_together
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.contracts.whole_run import config
from tests.protocols.support import blobs, no_noise, parameters, plan_for, run

VARIANTS = [
    ("fastlloyd", {}),
    ("fastlloyd", {"radius": "constant", "domain": "truncate"}),
    ("fastlloyd", {"clip": False, "domain": "none", "alpha": 0.3}),
    ("glloyd", {}),
    ("glloyd", {"domain": "fold"}),
    ("sulloyd", {"domain": "truncate"}),
    ("lloyd", {}),
]


@pytest.mark.parametrize("protocol,settings", VARIANTS)
@pytest.mark.parametrize("m,bits", [(1, 32), (2, 32), (3, 64)])
def test_parties_equal_the_reference_bit_by_bit(protocol, settings, m, bits) -> None:
    points = blobs(300, 4, 3, seed=m)
    plan = plan_for(points, 4, protocol=protocol, settings=settings, clients=m, ring_bits=bits, rounds=4)
    secret = SecretRandom()
    noise = [draw_noise(plan, t, secret) for t in range(4)]
    got = run(points, plan, noise=lambda t: noise[t]).first.centers
    expected = reference(points, plan, lambda t: noise[t])
    assert (got.grid == expected.grid).all()
    assert np.allclose(got.exact, expected.exact, atol=1e-12)
    assert (got.noisy_counts == expected.noisy_counts).all()


@pytest.mark.parametrize("m", [1, 2, 5])
def test_all_clients_end_with_the_same_bits(m: int) -> None:
    points = blobs(200, 3, 2)
    outcome = run(points, plan_for(points, 3, clients=m))
    bits = {outcome.results[party].centers.exact.tobytes() for party in clients(m)}
    assert len(bits) == 1


@pytest.mark.parametrize(
    "k,d,bits,expected",
    [(2, 2, 32, 96), (2, 2, 64, 192), (3, 2, 32, 144), (3, 2, 64, 288), (15, 2, 32, 720), (15, 2, 64, 1440)],
)
def test_payload_per_round_is_the_papers_or_half(k: int, d: int, bits: int, expected: int) -> None:
    points = blobs(200, 3, d)
    outcome = run(points, plan_for(points, k, ring_bits=bits, rounds=3))
    for t in range(3):
        sent = sum(
            count.payload_bytes
            for meter in outcome.simulation.meters.values()
            for (_, round_), count in meter.sent.items()
            if round_ == t
        )
        assert sent == expected


def test_an_update_reaches_the_server_and_nobody_else() -> None:
    seen: dict[int, set[tuple[int, int]]] = {}

    def tap(sender, receiver, header, body):
        seen.setdefault(header.type, set()).add((sender.rank, receiver.rank))
        return body

    run_together(config("fastlloyd"), 3, tap=tap)
    up, down = {(1, 0), (2, 0), (3, 0)}, {(0, 1), (0, 2), (0, 3)}
    # Every message of the whole run: one of a type that is not named here makes the two differ.
    told = {
        MaskedUpdate: up,
        NoisyMaskedSum: down,
        **dict.fromkeys((SealKey, SealedParts, EqualityTag), up),
        **dict.fromkeys((SealKeys, SealedSeed, EqualityProof), down),
        **dict.fromkeys((Hello, Ready, Counters), up),
        **dict.fromkeys((PlanProposal, Go, Totals), down),
    }
    assert seen == {message.TYPE: between for message, between in told.items()}


@pytest.mark.parametrize("masking", ["common", "pairwise", "threshold"])
def test_what_a_resume_needs_is_stored_everywhere_before_anything_rests_on_records(masking, monkeypatch) -> None:
    """So whatever a crash interrupts, nothing was spent or the run can be resumed."""
    seen: list[tuple[int, str]] = []
    perform = Simulation._perform

    def watched(self, party, effect):
        if isinstance(effect, (Send, Save, Keep, Record)):
            name = getattr(effect, "name", type(getattr(effect, "message", effect)).__name__)
            seen.append((party.rank, name.partition("-")[0]))
        return perform(self, party, effect)

    monkeypatch.setattr(Simulation, "_perform", watched)
    run_together(dataclasses.replace(config("fastlloyd"), masking=masking), 3)
    go, everybody = seen.index((0, "Go")), (0, 1, 2, 3)
    first = {name: {rank: seen.index((rank, name)) for rank in everybody if (rank, name) in seen} for _, name in seen}
    secrets = {"common": ["seed"], "pairwise": ["pairs"], "threshold": ["group", "threshold", "words"]}[masking]
    assert set(first["Keep"]) == {*everybody} and set(first["MaskedUpdate"]) == {1, 2, 3}
    assert all(place < go for name in ("Keep", "Ready", *secrets) for place in first[name].values())
    assert all(place > go for name in ("Record", "uplink", "MaskedUpdate") for place in first[name].values())


def _updates(points, plan) -> list[bytes]:
    collected: list[bytes] = []

    def tap(sender, receiver, header, body):
        if header.type == MaskedUpdate.TYPE:
            collected.append(body)
        return body

    run(points, plan, tap=tap)
    return collected


@pytest.mark.parametrize("bits", [32, 64])
def test_masked_updates_are_uniform_on_the_ring(bits: int) -> None:
    points = blobs(60, 3, 2)
    plan = plan_for(points, 3, rounds=7, ring_bits=bits, protocol="lloyd", settings={})
    collected = b"".join(body for _ in range(40) for body in _updates(points, plan))
    counts = np.bincount(np.frombuffer(collected, dtype=np.uint8), minlength=256)
    # Each byte value equally often; and each byte position by itself. False alarms: below 1e-6 for all of them.
    assert stats.chisquare(counts).pvalue > 3e-7
    width = bits // 8
    for position in range(width):
        at = np.frombuffer(collected, dtype=np.uint8)[position::width]
        assert stats.chisquare(np.bincount(at >> 4, minlength=16)).pvalue > 3e-7 / width


def test_equal_runs_send_different_bytes_and_draw_different_noise() -> None:
    points = blobs(60, 3, 2)
    plan = plan_for(points, 3, rounds=3)
    first, second = _updates(points, plan), _updates(points, plan)
    assert not set(first) & set(second)
    assert len(set(first)) == len(first)
    one, two = run(points, plan).first.centers, run(points, plan).first.centers
    # One count of the three is the same by chance once in some 10^6 runs.
    assert (one.noisy_counts == two.noisy_counts).sum() < 2


def test_noise_on_the_aggregate_matches_the_ledger() -> None:
    points = blobs(50, 2, 2)
    plan = plan_for(points, 2, rounds=2)
    secret = SecretRandom()
    draws = np.stack([draw_noise(plan, 1, secret) for _ in range(5000)])
    sums, counts = draws[:, :4].ravel(), draws[:, 4:].ravel()
    for sample, release in ((sums, plan.releases(1)[0]), (counts, plan.releases(1)[1])):
        scaled = sample / (release.sensitivity * release.noise_multiplier)
        # Chi-square of the variance, both tails, and Kolmogorov-Smirnov of the shape: 6e-7 for both samples.
        statistic = (scaled**2).sum()
        assert 1e-7 < stats.chi2(len(scaled)).cdf(statistic) < 1 - 1e-7
        assert stats.kstest(scaled, "norm").pvalue > 1e-7


def test_zero_noise_equals_radius_constrained_lloyd_and_the_plain_mean() -> None:
    # With a radius that never binds, FastLloyd without noise is Lloyd's algorithm, up to the grid.
    points = blobs(400, 3, 2)
    settings = {"alpha": 10.0, "clip": False, "domain": "none"}
    plan = plan_for(points, 3, rounds=3, settings=settings)
    fast = run(points, plan, noise=no_noise(plan)).first.centers
    lloyd = plan_for(points, 3, rounds=3, protocol="lloyd")
    plain = run(points, lloyd).first.centers
    used = plain.noisy_counts > 0
    assert np.abs(fast.exact[used] - plain.exact[used]).max() < 3 * 2.0**-plan.fraction_bits


def test_a_slow_client_costs_its_data_only() -> None:
    points = blobs(300, 3, 2)
    plan = plan_for(points, 3, clients=3, min_clients=2, rounds=3)
    parts = list(np.array_split(np.arange(300), 3))

    def tap(sender, receiver, header, body):
        lost = sender == PartyId(2) and header.type == MaskedUpdate.TYPE and header.round == 1
        return None if lost else body

    noise = {t: np.zeros(plan.elements(t), dtype=np.int64) for t in range(3)}
    outcome = run(points, plan, noise=lambda t: noise[t], tap=tap, parts=parts)
    everybody = clients(3)
    assert outcome.first.included == (everybody, (PartyId(1), PartyId(3)), everybody)
    one_round = dataclasses.replace(plan, rounds=plan.rounds[:1])
    after_first = run(points, one_round, noise=lambda t: noise[t], parts=parts).first.centers
    rest = np.concatenate([parts[0], parts[2]])
    second = dataclasses.replace(plan, rounds=plan.rounds[1:2])
    after_second = reference(points[rest], second, lambda t: noise[t], start=after_first.exact)
    third = dataclasses.replace(plan, rounds=plan.rounds[2:3])
    expected = reference(points, third, lambda t: noise[t], start=after_second.exact)
    assert (outcome.first.centers.grid == expected.grid).all()


def test_too_few_clients_fail_and_name_the_missing_one() -> None:
    points = blobs(90, 3, 2)
    plan = plan_for(points, 3, clients=3, rounds=2)

    def tap(sender, receiver, header, body):
        return None if sender == PartyId(3) and header.type == MaskedUpdate.TYPE else body

    with pytest.raises(PeerError, match="client 3"):
        run(points, plan, tap=tap)


def test_a_sum_over_fewer_clients_than_agreed_is_refused() -> None:
    points = blobs(90, 3, 2)
    plan = plan_for(points, 3, clients=3, min_clients=2, rounds=2)

    def tap(sender, receiver, header, body):
        return b"\x01" + body[1:] if header.type == NoisyMaskedSum.TYPE else body

    with pytest.raises(PeerError, match="includes 1 clients, expected at least 2") as caught:
        run(points, plan, tap=tap)
    assert caught.value.rank == 0


def test_of_two_clients_with_different_seeds_nobody_is_named() -> None:
    def tap(sender, receiver, header, body):
        return bytes(64) if header.type == EqualityTag.TYPE and sender.rank == 2 else body

    with pytest.raises(SecurityError, match="the clients do not all agree on the common seed"):
        run_together(config("fastlloyd"), 2, tap=tap)


@pytest.mark.parametrize(
    "type_,change,rank,sentence",
    [
        (MaskedUpdate, lambda body: body[:-1], 1, "sent a malformed MaskedUpdate: expected 60 payload bytes, got 59"),
        (MaskedUpdate, lambda body: body + b"\0", 1, "sent 61 bytes as a message of type 32, expected at most 60"),
        (
            NoisyMaskedSum,
            lambda body: body[:-4],
            0,
            "sent a malformed NoisyMaskedSum: expected 60 payload bytes, got 56",
        ),
        (NoisyMaskedSum, lambda body: b"\0" + body[1:], 0, "sent a malformed NoisyMaskedSum: a sum over no client"),
        (
            NoisyMaskedSum,
            lambda body: b"\xff" + body[1:],
            0,
            "sent a malformed NoisyMaskedSum: the bitmap names clients beyond client 2",
        ),
        (SealKey, lambda body: body[:31], 1, "sent a malformed SealKey: expected 1280 bytes, got 31"),
        (SealedSeed, lambda body: body[:-1], 0, "sent a malformed SealedSeed: expected 2480 bytes, got 2479"),
    ],
)
def test_malformed_messages_name_their_sender(type_, change, rank, sentence) -> None:
    def tap(sender, receiver, header, body):
        return change(body) if header.type == type_.TYPE else body

    with pytest.raises(PeerError, match=f"^{('the server', 'client 1')[rank]} {sentence}") as caught:
        run_together(config("fastlloyd"), 2, tap=tap)
    assert (caught.value.rank, caught.value.exit_code) == (rank, 3)


def test_every_party_records_each_release_once() -> None:
    points = blobs(90, 3, 2)
    plan = plan_for(points, 3, rounds=4)
    outcome = run(points, plan)
    for party in (SERVER, *clients(2)):
        assert tuple(outcome.simulation.releases[party]) == plan.all_releases()


@pytest.mark.parametrize("protocol", ["fastlloyd", "glloyd", "sulloyd"])
@pytest.mark.parametrize("epsilon,n,k,d", [(0.1, 150, 3, 4), (1.0, 5000, 15, 2), (5.0, 1000, 2, 20)])
def test_a_plan_spends_its_epsilon_and_no_more(protocol, epsilon, n, k, d) -> None:
    public = parameters(n, k, protocol=protocol, epsilon=epsilon)
    names = tuple(f"x{i}" for i in range(d))
    plan = make_plan(public, d=d, names=names)
    spent = check_plan(plan, public, d=d, names=names)
    assert 0.995 * epsilon <= spent <= epsilon
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    "change",
    [
        {"k": 4},
        {"epsilon": 2.0},
        {"delta": 0.1},
        {"fraction_bits": 20},
        {"relative": False},
        {"domain": "none"},
        {"rounds": ()},
        {"ring_bits": 64},
    ],
)
def test_a_client_refuses_a_plan_that_is_not_its_configuration(change) -> None:
    points = blobs(90, 3, 2)
    plan = plan_for(points, 3)
    public = parameters(90, 3)
    with pytest.raises(ValueError, match="plan"):
        check_plan(dataclasses.replace(plan, **change), public, d=2, names=("x1", "x2"))


def test_a_client_refuses_a_plan_with_too_little_noise_or_a_wider_radius() -> None:
    points = blobs(90, 3, 2)
    plan, public = plan_for(points, 3), parameters(90, 3)
    weaker = [dataclasses.replace(r, count_scale=r.count_scale * 0.98) for r in plan.rounds]
    wider = [dataclasses.replace(r, radius=r.radius * 2, sum_scale=r.sum_scale * 2) for r in plan.rounds]
    for rounds, text in ((weaker, "spends epsilon"), (wider, "radius")):
        with pytest.raises(ValueError, match=text):
            check_plan(dataclasses.replace(plan, rounds=tuple(rounds)), public, d=2, names=("x1", "x2"))


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"k": 91}, "at most the public N = 90"),
        ({"k": 0}, "--k"),
        ({"epsilon": 0.0}, "--epsilon"),
        ({"epsilon": float("nan")}, "--epsilon"),
        ({"delta": 0.0}, "--delta"),
        ({"rounds": 0}, "--rounds"),
        ({"clients": 0, "min_clients": 0}, "at least one client"),
        ({"min_clients": 3}, "--min-clients"),
        ({"settings": {"alpha": -1.0}}, "alpha"),
        ({"settings": {"alpha": "x"}}, "alpha"),
        ({"settings": {"rho": 0.2}}, "no setting 'rho'"),
        ({"settings": {"radius": "small"}}, "radius"),
    ],
)
def test_wrong_public_parameters_are_refused_with_a_sentence(changes, text) -> None:
    with pytest.raises(ConfigError, match=text):
        parameters(90, changes.pop("k", 3), **changes)


def test_a_ring_too_narrow_for_the_public_bounds_is_refused() -> None:
    with pytest.raises(RangeError, match="ring_bits = 64"):
        make_plan(parameters(10**8, 3), d=2, names=("a", "b"))
    assert make_plan(parameters(10**8, 3, ring_bits=64), d=2, names=("a", "b")).fraction_bits == 16


def test_a_client_refuses_another_number_of_rounds() -> None:
    public = parameters(90, 3, rounds=4)
    plan = make_plan(public, d=2, names=("x1", "x2"))
    check_plan(plan, public, d=2, names=plan.names)
    other = make_plan(parameters(90, 3, rounds=3), d=2, names=plan.names)
    with pytest.raises(ValueError, match="the plan has 3 rounds, expected 4"):
        check_plan(other, public, d=2, names=plan.names)


def test_a_client_refuses_fraction_bits_on_which_sums_may_not_fit() -> None:
    public = parameters(10**6, 3)
    plan = make_plan(public, d=2, names=("x1", "x2"))
    assert 8 <= plan.fraction_bits < 16
    # Everything in the plan follows the finer grid: radii, noise and hence epsilon are those of the configuration.
    finer = dataclasses.replace(
        plan,
        fraction_bits=plan.fraction_bits + 1,
        rounds=tuple(
            dataclasses.replace(r, radius=2 * r.radius, sum_scale=2 * r.sum_scale, count_scale=2 * r.count_scale)
            for r in plan.rounds
        ),
    )
    with pytest.raises(ValueError, match=f"on which sums may not fit; expected {plan.fraction_bits}"):
        check_plan(finer, public, d=2, names=plan.names)


def test_a_client_refuses_a_plan_for_which_no_grid_fits() -> None:
    public = parameters(10**9, 3)
    with pytest.raises(RangeError):
        make_plan(public, d=2, names=("x1", "x2"))
    small = parameters(90, 3)
    plan = dataclasses.replace(make_plan(small, d=2, names=("x1", "x2")), n_total=10**9, delta=1e-12)
    with pytest.raises(ValueError, match="no grid fits its bounds: "):
        check_plan(plan, public, d=2, names=plan.names)
