"""How many clusters noisy centres and sizes show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from fastlloyd.kmeans.merging import gather, merge

PIECES = np.array([[-0.82, 0.0], [-0.78, 0.0], [0.0, 0.8], [0.0, 0.83], [0.03, 0.8], [0.9, -0.9]])
SIZES = np.array([60.0, 40.0, 30.0, 30.0, 30.0, 10.0])


def ward(centers: NDArray[np.float64], counts: NDArray[np.float64]) -> list[float]:
    """The costs of 1, 2, ... clusters, with every cost computed afresh from the members."""

    def cost(group: list[int]) -> float:
        mean = counts[group] @ centers[group] / counts[group].sum()
        return float(counts[group] @ ((centers[group] - mean) ** 2).sum(axis=1))

    groups, costs = [[place] for place in range(len(counts))], [0.0]
    while len(groups) > 1:
        pairs = [(i, j) for i in range(len(groups)) for j in range(i)]
        i, j = min(pairs, key=lambda pair: cost(groups[pair[0]] + groups[pair[1]]) - sum(cost(groups[p]) for p in pair))
        groups[j] += groups.pop(i)
        costs.append(sum(map(cost, groups)))
    return costs[::-1]


def test_pieces_of_three_clusters_are_put_together() -> None:
    found = merge(PIECES, SIZES, count_noise=1.0)
    assert found.groups == ((0, 1), (2, 3, 4), (5,))
    assert gather(SIZES, found.groups).tolist() == [100.0, 90.0, 10.0]
    assert found.step > 100.0


def test_the_costs_are_those_of_wards_clusters() -> None:
    rng = np.random.default_rng(3)
    for _ in range(5):
        centers, counts = rng.uniform(-1, 1, (9, 3)), rng.uniform(5, 500, 9)
        assert merge(centers, counts, count_noise=1.0).costs == pytest.approx(ward(centers, counts))


def test_clusters_that_are_mostly_noise_are_in_no_group() -> None:
    counts = SIZES.copy()
    counts[1], counts[5] = -30.0, 4.0
    found = merge(PIECES, counts, count_noise=10.0)
    assert found.groups == ((0,), (2, 3, 4))
    assert (found.costs[3:] == 0.0).all()


@pytest.mark.parametrize(
    "counts,left",
    [
        ([0.0, 0.0, 0.4, 0.0, 0.0, 0.0], ((2,),)),
        ([-5.0, 50.0, 0, 0, 0, 0], ((1,),)),
        ([50.0, 0, 70, 0, 0, 0], ((0,), (2,))),
    ],
)
def test_with_fewer_than_three_clusters_nothing_is_chosen(counts: list[float], left: object) -> None:
    found = merge(PIECES, np.array(counts), count_noise=1.0)
    assert found.groups == left and found.step == 0.0


def test_equal_centres_are_one_cluster() -> None:
    found = merge(np.zeros((4, 2)), np.full(4, 10.0), count_noise=1.0)
    assert found.groups == ((0, 1, 2, 3),) and found.step == 0.0
    twins = np.repeat([[-0.5, 0.5], [0.5, 0.5], [0.0, -0.5]], 2, axis=0)
    assert merge(twins, np.full(6, 10.0), count_noise=1.0).groups == ((0, 1), (2, 3), (4, 5))


def test_centres_at_random_rarely_have_a_clear_step() -> None:
    steps = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        steps.append(merge(rng.normal(0, 0.3, (12, 4)), np.full(12, 100.0), count_noise=1.0).step)
    assert sum(step > 4.5 for step in steps) <= 2 and np.median(steps) < 3.0


@given(
    arrays.arrays(np.float64, (7, 2), elements=st.floats(-1, 1)),
    arrays.arrays(np.float64, 7, elements=st.floats(-1e12, 1e12)),
    st.floats(0.0, 1e6),
)
def test_whatever_comes_every_cluster_is_in_one_group_at_most(
    centers: NDArray[np.float64], counts: NDArray[np.float64], noise: float
) -> None:
    found = merge(centers, counts, count_noise=noise)
    members = [place for group in found.groups for place in group]
    assert len(members) == len(set(members)) and 1 <= len(found.groups) <= 7
    assert np.isfinite(found.costs).all() and (np.diff(found.costs) <= 0.0).all() and np.isfinite(found.step)
    assert merge(centers, counts, count_noise=noise).groups == found.groups
