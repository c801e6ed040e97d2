"""The bound of Theorem 7 of the vertical DP paper: by hand, measured on small data, and shown."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.scoreboard import vertical_dp as vertical_dp_board
from fastlloyd_papers.scoreboard.board import Results
from fastlloyd_papers.vertical_dp import theorem7
from fastlloyd_papers.vertical_dp.data import MIXTURE, Problem, Source, even, load_problem
from fastlloyd_papers.vertical_dp.design import PAPER_BASIC


def test_the_bound_of_theorem_7_by_hand() -> None:
    exact = theorem7.Parts(costs=(3.0, 5.0), optima=(3.0, 5.0), beta_0=1.0)
    assert (exact.beta_priv, exact.lambda_priv) == (1.0, 0.0)
    assert exact.bound(7.0) == 10.0 * 7.0
    # One party twice its optimum, an excess of 1: by ratio beta is 16, by excess 10 with lambda 2 * 2 * 2 * 1.
    worse = theorem7.Parts(costs=(2.0, 5.0), optima=(1.0, 5.0), beta_0=1.0)
    assert (worse.beta_priv, worse.lambda_priv) == (2.0, 1.0)
    assert worse.bound(7.0) == 10.0 * 7.0 + 8.0
    assert worse.bound(1.0) == 16.0
    assert theorem7.Parts(costs=(1.0,), optima=(1.0,), beta_0=2.0).bound(1.0) == 2.0 + 8.0 + 8.0


def test_theorem_7_is_measured_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bench:
        def problem(self, source: Source, run: int) -> Problem:
            return load_problem(replace(source, n=500), None, run)

    cell = {"parties": 2, "run": 0, "method": PAPER_BASIC.name, "epsilon": 8.0}
    value = theorem7.measure(Bench(), cell)  # type: ignore[arg-type]
    assert set(value) == set(theorem7.VALUES)
    assert value["optimum"] * (1 - 1e-9) <= value["loss"] <= value["trivial"]
    assert value["beta_priv"] >= 1.0 and value["beta_0"] >= 1.0 and value["lambda_priv"] >= 0.0
    assert value["bound"] >= 10.0 * value["optimum"] * (1 - 1e-12)
    problem = load_problem(replace(even(MIXTURE, 2), n=500), None, 0)
    spread = 500 / 64 + 2 * 4 * math.sqrt(math.log(500)) / (0.98 * 8.0 / 4)
    assert value["weights_term"] == pytest.approx(value["beta_0"] * 64 * 5**3 / math.sqrt(0.05) * spread)
    assert theorem7.weights_term(problem, 8.0, 4096, 1.0) == pytest.approx(64 * 5**3 / math.sqrt(0.05) * spread)
    monkeypatch.setattr(theorem7, "measure", lambda bench, cell: value)
    text = theorem7.run(Options(jobs=1, quick=True, output=tmp_path, progress=False))
    rows = list(csv.DictReader((tmp_path / f"{theorem7.NAME}.csv").read_text().splitlines()))
    assert len(rows) == 2 * 2 * 2 * 5
    assert f"within the bound without the term of the weights in {len(rows)} of {len(rows)} runs" in text
    lines = vertical_dp_board._theorem7(Results(tmp_path))
    assert [line.verdict for line in lines] == ["holds"] * 4 + ["not judged"]
    # What lies above the bound is counted as such.
    monkeypatch.setattr(theorem7, "measure", lambda bench, cell: {**value, "bound": value["loss"] / 2})
    assert f"in 0 of {len(rows)} runs" in theorem7.run(Options(jobs=1, quick=True, output=tmp_path, progress=False))
    line = vertical_dp_board._theorem7(Results(tmp_path))[0]
    assert (line.ours, line.verdict) == ("in 10 of 10; without that term in 0", "holds")
    monkeypatch.setattr(
        theorem7, "measure", lambda bench, cell: {**value, "bound": value["loss"] / 2, "weights_term": 0.0}
    )
    theorem7.run(Options(jobs=1, quick=True, output=tmp_path, progress=False))
    assert vertical_dp_board._theorem7(Results(tmp_path))[0].verdict == "does not hold"
