"""Bytes, times and errors of the sketches, as the benchmarks report them."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.protocols.vertical_dp.client import synopsis_format
from fastlloyd.protocols.vertical_dp.messages import Synopsis
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd_papers.engine.cells import stream_of
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.vertical_dp import sketch
from fastlloyd_papers.vertical_dp import table1 as table
from fastlloyd_papers.vertical_dp.data import MIXTURE, even, load_problem
from fastlloyd_papers.vertical_dp.design import IND_LAP, OURS_FIVE, PLAIN
from fastlloyd_papers.vertical_dp.run import make_sketches, plan_of


def test_bytes_are_those_of_the_message_that_is_sent() -> None:
    problem = load_problem(replace(even(MIXTURE, 4), n=500), None, 0)
    plan = plan_of(problem, OURS_FIVE, 1.0, 0)
    labels = [np.arange(500, dtype=np.int64) % 5 for _ in range(4)]
    made = make_sketches(labels, plan, SecretRandom())
    form = synopsis_format(plan, 0)
    centers = np.zeros((5, 2), dtype=np.int64)
    message = Synopsis.write(centers, form, noisy_total=1.0, sketches=tuple(made[0]))
    assert table.message_bytes(OURS_FIVE, plan, 500) == len(message.body())
    # At most the paper's 164 kB for each of the three sketches.
    assert len(message.body()) <= 3 * 164_000
    assert table.message_bytes(PLAIN, plan, 500) == 4 * 5 * 2 + 500
    assert table.message_bytes(IND_LAP, plan, 500) == 4 * 5 * 2 + 4 * 5 + 8


def test_the_table_has_every_row_beside_the_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(arms: table.Arms, cell: dict[str, int]) -> dict[str, object]:
        seconds = (0.5, 0.25, 1.0)[cell["run"]]
        return {"seconds": seconds, "bytes": None if "users" in cell else 1000 * cell["parties"]}

    monkeypatch.setattr(table.Arms, "measure", measure)
    text = table.run(Options(quick=True, output=tmp_path, progress=False))
    row = next(line for line in text.splitlines() if line.startswith("| 2PEst as published (M = 4096)"))
    assert row.split(" | ")[1:8] == ["paper's weights", "5", "2.00", "4.00", *["0.5000 (1.0000)"] * 2, "164 kB"]
    assert "101.14" in text and "| 100,000 | 5 | 0.5000 (1.0000) |" in text
    rows = list(csv.DictReader((tmp_path / "vertical-dp-table1.csv").read_text().splitlines()))
    assert len(rows) == 3 * (len(table.ROWS) * 4 + 2)
    assert (tmp_path / "vertical-dp-table1.png").read_bytes().startswith(b"\x89PNG")


def test_every_kind_of_row_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(even(MIXTURE, 2), n=600)
    monkeypatch.setattr(table, "even", lambda name, parties: replace(small, sizes=(8 // parties,) * parties))
    rows = [replace(row, rows=row.rows and 64) for row in table.ROWS]
    monkeypatch.setattr(table, "ROWS", rows)
    arms = table.Arms(None)
    for number in range(len(rows)):
        cells = [{"name": "S = 2", "parties": 2, "clusters": 5, "row": number, "run": run} for run in range(2)]
        found = [arms.measure(cell) for cell in cells]
        assert min(value["seconds"] for value in found) > 0.0 and found[0]["bytes"] == found[1]["bytes"] > 0
    assert arms.measure({"name": "sketch", "clusters": 5, "users": 300, "run": 0})["seconds"] > 0.0


def test_methods_take_turns() -> None:
    cells = table.list_cells(7)
    assert [cell["run"] for cell in cells] == sorted(cell["run"] for cell in cells)
    first = [cell for cell in cells if cell["run"] == 0]
    assert len(first) == 4 * len(table.ROWS) + 2 and len({str(cell) for cell in cells}) == len(cells)


def test_estimates_of_one_set_lie_within_the_stated_error() -> None:
    repeats = 150
    found = sketch.measure_sets(500, repeats, SecretRandom())
    # Nearly normal: 6 standard errors of the mean, and of the mean square; false alarms below 1e-6.
    assert abs(found["bias"]) < 6.0 / math.sqrt(repeats)
    assert abs(found["spread"] ** 2 - 1.0) < 6.0 * math.sqrt(2.0 / repeats)
    assert found["stated"] == pytest.approx(550 / math.sqrt(sketch.SIZE_ROWS), rel=0.01)


@pytest.mark.slow
def test_whole_rows_beat_unions_and_both_follow_their_formulas() -> None:
    # Fixed keys: no false alarm. The errors of the 25 unions of one run go together, so fresh ones spread widely.
    problem = load_problem(replace(even(MIXTURE, 2), n=4000), None, 0)
    runs = [sketch.measure_grid(problem, 2.0, stream_of({"run": run})) for run in range(4)]
    pairs = [({"epsilon": 2.0}, value) for value in runs]
    mean = sketch._means(pairs, 2.0)
    assert mean["whole"] < mean["unions"] and mean["whole_l1"] < mean["unions_l1"]
    # Over fresh keys: 0.9, with a deviation of 0.3 for four runs.
    assert 0.02 < mean["unions"] / mean["unions_formula"] < 3.5
    assert mean["exact_l1"] == 0.0 and mean["exact_loss"] <= mean["whole_loss"] * 1.05


def test_the_sketch_report_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch, "QUICK", sketch.Effort(sets=(3, 2, 2, 2, 2), grids=1))
    monkeypatch.setattr(sketch, "SIZES", (10, 20, 30, 40, 50))
    monkeypatch.setattr(sketch, "EPSILONS", (1.0, 8.0))
    monkeypatch.setattr(sketch, "_phantoms", lambda rows, epsilon, delta: round(200 / epsilon))
    text = sketch.run(Options(quick=True, output=tmp_path, progress=False))
    assert "| 10 | 3 |" in text and "Theorem 6" in text
    rows = list(csv.DictReader((tmp_path / "vertical-dp-sketch.csv").read_text().splitlines()))
    assert [row["users"] for row in rows[:5]] == ["10", "20", "30", "40", "50"]
    assert [row["epsilon"] for row in rows[5:]] == ["1.0", "8.0"]
    assert float(rows[5]["phantoms"]) > float(rows[6]["phantoms"])
    assert (tmp_path / "vertical-dp-sketch.png").read_bytes().startswith(b"\x89PNG")
