"""The start of fastlloyd-plus from a noisy histogram: which cells it is made of."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from fastlloyd.kmeans import merging, swap, weighted
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.weighted import cluster
from fastlloyd.protocols.fastlloyd import plus, plus_grid
from fastlloyd.protocols.fastlloyd.plan import Plan, make_plan
from fastlloyd.protocols.fastlloyd.plus import first_state
from fastlloyd.protocols.fastlloyd.plus_grid import _chance_above, _likely, _sure, cell_middles, left_out, read_grid
from fastlloyd.protocols.fastlloyd.rounds import first_centers, local_update, post_process
from fastlloyd.randomness.prg import PublicStream
from tests.protocols.support import parameters


def _plan(**changes: Any) -> Plan:
    public = parameters(4000, 3, protocol="fastlloyd-plus", settings={"start": "grid", "wide": 1.0}, **changes)
    return make_plan(public, d=2, names=("x", "y"))


def _noisy(plan: Plan, records: dict[tuple[float, float], float], seed: int) -> np.ndarray:
    """Counts with so many records spread about these places, and noise of the plan's size from a fixed generator."""
    middles = cell_middles(plan)
    counts = np.random.default_rng(seed).normal(0.0, plan.noise_deviations(0)[1], len(middles))
    for place, number in records.items():
        near = np.exp(-((middles - place) ** 2).sum(axis=1) / (2.0 * 0.05**2))
        counts += number * near / near.sum()
    return counts


def test_the_chance_of_noise_alone_is_the_normal_tail() -> None:
    height = np.linspace(0.01, 8.0, 500)
    assert np.abs(_chance_above(height) - norm.sf(height)).max() < 1.5e-7
    assert (_chance_above(np.array([0.0, -0.5, -40.0])) == 1.0).all()


@pytest.mark.parametrize("seed", range(3))
def test_a_cell_counts_less_the_more_likely_it_is_empty(seed: int) -> None:
    plan = _plan(epsilon=0.5)
    noise = plan.noise_deviations(0)[1]
    noisy = _noisy(plan, {(-0.5, 0.5): 2000.0, (0.5, -0.5): 1900.0}, seed)
    likely, sure = _likely(noisy, noise, plan), _sure(noisy, noise, plan)
    assert (likely >= 0.0).all() and (likely <= np.maximum(noisy, 0.0)).all()
    top = np.argmax(noisy)
    assert likely[top] == pytest.approx(noisy[top], rel=0.01)
    assert np.count_nonzero(likely) > np.count_nonzero(sure) >= 3
    assert likely.sum() > sure.sum()
    # Where nobody is, the cells together have next to no weight.
    far = (cell_middles(plan) > 0.1).all(axis=1)
    assert likely[far].sum() < 0.02 * likely.sum()


def test_of_noise_alone_some_cells_are_left() -> None:
    plan = _plan(epsilon=0.5)
    noise, cells = plan.noise_deviations(0)[1], plan.rounds[0].cells
    assert np.count_nonzero(_likely(_noisy(plan, {}, 1), noise, plan)) >= 3
    assert (_likely(np.full(cells, -noise), noise, plan) > 0.0).all()


def test_a_small_cluster_with_weak_signs_is_found() -> None:
    """The start is made of the likely cells: the sure ones are hardly worse off, and the third cluster has a centre."""
    plan = _plan(epsilon=0.25)
    noise = plan.noise_deviations(0)[1]
    places = {(-0.6, 0.6): 2300.0, (0.6, -0.6): 1500.0, (-0.6, -0.6): 160.0}
    noisy = _noisy(plan, places, 4)
    start = np.zeros((3, 2))
    centers, state = read_grid(noisy, start, first_state(plan, given=False), plan)
    likely = _likely(noisy, noise, plan)
    assert state.middle == pytest.approx(likely @ cell_middles(plan) / likely.sum(), abs=1e-12)
    assert all(np.abs(centers - place).max(axis=1).min() < 0.15 for place in places)


def test_where_most_of_the_domain_is_empty_only_sure_cells_count() -> None:
    """Cells of noise far away would take a centre from three clusters that lie close together."""
    plan = _plan(epsilon=0.15)
    noise, middles = plan.noise_deviations(0)[1], cell_middles(plan)
    places = {(0.5, 0.5): 1300.0, (0.8, 0.5): 1300.0, (0.65, 0.8): 1300.0}
    noisy = _noisy(plan, places, 2)
    sure, likely = _sure(noisy, noise, plan), _likely(noisy, noise, plan)

    def farthest(centers: np.ndarray) -> float:
        return max(float(np.abs(centers - place).max(axis=1).min()) for place in places)

    astray = cluster(middles, 3, PublicStream(plan.seed, "other draws"), weights=likely).centers
    centers, state = read_grid(noisy, np.zeros((3, 2)), first_state(plan, given=False), plan)
    assert farthest(astray) > 0.15 > 0.1 > farthest(centers)
    assert state.middle == pytest.approx(sure @ middles / sure.sum(), abs=1e-12)
    # A start that was given stays; what is known comes from the sure cells.
    start = np.array(list(places))
    centers, state = read_grid(noisy, start, first_state(plan, given=True), plan)
    assert (centers == start).all()
    assert state.middle == pytest.approx(sure @ middles / sure.sum(), abs=1e-12)


def _skewed(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Counts of three clusters, each with most records on its left and a long tail to its right; the rows' centres."""
    middles, centers = cell_middles(plan), np.array([[-0.7, -0.6], [-0.7, 0.0], [-0.7, 0.6]])
    tail = np.exp(-np.maximum(middles[:, 0] + 0.7, 0.0) / 0.3) * (middles[:, 0] > -0.8)
    counts = sum(np.where(np.abs(middles[:, 1] - y) < 0.2, tail, 0.0) for _, y in centers)
    return 4000.0 * counts / counts.sum(), centers


def test_what_shortening_leaves_out_is_where_the_tail_is() -> None:
    plan = _plan(epsilon=20.0)
    noisy, centers = _skewed(plan)
    _, state = read_grid(noisy, centers, first_state(plan, given=True), plan)
    sizes = np.full(3, 4000.0 / 3.0)
    rest = left_out(centers, sizes, 0.2, state, plan)
    assert (rest[:, 0] > 0.01).all() and np.abs(rest[:, 1]).max() < 0.005
    # Half of what is cut off in truth: the mean vector less the mean shortened one, of records spread over their cells.
    cells, weights = cell_middles(plan), noisy / noisy.sum()
    own = np.abs(cells[:, 1]) < 0.2
    vectors = cells[own] - centers[1]
    lengths = np.linalg.norm(vectors, axis=1)
    cut = vectors * np.maximum(1.0 - 0.2 / np.maximum(lengths, 1e-12), 0.0)[:, None]
    mean_cut = (weights[own, None] * cut).sum(axis=0) / weights[own].sum()
    # Cells at the end of the tail do not stand out.
    assert 0.3 * mean_cut[0] < rest[1, 0] < 0.5 * mean_cut[0]
    # Nothing lies beyond a radius as wide as the domain, and twice the divisor is half the rest.
    assert not left_out(centers, sizes, 4.0, state, plan).any()
    assert left_out(centers, 2.0 * sizes, 0.2, state, plan) == pytest.approx(0.5 * rest, rel=1e-9)


def test_a_rest_counts_less_where_noise_could_have_made_it() -> None:
    """The same cells with the noise of another budget: the more noise, the smaller the share that is taken."""
    noisy, centers = _skewed(_plan(epsilon=20.0))
    sizes, taken = np.full(3, 4000.0 / 3.0), []
    _, state = read_grid(noisy, centers, first_state(_plan(epsilon=20.0), given=True), _plan(epsilon=20.0))
    cells = _plan(epsilon=20.0).plus
    for epsilon in (20.0, 1.0, 0.2, 0.05):
        plan = replace(_plan(epsilon=epsilon), plus=cells)
        taken.append(float(np.abs(left_out(centers, sizes, 0.2, state, plan)).sum()))
    assert taken == sorted(taken, reverse=True)
    assert taken[0] > 2.0 * taken[2] and taken[-1] == 0.0


def test_nothing_is_made_up_for_where_far_records_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(plus, "left_out", lambda centers, *_: asked.append(len(centers)) or np.zeros_like(centers))
    points = quantise(np.random.default_rng(3).uniform(-1.0, 1.0, (400, 2)), 12)
    for far, times in (("shorten", 2), ("drop", 0)):
        asked.clear()
        public = parameters(4000, 3, protocol="fastlloyd-plus", settings={"start": "grid", "far": far}, epsilon=2.0)
        plan = make_plan(public, d=2, names=("x", "y"))
        centers = first_centers(plan)
        for t in range(len(plan.rounds)):
            update = local_update(quantise(points.raw_coordinates.T / 2.0**12, plan.fraction_bits), centers, plan, t)
            centers = post_process(update, centers, plan, t)
        assert asked == [3] * times


@pytest.mark.parametrize("module", [plus, plus_grid, merging, swap, weighted])
def test_what_all_clients_compute_alike_takes_no_builtin_sum(module: ModuleType) -> None:
    """From Python 3.12 on `sum` of floats is compensated: two clients with two Pythons would differ in a last digit."""
    calls = (node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call))
    assert not [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "sum"]
