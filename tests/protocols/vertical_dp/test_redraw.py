"""What is said of a result's noise: how often its ranges hold the truth, and what is called noise."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.kmeans.assign import assign
from fastlloyd.kmeans.grid import quantise
from fastlloyd.protocols.vertical_dp.client import noise_for
from fastlloyd.protocols.vertical_dp.math.fit import GridCells
from fastlloyd.protocols.vertical_dp.math.grid import assign_cells, cluster_cells, walks_of
from fastlloyd.protocols.vertical_dp.math.local import GRID, cluster_locally, local_doubts
from fastlloyd.protocols.vertical_dp.math.weights import noisy_count
from fastlloyd.protocols.vertical_dp.plan import Plan
from fastlloyd.protocols.vertical_dp.protocol import noise_of
from fastlloyd.protocols.vertical_dp.server import ServerResult, possible_total, redraw, weigh
from fastlloyd.protocols.vertical_dp.sketch.sketch import make_sketch
from fastlloyd.report.quality import Quality, judge
from tests.protocols.vertical_dp.support import Replay, correlated, plan_for, sketch_keys, split

Floats = NDArray[np.float64]
RUNS = 12


@dataclass(frozen=True)
class Played:
    """What the server has, and the records that its clusters are made of: how many, and their means."""

    result: ServerResult
    sizes: Floats
    means: Floats


def play(points: Floats, plan: Plan, number: int) -> Played:
    """The parties' steps and the server's, without messages; the noise is the same for the same number."""
    columns, secret = split(points, plan.clients), Replay(number)
    local = [
        cluster_locally(own, plan.local_plan(place), noise_for(plan.local_plan(place), secret))
        for place, own in enumerate(columns)
    ]
    labels = [found.raw_labels for found in local]
    sketches = [
        [
            make_sketch(own, group.index(place), key, plan.shape, secret)
            for group, key in sketch_keys(plan, number).items()
            if place in group
        ]
        for place, own in enumerate(labels)
    ]
    total = possible_total(noisy_count(len(points), plan.total_scale, secret), plan)
    centers = tuple(found.noisy_centers / GRID for found in local)
    cells = weigh(sketches, total, plan)
    found = cluster_cells(cells, centers, plan.k, seed=plan.seed)
    result = ServerResult(found.centers, found.weights, total, cells, centers)
    by_party = np.split(found.centers, np.cumsum([own.shape[1] for own in columns])[:-1], axis=1)
    cells = GridCells(np.stack(labels, axis=1), np.ones(len(points)))
    where, _ = assign_cells(cells, walks_of(cells.places), centers, by_party)
    sizes = np.bincount(where, minlength=plan.k).astype(np.float64)
    means = np.array([points[where == j].mean(axis=0) if sizes[j] else found.centers[j] for j in range(plan.k)])
    return Played(result, sizes, means)


def judged(plan: Plan, result: ServerResult) -> Quality:
    ends = np.ones(plan.d)
    sizes = result.weights.tolist()
    shared = dataclasses.replace(result, spread=redraw(plan, result)).shared
    return judge(noise_of(plan, shared), centroids=result.centers, sizes=sizes, lo=-ends, hi=ends)


@lru_cache(maxsize=8)
def small(n: int = 600, epsilon: float = 4.0, parties: int = 2, **settings: object) -> tuple[Plan, ServerResult]:
    points = correlated(n, 2 * parties, 3, seed=4)
    chosen = {"rows": 256, **settings}
    plan = plan_for(split(points, parties), 3, epsilon=epsilon, settings=chosen)
    return plan, play(points, plan, 1).result


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_ranges_hold_the_records_that_a_cluster_is_made_of(epsilon: float) -> None:
    points = correlated(1200, 4, 4, seed=2)
    plan = plan_for(split(points, 2), 4, epsilon=epsilon, settings={"rows": 256})
    sizes, coordinates = [], []
    for number in range(RUNS):
        played = play(points, dataclasses.replace(plan, seed=number), number)
        verdict = judged(plan, played.result)
        assert verdict.size_ranges is not None and verdict.centre_margins is not None
        weights, reach = played.result.weights, np.diff(verdict.size_ranges, axis=1)[:, 0] / 2.0
        sizes.append(np.abs(weights - played.sizes) / reach)
        coordinates.append(np.abs(played.result.centers - played.means) / verdict.centre_margins)
    for off in (np.array(sizes), np.array(coordinates)):
        # Runs that end at a poor place err in many coordinates at once.
        assert np.mean(off <= 1.0) >= 0.85
        assert np.quantile(off, 0.95) > 0.3  # and the ranges are not much wider than they have to be


def test_the_noise_on_local_centres_is_what_is_said_of_it() -> None:
    points = correlated(3000, 2, 4, seed=3)
    plan = plan_for([points, points], 4, epsilon=0.5, settings={"rows": 256, "local_clusters": 4}).local_plan(0)
    released, sizes = [], []
    for number in range(30):
        found = cluster_locally(points, plan, noise_for(plan, Replay(number))).noisy_centers
        order = np.lexsort((found[:, 1], found[:, 0]))
        released.append(found[order] / GRID)
        sizes.append(np.bincount(assign(quantise(points, 16), found[order]), minlength=4))
    seen = np.array(released).std(axis=0)
    said = np.sqrt(local_doubts(plan, released[0], np.mean(sizes, axis=0)).noise)
    assert 0.3 < float(np.median(seen / said[:, None])) < 1.5


def test_the_same_result_is_judged_alike_and_another_seed_draws_anew() -> None:
    plan, result = small()
    one, again = redraw(plan, result), redraw(plan, result)
    np.testing.assert_array_equal(one.centers, again.centers)
    np.testing.assert_array_equal(one.weights, again.weights)
    other = redraw(dataclasses.replace(plan, seed=plan.seed + 1), result)
    assert (other.centers != one.centers).any()
    np.testing.assert_allclose(other.centers.mean(), one.centers.mean(), rtol=0.5)


def test_a_plan_with_more_noise_moves_more() -> None:
    plan, result = small()
    worse = dataclasses.replace(
        plan, local_epsilon=plan.local_epsilon / 4, phantoms=16 * plan.phantoms, total_scale=4 * plan.total_scale
    )
    calm, rough = redraw(plan, result), redraw(worse, result)
    assert rough.centers.mean() > 2.0 * calm.centers.mean() > 0.0
    assert rough.weights.mean() > 1.5 * calm.weights.mean() > 0.0
    np.testing.assert_array_equal(calm.unsettled, rough.unsettled)  # is no noise


def test_the_noise_on_the_number_of_users_is_in_every_size() -> None:
    plan, result = small()
    unsure = dataclasses.replace(plan, total_scale=100.0)
    more = redraw(unsure, result).weights / np.maximum(redraw(plan, result).weights, 1.0)
    assert (more > 1.5).all()


def test_clusters_that_the_noise_may_have_merged_are_told() -> None:
    """Three clusters are asked of two groups: which group is cut, and where, the noise decides."""
    points = correlated(600, 4, 2, seed=6)
    plan = plan_for(split(points, 2), 3, epsilon=0.5, settings={"rows": 256})
    found = judged(plan, play(points, plan, 3).result)
    assert found.verdict in ("poor", "noise") and (found.overlapping or found.empty)
    assert any("cannot be told" in warning for warning in found.warnings)


def test_many_records_are_good_and_few_are_noise() -> None:
    verdicts = {}
    for n, epsilon in ((20_000, 8.0), (120, 0.2)):
        points = correlated(n, 4, 3, seed=4)
        plan = plan_for(split(points, 2), 3, epsilon=epsilon, settings={"rows": 1024})
        verdicts[n] = judged(plan, play(points, plan, 2).result)
    assert verdicts[20_000].verdict in ("good", "fair"), verdicts[20_000].sentence
    assert verdicts[120].verdict == "noise"
    assert any("do not use it" in warning for warning in verdicts[120].warnings)


@pytest.mark.parametrize(
    ("parties", "settings"),
    [
        (2, {"local": "lloyd"}),
        (2, {"local": "box-tree"}),
        (2, {"phantoms": "paper"}),
        (3, {}),
        (3, {"weights": "basic", "local_clusters": 3}),
        (3, {"fit": "paper", "local_clusters": 3}),
        (3, {"local_clusters": 20}),
    ],
    ids=lambda value: str(value),
)
def test_every_way_to_a_result_is_judged(parties: int, settings: dict[str, object]) -> None:
    plan, result = small(parties=parties, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = redraw(plan, result)
    assert found.centers.shape == found.unsettled.shape == result.centers.shape
    for values in (found.centers, found.unsettled, found.weights):
        assert np.isfinite(values).all() and (values >= 0.0).all() and values.any()
    assert judged(plan, result).verdict in ("good", "fair", "poor", "noise")


def test_a_result_of_hardly_any_user_is_judged_too() -> None:
    plan, result = small()
    cells = GridCells(result.cells.places[:1], np.ones(1))
    alone = dataclasses.replace(result, cells=cells, noisy_total=1.0, weights=np.array([1.0, 0.0, 0.0]))
    assert judged(plan, alone).verdict == "noise"
