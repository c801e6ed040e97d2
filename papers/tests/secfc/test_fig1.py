"""Figure 1 of SecFC: what is measured, one point for real, and the report."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.cli.options import parse_run_options
from fastlloyd.client import parser
from fastlloyd.net.mpi.launcher import find_mpirun
from fastlloyd.party.option import read_settings
from fastlloyd.protocols.secfc.settings import Settings
from fastlloyd_papers.secfc.fig1 import NAME, measure
from fastlloyd_papers.secfc.fig1_design import BASE, FULL, LARGE, QUICK, SecfcJob, Size, list_cells, make_job, shape_at
from fastlloyd_papers.secfc.fig1_report import Figures, write_report
from fastlloyd_papers.secfc.memory import measure as measure_memory

SMALL = {**shape_at({"n": 5, "m": 120, "d": 7, "k": 3}, 6), "run": 0}
SIZE = Size(axes={"n": (5, 10), "d": (10, 20)}, runs=2, rounds=6, large_rounds=3, most_processes=5)


def made_up(cell: Any) -> dict[str, Any]:
    """Figures that say which point they are of."""
    if cell["way"] == "processes":
        return {"seconds": 0.02 + cell["run"] / 100, "bytes": 7, "formula": 7}
    steps = [cell["n"] / 1e3, cell["n"] / 1e3, 9.0]
    return {
        "client": steps,
        "server": [2 * s for s in steps],
        "total": [3 * s for s in steps],
        "rounds": 4,
        "bytes": 10 * cell["m"],
        "formula": 10 * cell["m"] + (cell["d"] == 10),
        "element_bytes": 8,
        "kfed": cell["d"] / 1e3,
    }


def test_a_point_in_memory_is_timed_and_its_bytes_are_those_of_the_formula() -> None:
    value = measure_memory(SMALL)
    assert value["rounds"] == 6 and len(value["client"]) == len(value["server"]) == 5
    assert value["clusters"] == 3
    assert value["bytes"] == value["formula"] == (24 * 7 * 4 + 2 * 120 * 6) * value["element_bytes"]
    client, server, total = (np.array(value[part]) for part in ("client", "server", "total"))
    assert (client > 0).all() and (server > 0).all()
    assert (total >= client + server - 1e-9).all() and (total <= 5 * client + server + 1e-9).all()
    assert value["sharing"] > 0 and value["kfed"] > 0


def test_a_job_writes_the_clients_files_and_is_a_run(tmp_path: Path) -> None:
    job = make_job(SMALL, tmp_path)
    assert isinstance(job, SecfcJob) and job.ranks == 6
    parts = [np.load(tmp_path / f"part-{rank}.npy") for rank in range(1, 6)]
    assert [part.shape for part in parts] == [(24, 7)] * 5
    config, _ = parse_run_options(parser(), job.flags(tmp_path / "out"))
    assert (config.protocol, config.bounds, config.n_total, config.client_caps) == ("secfc", "-1,1", 120, (24,) * 5)
    assert (config.k, config.rounds, config.transport, config.quiet) == (3, 6, "tcp", True)
    chosen = read_settings(Settings(), "secfc", config.own_settings)
    assert (chosen.segments, chosen.threshold) == (1, 2)


def test_cells_are_distinct_and_hold_base_and_large_point() -> None:
    for size in (QUICK, FULL):
        cells = list_cells(size)
        keys = {tuple(sorted(cell.items())) for cell in cells}
        assert len(keys) == len(cells)
        assert all(2 * (cell["l"] + cell["t"]) - 1 <= cell["n"] and 3 * cell["t"] >= cell["n"] for cell in cells)
        for point in (BASE, LARGE):
            own = [cell for cell in cells if all(cell[key] == value for key, value in point.items())]
            assert {cell["way"] for cell in own} == {"memory", "processes"}
        assert max(cell["n"] for cell in cells if cell["way"] == "processes") <= size.most_processes


def test_the_report_holds_medians_targets_and_bytes(tmp_path: Path) -> None:
    cells = list_cells(SIZE)
    figures = Figures(
        name=NAME,
        size=SIZE,
        pairs=[(cell, made_up(cell)) for cell in cells],
        machine="a machine",
        software="software",
        quick=True,
    )
    text = write_report(figures, tmp_path)
    assert text == (tmp_path / "secfc-fig1.md").read_text()
    assert "less than 16 s" in text and "contended" not in text
    assert "| 5 | 1 | 2 | 5.0 | 10.0 | 15.0 | 25.0 | 20.0 | 10,000 |" in text
    # Ten clients are beyond what runs as processes here.
    assert "| 10 | 1 | 4 | 10.0 | 20.0 | 30.0 |  | 20.0 | 10,000 |" in text
    assert "| n = 16, m = 16,384, d = 100, k = 16, t = 6, l = 2 | 16.0 | 32.0 | 48.0 |" in text
    assert "| 50 ms for each party |" in text and "| 2 s in all |" in text
    assert "not at n=10 m=1000 d=10 k=4 (a cluster ran empty)." in text
    rows = list(csv.DictReader((tmp_path / "secfc-fig1.csv").read_text().splitlines()))
    assert [row["axis"] for row in rows] == ["n", "n", "d", "d", *["target"] * 2]
    assert rows[0]["mpirun_ms"] == "25.0" and rows[1]["mpirun_ms"] == ""
    assert (tmp_path / "secfc-fig1.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("way", ["memory", "processes"])
def test_a_point_is_measured_in_programs_of_its_own(way: str) -> None:
    value = measure({"name": "small", "way": way, **SMALL}, find_mpirun())
    assert value["rounds"] == 6
    assert value["bytes"] == value["formula"] > 0
    if way == "processes":
        assert 0 < value["seconds"] < 60
