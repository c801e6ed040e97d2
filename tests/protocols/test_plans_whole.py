"""What `plan` says before a run, against the run in one thread: of choices that few other whole runs take."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Result
from fastlloyd.run.run_file import with_values
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import InMemory, run_together

IRIS: dict[str, Any] = {"dataset": "iris", "bounds": "0,10", "k": 3, "epsilon": 10.0}


def planned(config: RunConfig, clients: int, d: int | None = None) -> str:
    return "\n".join(map(str, find_protocol(config.protocol).plan_lines(config, clients, d)))


def result_of(ended: InMemory) -> Result:
    return next(one.result for one in ended.outcomes.values() if isinstance(one.result, Result))


@pytest.mark.parametrize("protocol", ["fastlloyd", "sulloyd"])
def test_what_a_plan_says_of_noise_in_shares_is_what_the_run_claims(protocol: str) -> None:
    config = RunConfig(protocol=protocol, masking="pairwise", rounds=2, **IRIS)
    said, result = planned(config, 3), result_of(run_together(config, 3))
    assert {(one.clients, one.known) for one in result.releases} == {(3, 1)}
    assert "guarantee rests on 2 of 3 (an observer may know 1)" in said
    assert f"\nrounds: {len({one.round for one in result.releases})}\n" in said
    # By zCDP there would be a delta, which Laplace noise does not need.
    assert (result.claim.delta == 0.0) == ("(pure)" in said) == ("by zCDP" not in said) == (protocol == "sulloyd")


def test_a_plan_that_lets_the_clients_choose_k_has_the_noise_of_the_most_clusters() -> None:
    config = RunConfig(protocol="fastlloyd-plus", choose_k=True, **{**IRIS, "k": 6})
    said, result = planned(config, 3), result_of(run_together(config, 3))
    assert "the clients choose it" in said and "the noise of all rounds is that of 6 clusters" in said
    assert len(result.centroids) <= 6
    foreseen = find_protocol(config.protocol).foresee(config, 3, None)
    assert foreseen is not None
    assert [one.noise_scale for one in result.releases] == [one.noise_scale for one in foreseen.releases]


def test_a_plan_of_feddp_without_the_server_s_points_assumes_the_most_noise(tmp_path: Path) -> None:
    points = np.random.default_rng(4).uniform(0.1, 0.4, (60, 2))
    for name, part in (("server", points[:20]), ("site_1", points), ("site_2", points)):
        np.savetxt(tmp_path / f"{name}.csv", part, delimiter=",", header="a,b", comments="")
    config = RunConfig(
        protocol="feddp", data=str(tmp_path / "site_{client}.csv"), n_total=120, bounds="-1,1", k=2, epsilon=10.0
    )
    served = dataclasses.replace(config, server_data=str(tmp_path / "server.csv"))
    assert "assumed: as many points of the server as clusters" in planned(config, 2, 2)
    said = planned(served, 2)
    assert "20 points of the server" in said and "assumed" not in said
    with pytest.raises(ConfigError, match="the server's data have 2 features, got 3"):
        planned(served, 2, 3)
    with pytest.raises(ConfigError, match="--d: expected the number of features"):
        planned(config, 2)

    def scales(releases: Any) -> dict[tuple[int, str], float]:
        return {(one.round, one.name): one.noise_scale for one in releases}

    foreseen = find_protocol(config.protocol).foresee(config, 2, 2)
    assert foreseen is not None
    most, found = scales(foreseen.releases), scales(result_of(run_together(served, 2)).releases)
    assert found.keys() == most.keys() and all(found[one] <= most[one] * (1.0 + 1e-6) for one in found)
    # The server's points reach less far than the corner of the box.
    assert any(found[one] < 0.9 * most[one] for one in found)


@pytest.mark.parametrize("membership", [False, True])
def test_secfc_evaluates_what_it_reveals(membership: bool) -> None:
    values = {"secfc": {"membership": membership, "reveal_centers": membership}}
    config = with_values(RunConfig(protocol="secfc", evaluate=True, **{**IRIS, "epsilon": None}), values)
    result = result_of(run_together(config, 5))
    # Centres where nobody knows whose label is whose; else the means of the labels, in the place of no centres.
    assert (result.centroids is not None) == membership
    assert result.evaluated is not None and result.evaluated.shape == (3, 4)
    assert re.match("secfc: 150 records", planned(config, 5))


def test_the_paper_s_fit_of_three_parties_keeps_all_records() -> None:
    values = {"vertical-dp": {"fit": "paper", "estimator": "basic", "local": "lloyd"}}
    config = with_values(RunConfig(protocol="vertical-dp", **{**IRIS, "epsilon": 60.0}), values)
    result = result_of(run_together(config, 3))
    assert sum(result.noisy_sizes or ()) == pytest.approx(150, rel=0.2)
    assert result.centroids is not None and result.centroids.shape == (3, 4)


def test_columns_of_those_who_all_owners_have_are_clustered_encrypted(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for rank, people in ((1, range(0, 80)), (2, range(10, 90))):
        lines = [f"p{i},{(i % 2) * 8 - 4 + rng.normal(0, 0.5):.6f}" for i in rng.permutation(people)]
        (tmp_path / f"office_{rank}.csv").write_text("\n".join([f"id,x{rank}", *lines]) + "\n")
    config = with_values(
        RunConfig(
            protocol="vertical-he",
            data=str(tmp_path / "office_{client}.csv"),
            n_total=100,
            bounds="-10,10",
            k=2,
            rounds=2,
            epsilon=100.0,
        ),
        {"vertical": {"align": "intersect"}},
    )
    result = result_of(run_together(config, 2))
    assert sum(result.noisy_sizes or ()) == pytest.approx(70, abs=5)  # ids 10 to 79
    found = np.sort(np.asarray(result.centroids), axis=0)
    assert np.abs(found - [[-4, -4], [4, 4]]).max() < 1.0
