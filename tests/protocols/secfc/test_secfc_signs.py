"""Sign masks: they keep the exact winner, ties included, and are spread as claimed; tournaments and rotations."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fastlloyd.errors import RangeError
from fastlloyd.protocols.secfc.field.lagrange import Code
from fastlloyd.protocols.secfc.field.prime import Field, choose_field
from fastlloyd.protocols.secfc.math import coded, differences
from fastlloyd.protocols.secfc.math.masks import RoundMasks, draw_rotation, rotate, squared_norm_bound, turn_back
from fastlloyd.protocols.secfc.math.signs import largest_difference, largest_value, sign_masks
from fastlloyd.protocols.secfc.math.tournament import FilledClusters, Tournament, count_rounds
from fastlloyd.protocols.secfc.messages import Signs, SignsFormat
from fastlloyd.protocols.secfc.reference import reference
from fastlloyd.randomness.prg import derive, keystream
from tests.protocols.secfc.support import mixture, named, plan_for, run

KEY = bytes(range(32))


@given(difference=st.integers(-40, 40), round_=st.integers(0, 2**20), mantissa=st.integers(64, 200))
def test_the_sign_tells_the_winner_whatever_the_gap(difference: int, round_: int, mantissa: int) -> None:
    masks = sign_masks(200, key=KEY, round_=round_, mantissa=mantissa)
    factors, noise = masks.integers()
    values = factors * difference + noise
    assert (((values > 0) ^ masks.flipped) == (difference >= 0)).all()
    # Less than half a factor from the odd number's multiple: the size says nothing of the sign.
    sizes, factors = np.maximum(values, -1 - values), np.abs(factors) // 2
    odd = abs(2 * difference + 1)
    assert ((factors * odd - factors // 2 <= sizes) & (sizes < factors * odd + factors // 2)).all()


@pytest.mark.parametrize("mantissa", [64, 65, 96, 149, 200])
def test_residues_of_the_secrets_are_those_of_the_integers(mantissa: int) -> None:
    ring = choose_field(largest_value(1 << 70, mantissa))
    masks = sign_masks(100, key=KEY, round_=1, mantissa=mantissa)
    ours = masks.elements(ring, slice(20, 90))
    for elements, integers in zip(ours, masks.integers(), strict=True):
        assert np.abs(elements).max() <= 2**23 + 2
        assert (ring.decode(ring.reduce(elements)) == integers[20:90]).all()


@pytest.mark.parametrize("rounds,starts,most", [(300, 50, True), (1000, 100, False)])
def test_all_values_of_a_run_are_within_the_stated_distance_or_there_is_no_run(rounds, starts, most) -> None:
    """Each value costs 2^-60 whatever the mantissa: a longer one makes up for the differences, not for the number."""
    make = lambda: plan_for(1_000_000, 2, 20, sizes=(100, 100, 100), rounds=rounds, settings={"starts": starts})  # noqa: E731
    if most:
        assert make().distance < 2.0**-20
    else:
        with pytest.raises(RangeError, match="could make [0-9]+ comparisons, expected at most 549755813888"):
            make()


def log2(integers: np.ndarray) -> np.ndarray:
    """Of integers of any size, to 2^-50."""
    return np.array([math.log2(int(value)) for value in integers])


def test_factors_are_even_over_64_octaves_noise_is_uniform_and_coins_are_fair() -> None:
    # Twenty comparisons: below 1e-6 for all.
    masks = sign_masks(200_000, key=KEY, round_=7, mantissa=96)
    both, added = masks.integers()
    factors = np.abs(both) // 2
    noise = np.where(masks.flipped, -1 - added, added) - factors // 2
    assert ((both < 0) == masks.flipped).all() and (factors % 2 == 0).all()
    assert (noise >= 0).all() and (noise < factors).all()
    spread = log2(factors) - 96
    assert spread.min() >= 0 and spread.max() <= 64
    assert stats.kstest(spread / 64, "uniform").pvalue > 1e-8
    # Within an octave too: 1 / f, not even.
    assert stats.kstest(spread % 1, "uniform").pvalue > 1e-8
    assert stats.kstest(2.0 ** (spread % 1) - 1, "uniform").pvalue < 1e-30
    assert stats.binomtest(int(masks.flipped.sum()), 200_000).pvalue > 1e-8
    part = np.array([int(e * 2**60 // f) for e, f in zip(noise, factors, strict=True)]) / 2.0**60
    for octaves in range(0, 64, 8):
        chosen = (spread >= octaves) & (spread < octaves + 8)
        assert stats.kstest(part[chosen], "uniform").pvalue > 1e-8
    # Also in the last bits, and independent of each other.
    last = noise.astype(object) % 256
    assert stats.chisquare(np.bincount(last.astype(int), minlength=256)).pvalue > 1e-8
    assert stats.kstest(masks.spare / 2.0**25, "uniform").pvalue > 1e-8
    halves = [masks.flipped, part > 0.5, spread > 32, spread % 1 > 0.5, masks.spare >= 1 << 24]
    for i, one in enumerate(halves):
        for other in halves[:i]:
            table = np.histogram2d(one, other, bins=2)[0]
            assert stats.chi2_contingency(table).pvalue > 1e-8


def test_masks_differ_from_round_to_round_and_key_to_key() -> None:
    one = sign_masks(500, key=KEY, round_=1, mantissa=70)
    assert (one.integers()[1] == sign_masks(500, key=KEY, round_=1, mantissa=70).integers()[1]).all()
    for key, round_ in ((KEY, 2), (bytes(32), 1)):
        assert (one.integers()[0] != sign_masks(500, key=key, round_=round_, mantissa=70).integers()[0]).all()


def test_the_order_is_that_of_48_bit_numbers_from_a_key_of_its_own() -> None:
    code, replies = Code(Field((101,)), 1, 1, 3), bytes(range(32, 64))
    masks = RoundMasks(code, 1, seed=KEY, replies=replies, round_=5, mantissa=64)
    key = derive(KEY, b"fastlloyd secfc order of values", replies)
    for count in (0, 1, 2, 1000):
        stream = keystream(key, struct.pack("<III", 5, 0, 0), 6 * count)
        digits = [struct.unpack_from(f"<{count}H", stream, 2 * count * i) for i in range(3)]
        numbers = [low + (middle << 16) + (high << 32) for low, middle, high in zip(*digits, strict=True)]
        assert masks.shuffled(count).tolist() == sorted(range(count), key=numbers.__getitem__)


def test_the_bound_of_the_field_is_nearly_reached_and_holds() -> None:
    # Two halves whose sizes have no common factor, in opposite corners: nothing is farther apart.
    n, d, bits = 41, 3, 8
    bound = largest_value(largest_difference(n_total=n, squared_norm=squared_norm_bound(d, bits)), 80)
    corner = np.full(d, 1 << bits, dtype=object)
    whole = math.lcm(20, 21)
    sigma = [int((c * c).sum()) - 2 * int((c * corner).sum()) for c in (corner, -corner)]
    factor = ((1 << 80) - 1) << 64
    largest = factor * (2 * whole**2 * (sigma[1] - sigma[0]) + 1) + factor // 2 - 1
    assert bound / 1.2 < largest <= bound


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12), data=st.data())
def test_a_tournament_finds_the_nearest_and_the_lowest_among_equals(sizes: list[int], data: st.DataObject) -> None:
    clusters = FilledClusters(np.arange(len(sizes)) * 2 + 1, np.array(sizes, dtype=np.int64))
    # Few different values, so that ties abound.
    values = np.array([[data.draw(st.integers(0, 3)) for _ in range(5)] for _ in sizes])
    tournament, rounds, compared = Tournament(clusters, 5), 0, 0
    while True:
        last = tournament.last
        earlier, later = tournament.pairs()
        assert (earlier < later).all()
        at = np.arange(5)
        tournament.settle(values[earlier, at] <= values[later, at])
        rounds += 1
        compared += len(earlier)
        if last:
            break
    assert (tournament.labels == clusters.used[values.argmin(axis=0)]).all()
    assert rounds == count_rounds(len(sizes)) == max(1, math.ceil(math.log2(len(sizes))))
    assert compared == len(sizes) - 1


def test_ties_everywhere_and_singletons_equal_the_reference() -> None:
    # Points on a coarse lattice: many are exactly between two, three or four centres.
    side = np.arange(-2, 3) / 2
    lattice = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    for seed in range(6):
        outcome = run(np.tile(lattice, (2, 1)), 7, clients=3, seed=seed, settings={"least_revealed": 1})
        expected = reference(outcome.points, outcome.plan)
        assert [labels.tolist() for labels in outcome.history] == [labels.tolist() for labels in expected]


def test_small_pieces_and_pairs_on_demand_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "_ALL_PAIRS", 0)
    monkeypatch.setattr(coded, "_COORDINATES", 40)
    outcome = run(mixture(70, 5, 3, seed=6), 7, clients=3)
    expected = reference(outcome.points, outcome.plan)
    assert [labels.tolist() for labels in outcome.history] == [labels.tolist() for labels in expected]


@pytest.mark.parametrize("k", [2, 3, 5])
def test_what_the_server_decodes_is_no_more_than_sizes_blurred(k: int, monkeypatch) -> None:
    # Signs are fair coins and the order is random, whatever the records are.
    replies: list[bytes] = []

    def tap(sender, receiver, header, body):
        if header.type == Signs.TYPE and receiver.rank == 1:
            replies.append((header.round, body))
        return body

    outcome = run(mixture(900, 3, 4, seed=1), k, clients=3, rounds=4, tap=tap, settings={"starts": 1})
    assert len(outcome.history) > 2
    pairs = (k // 2, -(-k // 2) // 2)
    for t, body in replies[: count_rounds(k)]:
        count = pairs[min(t, 1)] * 900 if t < 2 else 900
        signs = Signs.read(body, SignsFormat(count, 3)).positive
        assert stats.binomtest(int(signs.sum()), count).pvalue > 1e-7
        order = outcome.masks[t].shuffled(count)
        assert (np.sort(order) == np.arange(count)).all()
        # Neither where a value stands nor its sign tells which point it is of.
        assert abs(stats.spearmanr(order, np.arange(count)).statistic) < 6 / count**0.5
        assert abs(np.corrcoef(signs, outcome.history[0][order % 900])[0, 1]) < 6 / count**0.5


def test_rotations_are_orthogonal_uniform_and_secret() -> None:
    first = draw_rotation(5, seed=KEY, run_id=b"run")
    np.testing.assert_allclose(first @ first.T, np.eye(5), atol=1e-13)
    assert (first == draw_rotation(5, seed=KEY, run_id=b"run")).all()
    assert np.abs(first - draw_rotation(5, seed=bytes(32), run_id=b"run")).max() > 0.1
    assert np.abs(first - draw_rotation(5, seed=KEY, run_id=b"ran")).max() > 0.1
    many = np.stack([draw_rotation(3, seed=KEY, run_id=i.to_bytes(4, "little")) for i in range(3000)])
    # On the sphere in three dimensions each coordinate is uniform; both determinants are as likely.
    for i in range(3):
        for j in range(3):
            assert stats.kstest(many[:, i, j], stats.uniform(-1, 2).cdf).pvalue > 1e-7
    assert stats.binomtest(int((np.linalg.det(many) > 0).sum()), 3000).pvalue > 1e-7
    assert draw_rotation(1, seed=KEY, run_id=b"run").ravel().tolist() in ([1.0], [-1.0])


def test_rotated_records_are_within_the_bound_and_turn_back() -> None:
    rng = np.random.default_rng(4)
    points = np.concatenate([rng.choice([-1.0, 1.0], (300, 6)), rng.uniform(-1.2, 1.2, (300, 6))])
    turn = draw_rotation(6, seed=KEY, run_id=b"run")
    for bits in (8, 16):
        grid = rotate(points, turn, bits)
        coordinates = grid.raw_coordinates.T.astype(np.int64)
        norms = (coordinates**2).sum(axis=1)
        assert norms.max() <= squared_norm_bound(6, bits)
        assert norms.max() > 0.97 * squared_norm_bound(6, bits)
        assert (grid.raw_squared_norms == norms).all()
        back = turn_back(coordinates / 2.0**bits, turn)
        np.testing.assert_allclose(back, np.clip(points, -1, 1), atol=2.0**-bits * 6**0.5)


def test_parties_rotate_before_they_round() -> None:
    points = named("iris")
    outcome = run(points, 3, clients=5)
    expected = rotate(points, outcome.rotation, 16).raw_coordinates.T
    assert (outcome.points == expected).all()
    assert np.abs(outcome.points / 65536 - points).max() > 0.05
