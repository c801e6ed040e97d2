import numpy as np
import pytest

from fastlloyd.kmeans import weighted
from fastlloyd.kmeans.weighted import nearest
from fastlloyd.randomness.prg import PublicStream


@pytest.mark.parametrize("k", [1, 16, 17, 300, 20_000])
@pytest.mark.parametrize("d", [1, 3, 8])
def test_distances_are_sums_in_order_however_many_centres_there_are(k: int, d: int) -> None:
    rng = np.random.default_rng(k)
    points, centers = rng.uniform(-1, 1, (150, d)), rng.uniform(-1, 1, (k, d))
    centers[k // 2 :: 7] = points[0]  # ties: the first counts
    squared = np.zeros((len(points), k))
    for h in range(d):
        squared += (points[:, h, None] - centers[:, h]) ** 2
    labels, distances = nearest(points, centers)
    assert (labels == squared.argmin(axis=1)).all()
    assert distances.tobytes() == squared.min(axis=1).tobytes()


def test_sums_in_one_call_have_the_bits_of_sums_column_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    points, start = random.normal(size=(200, 12)), random.normal(size=(5, 12))
    start[3] = 100.0  # nobody's nearest
    weights = random.exponential(size=200)
    together = weighted.refine(points, start, weights=weights)
    monkeypatch.setattr(weighted, "_FEW_VALUES", 0)
    apart = weighted.refine(points, start, weights=weights)
    assert (together.centers == apart.centers).all() and (together.labels == apart.labels).all()
    assert together.cost == apart.cost and (together.centers[3] == 100.0).all()


@pytest.mark.parametrize("d", [1, 3, 8])
@pytest.mark.parametrize("held", [0.9, 0.2, 0.02])
def test_points_without_weight_change_no_bit(d: int, held: float) -> None:
    random = np.random.default_rng([d, int(100 * held)])
    points = np.round(random.normal(size=(400, d)), 1)
    weights = random.exponential(size=400) * (random.random(400) < held)
    found = weighted.cluster(points, 5, PublicStream(1, "test"), weights=weights, max_steps=12)
    stream, all_found = PublicStream(1, "test"), []
    for _ in range(10):
        start = weighted.seed_centers(points, 5, stream, weights=weights)
        all_found.append(weighted.refine(points, start, weights=weights, max_steps=12))
    best = min(all_found, key=lambda each: each.cost)
    assert found.centers.tobytes() == best.centers.tobytes() and found.cost == best.cost
    assert (found.labels == nearest(points, best.centers)[0]).all()
