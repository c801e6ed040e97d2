"""The commands that `fastlloyd init` prints, run by a shell as they stand, once its files are filled in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastlloyd.report.document import load
from tests.mpi.support import hospitals, quick

pytestmark = pytest.mark.mpi


def test_the_printed_commands_lead_to_a_result(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def shell(command: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, **quick()},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    said = shell("fastlloyd init study --clients 2 --k 2 --n-total 80")
    (tmp_path / "study" / "bounds.csv").write_text("feature,lo,hi\nf1,-1,1\nf2,-1,1\n")
    for number, file in enumerate(hospitals(tmp_path), 1):
        file.rename(tmp_path / "study" / f"client_{number}.csv")
    commands = [line for line in said.splitlines() if line.startswith("  fastlloyd ")]
    assert len(commands) == 4
    plan, check, _, run = map(shell, commands)  # the third makes the state, once
    assert "2 features, 2 clusters, 2 clients" in plan and check.endswith("ready\n")
    assert "files in study/result" in run
    assert load(tmp_path / "study" / "result" / "report.json")["result"]["features"] == ["f1", "f2"]
    assert (tmp_path / "study" / "state" / "client-1" / "ledger.jsonl").exists()
