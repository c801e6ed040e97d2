"""From pair tables to the grid: exact where the data allow, bounded in memory, and the final k-means on it."""

from __future__ import annotations

import hashlib
import itertools
import tracemalloc
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from fastlloyd.errors import ConfigError, DataError
from fastlloyd.protocols.vertical_dp.math.fit import GridCells, cells_of, fit_tables, paper_fit, thin
from fastlloyd.protocols.vertical_dp.math.grid import assign_cells, cluster_cells, walks_of
from fastlloyd.protocols.vertical_dp.math.weights import count_release, estimate_weights, groups_of, noisy_count
from fastlloyd.protocols.vertical_dp.sketch.sketch import SketchShape, make_sketch
from fastlloyd.randomness.prg import PublicStream
from fastlloyd.randomness.secret import SecretRandom
from tests.unit.protocols.vertical_dp.math.weights import correlated_labels, count_cells

Floats = NDArray[np.float64]


def misfit(cells: GridCells, tables: Mapping[tuple[int, int], Floats], total: float) -> float:
    """Return the largest difference between a table and the grid's, summed over its cells, over n-hat."""
    return max(float(np.abs(cells.table(pair, len(table)) - table).sum()) / total for pair, table in tables.items())


def grid_points(places: NDArray[np.int64], local_centers: Sequence[Floats]) -> Floats:
    """Return the points of some cells, shape (c, d)."""
    return np.hstack([centers[places[:, party]] for party, centers in enumerate(local_centers)])


def pair_tables(grid: Floats) -> dict[tuple[int, int], Floats]:
    axes = range(grid.ndim)
    return {
        pair: grid.sum(axis=tuple(axis for axis in axes if axis not in pair)).astype(float)
        for pair in itertools.combinations(axes, 2)
    }


def log_linear_grid(parties: int, clusters: int, seed: int) -> Floats:
    """Make a grid that its pairs determine: a product of one positive factor per pair, the form of greatest entropy."""
    rng = np.random.default_rng(seed)
    grid = np.ones((clusters,) * parties)
    for pair in itertools.combinations(range(parties), 2):
        shape = [clusters if axis in pair else 1 for axis in range(parties)]
        grid *= np.exp(rng.normal(size=(clusters, clusters))).reshape(shape)
    return grid * (1000.0 / grid.sum())


def make_key(*what: object) -> bytes:
    """Return a key of its own for each use, the same in every run of the test: sketches are a function of it."""
    return hashlib.sha256(repr(what).encode()).digest()


def dense(cells: GridCells, clusters: int) -> Floats:
    grid = np.zeros((clusters,) * cells.places.shape[1])
    grid[tuple(cells.places.T)] = cells.weights
    return grid


@pytest.mark.parametrize(("parties", "clusters"), [(2, 4), (3, 3), (4, 3), (5, 2)])
def test_a_grid_that_its_pairs_determine_is_found(parties: int, clusters: int) -> None:
    grid = log_linear_grid(parties, clusters, 1)
    found = fit_tables(pair_tables(grid), 1000.0)
    assert len(found.weights) == clusters**parties and found.weights.sum() == pytest.approx(1000.0)
    np.testing.assert_allclose(dense(found, clusters), grid, atol=0.1)


def test_both_fits_meet_every_table_and_ours_is_nearer_to_the_grid() -> None:
    labels = correlated_labels(20_000, 4, 4, 5)
    grid = count_cells(labels, 4).astype(float)
    tables, sizes = pair_tables(grid), [np.bincount(own, minlength=4).astype(float) for own in labels]
    ours, papers = fit_tables(tables, 2e4), paper_fit(tables, sizes, 2e4, steps=500, seed=1)
    assert misfit(ours, tables, 2e4) < 1e-3 and misfit(papers, tables, 2e4) < 1e-3
    errors = [float(np.abs(dense(cells, 4) - grid).sum()) / 2e4 for cells in (ours, papers)]
    assert errors[0] < errors[1]


def test_the_papers_fit_recovers_independent_parties() -> None:
    sizes = [np.array([0.7, 0.3]) * 100, np.array([0.2, 0.8]) * 100, np.array([0.5, 0.5]) * 100]
    grid = np.einsum("a,b,c->abc", *sizes) / 1e4
    found = paper_fit(pair_tables(grid), sizes, 100.0, steps=30, seed=2)
    np.testing.assert_allclose(dense(found, 2), grid, atol=1e-9)


@pytest.mark.parametrize("count", [10, 60, 199])
def test_thinning_keeps_heavy_cells_and_every_cells_expected_weight(count: int) -> None:
    rng = np.random.default_rng(4)
    weights = rng.permutation(np.concatenate([rng.random(195), [50.0, 80.0, 0.0, 30.0, 200.0]]))
    found = np.zeros((3000, 200))
    for seed, line in enumerate(found):
        kept, new = thin(weights, count, PublicStream(seed, "test"))
        assert abs(len(kept) - count) <= 1 and len(set(kept.tolist())) == len(kept)
        line[kept] = new
    heavy = weights > weights.sum() / count
    assert (found[:, heavy] == weights[heavy]).all()
    error = found.std(axis=0) / 3000**0.5
    # A cell is kept or not: at least 9 expected hits each, 6 standard errors and Poisson's tail.
    assert (np.abs(found.mean(axis=0) - weights) <= 7.0 * error + 1e-9).all()


@pytest.mark.parametrize(("parties", "clusters"), [(8, 5), (12, 4)])
def test_many_parties_need_no_memory_for_the_whole_grid(parties: int, clusters: int) -> None:
    """At most 1000 cells at a time of 4e5 or 2e7, and final centres as good as with every user's own cell."""
    labels = correlated_labels(5_000, parties, clusters, 7)
    rng = np.random.default_rng(1)
    local = [rng.normal(size=(clusters, 2)) for _ in range(parties)]
    pairs = itertools.combinations(range(parties), 2)
    tables = {(i, j): count_cells([labels[i], labels[j]], clusters).astype(float) for i, j in pairs}
    tracemalloc.start()
    found = fit_tables(tables, 5e3, max_cells=1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000 and 999 <= len(found.weights) <= 1001
    assert found.weights.sum() == pytest.approx(5e3)
    users = np.column_stack(labels)
    points, ones = grid_points(users, local), np.ones(5_000)
    apart = GridCells(np.column_stack([rng.permutation(own) for own in labels]), ones)
    ours, best, independent = (
        plain_cost(points, ones, cluster_cells(cells, local, 4, seed=1, starts=3).centers)
        for cells in (found, GridCells(users, ones), apart)
    )
    assert ours < 1.02 * best < independent


def test_tables_that_contradict_each_other_are_still_fitted() -> None:
    grid = log_linear_grid(3, 3, 2)
    rng = np.random.default_rng(3)
    noisy = {
        pair: np.maximum(table + rng.normal(scale=20.0, size=(3, 3)), 0.0) for pair, table in pair_tables(grid).items()
    }
    found = fit_tables(noisy, 1000.0)
    assert np.isfinite(found.weights).all() and found.weights.sum() == pytest.approx(1000.0)
    assert misfit(found, noisy, 1000.0) < 0.5


def test_tables_that_do_not_fit_are_refused() -> None:
    good = pair_tables(log_linear_grid(3, 3, 1))
    bad = [
        {(0, 1): good[0, 1], (0, 2): good[0, 2]},
        {},
        {**good, (0, 1): np.ones((2, 2))},
        {**good, (0, 1): -good[0, 1]},
    ]
    for tables in bad:
        with pytest.raises(DataError):
            fit_tables(tables, 1000.0)
    with pytest.raises(DataError):
        fit_tables(good, 0.0)
    many = dict.fromkeys(itertools.combinations(range(12), 2), np.ones((8, 8)))
    with pytest.raises(ConfigError, match="entropy"):
        paper_fit(many, [np.ones(8)] * 12, 64.0, steps=1, seed=1)


@pytest.mark.parametrize("parties", [2, 3])
def test_weights_come_from_sketches_by_every_method(parties: int) -> None:
    labels = correlated_labels(3_000, parties, 3, 8)
    truth = count_cells(labels, 3)
    errors: dict[tuple[str, str, str], float] = {}
    for method, estimator, fit in [
        ("2pest", "likelihood", "entropy"),
        ("2pest", "likelihood", "paper"),
        ("2pest", "basic", "entropy"),
        ("basic", "basic", "entropy"),
    ]:
        groups = groups_of(parties, method)
        shape = SketchShape(rows=1024, clusters=3, parties=len(groups[0]), phantoms=20)
        found = []
        for run in range(4):
            sketches = {
                group: [
                    make_sketch(labels[party], place, make_key(run, method, group), shape)
                    for place, party in enumerate(group)
                ]
                for group in groups
            }
            cells = estimate_weights(sketches, shape, 3e3, estimator=estimator, fit=fit, seed=1)
            assert cells.weights.sum() == pytest.approx(3e3) and (cells.weights > 0.0).all()
            found.append(np.abs(dense(cells, 3) - truth).sum() / 3e3)
        errors[method, estimator, fit] = float(np.mean(found))
    # Of 150 other keys: 0.036 +- 0.010 and 0.089 +- 0.027 for 2 parties, 0.095 +- 0.011 and 0.177 +- 0.031 for 3.
    assert errors["2pest", "likelihood", "entropy"] < 0.8 * errors["basic", "basic", "entropy"]
    assert errors["2pest", "likelihood", "entropy"] < 0.15


@pytest.mark.slow
def test_pairs_beat_one_sketch_of_four_parties_at_the_same_cost() -> None:
    labels = correlated_labels(10_000, 4, 3, 9)
    truth = count_cells(labels, 3)
    errors = []
    # Six pairs of rows of epsilon' / sqrt(6) cost what one group of epsilon' does, to first order.
    for method, phantoms in (("2pest", 245), ("basic", 100)):
        groups = groups_of(4, method)
        shape = SketchShape(rows=1024, clusters=3, parties=len(groups[0]), phantoms=phantoms)
        found = []
        for run in range(8):
            sketches = {
                group: [
                    make_sketch(labels[party], place, make_key(run, method, group), shape)
                    for place, party in enumerate(group)
                ]
                for group in groups
            }
            cells = estimate_weights(sketches, shape, 1e4, estimator="basic")
            found.append(float(np.abs(dense(cells, 3) - truth).sum()) / 1e4)
        errors.append(np.mean(found))
    # Over 60 other keys: 0.71 +- 0.11 for one run.
    assert errors[0] < 0.85 * errors[1]


@pytest.mark.parametrize("changes", [{"estimator": "other"}, {"fit": "other"}])
def test_unknown_methods_are_refused(changes: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="other"):
        estimate_weights({}, SketchShape(rows=4, clusters=2, phantoms=3), 10.0, **changes)
    with pytest.raises(ConfigError, match="other"):
        groups_of(3, "other")


def test_a_negative_number_of_users_is_refused_in_words() -> None:
    with pytest.raises(DataError, match="larger --epsilon"):
        estimate_weights({}, SketchShape(rows=4, clusters=2, phantoms=3), -3.0)


def test_the_number_of_users_carries_the_noise_of_its_release() -> None:
    release = count_release(20.0)
    draws = np.array([noisy_count(1000, release.noise_scale, SecretRandom()) for _ in range(2000)]) - 1000.0
    # |x| is exponential with mean b: 6 standard errors of the mean of 2000.
    assert abs(np.abs(draws).mean() / 20.0 - 1.0) < 6.0 / 2000**0.5
    assert abs(draws.mean()) < 6.0 * 20.0 * 2**0.5 / 2000**0.5


def blobs(parties: int, clusters: int, seed: int) -> tuple[GridCells, list[Floats]]:
    rng = np.random.default_rng(seed)
    grid = count_cells(correlated_labels(2_000, parties, clusters, seed), clusters).astype(float)
    return cells_of(grid), [rng.normal(size=(clusters, 1 + party)) for party in range(parties)]


def plain_cost(points: Floats, weights: Floats, centers: Floats) -> float:
    return float(weights @ ((points[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1))


@pytest.mark.parametrize(("parties", "clusters", "k"), [(2, 5, 4), (3, 4, 5), (4, 5, 8)])
def test_the_final_centres_are_as_good_as_those_of_built_points(parties: int, clusters: int, k: int) -> None:
    cells, local = blobs(parties, clusters, 11)
    points = grid_points(cells.places, local)
    found = cluster_cells(cells, local, k, seed=3)
    assert found.centers.shape == (k, points.shape[1])
    assert found.cost == pytest.approx(plain_cost(points, cells.weights, found.centers))
    assert found.weights.sum() == pytest.approx(cells.weights.sum())
    other = KMeans(k, n_init=20, random_state=0).fit(points, sample_weight=cells.weights)
    assert found.cost <= 1.03 * other.inertia_


def test_the_final_centres_are_means_of_their_cells() -> None:
    cells, local = blobs(3, 4, 12)
    points = grid_points(cells.places, local)
    found = cluster_cells(cells, local, 4, seed=3)
    labels = ((points[:, None] - found.centers[None]) ** 2).sum(axis=2).argmin(axis=1)
    for j in range(4):
        mean = np.average(points[labels == j], axis=0, weights=cells.weights[labels == j])
        np.testing.assert_allclose(found.centers[j], mean, atol=1e-9)


def test_the_final_centres_depend_on_the_public_seed_alone() -> None:
    cells, local = blobs(2, 5, 13)
    one, two = (cluster_cells(cells, local, 5, seed=4, starts=2) for _ in range(2))
    assert (one.centers == two.centers).all()


@pytest.mark.parametrize("order", ["whole grid", "shuffled sample", "repeated"])
def test_cells_are_assigned_to_the_bit_as_party_by_party(order: str) -> None:
    rng = np.random.default_rng(15)
    places = np.indices((7,) * 5).reshape(5, -1).T  # two blocks, the second of another size
    if order == "shuffled sample":
        places = rng.permutation(places)[:900]
    elif order == "repeated":
        places = np.repeat(places[::50], 2, axis=0)
    cells = GridCells(places, rng.random(len(places)))
    local, centers = ([rng.normal(size=(size, 2)) for _ in range(5)] for size in (7, 6))
    centers[0][4], centers[1][4], centers[2][4] = centers[0][1], centers[1][1], centers[2][1]
    centers[3][4], centers[4][4] = centers[3][1], centers[4][1]  # a tie: the lower number counts
    apart = np.zeros((len(places), 6))
    for party in range(5):
        apart += ((local[party][:, None] - centers[party][None]) ** 2).sum(axis=2)[places[:, party]]
    labels, cost = assign_cells(cells, walks_of(places), local, centers)
    assert (labels == apart.argmin(axis=1)).all()
    blocks = (slice(first, first + (1 << 14)) for first in range(0, len(places), 1 << 14))
    assert cost == sum(float(cells.weights[block] @ apart[block].min(axis=1)) for block in blocks)


def test_fewer_cells_than_centres_repeat_some() -> None:
    cells = GridCells(np.array([[0, 1], [1, 0]]), np.array([3.0, 1.0]))
    local: Sequence[Floats] = [np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]])]
    found = cluster_cells(cells, local, 4, seed=1)
    assert found.centers.shape == (4, 2) and found.cost == 0.0
    assert sorted({tuple(center) for center in found.centers.tolist()}) == [(0.0, 1.0), (1.0, 0.0)]


def test_a_grid_that_does_not_fit_is_refused() -> None:
    cells, local = blobs(2, 3, 14)
    with pytest.raises(DataError):
        cluster_cells(cells, local[:1], 2, seed=1)
    with pytest.raises(DataError):
        cluster_cells(GridCells(np.zeros((0, 2), dtype=np.int64), np.zeros(0)), local, 2, seed=1)
    with pytest.raises(ConfigError):
        cluster_cells(cells, local, 0, seed=1)
