"""FedDP-KMeans over mpirun: a killed client; its resume in memory."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.report.document import load
from tests.mpi.support import Job, content, hospitals, read_matrix
from tests.protocols.whole import done_flags

pytestmark = pytest.mark.mpi

OWN = ("--protocol", "feddp", "--data", "hospital_{client}.csv", "--k", "2", "--bounds", "-1,1", "--output", "res")


def server_points(folder: Path, rows: int = 12) -> None:
    """Points around the two blobs of `hospitals`, in clear, for the server."""
    points = np.concatenate([read_matrix(path) for path in sorted(folder.glob("hospital_*.csv"))])[:: 80 // rows]
    header = (folder / "hospital_1.csv").read_text().splitlines()[0]
    np.savetxt(folder / "server.csv", points, delimiter=",", header=header, comments="")


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
    done_flags(tmp_path, [*flags, "--resume"])
    written = load(tmp_path / "res" / "report.json")
    assert len(written["rounds"]) == 7
    for party in ("server", "client-1", "client-2"):
        lines = (state / party / "ledger.jsonl").read_text().splitlines()
        counted = Counter((entry["round"], entry["name"]) for entry in map(json.loads, lines))
        assert set(counted.values()) == {1}, "no release is paid for twice"
        assert not (state / party / "run").is_dir() or not list((state / party / "run").glob("uplink-*"))
