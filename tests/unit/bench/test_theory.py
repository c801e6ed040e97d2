"""What the papers prove or assume, measured: the formulas, what is measured on small data, and the pages."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.bench.engine.registry import Options
from fastlloyd.bench.feddp import assumptions
from fastlloyd.bench.feddp.data import mixture_source
from fastlloyd.bench.scoreboard import feddp as feddp_board
from fastlloyd.bench.scoreboard import vertical_dp as vertical_dp_board
from fastlloyd.bench.scoreboard.board import Results
from fastlloyd.bench.vertical_dp import lemma5, theorem7
from fastlloyd.bench.vertical_dp.data import MIXTURE, Problem, Source, even, load_problem
from fastlloyd.bench.vertical_dp.design import PAPER_BASIC
from fastlloyd.data.public import census
from fastlloyd.data.public.make import MAKERS, Maker, make_sets
from fastlloyd.privacy.sketch.hash import cell_blocks, raw_maxima
from fastlloyd.privacy.sketch.sketch import SketchShape

SAMPLES = Path(__file__).parents[1] / "data" / "public" / "samples"


def test_lemma_5_of_three_phantoms_by_hand() -> None:
    # gamma = 1: a level is at most a with probability 1 - 2^-a, the highest of three with its cube. The floor is 2.
    shape = SketchShape(rows=1, clusters=1, gamma=1.0, phantoms=3)
    assert shape.floor == 2
    above = [1.0 - (1.0 - 2.0**-a) ** 3 for a in range(32)]
    free, kept = sum(above), 2 + sum(above[2:])
    free_squares = sum((2 * a + 1) * p for a, p in enumerate(above))
    kept_squares = 4 + sum((2 * a + 1) * p for a, p in enumerate(above) if a >= 2)
    expected = kept / free, (kept_squares - kept**2) / (free_squares - free**2)
    assert lemma5.exact_ratios(0, shape) == pytest.approx(expected, rel=1e-7)
    # One phantom has the floor 1, below which no level lies.
    assert lemma5.exact_ratios(0, replace(shape, phantoms=1)) == pytest.approx((1.0, 1.0), abs=1e-12)


@pytest.mark.parametrize("size", [0, 30])
@pytest.mark.parametrize("gamma", [1.0, 2.0**-6])
def test_measured_levels_follow_the_exact_distributions(size: int, gamma: float) -> None:
    rows, key = 20_000, bytes(range(32))
    shape = SketchShape(rows=rows, clusters=1, gamma=gamma, phantoms=100)
    users = raw_maxima(np.zeros(size, dtype=np.int64), 1, rows, key)
    phantoms = np.concatenate(list(cell_blocks(key, rows, 1)))
    mean, variance = lemma5.ratios(users, phantoms, shape)
    exact_mean, exact_variance = lemma5.exact_ratios(size, shape)
    # The key is fixed: nothing here is left to chance.
    assert mean == pytest.approx(exact_mean, rel=5e-3)
    assert variance == pytest.approx(exact_variance, rel=5e-2)
    assert exact_variance < 0.95 < 0.9999 < lemma5.exact_ratios(100_000, shape)[1]


def test_the_page_of_lemma_5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemma5, "ROWS", 512)
    monkeypatch.setattr(lemma5, "SIZES", (0, 100, 15_000))
    text = lemma5.run(Options(jobs=1, quick=True, output=tmp_path, progress=False))
    rows = list(csv.DictReader((tmp_path / f"{lemma5.NAME}.csv").read_text().splitlines()))
    assert len(rows) == 4 * 3
    assert {row["phantoms"] for row in rows} == {"100", "1000"}
    assert f"{float(rows[0]['exact_variance_ratio']):.4f}" in text
    assert "(quick)" in text and not list(tmp_path.glob("*.partial.json"))
    lines = vertical_dp_board._lemma5(Results(tmp_path))
    assert [line.published for line in lines[::2]] == ["goes to 1", "goes to 1"]
    assert all(line.ours for line in lines)
    assert [line.verdict for line in lines[::2]] == ["holds", "holds"]


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


def test_the_assumptions_of_theorem_3_by_hand() -> None:
    facts = assumptions.Facts(
        radius=10.0, own_radius=12.0, n=1000, d=16, k=5, server=30, sigma=0.5, least_weight=0.2, gap=2.0
    )
    log = math.log(1000)
    assert facts.radius_bound(0.5) == pytest.approx(5 * log**2 * 4 * 0.5 / (0.5 * 0.2))
    assert facts.server_bound(2.0) == pytest.approx(2 * 1000 * 5 * log * 0.25 / 100)
    assert facts.separation() == pytest.approx(2.0 / (5 * 0.5 * log))
    assert facts.size_constant(1.0) == pytest.approx(1000 / (5 * log**3 * 4 * 0.5 / 0.04))
    assert replace(facts, gap=None).separation() is None


def test_the_radius_is_that_of_the_records() -> None:
    source = mixture_source("record", clients=3, points=50)
    facts = assumptions.mixture_facts(source, 1)
    assert facts.n == 150 and facts.server == 300
    assert 8.0 < facts.radius < 13.0
    assert facts.sigma == math.sqrt(0.5)


def small_census(folder: Path) -> Any:
    return census.make_census(folder, {"AL": "01", "AK": "02"})


def test_the_page_of_the_assumptions_takes_the_census_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAKERS, "census", Maker(MAKERS["census"].sets, "", small_census))  # type: ignore[arg-type]
    make_sets("census", SAMPLES, tmp_path)
    (tmp_path / "census-self.csv.gz").unlink()
    monkeypatch.setattr(assumptions, "MIXTURE", mixture_source("record", clients=100, points=20))
    text = assumptions.run(Options(jobs=1, quick=True, output=tmp_path, data_dir=str(tmp_path), progress=False))
    # Seven categories, one value of each: the published radius.
    assert "| US census, federal employees | 2.65 | 2.65 | 2.65 |" in text
    assert "US census, self-employed is left out" in text and "`fastlloyd datasets make census`" in text
    assert "made by fastlloyd" in text
    lines = feddp_board._radius(Results(tmp_path))
    told: Sequence[tuple[str, str]] = [(line.what, line.verdict) for line in lines]
    assert ("US census, federal employees", "0.998 times") in told
    assert lines[-1].verdict.startswith("no result: the census files are not shipped")
    held = feddp_board._assumptions(Results(tmp_path))
    assert {line.verdict for line in held} <= {"holds", "does not hold", "not judged"} | {lines[-1].verdict}
    assert any(line.what.startswith("US census, federal") and line.ours for line in held)
