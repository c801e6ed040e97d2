"""SecFC and k-FED in whole runs: their files, what their reports say, and a budget that they cannot meet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastlloyd.report.document import load
from tests.mpi.support import hospitals, read_matrix
from tests.protocols.whole import done_flags as done
from tests.protocols.whole import run_flags as run

OWN = ("--data", "hospital_{client}.csv", "--k", "2", "--bounds", "-1,1", "--output", "res", "--n-total", "120")


def labels(folder: Path, rank: int) -> np.ndarray:
    return np.loadtxt(folder / f"labels_{rank}.csv", skiprows=1, delimiter=",", usecols=1, dtype=np.int64)


def test_secfc_gives_each_client_its_labels_and_the_server_none(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=3)
    done(tmp_path, ["--protocol", "secfc", *OWN, "--set", "secfc.reveal_centers=true"], n=4)
    folder = tmp_path / "res"
    written, served = load(folder / "report.json"), load(folder / "server.json", "server")
    assert written["not_private"] and "exact" in written["not_private_reason"]
    assert "result" not in served
    assert written["privacy"]["spent_epsilon"] is None
    centers = read_matrix(folder / "centroids.csv")
    for rank in (1, 2, 3):
        points = read_matrix(tmp_path / f"hospital_{rank}.csv")
        found = labels(folder, rank)
        distances = ((points[:, None] - centers[None]) ** 2).sum(axis=2)
        assert (distances.argmin(axis=1) == found).mean() > 0.97, "a fixed point of Lloyd's iteration"
        inertia = float((folder / f"inertia_{rank}.csv").read_text().splitlines()[1])
        assert inertia == pytest.approx(distances[np.arange(len(points)), found].sum(), rel=1e-3)
    sizes = np.loadtxt(folder / "sizes.csv", delimiter=",", skiprows=1, dtype=np.int64)[:, 1]
    assert sizes.sum() == sum(len(labels(folder, rank)) for rank in (1, 2, 3))


def test_secfc_with_hidden_owners_gives_the_same_partition(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=3)
    flags = ["--protocol", "secfc", *OWN, "--set", "secfc.membership=true", "--set", "secfc.reveal_centers=true"]
    done(tmp_path, flags, n=4)
    centers = read_matrix(tmp_path / "res" / "centroids.csv")
    centers = centers[np.isfinite(centers).all(axis=1)]
    for rank in (1, 2, 3):
        points = read_matrix(tmp_path / f"hospital_{rank}.csv")
        assert len(labels(tmp_path / "res", rank)) == len(points)
        assert ((points[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1).mean() < 0.6


def test_two_clients_are_too_few_for_secfc(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=2)
    ended = run(tmp_path, ["--protocol", "secfc", *OWN], n=3)
    assert ended.codes == {2}
    assert "expected at least 3 clients, got 2" in ended.said


@pytest.mark.parametrize(("protocol", "n"), [("secfc", 4), ("kfed", 3)])
def test_no_budget_covers_a_result_without_noise(tmp_path: Path, protocol: str, n: int) -> None:
    hospitals(tmp_path, clients=3)
    ended = run(
        tmp_path, ["--protocol", protocol, *OWN, "--state-dir", "state", "--new-state", "--budget", "1000"], n=n
    )
    assert ended.codes == {4}
    assert not (tmp_path / "res" / "report.json").exists()


def test_kfed_is_one_round_and_says_that_it_is_not_private(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=3)
    done(tmp_path, ["--protocol", "kfed", *OWN], n=4)
    written = load(tmp_path / "res" / "report.json")
    assert len(written["rounds"]) == 1 and written["not_private"]
    assert "without noise or masks" in written["not_private_reason"]
    centers = read_matrix(tmp_path / "res" / "centroids.csv")
    points = np.concatenate([read_matrix(tmp_path / f"hospital_{i}.csv") for i in (1, 2, 3)])
    spread = ((points[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1).mean()
    assert spread < 0.5 * ((points - points.mean(axis=0)) ** 2).sum(axis=1).mean()
