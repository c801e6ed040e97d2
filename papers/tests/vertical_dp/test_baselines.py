"""The paper's baselines: unbiased where they should be, and in the order the paper finds."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.data.bounds import scale
from fastlloyd.data.public.named import dataset_bounds, load_named
from fastlloyd.data.vertical import split_dataset
from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.vertical_dp.math.fit import GridCells
from fastlloyd.protocols.vertical_dp.math.grid import cluster_cells
from fastlloyd.protocols.vertical_dp.server import plain_cells
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd_papers.vertical_dp.baselines import (
    central_box_tree,
    central_kmeans,
    ind_lap_cells,
    ldp_agg_cells,
    ldp_supports,
)
from tests.protocols.vertical_dp.support import Replay, correlated, plan_for, run, split

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("FASTLLOYD_DATA", ROOT.parent / "shared" / "data"))


def dense(cells: GridCells, clusters: int, parties: int) -> np.ndarray:
    table = np.zeros((clusters,) * parties)
    table[tuple(cells.places.T)] = cells.weights
    return table


def pair_labels(n: int, clusters: int = 4, seed: int = 0) -> list[np.ndarray]:
    """Labels of two parties that agree four times in five."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, clusters, n)
    return [first, np.where(rng.random(n) < 0.8, first, rng.integers(0, clusters, n))]


# False alarms: 16 cells at 5.5 standard errors each, below 1e-6 in all.
@pytest.mark.parametrize("epsilon,name", [(2.0, "GRR"), (0.2, "OLH")])
def test_reports_are_unbiased(epsilon: float, name: str) -> None:
    n, clusters = 40_000, 4 if name == "GRR" else 8
    assert (clusters < 3.0 * math.exp(epsilon) + 2.0) == (name == "GRR")
    own = pair_labels(n, clusters)[0]
    support = ldp_supports(own, clusters, epsilon, SecretRandom())
    error = np.abs(support.sum(axis=0) - np.bincount(own, minlength=clusters))
    assert (error < 5.5 * np.sqrt(n) * support.std(axis=0)).all()
    inside = support[np.arange(n), own]
    assert abs(inside.mean() - 1.0) < 5.5 * inside.std() / math.sqrt(n)


def test_joint_reports_keep_the_correlation_that_histograms_lose() -> None:
    n = 20_000
    labels = pair_labels(n)
    truth = dense(plain_cells(labels), 4, 2)
    secret = SecretRandom()
    supports = [ldp_supports(own, 4, 4.0, secret) for own in labels]
    ldp = dense(ldp_agg_cells(supports, pairs=False), 4, 2)
    independent = dense(ind_lap_cells(labels, 4, float(n), 4.0, secret), 4, 2)
    assert ldp.sum() == pytest.approx(n) and independent.sum() == pytest.approx(n)
    assert np.abs(ldp - truth).sum() / n < 0.1
    assert np.abs(independent - truth).sum() / n > 0.5


def test_reports_of_pairs_beat_those_of_all_parties() -> None:
    n = 20_000
    rng = np.random.default_rng(3)
    first = rng.integers(0, 4, n)
    labels = [np.where(rng.random(n) < 0.8, first, rng.integers(0, 4, n)) for _ in range(4)]
    truth = dense(plain_cells(labels), 4, 4)
    secret = Replay(0)  # fixed: no false alarm; over fresh bits 0.79, 0.67 and 1.56, the last with a deviation of 0.16
    supports = [ldp_supports(own, 4, 0.8, secret) for own in labels]
    errors = [
        np.abs(dense(cells, 4, 4) - truth).sum() / n
        for cells in (
            ldp_agg_cells(supports, pairs=True, fit="entropy"),
            ldp_agg_cells(supports, pairs=True, fit="paper"),
            ldp_agg_cells(supports, pairs=False),
        )
    ]
    assert errors[0] < errors[2] and errors[1] < errors[2]


def test_a_grid_too_large_to_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="whole grid"):
        ind_lap_cells([np.zeros(3, dtype=np.int64)] * 8, 8, 3.0, 1.0, SecretRandom())


def test_central_clusterings_find_the_clusters() -> None:
    points = correlated(6000, 4, k=4, spread=0.04)
    assert nearest(points, central_kmeans(points, 4, seed=0))[1] < 0.01
    private = central_box_tree(points, 4, 4.0, tree_share=0.5, seed=0, secret=SecretRandom())
    assert nearest(points, private)[1] < 0.2


def loss(points: np.ndarray, columns: list[np.ndarray], **changes) -> float:
    plan = plan_for(columns, 4, **changes)
    return nearest(points, run(columns, plan).server.centers)[1]


def independent_loss(points: np.ndarray, columns: list[np.ndarray], epsilon: float) -> float:
    """IND-LAP with non-private local centres: better than the paper's."""
    plan = plan_for(columns, 4, protocol="vertical-plain", settings={"local_clusters": 4})
    local = run(columns, plan).server.local_centers
    labels = [nearest(own, centers)[0] for own, centers in zip(columns, local, strict=True)]
    cells = ind_lap_cells(labels, 4, float(len(points)), epsilon, SecretRandom())
    return nearest(points, cluster_cells(cells, local, 4, seed=0).centers)[1]


# Measured over twenty runs each: plain 0.026, private 0.026 to 0.028, independent 0.46 and more.
@pytest.mark.parametrize("parties", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_loss_lies_between_plain_and_ind_lap_on_correlated_columns(parties: int) -> None:
    points = correlated(2500, 4, k=4, seed=5)
    columns = split(points, parties)
    plain = loss(points, columns, protocol="vertical-plain")
    private = loss(points, columns, epsilon=8.0, settings={"rows": 256, "local_clusters": 4})
    independent = independent_loss(points, columns, 8.0)
    assert 0.99 * plain < private < 0.5 * independent


@pytest.mark.slow
def test_letter_at_a_moderate_epsilon_is_near_the_plain_loss() -> None:
    if not (DATA / "letter.csv.gz").is_file():
        pytest.skip("needs letter.csv.gz: name its folder in FASTLLOYD_DATA")
    dataset = load_named("letter", DATA)
    tables = split_dataset(dataset, 2, "even")
    bounds = dataset_bounds(dataset, None)
    columns = [scale(table.raw_values, bounds.match(table.names)) for table in tables]
    points = np.hstack(columns)
    plain = loss(points, columns, protocol="vertical-plain")
    private = loss(points, columns, epsilon=4.0)
    nothing = float(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert private < 0.5 * (plain + nothing)
    assert private < 1.25 * plain
