"""Threads of a party's passes and memory of its records: as configured, or its share of the machine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.records import OwnRecords, StoredRecords
from fastlloyd.errors import ConfigError
from fastlloyd.protocols.registry import find, names
from fastlloyd.run import own_records
from fastlloyd.run.config import RunConfig
from fastlloyd.run.own_records import machine_memory, own_memory, own_threads
from fastlloyd.run.session import find_protocol
from fastlloyd.wire.header import PartyId


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Eight cores that this process may use, and no launcher."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for name in list(os.environ):
        if name.startswith(("OMPI_", "PMI", "SLURM_", "MPI_")):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    ("ranks", "here", "threads"),
    # Rank 0 of a single host has no records. Of several hosts, none says whether the server is here.
    [(2, 2, 8), (3, 3, 4), (5, 5, 2), (4, 4, 2), (21, 21, 1), (6, 3, 2), (9, 8, 1), (3, 1, 8)],
)
def test_clients_of_one_host_share_its_cores(
    ranks: int, here: int, threads: int, eight_cores: pytest.MonkeyPatch
) -> None:
    for name, value in {"PMI_RANK": 1, "PMI_SIZE": ranks, "MPI_LOCALNRANKS": here}.items():
        eight_cores.setenv(name, str(value))
    assert own_threads(RunConfig()) == threads


def test_a_site_has_all_cores(eight_cores: pytest.MonkeyPatch) -> None:
    assert own_threads(RunConfig()) == 8


def test_what_is_configured_wins(eight_cores: pytest.MonkeyPatch) -> None:
    assert own_threads(RunConfig(threads=3)) == 3


def test_records_on_the_grid_know_their_threads(eight_cores: pytest.MonkeyPatch) -> None:
    bounds = Bounds(np.array([-1.0]), np.array([1.0]), ("x",))
    own = OwnRecords(raw_points=np.zeros((4, 1)), names=("x",), bounds=bounds, threads=own_threads(RunConfig()))
    assert own.quantise(8).passes.over(10**7, 5, 5, lambda start, stop: stop - start) == [625_000] * 16


def test_memory_is_as_configured_or_a_share_of_a_quarter(
    eight_cores: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 1 << 12 if name == "SC_PAGE_SIZE" else 1 << 20)
    monkeypatch.setattr(own_records, "_CONTROL_GROUPS", Path("/nowhere"))
    monkeypatch.setattr(own_records, "_clients_here", lambda: 2)
    assert own_memory(RunConfig()) == 1 << 29
    assert own_memory(RunConfig(memory="1.5G")) == 3 << 29


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("memory.max", "1048576\n", 1 << 20),
        ("memory.max", "max\n", 1 << 32),
        ("memory/memory.limit_in_bytes", "1048576\n", 1 << 20),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", 1 << 32),
        ("nothing", "1\n", 1 << 32),
    ],
)
def test_a_container_has_the_memory_it_may_take(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str, found: int
) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 1 << 12 if name == "SC_PAGE_SIZE" else 1 << 20)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert machine_memory(tmp_path) == found


@pytest.mark.parametrize("text", ["2", "2X", "G", "0G", "1K", "-1G", "1e3G", "", "inf"])
def test_memory_that_means_nothing(text: str) -> None:
    with pytest.raises(ConfigError, match="--memory: expected a number with K, M, G or T, such as 512M or 2G"):
        RunConfig(memory=text)


def test_memory_is_for_protocols_that_read_from_disk() -> None:
    with pytest.raises(ConfigError, match=r"--memory: kfed holds all records in memory; .*\(fastlloyd, "):
        RunConfig(protocol="kfed", memory="1G")


@pytest.mark.parametrize("protocol", names())
@pytest.mark.parametrize("memory", [None, "1M"])
def test_an_owner_hears_of_columns_that_its_bounds_cannot_be_meant_for(
    protocol: str, memory: str | None, tmp_path: Path
) -> None:
    if memory is not None and not find(protocol).streams:
        pytest.skip("it holds all records in memory")
    (tmp_path / "bounds.csv").write_text("feature,lo,hi\nage,0,100\ncost,0,1000\n")
    vertical = find(protocol).partition == "vertical"
    config = RunConfig(
        protocol=protocol,
        data=str(tmp_path / "own_{client}.csv"),
        bounds=str(tmp_path / "bounds.csv"),
        k=2,
        n_total=400_000,
        ring_bits=64,
        memory=memory,
        output=str(tmp_path / "out"),
        settings={"feddp": {"start": "private"}} if protocol == "feddp" else {},
    )
    found = find_protocol(protocol)
    config, common = found.gather(config, 3)
    values = np.random.default_rng(0).uniform([0.0, 2000.0], [100.0, 9000.0], (60_000 if memory else 20, 2))
    for factor, words in ((1.0, "more than half of the values of cost would be clipped"), (0.01, "")):
        columns = np.column_stack([np.arange(len(values)), values * [1.0, factor]])[:, 0 if vertical else 1 :]
        header = "id,age,cost" if vertical else "age,cost"
        np.savetxt(tmp_path / "own_1.csv", columns, "%.2f", ",", header=header, comments="")
        own = found.load(config, common, PartyId(1))
        assert isinstance(own, StoredRecords) == (memory is not None)
        assert own.findings.unfit.startswith(words) and bool(own.findings.unfit) == bool(words)
        assert (own.findings.unfit in own.findings.said) == bool(words)
        assert "clipped" not in repr(own)


@pytest.mark.parametrize("protocol", names())
@pytest.mark.parametrize("memory", [None, "1M"])
def test_an_owner_hears_of_text_that_nobody_has_left_out_on_purpose(
    protocol: str, memory: str | None, tmp_path: Path
) -> None:
    if memory is not None and not find(protocol).streams:
        pytest.skip("it holds all records in memory")
    (tmp_path / "bounds.csv").write_text("feature,lo,hi\nage,0,100\n")
    config = RunConfig(
        protocol=protocol,
        data=str(tmp_path / "own_{client}.csv"),
        bounds="0,100",
        k=2,
        n_total=400_000,
        memory=memory,
        output=str(tmp_path / "out"),
        settings={"feddp": {"start": "private"}} if protocol == "feddp" else {},
    )
    rows = [f"{at},{at % 90},{at % 40}%,<{5 + at % 2}" for at in range(60_000 if memory else 30)]
    (tmp_path / "own_1.csv").write_text("\n".join(["id,age,share,crp", *rows]))
    found = find_protocol(protocol)
    for own, words in (
        (
            config,
            "not used, because they hold no numbers: 2 of the columns ('share': numbers with '%', 'crp': numb",
        ),
        (replace(config, columns=("age",)), ""),
        (replace(config, bounds=str(tmp_path / "bounds.csv")), ""),
    ):
        settled, common = found.gather(own, 3)
        said = found.load(settled, common, PartyId(1)).findings
        assert any(warning.startswith(words) for warning in said.warnings) == bool(words) or not words
        assert "2 columns not used: 'share'" in said.text or "3 columns not used: 'id'" in said.text
