"""fastlloyd-plus chooses k: what the clients are left with, what they say of it, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.assign import assign
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.merging import CLEAR
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.fastlloyd.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.fastlloyd.quality import noise_of
from fastlloyd.wire.header import clients
from tests.protocols.support import no_noise, parameters, plan_for, run
from tests.protocols.whole import run_whole

PLUS = "fastlloyd-plus"
TRUE = np.array([[-0.7, -0.7], [-0.7, 0.6], [0.1, 0.0], [0.7, 0.7], [0.7, -0.6]])


def mixture(n: int = 4000, seed: int = 0) -> np.ndarray:
    """Records about the five centres, far apart."""
    rng = np.random.default_rng(seed)
    return np.clip(TRUE[rng.integers(0, 5, n)] + rng.normal(0, 0.06, (n, 2)), -1, 1)


@pytest.mark.parametrize("masking", ["common", "pairwise"])
def test_all_clients_choose_the_same_number_and_it_is_right(masking: str) -> None:
    points = mixture()
    plan = plan_for(points, 12, protocol=PLUS, choose_k=True, clients=3, masking=masking, epsilon=4.0)
    outcome = run(points, plan)
    first = outcome.first.chosen
    assert first is not None and first.exact.shape == (5, 2)
    for party in clients(3):
        result = outcome.results[party]
        assert result.chosen.exact.tobytes() == first.exact.tobytes()
        assert result.chosen.merging.costs.tobytes() == first.merging.costs.tobytes()
        own = quantise(np.array_split(points, 3)[party.rank - 1], plan.fraction_bits)
        assert (result.raw_labels == assign(own, first.grid)).all()
    assert np.abs(np.sort(first.exact, axis=0) - np.sort(TRUE, axis=0)).max() < 0.05
    assert first.noisy_counts.sum() == pytest.approx(4000, rel=0.05)


def test_releases_messages_and_ledger_are_those_of_the_largest_number() -> None:
    points = mixture(600)
    given = plan_for(points, 8, protocol=PLUS)
    chosen = plan_for(points, 8, protocol=PLUS, choose_k=True)
    assert dataclasses.replace(chosen, choose_k=False) == given
    ends = [run(points, plan, noise=no_noise(plan)) for plan in (given, chosen)]
    assert ends[0].simulation.releases == ends[1].simulation.releases
    assert ends[0].first.centers.exact.tobytes() == ends[1].first.centers.exact.tobytes()
    assert ends[0].first.chosen is None and ends[1].first.chosen is not None


def test_the_noise_is_that_of_weighed_means() -> None:
    points = mixture()
    plan = plan_for(points, 12, protocol=PLUS, choose_k=True, epsilon=2.0)
    result = run(points, plan).first
    noise, before = noise_of(plan, result.centers, result.chosen), noise_of(plan, result.centers)
    chosen = result.chosen
    assert chosen is not None and noise.centre_deviations is not None and before.centre_deviations is not None
    assert (
        noise.size_ranges is not None
        and noise.stands_out == (chosen.merging.step >= CLEAR)
        and before.stands_out is None
    )
    for place, group in enumerate(chosen.merging.groups):
        counts = result.centers.noisy_counts[list(group)]
        weights = counts / counts.sum()
        own = np.sqrt((weights[:, None] ** 2 * before.centre_deviations[list(group)] ** 2).sum(axis=0))
        assert (noise.centre_deviations[place] >= own * (1 - 1e-9)).all()
        assert (noise.centre_deviations[place] <= 1.5 * own + 0.01).all()
        low, high = noise.size_ranges[place]
        assert low <= chosen.noisy_counts[place] <= high
    # The true means of the five clusters lie within four deviations of the centres.
    labels, _ = nearest(points, chosen.exact)
    means = np.stack([points[labels == place].mean(axis=0) for place in range(len(chosen.exact))])
    assert (np.abs(means - chosen.exact) < 4.0 * noise.centre_deviations + 0.02).all()


def test_a_client_refuses_a_plan_that_chooses_where_it_was_given_k_and_the_other_way_round() -> None:
    names = ("x1", "x2")
    for asked in (True, False):
        public = parameters(500, 6, protocol=PLUS, choose_k=asked)
        plan = make_plan(public, d=2, names=names)
        assert Plan.from_json(plan.to_json()) == plan
        check_plan(plan, public, d=2, names=names)
        with pytest.raises(ValueError, match="choose_k"):
            check_plan(dataclasses.replace(plan, choose_k=not asked), public, d=2, names=names)
    with pytest.raises(ValueError, match="choose_k"):
        Plan.from_json({**plan.to_json(), "choose_k": 1})


@pytest.mark.parametrize("protocol", ["fastlloyd", "glloyd", "sulloyd", "lloyd"])
def test_its_relatives_do_not_choose(protocol: str) -> None:
    with pytest.raises(ConfigError, match=f"{protocol} does not choose"):
        parameters(500, 6, protocol=protocol, choose_k=True)


@pytest.mark.parametrize("k", [1, 2, 1025])
def test_a_largest_number_is_neither_tiny_nor_huge(k: int) -> None:
    with pytest.raises(ConfigError, match="from 3 to 1024"):
        parameters(5000, k, protocol=PLUS, choose_k=True)


def test_a_whole_run_shows_the_clusters_that_are_left_and_the_curve(tmp_path: Path) -> None:
    for client, part in enumerate(np.array_split(mixture(), 2), start=1):
        np.savetxt(tmp_path / f"site_{client}.csv", part, delimiter=",", header="a,b", comments="")
    options = {"dataset": None, "data": str(tmp_path / "site_{client}.csv"), "bounds": "-1,1", "n_total": 4000}
    codes = run_whole(tmp_path / "out", 3, protocol=PLUS, k=12, choose_k=True, epsilon=5.0, **options)
    assert codes == [0, 0, 0]
    folder = tmp_path / "out" / "1"
    report = json.loads((folder / "report.json").read_text())
    assert report["parameters"]["k_max"] == report["parameters"]["k"] == 12 and report["parameters"]["choose_k"]
    assert len(report["result"]["noisy_sizes"]) == 5
    assert len(report["quality"]["size_ranges"]) == 5 and not any(
        "stands out" in w for w in report["quality"]["warnings"]
    )
    curve = (folder / "elbow.csv").read_text().splitlines()
    assert len(curve) == 13 and [line.endswith(",1") for line in curve].index(True) == 5
    assert len((folder / "centroids.csv").read_text().splitlines()) == 6
    labels = {line.split(",")[1] for line in (folder / "labels_1.csv").read_text().splitlines()[1:]}
    assert labels == set("01234")
    assert "5 was chosen" in (folder / "report.html").read_text()
    assert 'k = "auto:12"' in (folder / "config.toml").read_text()
    assert (tmp_path / "out" / "2" / "centroids.csv").read_bytes() == (folder / "centroids.csv").read_bytes()
    server = json.loads((tmp_path / "out" / "0" / "server.json").read_text())
    # All parties sign these; a server that cannot know the choice must have the same.
    assert server["parameters"] == report["parameters"]


def test_of_records_without_clusters_it_says_that_no_number_stands_out(tmp_path: Path) -> None:
    values = np.clip(np.random.default_rng(1).normal(0, 0.3, (3000, 3)), -1, 1)
    np.savetxt(tmp_path / "site_1.csv", values, delimiter=",", header="a,b,c", comments="")
    options = {"dataset": None, "data": str(tmp_path / "site_{client}.csv"), "bounds": "-1,1", "n_total": 3000}
    assert run_whole(tmp_path / "out", 2, protocol=PLUS, k=10, choose_k=True, epsilon=5.0, **options) == [0, 0]
    quality = json.loads((tmp_path / "out" / "1" / "report.json").read_text())["quality"]
    assert any("no number of clusters stands out" in warning for warning in quality["warnings"])
    assert quality["verdict"] != "good"
