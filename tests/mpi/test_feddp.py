"""FedDP-KMeans over mpirun: a demonstration, own files with users, a killed client and its resume, bad input."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.report.document import load
from tests.mpi.support import Job, content, done, hospitals, read_matrix, run

pytestmark = pytest.mark.mpi

OWN = ("--protocol", "feddp", "--data", "hospital_{client}.csv", "--k", "2", "--bounds", "-1,1", "--output", "res")


def server_points(folder: Path, rows: int = 12) -> None:
    """Points around the two blobs of `hospitals`, in clear, for the server."""
    points = np.concatenate([read_matrix(path) for path in sorted(folder.glob("hospital_*.csv"))])[:: 80 // rows]
    header = (folder / "hospital_1.csv").read_text().splitlines()[0]
    np.savetxt(folder / "server.csv", points, delimiter=",", header=header, comments="")


def test_a_demonstration_chooses_k_and_draws_the_elbow(tmp_path: Path) -> None:
    flags = ["--protocol", "feddp", "--dataset", "mixture:clients=20,points=100,d=8,k=4,variance=0.004,uniform=8"]
    done(tmp_path, [*flags, "--k", "auto:8", "--epsilon", "4", "--evaluate", "--output", "res"], n=4)
    folder = tmp_path / "res"
    written = load(folder / "report.json")
    assert written["parameters"]["k"] == 4 and written["parameters"]["k_max"] == 8
    assert written["parameters"]["steps"] == ["outer product", "weights", "centres"]
    assert written["evaluation"]["nicv"] < 1.3 * written["evaluation"]["nicv_central"]
    assert 0.995 * 4 <= written["privacy"]["spent_epsilon"] <= 4
    assert read_matrix(folder / "centroids.csv").shape == (4, 8)
    chosen = [line for line in (folder / "elbow.csv").read_text().splitlines() if line.endswith(",1")]
    assert len(chosen) == 1 and chosen[0].startswith("4,")
    assert (folder / "elbow.png").read_bytes().startswith(b"\x89PNG")
    # Each party's vectors: outer product in 64 bits, weights of 88 points, 4 x 9 sums and counts, in 32 bits.
    up = 8 * 36 + 4 * 88 + 4 * 36
    assert written["traffic"]["payload_bytes"] >= 3 * up
    assert not (folder / "server.json").exists(), "the server has the result and writes the report itself"
    assert {f"labels_{i}.csv" for i in (1, 2, 3)} <= {path.name for path in folder.iterdir()}


def test_own_files_with_users_and_server_data_at_client_level(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=2)
    server_points(tmp_path)
    for path in tmp_path.glob("hospital_*.csv"):
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([f"patient,{head}", *(f"p{i // 2},{row}" for i, row in enumerate(rows))]) + "\n")
    flags = [*OWN, "--n-total", "80", "--server-data", "server.csv", "--epsilon", "50"]
    level = ["--set", "feddp.privacy_level=client", "--set", "feddp.users=patient"]
    done(tmp_path, [*flags, *level, "--output", "out-{client}"], n=3)
    reports = [load(tmp_path / f"out-{i}" / "report.json") for i in (0, 1, 2)]
    for written in reports:
        assert written["privacy"]["neighbours"] == "add-remove user"
        assert "all rows of one user at one client" in written["claim"]
        assert written["privacy"]["unit"].startswith("all rows of one user at one client")
        assert written["result"]["features"] == ["f1", "f2"]
    assert {(tmp_path / f"out-{i}" / "centroids.csv").read_text() for i in (0, 1, 2)} == {
        (tmp_path / "out-0" / "centroids.csv").read_text()
    }, "folders are not shared: each party writes its own copy of the same result"


def test_other_columns_of_the_server_end_the_run_with_a_sentence(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=2)
    (tmp_path / "server.csv").write_text("a,b,c\n" + "0.1,0.2,0.3\n" * 5)
    ended = run(tmp_path, [*OWN, "--n-total", "80", "--server-data", "server.csv"])
    assert ended.codes == {2} and not ended.left
    assert "--server-data has 3 features, the clients have 2" in ended.said
    assert not (tmp_path / "res" / "report.json").exists()


def test_without_server_data_the_mend_is_named(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=2)
    ended = run(tmp_path, [*OWN, "--n-total", "80"])
    assert ended.codes == {2}
    assert "--server-data" in ended.said


def test_a_killed_client_ends_the_run_and_a_resume_ends_it_well(tmp_path: Path) -> None:
    hospitals(tmp_path)
    server_points(tmp_path)
    flags = [*OWN, "--n-total", "80", "--server-data", "server.csv", "--rounds", "4", "--state-dir", "state"]
    with Job(tmp_path, [*flags, "--delay", "0.1"]) as job:
        job.until(lambda: (tmp_path / "state" / "client-1" / "run" / "reply-1").exists())
        job.kill(2, signal.SIGKILL)
        ended = job.finish()
    assert ended.code != 0 and not ended.left
    state = tmp_path / "state"
    uplinks = {path.name: content(path) for path in (state / "client-1" / "run").glob("uplink-*")}
    assert uplinks
    shutil.rmtree(tmp_path / "res", ignore_errors=True)
    done(tmp_path, [*flags, "--resume"])
    written = load(tmp_path / "res" / "report.json")
    assert len(written["rounds"]) == 7
    for party in ("server", "client-1", "client-2"):
        lines = (state / party / "ledger.jsonl").read_text().splitlines()
        counted = Counter((entry["round"], entry["name"]) for entry in map(json.loads, lines))
        assert set(counted.values()) == {1}, "no release is paid for twice"
        assert not (state / party / "run").is_dir() or not list((state / party / "run").glob("uplink-*"))
