"""The pure parts: exact products and projections, weighted k-means, elbow, starts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.cluster import KMeans

from fastlloyd.errors import InternalError
from fastlloyd.kmeans import spectral
from fastlloyd.kmeans.assign import sum_by_label
from fastlloyd.kmeans.grid import GridPoints, quantise
from fastlloyd.kmeans.spectral import leading_subspace, outer_product, symmetric
from fastlloyd.kmeans.weighted import cluster, nearest, refine, seed_centers
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import NO_HISTORY
from fastlloyd.protocols.feddp.client import statistics_of
from fastlloyd.protocols.feddp.math import user
from fastlloyd.protocols.feddp.math.projection import MATRIX_BITS, project
from fastlloyd.protocols.feddp.math.record import coarsen
from fastlloyd.protocols.feddp.math.stage import (
    elbow,
    even_normals,
    make_projection,
    margin,
    read_moments,
    start_centers,
)
from fastlloyd.protocols.feddp.math.user import cut_outer
from fastlloyd.protocols.feddp.messages import ProjectionMessage
from fastlloyd.randomness.prg import PublicStream
from tests.protocols.feddp.support import louder, mixture, plan_for
from tests.protocols.support import fresh_pairs, pairwise_masks


@pytest.mark.parametrize("d,n", [(1, 1), (3, 1000), (40, 700), (5, 0)])
def test_the_outer_product_is_that_of_integers(d: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectral, "_BLOCK_VALUES", 1)  # blocks of 256, so that there are several
    rng = np.random.default_rng(n)
    x = rng.integers(-(2**16), 2**16 + 1, (d, n)).astype(np.int32)
    whole = x.astype(np.int64) @ x.astype(np.int64).T
    packed = outer_product(x, 2**16)
    assert (packed == whole[np.triu_indices(d)]).all()
    matrix = symmetric(packed.astype(np.float64), d)
    assert (matrix == whole).all()


def test_the_leading_subspace_is_that_of_the_largest_eigenvalues() -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    matrix = basis @ np.diag([9.0, 4.0, 1.0, 0.5, -2.0, -20.0]) @ basis.T
    rows = leading_subspace(matrix, 2)
    assert np.allclose(np.abs(rows @ basis[:, :2]), np.eye(2), atol=1e-9)
    assert (rows[np.arange(2), np.abs(rows).argmax(axis=1)] > 0).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 10**6))
def test_projected_points_are_those_of_integers(n: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = quantise(rng.uniform(-1, 1, (n, d)), 12)
    matrix = rng.integers(-(2**MATRIX_BITS), 2**MATRIX_BITS + 1, (3, d)).astype(np.int32)
    seen = project(points, matrix, 10)
    for i in range(n):
        for r in range(3):
            exact = sum(int(a) * int(b) for a, b in zip(matrix[r], points.raw_coordinates[:, i], strict=True))
            # Python's round goes half to even, on an exact quotient.
            assert seen.raw_coordinates[r, i] == round(exact / 2 ** (MATRIX_BITS + 12 - 10))
    # A point's place does not depend on who else is there.
    alone = project(GridPoints(points.raw_coordinates[:, :1], points.raw_squared_norms[:1], 12), matrix, 10)
    assert (alone.raw_coordinates[:, 0] == seen.raw_coordinates[:, 0]).all()


@pytest.mark.parametrize("block", [1, 300, 10_000])
def test_sums_by_label_are_those_of_integers(block: int) -> None:
    rng = np.random.default_rng(1)
    points = quantise(rng.uniform(-1, 1, (1500, 5)), 16)
    labels = rng.integers(0, 7, 1500) % 6  # label 6 stays empty
    sums, counts = sum_by_label(points, labels, 7, block=block)
    for j in range(7):
        members = points.raw_coordinates[:, labels == j].astype(np.int64)
        assert (sums[j] == members.sum(axis=1)).all() and counts[j] == members.shape[1]


def test_coarsening_truncates_towards_zero() -> None:
    x = np.array([[-5, -4, -1, 0, 1, 3, 4, 7]], dtype=np.int32)
    assert coarsen(x, 2).tolist() == [[-1, -1, 0, 0, 0, 0, 1, 1]]
    assert coarsen(x, 0) is x


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 10**6), st.sampled_from([0, 1, 7, 1000, 10**7]))
def test_a_user_s_outer_product_keeps_its_bound(d: int, n: int, seed: int, limit: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-3000, 3001, (d, n)).astype(np.float64)
    cut = cut_outer(x, limit)
    whole = cut.astype(object) @ cut.astype(object).T
    assert sum(int(v) ** 2 for v in whole.ravel()) <= limit * limit
    assert (np.abs(cut) <= np.abs(x)).all() and (cut * x >= 0).all()


def test_an_outer_product_that_truncation_makes_longer_is_cut_once_more() -> None:
    x = np.array([[1.0, -4.0], [-9.0, 1.0], [-9.0, -8.0]])
    first = np.trunc(x * math.sqrt(160 / user._frobenius(x)))
    assert user._frobenius(first) > 160
    cut = cut_outer(x, 160)
    assert 100 < user._frobenius(cut) <= 160 and (np.abs(cut) <= np.abs(first)).all()


# --- weighted k-means ---------------------------------------------------------------------------------------------


def test_weighted_clustering_is_as_good_as_scikit_learn_s() -> None:
    rng = np.random.default_rng(0)
    for seed in range(3):
        points = rng.normal(size=(200, 3)) + 6 * rng.integers(0, 2, (200, 3))
        weights = rng.exponential(size=200) * (rng.random(200) > 0.3)
        ours = cluster(points, 8, PublicStream(seed, "test"), weights=weights)
        theirs = KMeans(8, n_init=10, random_state=0).fit(points, sample_weight=weights)
        assert ours.cost <= theirs.inertia_ * (1 + 1e-9)
        labels, distances = nearest(points, ours.centers)
        assert (labels == ours.labels).all()
        assert ours.cost == pytest.approx(float(weights @ distances))


def test_clustering_is_the_same_for_a_seed_and_another_for_another() -> None:
    points = np.random.default_rng(0).normal(size=(60, 2))
    one = seed_centers(points, 5, PublicStream(1, "test"))
    assert (one == seed_centers(points, 5, PublicStream(1, "test"))).all()
    assert (one != seed_centers(points, 5, PublicStream(2, "test"))).any()


def test_points_without_weight_do_not_count() -> None:
    points = np.array([[0.0], [1.0], [10.0], [1000.0]])
    weights = np.array([1.0, 3.0, 2.0, 0.0])
    for seed in range(20):
        assert (seed_centers(points, 3, PublicStream(seed, "test"), weights=weights) < 1000).all()
    found = cluster(points, 2, PublicStream(0, "test"), weights=weights)
    assert sorted(found.centers.ravel()) == [0.75, 10.0]
    assert found.cost == pytest.approx(0.75)


def test_more_centres_than_different_points_cost_nothing() -> None:
    points = np.array([[0.0, 0.0], [1.0, 1.0]] * 4)
    found = cluster(points, 5, PublicStream(0, "test"))
    assert found.cost == 0.0 and found.centers.shape == (5, 2)
    assert cluster(points[:1], 3, PublicStream(0, "test")).cost == 0.0


def test_without_any_weight_all_points_count_alike() -> None:
    points = np.random.default_rng(0).normal(size=(30, 2))
    none = cluster(points, 3, PublicStream(0, "test"), weights=np.zeros(30))
    assert none.centers.tobytes() == cluster(points, 3, PublicStream(0, "test")).centers.tobytes()


def test_an_empty_cluster_keeps_its_centre() -> None:
    points = np.array([[0.0], [1.0]])
    assert refine(points, np.array([[0.4], [50.0]])).centers.tolist() == [[0.5], [50.0]]


def test_k_means_plus_plus_draws_in_proportion_to_the_cost() -> None:
    # Two points 1 and 3 away from the first: chosen with probability 1/10 and 9/10, best of two: 1/100 for the nearer.
    points = np.array([[0.0], [1.0], [-3.0]])
    weights = np.array([1e12, 1.0, 1.0])  # the first is always the first
    drawn = [seed_centers(points, 2, PublicStream(seed, "test"), weights=weights)[1, 0] for seed in range(3000)]
    near = sum(value == 1.0 for value in drawn)
    # 30 expected; the chance of more than 65 or fewer than 6 is below 1e-6 (Poisson).
    assert 6 <= near <= 65


# --- elbow --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "costs,expected",
    [
        ([100.0, 50.0, 20.0, 2.0, 1.9, 1.8, 1.7], 4),
        ([8.0, 1.0, 0.9, 0.8], 2),
        ([5.0, 1.0, 0.0, 0.0], 3),
        ([5.0], 1),
        ([5.0, 1.0], 2),
        ([1.0, 1.0, 1.0], 3),
        ([0.0, 0.0, 0.0], 3),
        ([16.0, 8.0, 4.0, 2.0], 4),
    ],
)
def test_the_elbow_is_where_the_curve_bends(costs: list[float], expected: int) -> None:
    assert elbow(costs) == expected


@pytest.mark.parametrize(
    "costs,expected",
    [([8.0, 1.0, 0.9, 0.8], 0.662), ([1.0, 1.0, 1.0], 0.0), ([16.0, 8.0, 4.0, 2.0], 0.0), ([5.0, 1.0], 0.0), ([], 0.0)],
)
def test_the_margin_is_how_much_deeper_the_elbow_lies_than_the_next_number(costs: list[float], expected: float) -> None:
    # The first: ln 10 / 3 a cluster. Depths ln 8 - that at two, ln (8 / 0.9) - twice that at three.
    assert margin(costs) == pytest.approx(expected, abs=1e-3)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=30))
def test_the_elbow_is_a_number_of_clusters_of_the_curve(costs: list[float]) -> None:
    costs = sorted(costs, reverse=True)
    assert 1 <= elbow(costs) <= len(costs)
    if costs[0] > 0:
        assert elbow([3 * cost for cost in costs]) in range(1, len(costs) + 1)


# --- starts -------------------------------------------------------------------------------------------------------


def test_starts_are_made_of_the_server_s_data_or_of_none() -> None:
    data = mixture(300, 4, 6)
    plans = {
        start: plan_for(data, 4, settings={"start": start}, rounds=1)
        for start in ("server-kmeans++", "server-lloyds", "sphere-packing")
    }
    chosen = start_centers(plans["server-kmeans++"], data.server_points, 10)
    assert all((row == data.server_points).all(axis=1).any() for row in chosen)
    lloyds = start_centers(plans["server-lloyds"], data.server_points, 10)
    theirs = KMeans(4, n_init=10, random_state=0).fit(data.server_points)
    assert nearest(data.server_points, lloyds)[1].sum() <= 1.02 * theirs.inertia_
    packed = start_centers(plans["sphere-packing"], data.server_points, 10)
    reach = np.abs(data.server_points).max()
    assert packed.shape == (4, 6) and 0.2 * reach < np.abs(packed).max() <= reach
    assert math.sqrt(min(((packed[i] - packed[j]) ** 2).sum() for i in range(4) for j in range(i))) > 0.3
    free = start_centers(plans["sphere-packing"], None, 10)
    assert np.allclose(free * reach, packed)


def test_masks_of_any_shape_come_from_one_stream_and_cancel() -> None:
    masks = pairwise_masks(fresh_pairs(3))
    for ring, elements in ((Ring(64), 9), (Ring(32), 5)):
        parts = {me: each.shaped(ring, elements).mask(7, me, NO_HISTORY) for me, each in masks.items()}
        assert not sum(parts.values()).any()
        for me, part in parts.items():
            assert part.any() and part.dtype == ring.dtype
            assert (masks[me].shaped(ring, elements - 2).mask(7, me, NO_HISTORY) == part[:-2]).all()
            assert (masks[me].shaped(ring, elements).mask(8, me, NO_HISTORY) != part).any()


@pytest.mark.parametrize("level", ["record", "client"])
def test_another_projection_projects_anew(level: str) -> None:
    data = mixture(120, 3, 4, seed=5)
    plan = plan_for(data, 3, settings={"privacy_level": level})
    users = data.users if plan.by_user else None
    points = quantise(data.points, plan.fraction_bits)
    own, size = statistics_of(points, plan, users), plan.elements(0)
    noisy = [np.random.default_rng(seed).integers(-1000, 1000, size) for seed in (1, 2)]
    one, other = (make_projection(each, data.server_points, plan) for each in noisy)
    first, second = own.weights(one), own.weights(other)
    assert (second == statistics_of(points, plan, users).weights(other)).all()
    assert (first != second).any()
    assert (own.weights(one) == first).all()


def test_every_record_needs_a_user() -> None:
    data = mixture(30, 3, 4)
    plan = plan_for(data, 3, settings={"privacy_level": "client"})
    with pytest.raises(InternalError, match="one user for each of 30 records"):
        statistics_of(quantise(data.points, plan.fraction_bits), plan, data.users[:-1])


@pytest.mark.parametrize("d,n", [(3, 20), (3, 7), (5, 5), (6, 2)])
def test_the_norm_of_an_outer_product_is_bounded_in_blocks(d: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user, "_EXACT_ROWS", 4)
    x = np.random.default_rng(n).integers(-(1 << 12), 1 << 12, (d, n)).astype(np.float64)
    exact = math.sqrt(float(((x @ x.T) ** 2).sum()))
    assert exact <= user._frobenius(x) <= exact * (1.0 + 1e-12)


def test_a_mean_just_beyond_its_bound_is_cut_once() -> None:
    limit = 1 << 16
    means, units = user.cut_means(np.array([[limit, 1]]), np.array([7]), (limit, limit), 16)
    assert means.tolist() == [[limit - 1, 0]] and units.tolist() == [limit - 1]


# --- proxy points -------------------------------------------------------------------------------------------------


def test_without_noise_the_moments_are_those_of_the_records() -> None:
    data = mixture(400, 3, 5, seed=2)
    plan = louder(plan_for(data, 3, settings={"start": "private"}), 1e-9)
    own = statistics_of(quantise(data.points, plan.fraction_bits), plan).outer_product()
    middle, covariance, doubt = read_moments(own, plan, plan.all_noise)
    assert np.abs(middle - data.points.mean(axis=0)).max() < 2.0 ** -(plan.outer_bits - 2)
    assert np.abs(covariance - np.cov(data.points.T, bias=True)).max() < 2.0 ** -(plan.outer_bits - 3)
    assert 0.0 < doubt < 1e-6


@pytest.mark.parametrize("s", [1, 2, 3])
def test_even_normals_are_spread_as_a_normal_distribution_and_evenly(s: int) -> None:
    found = even_normals(2000, s)
    assert np.abs(found.mean(axis=0)).max() < 0.01
    assert np.abs(np.cov(found.T).reshape(s, s) - np.eye(s)).max() < 0.06
    # 2,000 random points would leave more than 15 % of 2,000 equally likely parts of a line empty.
    for column in found.T:
        assert len(np.unique(np.floor(stats.norm.cdf(column) * 500))) == 500


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1e6))
def test_proxy_points_keep_the_norm_bound_whatever_the_noise(seed: int, factor: float) -> None:
    data = mixture(60, 3, 5, seed=2)
    plan = louder(plan_for(data, 3, settings={"start": "private", "proxies": 20}), 1.0)
    noisy = np.random.default_rng(seed).normal(0, factor * plan.rounds[0].sigma, plan.elements(0)).astype(np.int64)
    projection = make_projection(noisy, None, plan)
    read = ProjectionMessage.read(ProjectionMessage(projection).body(), plan).projection
    assert read.server_points.tobytes() == projection.server_points.tobytes()
    assert read.matrix.tobytes() == projection.matrix.tobytes()
