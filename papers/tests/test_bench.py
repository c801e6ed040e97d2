"""`fastlloyd bench` with real runs, cut down to seconds."""

from __future__ import annotations

import csv
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.errors import ConfigError, Interrupted
from fastlloyd.net.mpi.launcher import find_mpirun
from fastlloyd.supervise.process import marked_processes
from fastlloyd_papers.command import main
from fastlloyd_papers.engine.generate import Source, Workspace
from fastlloyd_papers.engine.registry import Options, run_bench
from fastlloyd_papers.engine.runner import Job, run_job
from fastlloyd_papers.engine.shaped import why_not
from fastlloyd_papers.fastlloyd import scaling, table3
from fastlloyd_papers.fastlloyd.table3_design import QUICK, ROWS
from tests.mpi.support import ROOT

pytestmark = pytest.mark.mpi

ONE_EACH = dataclasses.replace(QUICK, lan32=(1, 4), lan64=(1, 4), wan32=(1, 2), wan64=(0, 0), shaped=(1, 3))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of Table 3, one short run of each kind."""
    monkeypatch.setattr(table3, "ROWS", ROWS[2:3])
    monkeypatch.setattr(table3, "QUICK", ONE_EACH)


def lines(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "fastlloyd-table3.csv").read_text().splitlines()))


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_table3_bytes_are_the_papers_and_its_delays_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fastlloyd-table3", "--quick", "--quiet", "--noisy", "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (tmp_path / "fastlloyd-table3.md").read_text()
    names = {f"fastlloyd-table3.{end}" for end in ("csv", "md", "png")}
    assert {path.name for path in tmp_path.iterdir()} == {*names, "origins.csv"}
    measured = {(row["who"], row["network"], row["ring_bits"]): row for row in lines(tmp_path)}
    assert measured["published", "lan", ""]["bytes_per_round"] == "480"
    assert measured["ours", "lan", "64"]["bytes_per_round"] == "480"
    assert measured["ours", "lan", "32"]["bytes_per_round"] == "240"
    # A message up and one down: two delays at least.
    assert float(measured["ours", "lan", "32"]["least_ms"]) >= 0.5
    assert float(measured["ours", "wan", "32"]["least_ms"]) >= 50.0


@pytest.mark.usefixtures("small")
def test_an_interrupted_table_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = []

    def interrupted(job: Job, mpirun: Any) -> Any:
        jobs.append(job)
        if len(jobs) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"seconds": [0.001], "payload_bytes_per_round": 7.5 * job.ring_bits}

    monkeypatch.setattr(table3, "run_job", interrupted)
    argv = ["fastlloyd-table3", "--quick", "--quiet", "--noisy", "--output", str(tmp_path)]
    with pytest.raises(Interrupted, match="stopped by SIGTERM; the same command goes on where it was"):
        main(argv)
    assert [path.name for path in tmp_path.iterdir()] == ["fastlloyd-table3.partial.json"]
    assert main(argv) == 0
    # The second was interrupted and is measured again, the first is not.
    assert [job.ring_bits for job in jobs] == [32, 64, 64, 32]
    assert not (tmp_path / "fastlloyd-table3.partial.json").exists()


def test_a_killed_benchmark_leaves_no_rank_behind(tmp_path: Path) -> None:
    mark = f"BENCH_TEST={tmp_path}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BENCH_TEST": str(tmp_path), "TMPDIR": str(tmp_path)}
    words = ["bench", "fastlloyd-table3", "--quick", "--noisy", "--output", str(tmp_path / "out")]
    with subprocess.Popen(
        [sys.executable, "-m", "fastlloyd", *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        # The launcher and three ranks: the first run is under way.
        while len(marked_processes(mark)) < 5 and process.poll() is None:
            time.sleep(0.02)
        process.terminate()
        _, said = process.communicate(timeout=90)
    assert process.returncode == 3
    assert b"stopped by SIGTERM" in said
    assert marked_processes(mark) == []
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_run_that_fails_is_told_with_its_own_words(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    job = Job(shares=work.shares(Source(n=10, k=2, d=1), 1), k=20, rounds=2)
    with pytest.raises(ConfigError, match="a run of the benchmark ended with code 2: .*--k: expected at most"):
        run_job(job, find_mpirun())


@pytest.mark.slow
def test_scaling_over_processes_and_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = scaling.Size(axes={"n": (2_000,), "clients": (3,)}, memory=(20,), runs=1, rounds=3, memory_rounds=2)
    monkeypatch.setattr(scaling, "QUICK", size)
    text = run_bench("fastlloyd-scaling", Options(quick=True, output=tmp_path, progress=False, noisy=True))
    assert text == (tmp_path / "fastlloyd-scaling.md").read_text()
    rows = list(csv.DictReader((tmp_path / "fastlloyd-scaling.csv").read_text().splitlines()))
    # k (d + 1) = 30 elements of 4 bytes, up and down, for each client.
    assert [float(row["payload"]) for row in rows] == [30 * 4 * 2 * clients for clients in (2, 3, 20)]
    assert all(float(row["milliseconds"]) > 0 for row in rows)


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason="needs root and the scripts")
@pytest.mark.usefixtures("small")
def test_over_shaped_links_the_wire_carries_more_than_the_links(tmp_path: Path) -> None:
    run_bench("fastlloyd-table3", Options(quick=True, output=tmp_path, shaped=True, progress=False, noisy=True))
    shaped = [row for row in lines(tmp_path) if "," in row["network"]]
    assert [row["network"].partition(",")[0] for row in shaped] == ["lan", "wan"]
    payload, link, wire = (float(shaped[0][f"{layer}bytes_per_round"]) for layer in ("", "link_", "wire_"))
    assert payload == 240
    # Two messages of each client's, in packets with at least 54 bytes of headers.
    assert 240 < link < link + 4 * 54 <= wire < 4 * link
    assert float(shaped[0]["least_ms"]) >= 0.5
    assert float(shaped[1]["least_ms"]) >= 50.0
    assert np.isfinite(float(shaped[1]["mean_ms"]))
