"""The vector on the quality of clusters: what it holds, how far one record moves it, and what is read from it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastlloyd.describe.quality import Judged, QualityVector, middle_of, ratio_range, silhouettes, two_nearest
from fastlloyd.report.ranges import NORMAL_TAIL

Q = 12
CENTERS = np.array([[-0.6, -0.5], [0.6, 0.4], [0.1, -0.8]])
VECTOR = QualityVector(3, 2)
MIDDLE = middle_of(CENTERS, None)


def vector(points: NDArray[np.float64], bits: int = Q) -> NDArray[np.float64]:
    return VECTOR.add_up(points, CENTERS, MIDDLE, bits) / 2.0**bits


def truth(points: NDArray[np.float64], centers: NDArray[np.float64], middle: NDArray[np.float64]) -> dict[str, float]:
    """Computed record by record, by other code."""
    k, d = centers.shape
    bound = min(0.6 * d * k ** (-2 / d), 4 * d)
    own, parts, spread = [], [], []
    for point in points.tolist():
        squares = sorted(sum((x - c) ** 2 for x, c in zip(point, centre, strict=True)) for centre in centers.tolist())
        own.append(squares[0])
        parts.append(1 - math.sqrt(squares[0] / squares[1]))
        spread.append(min(math.dist(point, middle) ** 2, d))
    nicv = float(np.minimum(own, bound).mean())
    return {
        "records": len(points),
        "silhouette": float(np.mean(parts)),
        "nicv": nicv,
        "far": float((np.array(own) > bound).mean()),
        "explained": 1 - nicv / float(np.mean(spread)),
    }


def by_measure(found: tuple[Judged, ...]) -> dict[str, Judged]:
    return {one.measure: one for one in found}


def some_points(n: int, seed: int) -> NDArray[np.float64]:
    """Two of three clusters are tight; the third is wide, and some of its records are far."""
    rng = np.random.default_rng(seed)
    of = rng.integers(0, 3, n)
    moved: NDArray[np.float64] = CENTERS[of] + rng.normal(size=(n, 2)) * np.array([0.05, 0.1, 0.6])[of][:, None]
    return np.clip(moved, -1, 1)


def test_without_noise_the_figures_are_the_true_ones() -> None:
    points = some_points(2000, 1)
    said = by_measure(VECTOR.read(vector(points), noise=0.0, n_total=3000, fraction_bits=Q))
    true = truth(points, CENTERS, MIDDLE)
    assert 0.05 < true["far"] < 0.5  # the bound binds for some records
    assert said.keys() == true.keys()
    for measure, one in said.items():
        assert one.estimate == pytest.approx(true[measure], abs=1e-4 * (2000 if measure == "records" else 1))
        assert one.low is not None and one.high is not None and one.low <= true[measure] <= one.high
        assert one.shown == "fine"


coordinates = st.floats(-1.0, 1.0) | st.sampled_from([-1.0, -0.6, 0.0, 0.4, 1.0])
record = st.tuples(coordinates, coordinates)


@given(st.lists(record, max_size=5), record, st.integers(8, 16))
def test_no_record_moves_the_vector_by_more_than_its_sensitivity(
    others: list[tuple[float, float]], one: tuple[float, float], bits: int
) -> None:
    before = np.array(others, dtype=np.float64).reshape(-1, 2)
    moved = vector(np.vstack([before, one]), bits) - vector(before, bits)
    assert np.linalg.norm(moved) <= VECTOR.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("d", [2, 8, 16, 60])
def test_what_a_record_adds_follows_from_it_alone(d: int) -> None:
    """To the last bit, with records as the run has them, feature by feature: sums along an axis failed from d = 8."""
    rng = np.random.default_rng(d)
    points, centers = rng.integers(-(2**16), 2**16, (d, 200)) / 2.0**16, rng.uniform(-1, 1, (3, d))
    one = QualityVector(3, d)
    for found, alone in zip(two_nearest(points.T, centers), _alone(points, centers), strict=True):
        np.testing.assert_array_equal(found, alone)
    together = one.add_up(points.T, centers, centers[0], 16)
    each = [one.add_up(points[:, at : at + 1].T, centers, centers[0], 16) for at in range(200)]
    np.testing.assert_array_equal(together, np.sum(each, axis=0))


def _alone(points: NDArray[np.float64], centers: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    found = [two_nearest(points[:, at : at + 1].T, centers) for at in range(points.shape[1])]
    return np.concatenate([own for own, _ in found]), np.concatenate([other for _, other in found])


def test_a_record_reaches_the_sensitivity() -> None:
    """So that none smaller would do, such as sqrt(3/2) without the number of records."""
    one, centers = QualityVector(2, 1), np.array([[-1.0], [1.0]])
    moved = one.add_up(np.zeros((1, 1)), centers, np.array([1.0]), 16) / 2.0**16
    assert np.linalg.norm(moved) == pytest.approx(one.sensitivity, rel=1e-4) == pytest.approx(math.sqrt(1.75))
    assert np.linalg.norm(moved) > 1.05 * math.sqrt(1.5)


def test_ranges_hold_the_noise_of_every_number_of_the_vector() -> None:
    """With fixed keys. Of 2,000 draws four standard errors are 0.02; a number of records from elsewhere holds 0.1."""
    points = some_points(3000, 2)
    exact, true, rng = vector(points), truth(points, CENTERS, MIDDLE), np.random.default_rng(7)
    for noise in (15.0, 60.0, 100.0):
        drawn = exact + noise * rng.normal(size=(2000, 5))
        held: dict[str, list[bool]] = {measure: [] for measure in true}
        for noisy in drawn:
            for one in VECTOR.read(noisy, noise=noise, n_total=10**6, fraction_bits=Q):
                if one.low is not None and one.high is not None:
                    held[one.measure].append(one.low <= true[one.measure] <= one.high)
        for measure, found in held.items():
            assert len(found) > 1900, (noise, measure)
            assert 0.93 < np.mean(found) < 0.97, (noise, measure)


def test_another_run_s_number_of_records_would_not_hold() -> None:
    """The variant that divides by the noisy size of the run: its range misses nearly always where its noise is."""
    points = some_points(3000, 2)
    exact, rng = vector(points), np.random.default_rng(7)
    true, noise, held = truth(points, CENTERS, MIDDLE)["nicv"], 15.0, []
    for noisy in exact + noise * rng.normal(size=(400, 5)):
        other = 3000 + 400 * rng.normal()
        ends = ratio_range((noisy[1] + noisy[2] / 3, noise * math.hypot(1, 1 / 3)), (other, 0.0))
        held.append(ends[0] <= true / VECTOR.bound <= ends[1])
    assert np.mean(held) < 0.5


def test_what_is_mostly_noise_is_not_shown() -> None:
    said = by_measure(VECTOR.read(vector(some_points(100, 3)), noise=50.0, n_total=1000, fraction_bits=Q))
    assert {one.shown for one in said.values()} == {"nothing"} and said["nicv"].estimate is None
    # Records on one spot: their number stands out, their spread does not.
    spot = np.tile(MIDDLE, (2000, 1))
    said = by_measure(VECTOR.read(vector(spot), noise=20.0, n_total=3000, fraction_bits=Q))
    assert (said["records"].shown, said["explained"].shown) == ("fine", "nothing")


def test_one_cluster_has_no_silhouette() -> None:
    one = QualityVector(1, 2)
    noisy = one.add_up(np.zeros((50, 2)), np.zeros((1, 2)), np.ones(2), Q) / 2.0**Q
    assert [judged.measure for judged in one.read(noisy, noise=0.1, n_total=50, fraction_bits=Q)] == [
        "records",
        "nicv",
        "far",
        "explained",
    ]


def test_silhouettes_lie_from_0_to_1() -> None:
    own, following = np.array([0.0, 0.25, 0.5, 0.0]), np.array([1.0, 1.0, 0.5, 0.0])
    assert silhouettes(own, following).tolist() == [1.0, 0.5, 0.0, 0.0]
    points = some_points(50, 4)
    squares = np.sort(((points[:, None] - CENTERS) ** 2).sum(axis=2), axis=1)
    raw_own, raw_next = two_nearest(points, CENTERS)
    assert (raw_own == squares[:, 0]).all() and (raw_next == squares[:, 1]).all()
    assert np.isinf(two_nearest(points, CENTERS[:1])[1]).all()


def test_a_divisor_that_may_be_0_leaves_any_ratio_possible() -> None:
    assert ratio_range((1.0, 1.0), (1.9, 1.0)) == (-math.inf, math.inf)
    low, high = ratio_range((1.0, 0.1), (2.0, 0.0))
    assert (low, high) == pytest.approx((0.5 - NORMAL_TAIL * 0.05, 0.5 + NORMAL_TAIL * 0.05))


def test_the_middle_is_that_of_the_sizes() -> None:
    assert middle_of(CENTERS, np.array([1.0, 3.0, -5.0])).tolist() == pytest.approx([0.3, 0.175])
    assert middle_of(CENTERS, np.array([-1.0, -1.0, 0.0])) == pytest.approx(CENTERS.mean(axis=0))
