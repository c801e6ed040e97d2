"""Rows, order of the runs, and the report of Table 3."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.net.mpi.launcher import Mpirun
from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.engine.generate import Workspace
from fastlloyd_papers.engine.peer import Peer
from fastlloyd_papers.fastlloyd import table3
from fastlloyd_papers.fastlloyd.table3_design import CLIENTS, FULL, QUICK, ROWS, Row, list_cells
from fastlloyd_papers.fastlloyd.table3_report import Figures, write_report

PEER = Peer(folder=Path("there"), python="python", mpirun=Mpirun(Path("mpirun"), "mpich", "5.0.2"), commit="abc")


def value(row: Row, cell: Cell) -> Any:
    """Made-up figures: 0.5, 1 or 2 times the published ones."""
    source = row.source
    payload = 2 * CLIENTS * source.k * (source.d + 1) * cell.get("ring", 32) // 8
    seconds = row.published_ms / 1e3
    if cell["kind"] == "peer":
        return {"lan_seconds": 2 * seconds, "wan_seconds": 0.06, "bytes_per_round": row.published_bytes, "rounds": 7}
    ours = {"seconds": seconds * (0.5 + 0.01 * cell["run"]), "median_seconds": seconds, "bytes_per_round": payload}
    if cell["kind"] == "shaped" and cell["net"] == "wan":
        return {**ours, "backend": "emulator"}
    if cell["kind"] == "shaped":
        return {**ours, "link_bytes_per_round": payload + 216.0, "wire_bytes_per_round": 999.4, "backend": "emulator"}
    return ours


def figures(size: Any, peer: Peer | None, *, shaped: bool) -> Figures:
    cells = list_cells(list(ROWS), size, peer, shaped=shaped)
    rows = {row.source.label: row for row in ROWS}
    values = [value(rows[cell["name"]], cell) for cell in cells]
    return Figures(rows=list(ROWS), cells=cells, values=values, machine="a machine", software="versions", peer=peer)


def test_the_published_bytes_are_the_protocols() -> None:
    """K (d + 1) elements of 8 bytes, up and down, for two clients."""
    assert len(ROWS) == 10
    for row in ROWS:
        assert row.published_bytes == 8 * 2 * CLIENTS * row.source.k * (row.source.d + 1)
    assert sorted(row.published_bytes for row in ROWS[:4]) == [192, 384, 480, 960]


def test_repetitions_of_all_kinds_take_turns() -> None:
    cells = list_cells(list(ROWS), FULL, PEER, shaped=True)
    assert len({tuple(sorted(cell.items())) for cell in cells}) == len(cells)
    counts = Counter((cell["kind"], cell.get("net"), cell.get("ring")) for cell in cells if cell["name"] == "lsun")
    assert counts["ours", "lan", 32] == FULL.lan32[0]
    assert counts["peer", None, None] == counts["ours", "beside", 32] == FULL.peer_runs
    assert counts["shaped", "wan", None] == FULL.shaped[0]
    assert [cell["run"] for cell in cells] == sorted(cell["run"] for cell in cells)
    for i, cell in enumerate(cells):
        if cell["kind"] == "peer":
            assert (cells[i - 1]["net"], cells[i - 1]["delay"]) == ("beside", 0.000125)
    assert {cell["kind"] for cell in list_cells(list(ROWS), QUICK, None, shaped=False)} == {"ours"}


# Runs 0, 1, .. take 0.5, 0.51, .. of the published time.
BESIDE = 0.5 + 0.01 * (FULL.peer_runs - 1) / 2


def test_the_report_puts_ours_beside_the_published(tmp_path: Path) -> None:
    text = write_report(figures(FULL, PEER, shaped=True), tmp_path, FULL, quick=False)
    assert text == (tmp_path / "fastlloyd-table3.md").read_text()
    first = next(line for line in text.splitlines() if line.startswith("| TimeSynth | 10,000 | 2 | 2 |"))
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells[4] == "3.03 ± 0.02"
    mean = 0.5 + 0.01 * (FULL.lan32[0] - 1) / 2  # runs 0, 1, .. take 0.5, 0.51, .. of the published time
    assert cells[5].startswith(f"{3.03 * mean:.2f} ± ")
    assert cells[6] == f"{mean:.2f}"
    assert cells[-3:] == ["192", "192", "96"]
    beside = [line for line in text.splitlines() if line.startswith("| S1 |")][2]
    assert beside.split("|")[7].strip() == f"{2 / BESIDE:.1f}"
    shaped = [line for line in text.splitlines() if line.startswith("| LSun |")][3]
    assert [cell.strip() for cell in shaped.strip("|").split("|")][-3:] == ["144", "360", "999"]
    mohlloyd = [line for line in text.splitlines() if line.startswith("| S1 |")][1]
    assert mohlloyd.split("|")[5].strip() == "49,087"
    assert mohlloyd.split("|")[6].strip() == f"{49_087 / (5.81 * mean):,.0f}"
    assert "user-space emulator" in text
    assert (tmp_path / "fastlloyd-table3.png").read_bytes().startswith(b"\x89PNG")


def test_the_csv_has_every_kind_of_every_row(tmp_path: Path) -> None:
    write_report(figures(FULL, PEER, shaped=True), tmp_path, FULL, quick=False)
    rows = list(csv.DictReader((tmp_path / "fastlloyd-table3.csv").read_text().splitlines()))
    own = [row for row in rows if row["data"] == "S1"]
    # Published, and MohLloyd's; lan and wan at 32 and 64 bits; beside; theirs lan and wan; shaped lan and wan.
    assert len(own) == 2 + 4 + 1 + 2 + 2
    assert {row["who"] for row in own} == {"published", "MohLloyd, published", "ours", "theirs"}
    published = next(row for row in own if row["who"] == "published")
    assert (published["mean_ms"], published["bytes_per_round"]) == ("5.81", "1440")
    beside = next(row for row in own if row["delay_ms"] == "0.125" and row["who"] == "ours")
    assert float(beside["mean_ms"]) == pytest.approx(5.81 * BESIDE, abs=1e-3)
    assert (beside["runs"], beside["rounds"]) == (str(FULL.peer_runs), str(FULL.lan32[1]))


def test_without_peer_and_shaping_their_tables_are_not_there(tmp_path: Path) -> None:
    made = figures(QUICK, None, shaped=False)
    made.notes.append("S1 is left out: reasons.")
    text = write_report(made, tmp_path, QUICK, quick=True)
    assert "(quick)" in text
    assert "- S1 is left out: reasons." in text
    assert "own code" not in text
    assert "Shaped" not in text


def test_public_sets_that_are_not_there_are_left_out_with_a_note(tmp_path: Path, monkeypatch: Any) -> None:
    small = [row for row in ROWS if row.source.n <= 10_000]
    monkeypatch.setattr(table3, "ROWS", small)
    rows, notes = table3._usable_rows(Workspace(tmp_path, str(tmp_path)))
    assert [row.title for row in rows] == ["TimeSynth"] * 4
    assert [note.partition(" is left out: no data set")[0] for note in notes] == ["LSun", "S1"]


def test_rows_of_a_contended_machine_are_marked_and_have_no_ratio(tmp_path: Path) -> None:
    made = figures(FULL, PEER, shaped=False)
    seen = {"load": 0.4, "steal": 0.0, "others": 0.0}
    values = [
        {**value, "conditions": {**seen, "others": 0.5 if (cell["name"], cell["run"]) == ("s1", 1) else 0.0}}
        for cell, value in zip(made.cells, made.values, strict=True)
    ]
    watched = Figures(rows=made.rows, cells=made.cells, values=values, machine="m", software="v", peer=PEER)
    text = write_report(watched, tmp_path, FULL, quick=False)
    ours, mohlloyd, beside = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| S1 |"))
    assert ours[5].endswith("(contended)") and ours[6] == "unusable"
    assert mohlloyd[5] == "unusable" and beside[6] == "unusable"
    assert "contended" not in next(line for line in text.splitlines() if line.startswith("| LSun |"))
    assert "at most 0.0% of the cores' time stolen, 50.0% used by others; load, with our own processes, at most" in text
    rows = list(csv.DictReader((tmp_path / "fastlloyd-table3.csv").read_text().splitlines()))
    assert {(row["data"], row["usable"]) for row in rows if row["network"] == "wan" and row["ring_bits"] == "32"} == {
        ("TimeSynth", "yes"),
        ("LSun", "yes"),
        ("S1", "no"),
    }
