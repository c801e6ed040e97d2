"""`lloyd` equals scikit-learn's KMeans from the same start after the same number of rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.cluster import KMeans

from fastlloyd.data.bounds import auto_public, scale
from fastlloyd.data.public.named import load_named
from fastlloyd.kmeans.grid import quantise
from tests.protocols.support import plan_for, run

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name,k", [("iris", 3), ("wine", 3), ("s1", 15)])
@pytest.mark.parametrize("rounds", [1, 5, 10])
@pytest.mark.parametrize("seed", [0, 1])
def test_lloyd_equals_scikit_learn(name: str, k: int, rounds: int, seed: int) -> None:
    if name != "iris" and not DATA.is_dir():
        pytest.skip("the folder of real data sets is absent")
    values = load_named(name, DATA if DATA.is_dir() else None).values
    points = scale(values, auto_public(values))
    plan = plan_for(points, k, protocol="lloyd", rounds=rounds)
    grid = float(1 << plan.fraction_bits)
    quantised = quantise(points, plan.fraction_bits).raw_coordinates.T / grid
    rng = np.random.default_rng(seed)
    start = quantised[rng.choice(len(points), k, replace=False)]  # data points: no empty cluster at the start
    ours = run(points, plan, start=start).first
    theirs = KMeans(k, init=start, n_init=1, algorithm="lloyd", tol=0, max_iter=rounds).fit(quantised)
    if (ours.centers.noisy_counts == 0).any():
        pytest.skip("an empty cluster: ours keeps its centre, scikit-learn moves it to a far point")
    # Each round rounds the centres to the grid; a point within that of a border may change its label.
    assert np.abs(ours.centers.exact - theirs.cluster_centers_).max() < 2 / grid
    agreement = (ours.raw_labels == theirs.predict(quantised)[: len(ours.raw_labels)]).mean()
    assert agreement > 0.999
