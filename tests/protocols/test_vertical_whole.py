"""Vertical protocols in whole runs: own files with ids, who has the result, other ids, intersection, bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fastlloyd.report.document import load
from tests.mpi.support import read_matrix
from tests.protocols.whole import done_flags as done
from tests.protocols.whole import run_flags as run

N = 400
OWN = ("--protocol", "vertical-plain", "--data", "office_{client}.csv", "--k", "2", "--bounds", "bounds_{client}.csv")
PUBLIC = ("--n-total", str(N), "--output", "res")
CENTERS = np.array([[10.0, 200.0, -3.0], [30.0, 800.0, 4.0]])


def offices(folder: Path, *, missing: int = 0) -> None:
    """Two tables of the same people in different orders; the second lacks the last `missing` of them."""
    rng = np.random.default_rng(3)
    rows = CENTERS[np.arange(N) % 2] + rng.normal(0.0, [1.0, 20.0, 0.3], (N, 3))
    ids = [f"p{i:04d}" for i in range(N)]
    (folder / "bounds_1.csv").write_text("feature,lo,hi\nage,0,40\nincome,0,1000\n")
    (folder / "bounds_2.csv").write_text("feature,lo,hi\nscore,-10,10\n")
    first = ["id,age,income", *(f"{ids[i]},{rows[i, 0]:.6f},{rows[i, 1]:.6f}" for i in rng.permutation(N))]
    second = ["score,id", *(f"{rows[i, 2]:.6f},{ids[i]}" for i in rng.permutation(N - missing))]
    (folder / "office_1.csv").write_text("\n".join(first) + "\n")
    (folder / "office_2.csv").write_text("\n".join(second) + "\n")


def close_to_truth(folder: Path, tolerance: float) -> None:
    lines = (folder / "centroids.csv").read_text().splitlines()
    assert lines[0] == "age,income,score"
    found = read_matrix(folder / "centroids.csv")
    found = found[np.argsort(found[:, 0])]
    assert np.abs((found - CENTERS) / np.array([40.0, 1000.0, 20.0])).max() < tolerance


def test_each_party_brings_columns_and_the_server_puts_names_and_units_together(tmp_path: Path) -> None:
    offices(tmp_path)
    done(tmp_path, [*OWN, *PUBLIC])
    written = load(tmp_path / "res" / "report.json")
    assert written["not_private"] and "vertical-plain" in written["not_private_reason"]
    close_to_truth(tmp_path / "res", 0.05)
    assert not list((tmp_path / "res").glob("labels_*"))


def test_sketches_give_a_private_result_to_the_server_alone(tmp_path: Path) -> None:
    offices(tmp_path)
    flags = [
        "--protocol",
        "vertical-dp",
        *OWN[2:],
        "--n-total",
        str(N),
        "--epsilon",
        "20",
        "--set",
        "vertical-dp.rows=512",
    ]
    done(tmp_path, [*flags, "--output", "out-{client}"])
    written = load(tmp_path / "out-0" / "report.json")
    assert not written["not_private"]
    assert "not between the parties" in written["claim"] and "one person's row" in written["claim"]
    assert 0.9 * 20 <= written["privacy"]["spent_epsilon"] <= 20
    assert written["parameters"]["epsilon_for_a_change"] > written["privacy"]["spent_epsilon"]
    mechanisms = {release["mechanism"] for release in written["privacy"]["releases"]}
    assert mechanisms == {"gaussian", "laplace", "sketch rows"}
    close_to_truth(tmp_path / "out-0", 0.2)
    for party in (1, 2):
        assert not (tmp_path / f"out-{party}" / "centroids.csv").exists(), "the result is not shared"


def test_a_shared_result_reaches_the_parties(tmp_path: Path) -> None:
    offices(tmp_path)
    done(tmp_path, [*OWN, "--n-total", str(N), "--output", "out-{client}", "--set", "vertical-plain.share_result=true"])
    texts = {(tmp_path / f"out-{party}" / "centroids.csv").read_text() for party in (0, 1, 2)}
    assert len(texts) == 1


def test_other_ids_end_the_run_without_saying_which(tmp_path: Path) -> None:
    offices(tmp_path, missing=7)
    ended = run(tmp_path, [*OWN, *PUBLIC])
    assert ended.codes == {2}
    assert "do not hold the same ids" in ended.said and "vertical.align=intersect" in ended.said
    assert "p0" not in ended.said.replace("rank", "")
    assert not (tmp_path / "res" / "report.json").exists()


def test_an_intersection_keeps_the_common_ids(tmp_path: Path) -> None:
    offices(tmp_path, missing=7)
    done(tmp_path, [*OWN, *PUBLIC, "--set", "vertical.align=intersect"])
    close_to_truth(tmp_path / "res", 0.05)
    sizes = load(tmp_path / "res" / "report.json")["result"]["noisy_sizes"]
    assert sum(sizes) == N - 7


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    offices(tmp_path)
    path = tmp_path / "office_2.csv"
    path.write_text(path.read_text().replace("score", "age", 1))
    (tmp_path / "bounds_2.csv").write_text("feature,lo,hi\nage,-10,10\n")
    ended = run(tmp_path, [*OWN, *PUBLIC])
    assert ended.codes == {2}
    assert "both have a feature 'age'" in ended.said


def test_a_demonstration_splits_columns(tmp_path: Path) -> None:
    flags = ["--protocol", "vertical-plain", "--dataset", "iris", "--evaluate", "--output", "res"]
    done(tmp_path, flags, n=4)
    written = load(tmp_path / "res" / "report.json")
    assert [len(own) for own in written["parameters"]["names"]] == [2, 1, 1]
    assert written["evaluation"]["nicv"] < 2.0 * written["evaluation"]["nicv_central"]
