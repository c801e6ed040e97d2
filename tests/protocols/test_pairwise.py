"""FastLloyd and its baselines with pairwise masks and noise in shares.

False alarms of the statistical tests: below 1e-6 each.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

from fastlloyd.errors import ConfigError, InternalError, PeerError, SecurityError
from fastlloyd.kmeans.grid import quantise
from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum
from fastlloyd.lifecycle.rounds import Ahead, StoredRounds
from fastlloyd.lifecycle.shared_secrets import PairCiphertext, PairPublicKey, SeedConfirmation
from fastlloyd.masking.fixed import Ring
from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.privacy.calibration import gaussian_noise_multiplier
from fastlloyd.protocols.fastlloyd.client import client
from fastlloyd.protocols.fastlloyd.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.fastlloyd.reference import reference
from fastlloyd.protocols.fastlloyd.rounds import draw_noise, draw_share
from fastlloyd.protocols.fastlloyd.settings import automatic_rounds, settings_from
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.contracts.whole_run import config
from tests.protocols.support import blobs, parameters, plan_for, run

VARIANTS = [("fastlloyd", {}), ("glloyd", {"domain": "fold"}), ("sulloyd", {"domain": "truncate"}), ("lloyd", {})]
# For each comparison, of six at most in a test.
ALARM = 1e-7


def pairwise(points, k: int, **changes) -> Plan:
    return plan_for(points, k, masking="pairwise", **changes)


@pytest.mark.parametrize("protocol,settings", VARIANTS)
@pytest.mark.parametrize("m,bits", [(2, 32), (3, 64), (5, 32)])
def test_parties_equal_the_reference_bit_by_bit_with_the_same_shares(protocol, settings, m, bits) -> None:
    points = blobs(300, 4, 3, seed=m)
    plan = pairwise(points, 4, protocol=protocol, settings=settings, clients=m, ring_bits=bits, rounds=4)
    secret = SecretRandom()
    shares = {(me, t): draw_share(plan, t, plan.share, secret) for me in clients(m) for t in range(4)}
    got = run(points, plan, share=lambda me, t: shares[me, t]).first.centers
    expected = reference(points, plan, lambda t: sum(shares[me, t] for me in clients(m)))
    assert (got.grid == expected.grid).all()
    assert np.allclose(got.exact, expected.exact, atol=1e-12)
    assert (got.noisy_counts == expected.noisy_counts).all()


@pytest.mark.parametrize("protocol", ["fastlloyd", "sulloyd"])
def test_without_noise_pairwise_and_common_masks_give_the_same_bits(protocol: str) -> None:
    points = blobs(300, 3, 2)
    plan = pairwise(points, 3, clients=3, protocol=protocol, rounds=3)
    silent = np.zeros(plan.elements(0), dtype=np.int64)
    ours = run(points, plan, share=lambda me, t: silent).first.centers
    common = dataclasses.replace(plan, masking="common")
    theirs = run(points, common, noise=lambda t: silent).first.centers
    assert ours.exact.tobytes() == theirs.exact.tobytes()


def test_the_server_sees_masked_vectors_and_noisy_sums_and_nothing_else() -> None:
    points = blobs(100, 2, 2)
    plan = pairwise(points, 2, clients=3, rounds=2)
    kinds = {m.TYPE: m for m in (MaskedUpdate, NoisyMaskedSum)}
    seen: dict[type, set[tuple[int, int]]] = {}
    updates = {t: np.zeros(plan.elements(t), dtype=np.uint32) for t in range(2)}
    replies: dict[int, set[bytes]] = {0: set(), 1: set()}

    def tap(sender, receiver, header, body):
        seen.setdefault(kinds[header.type], set()).add((sender.rank, receiver.rank))
        if header.type == MaskedUpdate.TYPE:
            updates[header.round] += np.frombuffer(body, dtype="<u4")
        if header.type == NoisyMaskedSum.TYPE:
            replies[header.round].add(body)
        return body

    outcome = run(points, plan, tap=tap)
    assert seen[MaskedUpdate] == {(1, 0), (2, 0), (3, 0)}
    assert seen[NoisyMaskedSum] == {(0, 1), (0, 2), (0, 3)}
    # The sum of what it received is what all clients got, byte by byte, and what the centres were made of.
    for t in range(2):
        assert replies[t] == {b"\x07" + updates[t].tobytes()}
    noisy = Ring(32).decode(updates[1])
    assert (noisy[plan.k * plan.d :] / 2.0**plan.fraction_bits == outcome.first.centers.noisy_counts).all()


@pytest.mark.parametrize("protocol", ["fastlloyd", "feddp"])
def test_keys_and_tags_go_from_each_client_to_each_other_and_to_nobody_else(protocol: str) -> None:
    seen: dict[int, set[tuple[int, int]]] = {}

    def tap(sender, receiver, header, body):
        seen.setdefault(header.type, set()).add((sender.rank, receiver.rank))
        return body

    run_together(dataclasses.replace(config(protocol), masking="pairwise"), 3, tap=tap)
    pairs = {(i, j) for i in (1, 2, 3) for j in (1, 2, 3) if i != j}
    assert seen[PairPublicKey.TYPE] == pairs == seen[SeedConfirmation.TYPE]
    assert seen[PairCiphertext.TYPE] == {(i, j) for i, j in pairs if i < j}


def test_the_server_adds_no_noise_and_the_clients_of_common_masks_no_share() -> None:
    points = blobs(90, 3, 2)
    plan, secret = pairwise(points, 3), SecretRandom()
    assert not draw_noise(plan, 0, secret).any()
    assert draw_share(plan, 0, plan.share, secret).any()
    assert not draw_share(plan_for(points, 3), 0, plan.share, secret).any()


@pytest.mark.parametrize("bits", [32, 64])
def test_a_client_s_uplink_is_uniform(bits: int) -> None:
    # Without noise, so that only the masks can make it so.
    points = blobs(60, 3, 2)
    plan = pairwise(points, 3, clients=3, rounds=7, ring_bits=bits, protocol="lloyd")
    collected: dict[int, list[bytes]] = {1: [], 2: [], 3: []}

    def tap(sender, receiver, header, body):
        if header.type == MaskedUpdate.TYPE:
            collected[sender.rank].append(body)
        return body

    for _ in range(40):
        run(points, plan, tap=tap)
    bodies = [np.frombuffer(b"".join(each), dtype=Ring(bits).dtype) for each in collected.values()]
    # One alone, two together; all three are the sums, which are far from uniform.
    for vector in (*bodies, bodies[0] + bodies[1], bodies[1] + bodies[2]):
        octets = vector.view(np.uint8)
        assert stats.chisquare(np.bincount(octets, minlength=256)).pvalue > ALARM
    everything = sum(bodies).view(np.uint8)
    assert stats.chisquare(np.bincount(everything, minlength=256)).pvalue < 1e-30


@pytest.mark.parametrize("protocol", ["fastlloyd", "sulloyd"])
def test_the_shares_that_count_have_the_planned_noise(protocol: str) -> None:
    points = blobs(200, 2, 2)
    plan, secret = pairwise(points, 2, clients=4, known_shares=2, protocol=protocol, rounds=2), SecretRandom()
    draws = np.stack([sum(draw_share(plan, 1, plan.share, secret) for _ in range(2)) for _ in range(2000)])
    sums, counts = draws[:, :4].ravel(), draws[:, 4:].ravel()
    shape = "laplace" if protocol == "sulloyd" else "norm"
    for sample, release in ((sums, plan.releases(1)[0]), (counts, plan.releases(1)[1])):
        assert (release.clients, release.known) == (4, 2)
        scaled = sample / (release.sensitivity * release.noise_multiplier)
        assert stats.kstest(scaled, shape).pvalue > ALARM
        if shape == "norm":
            assert ALARM / 2 < stats.chi2(len(scaled)).cdf((scaled**2).sum()) < 1 - ALARM / 2


# --- clean failure ------------------------------------------------------------------------------------------------


def test_a_missing_client_ends_the_run_and_is_named() -> None:
    points = blobs(90, 3, 2)
    plan = pairwise(points, 3, clients=3, rounds=2)
    left: list[tuple[int, int]] = []

    def tap(sender, receiver, header, body):
        if header.type == NoisyMaskedSum.TYPE:
            left.append((header.round, receiver.rank))
        return None if sender == PartyId(3) and (header.type, header.round) == (MaskedUpdate.TYPE, 1) else body

    with pytest.raises(PeerError, match="client 3"):
        run(points, plan, tap=tap)
    assert {t for t, _ in left} == {0}  # no sum of the other two left the server


def test_a_sum_without_some_client_is_refused() -> None:
    points = blobs(90, 3, 2)
    plan = pairwise(points, 3, clients=3, rounds=2)

    def tap(sender, receiver, header, body):
        return b"\x03" + body[1:] if header.type == NoisyMaskedSum.TYPE else body

    with pytest.raises(PeerError, match="includes 2 clients, expected at least 3") as caught:
        run(points, plan, tap=tap)
    assert caught.value.rank == 0


def test_stored_uplinks_are_sent_again_and_never_made_anew() -> None:
    points = blobs(90, 3, 2)
    plan = pairwise(points, 3, rounds=2)
    sent: list[bytes] = []

    def tap(sender, receiver, header, body):
        if sender == PartyId(1) and header.type == MaskedUpdate.TYPE:
            sent.append(body)
        return body

    old = bytes(range(plan.elements(0) * 4))
    run(points, plan, tap=tap, stored={PartyId(1): StoredRounds(uplinks={0: old})})
    assert sent[0] == old and sent[1] != old


def test_a_client_without_a_source_of_shares_does_not_start() -> None:
    points = blobs(90, 3, 2)
    plan = pairwise(points, 3)
    with pytest.raises(InternalError, match="share of the noise"):
        next(client(PartyId(1), quantise(points, plan.fraction_bits), plan, masks=None))


def flipped(body: bytes, place: int) -> bytes:
    return body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]


@pytest.mark.parametrize(
    "type_,change,text",
    [
        (PairPublicKey, lambda body: body[:31], "malformed"),
        (PairPublicKey, lambda body: bytes(1216), "client 2 sent a key that yields no secret"),
        (PairPublicKey, lambda body: bytes(32) + body[32:], "client 2 sent a key that yields no secret"),
        (PairPublicKey, lambda body: body[:32] + bytes([255]) * 1184, "client 2 sent a key that yields no secret"),
        (PairPublicKey, lambda body: flipped(body, 0), "client 1 and client 2 do not agree"),
        (PairPublicKey, lambda body: flipped(body, 1215), "client 1 and client 2 do not agree"),
        (PairCiphertext, lambda body: body[:1087], "client 2 sent a malformed PairCiphertext: expected 1088 bytes"),
        (PairCiphertext, lambda body: flipped(body, 0), "client 2 and client 3 do not agree|client 3 and client 2"),
        (PairCiphertext, lambda body: flipped(body, 1087), "client 2 and client 3 do not agree|client 3 and client 2"),
        (SeedConfirmation, lambda body: bytes(32), "client 1 and client 2 do not agree"),
    ],
)
def test_a_wrong_key_ciphertext_or_tag_names_the_pair(type_, change, text: str) -> None:
    to = 3 if type_ is PairCiphertext else 1

    def tap(sender, receiver, header, body):
        return change(body) if header.type == type_.TYPE and (sender.rank, receiver.rank) == (2, to) else body

    with pytest.raises((PeerError, SecurityError), match=text):
        run_together(dataclasses.replace(config("fastlloyd"), masking="pairwise"), 3, tap=tap)


# --- plan and accounting ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["fastlloyd", "glloyd", "sulloyd"])
@pytest.mark.parametrize("m,t", [(2, 1), (5, 1), (5, 3)])
def test_a_plan_in_shares_spends_its_epsilon_and_no_more(protocol: str, m: int, t: int) -> None:
    public = parameters(1000, 3, protocol=protocol, clients=m, masking="pairwise", known_shares=t)
    names = ("a", "b")
    plan = make_plan(public, d=2, names=names)
    spent = check_plan(plan, public, d=2, names=names)
    assert 0.995 <= spent <= 1.0
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.noise_price == pytest.approx((m / (m - t)) ** 0.5, rel=1e-3)
    for release in plan.all_releases():
        assert (release.clients, release.known, release.seen_by) == (m, t, "server and clients")


def test_rounds_are_as_many_as_all_the_noise_allows() -> None:
    found = set()
    for n in (500, 1000, 2000, 4000):
        for protocol in ("glloyd", "sulloyd"):
            public = parameters(n, 3, protocol=protocol, clients=4, known_shares=2, masking="pairwise", settings={})
            plan = make_plan(public, d=2, names=("a", "b"))
            sigma = gaussian_noise_multiplier(1.0, plan.delta - SAMPLER_DELTA) if plan.delta else 0.0
            expected = automatic_rounds(
                protocol,
                k=3,
                d=2,
                n=n,
                epsilon=0.5**0.5,
                sigma=sigma * 2.0**0.5,
                settings=settings_from(protocol, {}),
            )
            assert len(plan.rounds) == expected
            found.add(expected)
    assert len(found) > 2


def test_a_share_made_ahead_is_used_and_any_other_is_drawn_when_needed() -> None:
    plan, drawn = pairwise(blobs(90, 3, 2), 3, clients=3, rounds=3), []

    def draw(t: int) -> np.ndarray:
        drawn.append(t)
        return np.full(plan.elements(t), t + 1)

    ahead = Ahead(len(plan.rounds), plan.releases, draw)
    ahead.stock(plan.rounds_ahead(1))
    assert drawn == [1, 2]
    ring = Ring(plan.ring_bits)
    masked = np.zeros(plan.elements(0), dtype=ring.dtype)
    assert [ahead.add_noise(masked, ring, t)[0] for t in (1, 0, 2)] == [2, 1, 3]
    assert drawn == [1, 2, 0]


def test_every_party_records_each_release_once_and_before_it_leaves() -> None:
    points = blobs(90, 3, 2)
    plan = pairwise(points, 3, clients=3, rounds=3)
    outcome = run(points, plan)
    for party in (SERVER, *clients(3)):
        assert tuple(outcome.simulation.releases[party]) == plan.all_releases()


def test_sensitivities_are_those_of_common_masks() -> None:
    points = blobs(500, 3, 2)
    for protocol in ("fastlloyd", "glloyd", "sulloyd"):
        one = pairwise(points, 3, protocol=protocol, ring_bits=64, rounds=3)
        two = plan_for(points, 3, protocol=protocol, ring_bits=64, rounds=3)
        assert [r.sensitivity for r in one.all_releases()] == [r.sensitivity for r in two.all_releases()]
        # The guaranteed noise alone is what the server would add; the smoothing costs parts in a million.
        for ours, theirs in zip(one.all_releases(), two.all_releases(), strict=True):
            assert ours.noise_scale == pytest.approx(theirs.noise_scale, rel=2e-4)


@pytest.mark.parametrize(
    "change",
    [
        {"masking": "common"},
        {"known_shares": 2},
        {"mechanism": "gaussian"},
        {"mechanism": "discrete laplace shares"},
    ],
)
def test_a_client_refuses_another_way_to_mask(change) -> None:
    points = blobs(90, 3, 2)
    plan = pairwise(points, 3, clients=3)
    public = parameters(90, 3, clients=3, masking="pairwise")
    with pytest.raises(ValueError, match="plan"):
        check_plan(dataclasses.replace(plan, **change), public, d=2, names=("x1", "x2"))


def test_a_client_refuses_shares_that_are_too_small() -> None:
    points = blobs(90, 3, 2)
    plan = pairwise(points, 3, clients=3)
    public = parameters(90, 3, clients=3, masking="pairwise")
    weaker = tuple(dataclasses.replace(r, sum_scale=r.sum_scale * 0.98) for r in plan.rounds)
    with pytest.raises(ValueError, match="spends epsilon"):
        check_plan(dataclasses.replace(plan, rounds=weaker), public, d=2, names=("x1", "x2"))


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"clients": 1}, "at least 2 clients"),
        ({"clients": 3, "min_clients": 2}, "--min-clients 2 does not go with --masking pairwise"),
        ({"clients": 3, "known_shares": 3}, "at least one unknown share"),
        ({"clients": 3, "known_shares": 0}, "at least one unknown share"),
        ({"masking": "common", "known_shares": 2}, "add --masking threshold"),
        ({"masking": "double"}, "expected 'common', 'pairwise' or 'threshold'"),
    ],
)
def test_what_pairwise_masks_cannot_do_is_refused_with_a_mend(changes, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parameters(90, 3, **{"masking": "pairwise", **changes})


def test_shares_below_the_grid_are_refused_before_anything_starts() -> None:
    many = parameters(2_000_000, 2, clients=50_000, epsilon=100.0, rounds=1, masking="pairwise")
    with pytest.raises(ConfigError, match="at least 5 grid units"):
        make_plan(many, d=2, names=("a", "b"))
