"""The empirical audit: attacks stay below the claimed epsilon, and catch mechanisms that break the claim.

False alarms: each bound lies above the true epsilon with probability at most `ALARM`. What the attack must reach lies
at least six standard deviations (measured over repetitions) below what it does reach.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from fastlloyd.kmeans.update import join, split
from fastlloyd.privacy.calibration import gaussian_noise_multiplier, gdp_epsilon
from fastlloyd.protocols.fastlloyd.plan import Plan, make_plan
from fastlloyd.protocols.fastlloyd.rounds import draw_noise, draw_share
from fastlloyd.randomness.secret import SecretRandom
from tests.privacy.audit import Noise, Scene, Trials, collect, epsilon_bound, gaussian_bound
from tests.protocols.support import parameters

ALARM = 1e-6
EPSILON = 1.0
# Large, so that an attack need not wait for rare events; nothing else depends on it.
DELTA = 0.05


def plan_of(protocol: str, k: int, d: int, n: int, rounds: int, **settings: object) -> Plan:
    delta = None if protocol == "sulloyd" else DELTA
    public = parameters(n, k, protocol=protocol, epsilon=EPSILON, delta=delta, rounds=rounds, settings=settings)
    return make_plan(public, d=d, names=tuple(f"x{i}" for i in range(d)))


def lattice(alpha: float = 0.6, reach: int = 1) -> Scene:
    """FastLloyd, 8 x 8 clusters, the canaries at exactly `reach` radii; in round 1 the centres are a little nearer."""
    side, anchors = 8, 40
    plan = plan_of("fastlloyd", side**2, 2, side**2 * (anchors + 1), 2, radius="constant", alpha=alpha)
    radius = plan.rounds[0].radius
    assert radius is not None
    axis = (2.0 * np.arange(side) + 1.0) / side - 1.0
    start = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    east = np.array([2.0**-plan.fraction_bits, 0.0])
    return Scene(plan, start, start + radius // 8 * east, anchors, start + reach * radius * east)


def corners(rounds: int = 2, anchors: int = 20) -> Scene:
    """GLloyd, 64 clusters, the canaries in the corners of the domain, where the norm is sqrt(d)."""
    d = 6
    plan = plan_of("glloyd", 2**d, d, 2**d * (anchors + 1), rounds)
    corner = np.stack(np.meshgrid(*[[-1.0, 1.0]] * d), axis=-1).reshape(-1, d)
    return Scene(plan, corner, corner, anchors, corner)


def ends(rounds: int = 1, k: int = 64, gap: float = 2.0**-10, anchors: int = 0) -> Scene:
    """SuLloyd, one feature, the canaries at and near both ends of the domain."""
    plan = plan_of("sulloyd", k, 1, max(k * (anchors + 1), 3), rounds)
    half = 1.0 - gap * np.arange(k // 2)
    place = np.concatenate([half, -half])[:, None]
    return Scene(plan, place, place, anchors, place)


def corridor() -> Scene:
    """FastLloyd with its default radii: the canaries at exactly beta / 2, then just inside eta."""
    anchors = 1000
    plan = plan_of("fastlloyd", 2, 2, 2 * (anchors + 1), 2)
    radius = plan.rounds[0].radius
    assert radius is not None
    start = np.array([[-0.9, -0.9], [-0.9, 0.9]])
    start = np.rint(start * 2.0**plan.fraction_bits) / 2.0**plan.fraction_bits
    east = np.array([1.0, 0.0])
    return Scene(plan, start, start + 0.625 * east, anchors, start + radius * 2.0**-plan.fraction_bits * east)


def honest(plan: Plan) -> Callable[[], Noise]:
    """The server's noise as in a run."""
    return lambda: lambda t: draw_noise(plan, t, SecretRandom())


def in_shares(scene: Scene) -> Scene:
    """The same scene with pairwise masks: server and attacker collude and know one of the two shares."""
    plan = scene.plan
    public = parameters(
        plan.n_total,
        plan.k,
        protocol=plan.protocol,
        epsilon=EPSILON,
        delta=None if plan.protocol == "sulloyd" else DELTA,
        rounds=len(plan.rounds),
        settings={"radius": "constant", "alpha": 0.6} if plan.protocol == "fastlloyd" else {},
        masking="pairwise",
    )
    shared = make_plan(public, d=plan.d, names=plan.names)
    assert shared.fraction_bits == plan.fraction_bits and [r.radius for r in shared.rounds] == [
        r.radius for r in plan.rounds
    ]
    return dataclasses.replace(scene, plan=shared)


def shares(plan: Plan) -> Callable[[], Noise]:
    """Each client's shares as in a run."""
    return lambda: lambda t: draw_share(plan, t, plan.share, SecretRandom())


def with_noise_times(plan: Plan, sums: float, counts: float) -> Plan:
    rounds = tuple(
        dataclasses.replace(r, sum_scale=sums * r.sum_scale, count_scale=counts * r.count_scale) for r in plan.rounds
    )
    return dataclasses.replace(plan, rounds=rounds)


def attack(scene: Scene, runs: int, noise: Callable[[], Noise] | None = None, **known: Callable[[], Noise]) -> Trials:
    return collect(scene, runs, np.random.default_rng(5), noise or honest(scene.plan), **known)


def below_the_claim(trials: Trials, plan: Plan, least: float) -> None:
    """Check the bounds against the claim from above and, for the attack's power, from below."""
    assert least < epsilon_bound(trials, plan.delta, ALARM) <= EPSILON
    if plan.mechanism == "gaussian":
        mu = gaussian_bound(trials, ALARM)
        assert mu <= 1.0 / gaussian_noise_multiplier(EPSILON, DELTA)
        assert least < gdp_epsilon(mu, DELTA) <= EPSILON


@pytest.mark.parametrize("mu", [0.2, 0.75, 1.5])
def test_the_bounds_are_sound_and_sharp_on_a_known_gaussian_mechanism(mu: float) -> None:
    rng = np.random.default_rng(0)  # fixed: no false alarm
    present = rng.random(200_000) < 0.5
    scores = rng.normal(size=(present.size, 1, 2)) * np.array([1.0, 0.0])
    trials = Trials(scores + mu * present[:, None, None] * np.array([1.0, 0.0]), present)
    assert 0.93 * mu - 0.05 < gaussian_bound(trials, ALARM) <= mu
    claim = gdp_epsilon(mu, DELTA)
    assert 0.7 * claim - 0.1 < epsilon_bound(trials, DELTA, ALARM) <= claim


def test_the_bounds_see_nothing_in_coins_and_little_can_hide_from_them() -> None:
    present = np.arange(4000) % 2 == 0
    blind = Trials(np.tile((np.arange(4000) // 2 % 7 + 0.0)[:, None, None], (1, 2, 2)), present)
    assert epsilon_bound(blind, 0.0, ALARM) == 0.0
    assert gaussian_bound(blind, ALARM) == 0.0
    certain = Trials(np.tile((present + 0.0)[:, None, None], (1, 2, 2)), present)
    # 1000 trials of each kind, no error: the false positive rate is below ln(2e6) / 1000.
    assert epsilon_bound(certain, 0.0, ALARM) == pytest.approx(np.log(1000 / np.log(2e6)), abs=0.02)


@pytest.mark.parametrize("scene,runs", [(lattice, 900), (corners, 900), (ends, 900)])
def test_attacks_on_the_real_protocol_stay_below_its_epsilon(scene: Callable[[], Scene], runs: int) -> None:
    setting = scene()
    below_the_claim(attack(setting, runs), setting.plan, 0.4)


@pytest.mark.parametrize("scene,runs", [(lattice, 700), (ends, 225)])
def test_server_and_client_together_stay_below_epsilon_when_the_noise_comes_in_shares(
    scene: Callable[[], Scene], runs: int
) -> None:
    setting = in_shares(scene())
    trials = attack(setting, runs, shares(setting.plan))
    assert 0.25 < epsilon_bound(trials, setting.plan.delta, ALARM) <= EPSILON


@pytest.mark.parametrize("scene,runs", [(lattice, 96), (ends, 94)])
def test_shares_with_too_little_noise_are_caught(scene: Callable[[], Scene], runs: int) -> None:
    # Each share has a quarter of the noise that is due.
    setting = in_shares(scene())
    trials = attack(setting, runs, shares(with_noise_times(setting.plan, 0.25, 0.25)))
    assert epsilon_bound(trials, setting.plan.delta, ALARM) > EPSILON


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "scene,runs,least",
    [
        (lattice, 5_000, 0.6),
        (corridor, 25_000, 0.3),
        (corners, 5_000, 0.6),
        (lambda: corners(7, 100), 3_000, 0.5),
        (lambda: ends(2, 8, 0.04, 2000), 10_000, 0.25),
        (ends, 5_000, 0.6),
    ],
)
def test_long_attacks_on_the_real_protocol_stay_below_its_epsilon(
    scene: Callable[[], Scene], runs: int, least: float
) -> None:
    setting = scene()
    below_the_claim(attack(setting, runs), setting.plan, least)


class SeededRandom(SecretRandom):
    """What `SecretRandom` must never be: a stream that follows from a public seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        key = hashlib.sha256(str(seed).encode()).digest()
        self._stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()


@pytest.mark.parametrize("scene", [lattice, corners, ends])
def test_noise_from_the_public_seed_is_caught(scene: Callable[[], Scene]) -> None:
    setting = scene()

    def seeded() -> Noise:
        secret = SeededRandom(setting.plan.seed)
        noise = [draw_noise(setting.plan, t, secret) for t in range(len(setting.plan.rounds))]
        return lambda t: noise[t]

    runs = 10_000 // setting.plan.k
    trials = attack(setting, runs, seeded, known_noise=seeded)
    assert epsilon_bound(trials, setting.plan.delta, ALARM) > 4 * EPSILON


def test_an_attacker_with_a_noise_source_of_its_own_learns_nothing_from_it() -> None:
    setting = lattice()

    def fresh() -> Noise:
        secret = SecretRandom()
        noise = [draw_noise(setting.plan, t, secret) for t in range(2)]
        return lambda t: noise[t]

    trials = attack(setting, 160, fresh, known_noise=fresh)
    assert epsilon_bound(trials, setting.plan.delta, ALARM) <= EPSILON
    assert gaussian_bound(trials, ALARM) <= 1.0 / gaussian_noise_multiplier(EPSILON, DELTA)


@pytest.mark.parametrize("scene,runs", [(lattice, 320), (corners, 200), (ends, 313)])
def test_noise_for_half_the_sensitivity_is_caught(scene: Callable[[], Scene], runs: int) -> None:
    setting = scene()
    trials = attack(setting, runs, honest(with_noise_times(setting.plan, 0.5, 0.5)))
    assert epsilon_bound(trials, setting.plan.delta, ALARM) > EPSILON


@pytest.mark.parametrize("scene,runs", [(lattice, 96), (corners, 96), (ends, 94)])
@pytest.mark.parametrize("sums,counts", [(1.0, 0.1), (0.1, 1.0)])
def test_sums_or_counts_with_too_little_noise_are_caught(
    scene: Callable[[], Scene], runs: int, sums: float, counts: float
) -> None:
    setting = scene()
    trials = attack(setting, runs, honest(with_noise_times(setting.plan, sums, counts)))
    assert epsilon_bound(trials, setting.plan.delta, ALARM) > EPSILON


def copied(plan: Plan) -> Callable[[], Noise]:
    """Every cluster has the noise of the first: of the right size, everywhere."""

    def noise(t: int) -> np.ndarray:
        sums, counts = split(draw_noise(plan, t, SecretRandom()), plan.k, plan.d)
        return join(np.tile(sums[0], (plan.k, 1)), np.tile(counts[0], plan.k))

    return lambda: noise


def multiplied(plan: Plan) -> Callable[[], Noise]:
    """A row's noise is one draw, times each coordinate's scale."""

    def noise(t: int) -> np.ndarray:
        sums, _ = split(draw_noise(plan, t, SecretRandom()), plan.k, plan.d)
        both = plan.rounds[t]
        first = sums[:, 0]
        return join(
            np.tile(first[:, None], (1, plan.d)), np.rint(first * (both.count_scale / both.sum_scale)).astype(np.int64)
        )

    return lambda: noise


@pytest.mark.parametrize("scene,runs", [(lattice, 96), (corners, 96), (ends, 94)])
@pytest.mark.parametrize("dependent", [copied, multiplied])
def test_noise_of_the_right_size_that_is_dependent_is_caught(
    scene: Callable[[], Scene], runs: int, dependent: Callable[[Plan], Callable[[], Noise]]
) -> None:
    setting = scene()
    trials = attack(setting, runs, dependent(setting.plan))
    assert epsilon_bound(trials, setting.plan.delta, ALARM) > EPSILON
    # No single number shows it.
    assert epsilon_bound(Trials(trials.scores[:, :, :1], trials.present), setting.plan.delta, ALARM) <= EPSILON


def test_a_round_with_too_little_noise_is_caught() -> None:
    setting = lattice()
    quiet = with_noise_times(setting.plan, 0.2, 0.2)
    trials = attack(setting, 120, lambda: lambda t: draw_noise(quiet if t == 1 else setting.plan, t, SecretRandom()))
    assert epsilon_bound(trials, setting.plan.delta, ALARM) > EPSILON


def test_records_kept_outside_the_radius_are_caught() -> None:
    setting = lattice(alpha=0.2, reach=3)
    # As specified, such canaries are left out and nothing tells that they are there.
    left_out = attack(setting, 40)
    assert np.ptp(left_out.scores) == 0.0
    wide = tuple(dataclasses.replace(r, radius=3 * (r.radius or 0)) for r in setting.plan.rounds)
    broken = dataclasses.replace(setting, plan=dataclasses.replace(setting.plan, rounds=wide))
    trials = attack(broken, 160)
    assert epsilon_bound(trials, setting.plan.delta, ALARM) > EPSILON
