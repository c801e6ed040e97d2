"""What FedDP-KMeans assumes, measured: the formulas of Theorem 3 by hand, the radius, and the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.feddp import assumptions
from fastlloyd_papers.feddp.data import mixture_source
from fastlloyd_papers.scoreboard import feddp as feddp_board
from fastlloyd_papers.scoreboard.board import Results
from fastlloyd_papers.sets import census
from fastlloyd_papers.sets.make import MAKERS, Maker, make_sets

SAMPLES = Path(__file__).parents[1] / "sets" / "samples"


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
