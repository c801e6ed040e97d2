"""What `--min-size` leaves of a result: the clusters that reach it, with the values that they had."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fastlloyd.data.bounds import Bounds
from fastlloyd.report.claim import no_claim
from fastlloyd.report.quality import EXACT, ResultNoise
from fastlloyd.run.outcome import Result

CENTROIDS = np.array([[0.0, 0.0], [1.0, 90.0], [9.0, 10.0], [8.0, 80.0]])
SIZES = (40.0, 9.5, 10.0, -3.0)


def result(**changes: object) -> Result:
    noise = ResultNoise(
        size_ranges=np.array([[size - 1, size + 1] for size in SIZES]),
        centre_deviations=np.arange(8.0).reshape(4, 2) / 100,
        unsettled=np.arange(8.0).reshape(4, 2) / 50,
        steps=np.ones((4, 2)),
        step_deviations=np.arange(4.0),
    )
    bounds = Bounds(np.array([0.0, 0.0]), np.array([10.0, 100.0]), ("a", "b"))
    found = Result(
        common={"parameters": {"k": 4}},
        claim=no_claim("a test"),
        features=("a", "b"),
        bounds=bounds,
        centroids=CENTROIDS,
        noisy_sizes=SIZES,
        noise=noise,
        releases=(),
        evaluated=CENTROIDS / 10,
        costs=np.array([9.0, 5.0, 3.0, 2.0]),
    )
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def test_clusters_that_reach_the_size_stay_bit_by_bit() -> None:
    whole = result()
    kept, numbers = whole.without_small(10)
    assert kept.noisy_sizes == (40.0, 10.0) and kept.left_out == 2 and kept.entry["left_out"] == 2
    assert kept.centroids is not None and kept.centroids.tobytes() == CENTROIDS[[0, 2]].tobytes()
    assert kept.evaluated is not None and whole.evaluated is not None and kept.evaluated.shape == (2, 2)
    for name in ("size_ranges", "centre_deviations", "unsettled", "steps", "step_deviations"):
        assert getattr(kept.noise, name).tobytes() == getattr(whole.noise, name)[[0, 2]].tobytes()
    # Distances count in shares of the bounds: by the raw values cluster 1 would be nearer to 2 than to 0.
    assert numbers is not None and numbers.tolist() == [0, 0, 1, 1]
    assert kept.quality.size_ranges is not None and len(kept.quality.size_ranges) == 2
    assert kept.files["centroids.csv"].count("\n") == 3
    # The curve of costs is about the number that the run came to.
    assert kept.chosen == 4 and "4,2.0,1" in kept.files["elbow.csv"]


def test_without_small_clusters_nothing_but_the_count_is_added() -> None:
    all_of_it, numbers = result(noisy_sizes=(5.0, 6.0, 7.0, 8.0)).without_small(5)
    assert all_of_it.left_out == 0 and numbers is not None and numbers.tolist() == [0, 1, 2, 3]
    assert all_of_it.centroids is not None and all_of_it.centroids.tobytes() == CENTROIDS.tobytes()
    assert "left_out" not in result().entry  # a run without a threshold


@pytest.mark.parametrize("sizes", [SIZES, None], ids=["all are small", "no sizes are known"])
def test_where_no_cluster_reaches_it_nothing_of_one_stays(sizes: tuple[float, ...] | None) -> None:
    kept, numbers = result(noisy_sizes=sizes).without_small(41)
    assert numbers is None and kept.centroids is None and kept.noisy_sizes is None and kept.evaluated is None
    assert kept.left_out == 4 and set(kept.files) == {"bounds.csv"}
    quality = kept.quality
    assert quality.verdict == "unknown" and "no cluster reaches the run's --min-size" in quality.sentence
    assert quality.size_ranges is None and quality.centre_margins is None


def test_exact_sizes_and_hidden_centres() -> None:
    hidden = CENTROIDS.copy()
    hidden[1] = np.nan
    kept, numbers = result(
        centroids=hidden, noisy_sizes=None, exact_sizes=(4, 1, 1, 4), noise=EXACT, costs=None
    ).without_small(2)
    assert kept.files["sizes.csv"] == "cluster,size\n0,4\n1,4\n"
    assert numbers is not None and numbers.tolist() == [0, -1, 1, 1]
    kept, numbers = result(centroids=None, noisy_sizes=None, exact_sizes=(4, 1), noise=EXACT, costs=None).without_small(
        2
    )
    assert kept.files["sizes.csv"] == "cluster,size\n0,4\n" and numbers is not None and numbers.tolist() == [0, -1]
