"""Swaps of clusters: what is merged, what is split, and where the halves go."""

from __future__ import annotations

import numpy as np

from fastlloyd.kmeans.swap import Clusters, swap
from fastlloyd.randomness.prg import PublicStream


def _stream(seed: int, t: int = 1) -> PublicStream:
    return PublicStream(seed, f"test of round {t}")


def _clusters(centers: list[list[float]], counts: list[float]) -> Clusters:
    k = len(centers)
    return Clusters(np.array(centers), np.array(counts), np.ones(k), np.full(k, 0.01))


def test_an_empty_cluster_goes_to_the_largest_and_nothing_is_lost() -> None:
    before = _clusters([[-0.9, 0.0], [0.5, 0.5], [0.5, -0.5], [-0.5, 0.5]], [0.0, 100.0, 900.0, 100.0])
    after = swap(before, deviation=np.array([0.5, 0.5]), cell=0.5, least=1.0, stream=_stream(3))
    assert after.counts.sum() == before.counts.sum()
    assert after.counts[0] == after.counts[2] == 450.0
    assert (after.centers[[1, 3]] == before.centers[[1, 3]]).all()
    assert np.allclose((after.centers[0] + after.centers[2]) / 2, before.centers[2])
    assert (before.counts == [0.0, 100.0, 900.0, 100.0]).all()


def test_good_clusters_are_left_alone() -> None:
    before = _clusters([[-0.8, -0.8], [0.8, 0.8], [-0.8, 0.8], [0.8, -0.8]], [100.0] * 4)
    after = swap(before, deviation=np.array([0.8, 0.8]), cell=0.5, least=1.0, stream=_stream(0))
    assert (after.centers == before.centers).all()
    assert (after.counts == before.counts).all()


def test_swaps_follow_from_the_public_stream_alone() -> None:
    before = _clusters([[-0.9, 0.0], [0.5, 0.5], [0.5, -0.5]], [0.0, 100.0, 900.0])
    moved = [
        swap(before, deviation=np.array([0.5, 0.5]), cell=0.6, least=1.0, stream=_stream(seed, t)).centers
        for seed, t in ((1, 1), (1, 1), (2, 1), (1, 2))
    ]
    assert (moved[0] == moved[1]).all()
    assert (moved[0] != moved[2]).any()
    assert (moved[0] != moved[3]).any()
