"""Lemma 5 of the vertical DP paper, measured: exact distributions by hand, what is drawn, and the page."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.protocols.vertical_dp.sketch.sketch import SketchShape, cell_blocks, raw_maxima
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.scoreboard import vertical_dp as vertical_dp_board
from fastlloyd_papers.scoreboard.board import Results
from fastlloyd_papers.vertical_dp import lemma5


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
