"""LocCluster: what one user can move, and whether the centres are any good."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlloyd.errors import RangeError
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocols.vertical_dp.client import noise_for
from fastlloyd.protocols.vertical_dp.local_plan import STEPS, LocalPlan, automatic_levels
from fastlloyd.protocols.vertical_dp.math import local
from fastlloyd.protocols.vertical_dp.math.local import (
    GRID,
    cluster_locally,
    grow_tree,
    leaf_sums,
    shortened_steps,
    step_radius,
)
from fastlloyd.randomness.secret import SecretRandom
from tests.protocols.vertical_dp.support import correlated

ALWAYS_SPLIT = 10**9


def local_plan(method: str = "box-tree", d: int = 2, n: int = 1000, epsilon: float = 1.0, **changes) -> LocalPlan:
    values = {
        "method": method, "clusters": 4, "d": d, "n": n, "epsilon": epsilon, "tree_share": 0.5, "levels": 3,
        "seed": 1, "party": 1, **changes,
    }  # fmt: skip
    return LocalPlan(**values)


def silent(scale: float, size: int) -> np.ndarray:
    return np.zeros(size, dtype=np.int64)


def level_counts(points, plan: LocalPlan) -> tuple[list[np.ndarray], np.ndarray]:
    """Counts of every level, and the sums of the leaves, of a tree that splits everywhere."""
    counts = []

    def loud(scale: float, size: int) -> np.ndarray:
        return np.full(size, ALWAYS_SPLIT, dtype=np.int64)

    for levels in range(1, plan.levels + 1):
        tree = grow_tree(points, dataclasses.replace(plan, levels=levels), loud)
        counts.append(tree.noisy_sizes - ALWAYS_SPLIT)
        assert len(tree.noisy_sizes) == 2**levels
    return counts, leaf_sums(points, tree)


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_one_user_moves_each_level_by_one_and_the_leaves_by_its_coordinates(seed: int, d: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    raw = rng.choice([-1.0, -0.3, 0.0, 0.7, 1.0], (n, d))
    plan = local_plan(d=d, n=n)
    with_all, all_sums = level_counts(quantise(raw, 16), plan)
    without, sums = level_counts(quantise(raw[1:], 16), plan)
    for before, after in zip(with_all, without, strict=True):
        assert np.abs(before - after).sum() == 1.0
    assert np.abs(all_sums - sums).sum() <= plan.sum_sensitivity == d * GRID
    assert plan.sum_scale == plan.sum_sensitivity / plan.sum_epsilon


@given(st.integers(0, 2**32), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_leaves_are_disjoint_boxes_with_their_own_users(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    raw = np.clip(rng.normal(0, 0.5, (400, d)), -1, 1)
    points = quantise(raw, 16)
    plan = local_plan(d=d, n=400, epsilon=5.0, levels=6)
    tree = grow_tree(points, plan, noise_for(plan, SecretRandom()))
    assert len(tree.low) == len(tree.high) == len(tree.noisy_sizes) == len(tree.open)
    for user, leaf in enumerate(tree.raw_leaf):
        if leaf >= 0:
            x = points.raw_coordinates[:, user]
            assert (tree.low[leaf] <= x).all() and (x <= tree.high[leaf]).all()
    for a in range(len(tree.low)):
        for b in range(a):
            assert ((tree.high[a] <= tree.low[b]) | (tree.high[b] <= tree.low[a])).any()


@pytest.mark.parametrize("method", ["box-tree", "lloyd"])
def test_releases_add_up_to_the_partys_epsilon(method: str) -> None:
    for d, epsilon in ((1, 0.1), (8, 2.0)):
        plan = local_plan(method, d=d, epsilon=epsilon, levels=5)
        releases = plan.releases()
        assert spent(releases, 0.0) == pytest.approx(epsilon, rel=1e-12)
        assert len({release.key for release in releases}) == len(releases)
        assert all("client 1" in release.name for release in releases)


@pytest.mark.parametrize("method", ["box-tree", "lloyd"])
def test_noise_is_drawn_as_the_releases_say(method: str) -> None:
    plan = local_plan(method, d=3)
    drawn: list[float] = []

    def laplace(scale: float, size: int) -> np.ndarray:
        drawn.append(scale)
        return np.full(size, ALWAYS_SPLIT if scale == plan.level_scale else 0, dtype=np.int64)

    cluster_locally(correlated(300, 3), plan, laplace)
    assert sorted(drawn) == sorted(release.noise_scale for release in plan.releases())


@pytest.mark.parametrize("d,epsilon", [(1, 0.05), (8, 0.4)])
def test_shortened_releases_add_up_to_the_partys_share_of_one_over_sigma(d: int, epsilon: float) -> None:
    releases = local_plan("shortened", d=d, epsilon=epsilon, levels=5, tree_share=0.3).releases()
    assert len(releases) == 5 + 2 * STEPS == len({release.key for release in releases})
    assert {release.mechanism for release in releases} == {"gaussian"} and {r.norm for r in releases} == {"l2"}
    parts = [(release.sensitivity / release.noise_scale) ** 2 for release in releases]
    assert sum(parts) == pytest.approx(epsilon**2, rel=1e-12)
    assert sum(parts[:5]) == pytest.approx(0.3 * epsilon**2, rel=1e-12)


def worst_step(raw: np.ndarray, plan: LocalPlan) -> tuple[float, float]:
    """How far a row replaced by nothing moves any step's sums, over the radius, and sizes: earlier releases alike."""
    points = quantise(raw, 16)
    tree = grow_tree(points, plan, silent)
    start = np.random.default_rng(0).uniform(-1, 1, (plan.clusters, plan.d))
    used, seen = local.accumulate, []

    def watched(own, centers, **how):
        found = used(own, centers, **how)
        seen.append((centers.copy(), how, *found))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "accumulate", watched)
        shortened_steps(points, tree, start, plan, silent)
    assert len(seen) == STEPS
    moved = []
    for row in range(len(raw)):
        rest = quantise(np.delete(raw, row, axis=0), 16)
        for centers, how, sums, sizes in seen:
            other_sums, other_sizes = used(rest, centers, **how)
            moved.append((((sums - other_sums) ** 2).sum() ** 0.5, ((sizes - other_sizes) ** 2).sum() ** 0.5))
    return max(sums for sums, _ in moved) / step_radius(tree, plan), max(sizes for _, sizes in moved)


def test_one_user_moves_a_shortened_step_by_its_radius_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = np.random.default_rng(3).choice([-1.0, -0.3, 0.0, 0.7, 1.0], (12, 3))
    plan = local_plan("shortened", d=3, n=12, epsilon=5.0)
    stated = {release.name.split(",")[0]: release.sensitivity for release in plan.releases()}
    sums, sizes = worst_step(raw, plan)
    assert 0.99 < sums <= stated["shortened sums"] == 1.0
    assert sizes == stated["local sizes"] == 1.0
    # The same test finds out steps that forget to shorten.
    accumulate = local.accumulate
    monkeypatch.setattr(local, "accumulate", lambda *both, **_: accumulate(*both, radius=None, relative=True))
    assert worst_step(raw, plan)[0] > 1.2


def test_noise_of_shortened_steps_is_drawn_as_the_releases_say() -> None:
    plan = local_plan("shortened", d=3)
    drawn: list[tuple[float, int]] = []

    def noise(scale: float, size: int) -> np.ndarray:
        drawn.append((scale, size))
        return np.zeros(size, dtype=np.int64)

    points = correlated(300, 3)
    tree = grow_tree(quantise(points, 16), plan, silent)
    cluster_locally(points, plan, noise)
    levels, steps = drawn[: plan.levels], drawn[plan.levels :]
    assert {scale for scale, _ in levels} == {plan.level_scale}
    assert steps == [(plan.step_scale * step_radius(tree, plan), 12), (plan.size_scale, 4)] * STEPS
    assert {r.noise_scale for r in plan.releases()} == {plan.level_scale, plan.step_scale, plan.size_scale}


@pytest.mark.parametrize("method", ["box-tree", "lloyd", "shortened", "plain"])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_without_noise_the_clusters_are_found(method: str, d: int) -> None:
    points = correlated(4000, d, k=4, spread=0.03)
    plan = local_plan(method, d=d, n=4000, epsilon=40.0, levels=10)
    found = cluster_locally(points, plan, silent)
    assert found.noisy_centers.shape == (4, d) and np.abs(found.noisy_centers).max() <= GRID
    labels, cost = nearest(points, found.noisy_centers / GRID)
    assert cost < d * 0.0015
    assert (labels == found.raw_labels).mean() > 0.999


# Noise moves a centre's coordinate by less than 0.02 at one standard error; the bound allows for over ten of them.
@pytest.mark.parametrize("method", ["box-tree", "lloyd", "shortened"])
def test_little_noise_does_little_harm(method: str) -> None:
    points = correlated(8000, 2, k=4, spread=0.05)
    plan = local_plan(method, d=2, n=8000, epsilon=1.0, levels=automatic_levels(8000, 1.0, method))
    found = cluster_locally(points, plan, noise_for(plan, SecretRandom()))
    assert nearest(points, found.noisy_centers / GRID)[1] < 0.05


@pytest.mark.parametrize("method", ["box-tree", "lloyd", "shortened"])
def test_a_table_with_few_users_still_has_all_centres(method: str) -> None:
    plan = local_plan(method, d=2, n=5, epsilon=0.01, levels=2)
    found = cluster_locally(np.zeros((5, 2)), plan, noise_for(plan, SecretRandom()))
    assert len(np.unique(found.noisy_centers, axis=0)) == 4


def test_levels_follow_public_numbers() -> None:
    assert [automatic_levels(20_000, epsilon, "lloyd") for epsilon in (1e-4, 0.12, 0.24, 100.0)] == [4, 7, 8, 10]
    assert [automatic_levels(20_000, mu, "shortened") for mu in (1e-4, 0.05, 0.12, 100.0)] == [3, 8, 9, 10]
    with pytest.raises(RangeError, match="columns per party"):
        local_plan(d=1 << 15)
