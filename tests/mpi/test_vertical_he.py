"""Vertical k-means under CKKS over mpirun: two parties with own files, three with a server, other ids, missing key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastlloyd.report.document import load
from tests.mpi.support import done, read_matrix, run

pytest.importorskip("tenseal")
pytestmark = pytest.mark.mpi

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


def test_a_server_without_data_computes_for_two_owners(tmp_path: Path) -> None:
    offices(tmp_path, (1, 2))
    flags = [*FLAGS, *RUN, "--set", "vertical-he.noise=flooding", "--output", "res"]
    done(tmp_path, flags, n=3)
    written = load(tmp_path / "res" / "report.json")
    assert written["not_private"] and "flooding" in written["not_private_reason"]
    assert written["parameters"]["mode"] == "server-aided" and written["parameters"]["computing"] == 0
    found = read_matrix(tmp_path / "res" / "centroids.csv")
    found = found[np.argsort(found[:, 0])]
    assert np.abs((found - CENTERS) / np.array([2.0, 50.0])).max() < 0.05  # the weights are soft


def test_other_people_at_the_parties_end_the_run(tmp_path: Path) -> None:
    offices(tmp_path, (0, 1), missing=3)
    ended = run(tmp_path, [*FLAGS, *RUN, "--output", "res"], n=2)
    assert ended.codes == {2} and not ended.left
    assert "do not hold the same ids" in ended.said
    assert not (tmp_path / "res" / "report.json").exists()


def test_a_mode_that_does_not_fit_the_parties_names_the_mend(tmp_path: Path) -> None:
    offices(tmp_path, (0, 1))
    ended = run(tmp_path, [*FLAGS, *RUN, "--set", "vertical-he.mode=server-aided"], n=2)
    assert ended.codes == {2}
    assert "start with -n 3 or more" in ended.said
