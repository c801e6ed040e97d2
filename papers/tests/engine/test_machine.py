"""What a table says of the machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fastlloyd.net.mpi.launcher import Mpirun
from fastlloyd_papers.engine.machine import describe_commit, describe_machine, describe_software


def test_the_processor_and_its_cores_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: A Processor 9000\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5})
    assert describe_machine(tmp_path / "cpuinfo").startswith("A Processor 9000, 3 cores, ")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    assert ", 1 core, " in describe_machine(tmp_path / "missing")


def test_versions_and_mpi_are_named() -> None:
    text = describe_software(Mpirun(Path("mpirun"), "openmpi", "5.0.7"))
    assert text.startswith("fastlloyd ")
    assert text.endswith("Open MPI 5.0.7")


def test_the_commit_is_that_of_a_checkout_which_tracks_the_file(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    assert describe_commit(tmp_path, "tracked") is None
    git("init", "-q")
    (tmp_path / "tracked").write_text("one")
    assert describe_commit(tmp_path, "tracked") is None
    git("add", "tracked")
    git("commit", "-q", "-m", "first")
    commit = describe_commit(tmp_path, "tracked")
    assert commit is not None and len(commit) == 12 and commit.isalnum()
    (tmp_path / "other").write_text("not tracked")
    assert describe_commit(tmp_path, "tracked") == commit
    (tmp_path / "tracked").write_text("two")
    assert describe_commit(tmp_path, "tracked") == f"{commit}+"
    assert describe_commit(tmp_path, "other") is None
