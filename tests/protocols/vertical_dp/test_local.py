"""LocCluster: what one user can move, and whether the centres are any good."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlloyd.crypto.prg import PublicStream
from fastlloyd.errors import RangeError
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.secret import SecretRandom
from fastlloyd.protocols.vertical_dp.client import laplace_from
from fastlloyd.protocols.vertical_dp.local import GRID, cluster_locally, grow_tree, leaf_sums, tree_centers
from fastlloyd.protocols.vertical_dp.local_plan import LocalPlan, automatic_steps
from tests.protocols.vertical_dp.support import correlated

ALWAYS_SPLIT = 10**9


def local_plan(method: str = "dplsf", d: int = 2, n: int = 1000, epsilon: float = 1.0, **changes) -> LocalPlan:
    values = {
        "method": method, "clusters": 4, "d": d, "n": n, "epsilon": epsilon, "tree_share": 0.2, "steps": 3,
        "seed": 1, "party": 1, **changes,
    }  # fmt: skip
    return LocalPlan(**values)


def silent(scale: float, size: int) -> np.ndarray:
    return np.zeros(size, dtype=np.int64)


def level_counts(points, plan: LocalPlan) -> tuple[list[np.ndarray], np.ndarray]:
    """Counts of every level, and the sums of the leaves, of a tree that splits everywhere."""
    counts = []

    def loud(scale: float, size: int) -> np.ndarray:
        assert scale == plan.count_scale
        return np.full(size, ALWAYS_SPLIT, dtype=np.int64)

    for steps in range(1, plan.steps + 1):
        stream = PublicStream(plan.seed, "test")
        leaf, sizes = grow_tree(points, LocalPlan(**{**_fields(plan), "steps": steps}), stream, _same(loud, plan))
        counts.append(sizes - ALWAYS_SPLIT)
        assert len(sizes) == 2**steps
    return counts, leaf_sums(points, leaf, len(sizes))


def _same(laplace, plan: LocalPlan):
    return lambda scale, size: laplace(plan.count_scale, size)


def _fields(plan: LocalPlan) -> dict:
    return {name: getattr(plan, name) for name in LocalPlan.__dataclass_fields__}


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


@pytest.mark.parametrize("method", ["dplsf", "lloyd"])
def test_releases_add_up_to_the_partys_epsilon(method: str) -> None:
    for d, epsilon in ((1, 0.1), (8, 2.0)):
        plan = local_plan(method, d=d, epsilon=epsilon, steps=5)
        releases = plan.releases()
        assert spent(releases, 0.0) == pytest.approx(epsilon, rel=1e-12)
        assert len({release.key for release in releases}) == len(releases)
        assert all("client 1" in release.name for release in releases)


@pytest.mark.parametrize("method", ["dplsf", "lloyd"])
def test_noise_is_drawn_as_the_releases_say(method: str) -> None:
    plan = local_plan(method, d=3)
    drawn: list[float] = []

    def laplace(scale: float, size: int) -> np.ndarray:
        drawn.append(scale)
        return np.full(size, ALWAYS_SPLIT if scale == plan.count_scale and method == "dplsf" else 0, dtype=np.int64)

    cluster_locally(correlated(300, 3), plan, laplace)
    assert sorted(drawn) == sorted(release.noise_scale for release in plan.releases())


@pytest.mark.parametrize("method", ["dplsf", "lloyd", "plain"])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_without_noise_the_clusters_are_found(method: str, d: int) -> None:
    points = correlated(4000, d, k=4, spread=0.03)
    plan = local_plan(method, d=d, n=4000, epsilon=40.0, steps=7)
    found = cluster_locally(points, plan, silent)
    assert found.noisy_centers.shape == (4, d) and np.abs(found.noisy_centers).max() <= GRID
    labels, cost = nearest(points, found.noisy_centers / GRID)
    assert cost < d * (0.02 if method != "lloyd" else 0.25)
    assert (labels == found.raw_labels).mean() > 0.999


@pytest.mark.parametrize("method", ["dplsf", "lloyd"])
def test_little_noise_does_little_harm(method: str) -> None:
    points = correlated(8000, 2, k=4, spread=0.05)
    plan = local_plan(method, d=2, n=8000, epsilon=2.0, steps=6)
    found = cluster_locally(points, plan, laplace_from(SecretRandom()))
    assert nearest(points, found.noisy_centers / GRID)[1] < 0.25


def test_a_table_with_few_users_still_has_all_centres() -> None:
    plan = local_plan(d=2, n=5, epsilon=0.01, steps=2)
    centers = tree_centers(quantise(np.zeros((5, 2)), 16), plan, laplace_from(SecretRandom()))
    assert len(np.unique(centers, axis=0)) == 4


def test_steps_follow_public_numbers() -> None:
    def steps(epsilon: float, method: str = "dplsf") -> int:
        return automatic_steps(method, clusters=5, d=4, n=20_000, epsilon=epsilon, tree_share=0.2)

    assert [steps(e) for e in (1e-4, 100.0)] == [2, 10]
    assert steps(0.1) < steps(1.0)
    assert 2 <= steps(0.1, "lloyd") <= steps(10.0, "lloyd") <= 7
    with pytest.raises(RangeError, match="columns per party"):
        local_plan(d=1 << 15)
    assert math.isfinite(local_plan().least_leaf)
