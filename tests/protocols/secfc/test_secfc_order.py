"""Order masks: they keep the exact order, ties included, and are spread as claimed."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fastlloyd.protocols.secfc.clusters import Clusters
from fastlloyd.protocols.secfc.compare import closest, with_zeros
from fastlloyd.protocols.secfc.messages import AssignmentFormat, CodedValues
from fastlloyd.protocols.secfc.order import Scale, largest_value, order_masks
from fastlloyd.protocols.secfc.reference import reference
from fastlloyd.protocols.secfc.turn import draw_rotation, rotate, squared_norm_bound, turn_back
from fastlloyd.ring.wide import Wide
from tests.protocols.secfc.support import mixture, named, run

KEY = bytes(range(32))
SIZES = st.lists(st.integers(1, 60), min_size=2, max_size=9)


def clusters_of(sizes: list[int]) -> Clusters:
    """Clusters of these sizes, with gaps between their numbers."""
    return Clusters(np.arange(len(sizes)) * 2 + 1, np.array(sizes, dtype=np.int64))


def value(scale: Scale, row: int, sigma: Fraction, reference: Fraction, factor: int, noise: int) -> int:
    """v_h by its definition; sigma_h is an integer over S_h^2, so this is an integer."""
    exact = factor * int(scale.whole[row]) ** 2 * (sigma - reference) + noise
    assert exact.denominator == 1
    return int(exact)


def compare(values: list[int], scale: Scale) -> int:
    """What the server does with one point."""
    limbs = np.zeros((8, len(values), 1), dtype=np.int64)
    for row, number in enumerate(values):
        rest = number
        for i in range(7):
            limbs[i, row] = rest & ((1 << 30) - 1)
            rest >>= 30
        limbs[7, row] = rest
    return int(closest(with_zeros(Wide(limbs), scale.reference), scale.weights)[0])


@given(sizes=SIZES, data=st.data())
def test_the_order_is_exact_whatever_the_gap(sizes: list[int], data: st.DataObject) -> None:
    clusters = clusters_of(sizes)
    scale = Scale.of(clusters)
    iteration = data.draw(st.integers(0, 2**20))
    # As near to each other as centres can be: a few steps of 1 / S_h^2 from a common value.
    near = data.draw(st.integers(-3, 3))
    steps = [data.draw(st.integers(-2, 2)) for _ in sizes]
    sigmas = [Fraction(near * s * s + step, s * s) for s, step in zip(sizes, steps, strict=True)]
    masks = order_masks(scale, 40, key=KEY, iteration=iteration, block=0)
    expected = min(range(len(sizes)), key=lambda h: (sigmas[h], h))
    for i in range(40):
        values = [
            value(scale, row, sigmas[h], sigmas[scale.reference], int(masks.factors[i]), int(masks.noise[row, i]))
            for row, h in enumerate(scale.places)
        ]
        assert compare(values, scale) == expected


@given(sizes=SIZES)
def test_noise_is_the_most_that_two_largest_clusters_bear(sizes: list[int]) -> None:
    # Between the two clusters with the finest grid 1 / T^2 the noise reaches all but c + 5 parts of the unit f.
    clusters = clusters_of(sizes)
    scale = Scale.of(clusters)
    masks = order_masks(scale, 400, key=KEY, iteration=1, block=0)
    count = len(sizes)
    scaled = np.insert(masks.noise / scale.ratios[:, None], scale.reference, 0, axis=0)
    spread = scaled.max(axis=0) - scaled.min(axis=0)
    assert (spread < masks.factors).all()
    assert np.median(spread / masks.factors) > (count - 1.5) / count
    # In order of their numbers, so that ties go to the lowest.
    assert (np.diff(scaled, axis=0) > 0).all()


@given(sizes=SIZES)
def test_the_scale_is_public_and_small(sizes: list[int]) -> None:
    scale = Scale.of(clusters_of(sizes))
    others = [sizes[h] for h in scale.places]
    size = sizes[scale.reference]
    largest = max(math.lcm(a, b) for i, a in enumerate(sizes) for b in sizes[i + 1 :])
    assert (scale.whole == scale.own * others).all() and (scale.whole == scale.other * size).all()
    assert scale.whole.max() == largest and (2 * scale.whole > largest).all()
    assert 4 * largest <= sum(sizes) ** 2 or len(set(sizes)) == 1
    assert scale.weights[scale.reference] == 1 and len(scale.weights) == len(sizes)


def test_the_scale_of_one_cluster_is_empty() -> None:
    scale = Scale.of(clusters_of([7]))
    assert scale.reference == 0 and scale.weights.tolist() == [1] and not len(scale.places)


def test_factors_are_even_over_17_octaves_and_slots_are_uniform() -> None:
    # Sixty comparisons or so: below 1e-6 for all.
    sizes = [40, 40, 40]
    scale = Scale.of(clusters_of(sizes))
    masks = order_masks(scale, 100_000, key=KEY, iteration=7, block=3)
    octaves = np.floor(np.log2(masks.factors / 24)).astype(int)
    assert octaves.min() == 0 and octaves.max() == 16
    assert stats.chisquare(np.bincount(octaves)).pvalue > 1e-8
    for octave in range(8, 17):
        chosen = octaves == octave
        mantissa = masks.factors[chosen] / (24 << octave) - 1
        assert stats.kstest(mantissa, "uniform").pvalue > 1e-8
        # Two uniform numbers in neighbouring slots: their difference is triangular around one slot.
        slots = masks.noise[0, chosen] / (masks.factors[chosen] // 3)
        assert stats.kstest(slots, stats.triang(0.5, loc=0, scale=2).cdf).pvalue > 1e-8


def test_masks_differ_from_round_to_round_and_block_to_block() -> None:
    scale = Scale.of(clusters_of([5, 7, 9]))
    one = order_masks(scale, 500, key=KEY, iteration=1, block=0)
    assert (one.noise == order_masks(scale, 500, key=KEY, iteration=1, block=0).noise).all()
    for key, iteration, block in ((KEY, 2, 0), (KEY, 1, 1), (bytes(32), 1, 0)):
        other = order_masks(scale, 500, key=key, iteration=iteration, block=block)
        assert (one.factors != other.factors).mean() > 0.95


@pytest.mark.parametrize("k", [2, 3])
def test_the_bound_of_the_field_is_nearly_reached_and_holds(k: int) -> None:
    # All records in one corner but one in the opposite: nothing is farther, and T is largest for two halves.
    n, d, bits = 40, 3, 8
    squared = squared_norm_bound(d, bits)
    bound = largest_value(n_total=n, k=k, squared_norm=squared)
    corner = np.full(d, 1 << bits, dtype=object)
    x = np.stack([corner] * (n // 2) + [-corner] * (n // 2))
    scale = Scale.of(clusters_of([n // 2, n // 2 - 1] if k == 2 else [n // 2, n // 2 - 1, 1]))
    row = list(scale.places).index(1 - scale.reference)
    sigma = [int((c * c).sum()) - 2 * int((c * x[0]).sum()) for c in (x[0], x[-1])]
    largest = int(scale.whole[row]) ** 2 * (sigma[1] - sigma[0]) * ((k << 20) - 1) + (k << 20)
    assert bound / 1.2 < largest <= bound


def test_ties_everywhere_and_singletons_equal_the_reference() -> None:
    # Points on a coarse lattice: many are exactly between two, three or four centres.
    side = np.arange(-2, 3) / 2
    lattice = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    for seed in range(6):
        outcome = run(np.tile(lattice, (2, 1)), 7, clients=3, seed=seed, settings={"least_revealed": 1})
        expected = reference(outcome.points, outcome.plan)
        assert [labels.tolist() for labels in outcome.history] == [labels.tolist() for labels in expected]


def test_the_server_cannot_tell_which_point_is_which() -> None:
    # Far clusters: all points of one get alike values. The order in which they come is new in each round.
    sent: list[bytes] = []

    def tap(sender, receiver, header, body):
        if header.type == CodedValues.TYPE and sender.rank == 1:
            sent.append(body)
        return body

    outcome = run(mixture(400, 3, 4, seed=1), 3, clients=3, rounds=4, tap=tap)
    orders = [masks.shuffled() for masks in outcome.masks]
    assert all(sorted(order) == list(range(400)) for order in orders)
    for one, other in pairwise(orders):
        assert (one == other).sum() < 12
    labels = outcome.history[1]
    assert stats.kstest(np.flatnonzero(labels[orders[1]] == labels[0]) / 400, "uniform").pvalue > 1e-6


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
    assert AssignmentFormat(150, 3, 5).records == len(outcome.points)
