"""Vertical k-means under CKKS in whole runs: two parties, also with a common key, three with a server, and faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tenseal")

from fastlloyd.__main__ import main
from fastlloyd.report.document import load
from tests.mpi.support import done as under_mpirun
from tests.mpi.support import read_matrix
from tests.protocols.whole import done_flags as done
from tests.protocols.whole import run_flags as run

N = 300
CENTERS = np.array([[-0.6, 40.0], [0.5, 10.0]])


def offices(folder: Path, numbers: tuple[int, int], *, missing: int = 0) -> None:
    """Two tables of one column each, of the same people in different orders."""
    rng = np.random.default_rng(5)
    rows = CENTERS[np.arange(N) % 2] + rng.normal(0.0, [0.05, 1.0], (N, 2))
    for column, (number, name, bounds) in enumerate(zip(numbers, ("x", "age"), ("-1,1", "0,50"), strict=True)):
        kept = rng.permutation(N - (missing if column else 0))
        lines = [f"id,{name}", *(f"p{i:04d},{rows[i, column]:.6f}" for i in kept)]
        (folder / f"office_{number}.csv").write_text("\n".join(lines) + "\n")
        (folder / f"bounds_{number}.csv").write_text(f"feature,lo,hi\n{name},{bounds}\n")


FLAGS = ("--protocol", "vertical-he", "--data", "office_{client}.csv", "--bounds", "bounds_{client}.csv", "--k", "2")
RUN = ("--n-total", str(N), "--rounds", "3", "--workers", "1")


def test_two_parties_find_the_centres_and_both_have_them(tmp_path: Path) -> None:
    offices(tmp_path, (0, 1))
    done(tmp_path, [*FLAGS, *RUN, "--epsilon", "20", "--output", "out-{client}"], n=2)
    texts = {(tmp_path / f"out-{rank}" / "centroids.csv").read_text() for rank in (0, 1)}
    assert len(texts) == 1
    written = load(tmp_path / "out-1" / "report.json")
    assert not written["not_private"] and 0.99 * 20 <= written["privacy"]["spent_epsilon"] <= 20
    assert written["privacy"]["neighbours"].startswith("zero-out")
    assert written["parameters"]["epsilon_for_a_change"] > written["privacy"]["spent_epsilon"]
    found = read_matrix(tmp_path / "out-0" / "centroids.csv")
    found = found[np.argsort(found[:, 0])]
    assert np.abs((found - CENTERS) / np.array([2.0, 50.0])).max() < 0.1


def test_a_run_that_its_tolerance_ends_has_spent_what_was_planned(tmp_path: Path) -> None:
    offices(tmp_path, (0, 1))
    flags = [*FLAGS, *RUN, "--epsilon", "20", "--set", "vertical-he.tolerance=1.9", "--output", "out-{client}"]
    done(tmp_path, flags, n=2)
    for rank in (0, 1):
        folder = tmp_path / f"out-{rank}"
        written = load(folder / "report.json")
        assert len(written["rounds"]) == 1 and written["parameters"]["planned_rounds"] == 3
        assert {release["round"] for release in written["privacy"]["releases"]} == {0, 1, 2}
        assert 0.99 * 20 <= written["privacy"]["spent_epsilon"] <= 20
        assert "all 3 planned rounds counted" in written["claim"]
        assert main(["report", str(folder), "--verify"]) == 0


def test_a_server_without_data_computes_for_two_owners(tmp_path: Path) -> None:
    offices(tmp_path, (1, 2))
    flags = [*FLAGS, *RUN, "--set", "vertical-he.noise=flooding", "--output", "res"]
    done(tmp_path, flags, n=3)
    written = load(tmp_path / "res" / "report.json")
    assert written["not_private"] and "flooding" in written["not_private_reason"]
    assert written["parameters"]["mode"] == "server-aided" and written["parameters"]["computing"] == 0
    found = read_matrix(tmp_path / "res" / "centroids.csv")
    found = found[np.argsort(found[:, 0])]
    # The weights are soft; the flooding noise, 7.6 on sums of 150 records from two sides, is 0.025 of the range.
    assert np.abs((found - CENTERS) / np.array([2.0, 50.0])).max() < 0.15


# Rank 0 computes below, too.
@pytest.mark.parametrize(
    "settings", [pytest.param((), marks=pytest.mark.slow), ("--set", "vertical-he.computing=1")], ids=["0", "1"]
)
def test_with_a_common_key_both_have_the_centres_and_rank_1_may_compute(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    offices(tmp_path, (0, 1))
    flags = [*FLAGS, *RUN, *settings, "--set", "vertical-he.mode=threshold", "--epsilon", "20"]
    done(tmp_path, [*flags, "--transport", "tcp", "--output", "out-{client}"], n=2)
    texts = {(tmp_path / f"out-{rank}" / "centroids.csv").read_text() for rank in (0, 1)}
    assert len(texts) == 1
    written = load(tmp_path / "out-0" / "report.json")
    assert not written["not_private"] and written["privacy"]["spent_epsilon"] <= 20
    parameters = written["parameters"]
    assert (parameters["mode"], parameters["scheme"]) == ("threshold", "linear")
    assert parameters["computing"] == (1 if settings else 0)
    found = read_matrix(tmp_path / "out-0" / "centroids.csv")
    found = found[np.argsort(found[:, 0])]
    assert np.abs((found - CENTERS) / np.array([2.0, 50.0])).max() < 0.1


def add_columns(folder: Path, name: str = "more") -> None:
    """Give both offices another column, which is the middle of its bounds for everybody."""
    for rank in (0, 1):
        table = folder / f"office_{rank}.csv"
        head, *lines = table.read_text().splitlines()
        table.write_text("\n".join([f"{head},{name}{rank}", *(f"{line},0.5" for line in lines)]) + "\n")
        with (folder / f"bounds_{rank}.csv").open("a") as bounds:
            bounds.write(f"{name}{rank},0,1\n")


def test_two_clusters_of_several_columns_at_both_are_found_by_projection_with_a_common_key(tmp_path: Path) -> None:
    offices(tmp_path, (0, 1))
    add_columns(tmp_path)
    flags = [*FLAGS, *RUN, "--set", "vertical-he.mode=threshold", "--epsilon", "20", "--output", "out-{client}"]
    done(tmp_path, flags, n=2)
    texts = {(tmp_path / f"out-{rank}" / "centroids.csv").read_text() for rank in (0, 1)}
    assert len(texts) == 1
    written = load(tmp_path / "out-1" / "report.json")
    assert not written["not_private"] and written["privacy"]["spent_epsilon"] <= 20
    assert written["privacy"]["neighbours"].startswith("zero-out")
    assert (written["parameters"]["mode"], written["parameters"]["scheme"]) == ("threshold", "projection")
    found = read_matrix(tmp_path / "out-0" / "centroids.csv")
    found = found[np.argsort(found[:, 0])]
    expected = np.insert(CENTERS, (1, 2), 0.5, axis=1)  # x, more0, age, more1
    assert np.abs((found - expected) / np.array([2.0, 1.0, 50.0, 1.0])).max() < 0.15


def test_more_clusters_and_columns_at_both_take_landmarks_over_links_with_a_common_key(tmp_path: Path) -> None:
    offices(tmp_path, (0, 1))
    add_columns(tmp_path)
    add_columns(tmp_path, "most")
    settings = ("--set", "vertical-he.mode=threshold", "--set", "vertical-he.degree=4", "--transport", "tcp")
    done(tmp_path, [*FLAGS, *RUN, *settings, "--k", "3", "--epsilon", "20", "--output", "out-{client}"], n=2)
    texts = {(tmp_path / f"out-{rank}" / "centroids.csv").read_text() for rank in (0, 1)}
    assert len(texts) == 1
    written = load(tmp_path / "out-1" / "report.json")
    assert not written["not_private"] and 0.99 * 20 <= written["privacy"]["spent_epsilon"] <= 20
    assert written["privacy"]["neighbours"].startswith("zero-out") and "heuristic" not in str(written["privacy"])
    parameters = written["parameters"]
    assert (parameters["mode"], parameters["scheme"], parameters["parties"]) == ("threshold", "landmarks", 2)
    found = read_matrix(tmp_path / "out-0" / "centroids.csv")[:, [0, 3]]
    expected = CENTERS / np.array([2.0, 50.0])
    for center in expected:
        assert np.abs(found / np.array([2.0, 50.0]) - center).max(axis=1).min() < 0.15


@pytest.mark.slow
def test_a_common_key_takes_the_circuit_where_it_is_asked_for(tmp_path: Path) -> None:
    offices(tmp_path, (0, 1))
    add_columns(tmp_path)
    add_columns(tmp_path, "most")
    settings = ("--set", "vertical-he.mode=threshold", "--set", "vertical-he.scheme=pairwise")
    done(tmp_path, [*FLAGS, *RUN, *settings, "--k", "3", "--epsilon", "20", "--output", "res"], n=2)
    written = load(tmp_path / "res" / "report.json")["parameters"]
    assert (written["mode"], written["scheme"], written["parties"]) == ("threshold", "pairwise", 2)


def three_offices(folder: Path) -> None:
    """Three tables of one column each; the third tells the clusters apart as the others do."""
    offices(folder, (0, 1))
    lines = [f"p{i:04d},{(-0.4, 0.7)[i % 2]}" for i in range(N)]
    (folder / "office_2.csv").write_text("\n".join(["id,y", *lines]) + "\n")
    (folder / "bounds_2.csv").write_text("feature,lo,hi\ny,-1,1\n")


SHARED = ("--set", "vertical-he.mode=threshold", "--epsilon", "20", "--output", "out-{client}")


def check_shared(folder: Path) -> None:
    """All three have the same centres, of a key that all of them share."""
    texts = {(folder / f"out-{rank}" / "centroids.csv").read_text() for rank in range(3)}
    assert len(texts) == 1
    for rank in range(3):
        written = load(folder / f"out-{rank}" / "report.json")
        assert 0.99 * 20 <= written["privacy"]["spent_epsilon"] <= 20
        assert "all other parties together" in written["claim"]
        assert (written["parameters"]["mode"], written["parameters"]["scheme"]) == ("threshold", "pairwise")
    found = read_matrix(folder / "out-0" / "centroids.csv")
    found = found[np.argsort(found[:, 0])]
    expected = np.column_stack([CENTERS, [-0.4, 0.7]])
    assert np.abs((found - expected) / np.array([2.0, 50.0, 2.0])).max() < 0.15


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_parties_that_share_the_key_have_the_centres(tmp_path: Path) -> None:
    three_offices(tmp_path)
    done(tmp_path, [*FLAGS, *RUN, *SHARED], n=3)
    check_shared(tmp_path)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.timeout(900)
def test_three_parties_that_share_the_key_have_the_centres_under_mpirun(tmp_path: Path) -> None:
    three_offices(tmp_path)
    under_mpirun(tmp_path, [*FLAGS, *RUN, *SHARED], n=3)
    check_shared(tmp_path)


def test_other_people_at_the_parties_end_the_run(tmp_path: Path) -> None:
    offices(tmp_path, (0, 1), missing=3)
    ended = run(tmp_path, [*FLAGS, *RUN, "--output", "res"], n=2)
    assert ended.codes == {2}
    assert "do not hold the same ids" in ended.said
    assert not (tmp_path / "res" / "report.json").exists()


def test_a_mode_that_does_not_fit_the_parties_names_the_mend(tmp_path: Path) -> None:
    offices(tmp_path, (0, 1))
    ended = run(tmp_path, [*FLAGS, *RUN, "--set", "vertical-he.mode=server-aided"], n=2)
    assert ended.codes == {2}
    assert "start with -n 3 or more" in ended.said
