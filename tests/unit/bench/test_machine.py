"""What a table says of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastlloyd.bench.engine.machine import busy, cores, describe_machine, describe_software
from fastlloyd.net.mpi.launcher import Mpirun


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


def test_a_load_beyond_a_quarter_of_the_cores_is_busy() -> None:
    assert busy(0.3 * cores())
    assert not busy(0.2 * cores())
