"""FastLloyd's figures about error, on small data: files as promised."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.fastlloyd import fig2 as fastlloyd_fig2
from fastlloyd_papers.fastlloyd import fig3 as fastlloyd_fig3
from fastlloyd_papers.fastlloyd import fig4 as fastlloyd_fig4
from fastlloyd_papers.fastlloyd import fig5 as fastlloyd_fig5
from fastlloyd_papers.fastlloyd import fig6_8 as fastlloyd_fig6_8
from fastlloyd_papers.fastlloyd import plus, plus_generated
from fastlloyd_papers.utility.data import (
    Source,
    ablation_source,
)
from fastlloyd_papers.utility.design import EPSILONS, FASTLLOYD, PLUS, Size

SMALL = Source(name="iris", kind="named", k=3)
TINY = Size(runs=3, large_runs=3)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few sets, few runs, this process only."""
    monkeypatch.setattr("fastlloyd_papers.utility.measure.cores", lambda: 1)
    for module in (fastlloyd_fig2, fastlloyd_fig6_8, plus):
        monkeypatch.setattr(module, "REAL", ("iris", "wine"))
        monkeypatch.setattr(module, "QUICK", TINY)
    sources = (ablation_source(2, 2, 0.25), ablation_source(2, 2, 0.5), ablation_source(4, 2, 0.25))
    for module in (fastlloyd_fig5, plus_generated):
        monkeypatch.setattr(module, "ablation_sources", lambda: sources)
    fresh = Source(name="fresh", kind="fresh", k=2, d=2, separation=0.3, seed=7, n=300, uneven=True)
    monkeypatch.setattr(plus_generated, "fresh_sources", lambda: (fresh,))
    monkeypatch.setattr(plus_generated, "_SYNTH_PLACES", ((2, 2),))
    monkeypatch.setattr(plus_generated, "_QUICK_RUNS", 1)
    monkeypatch.setattr(fastlloyd_fig5, "_QUICK_ALPHAS", (0.8,))
    monkeypatch.setattr(fastlloyd_fig5, "_QUICK_RUNS", 1)
    monkeypatch.setattr(fastlloyd_fig3, "_QUICK_G2", (2,))
    monkeypatch.setattr(fastlloyd_fig3, "_QUICK_K", (2,))
    monkeypatch.setattr(fastlloyd_fig3, "_QUICK_RUNS", 1)
    monkeypatch.setattr(fastlloyd_fig4, "_QUICK_CLUSTERS", (2,))
    monkeypatch.setattr(fastlloyd_fig4, "_QUICK_DIMENSIONS", (2,))
    monkeypatch.setattr(fastlloyd_fig4, "_QUICK_RUNS", 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "module,words",
    [
        (fastlloyd_fig2, "wine is left out"),
        (fastlloyd_fig3, "Features (G2, k = 2)"),
        (fastlloyd_fig4, "fastlloyd over sulloyd"),
        (fastlloyd_fig5, "Best here"),
        (fastlloyd_fig6_8, "silhouette"),
        pytest.param(plus_generated, "on 1 sets that nothing was tuned on", marks=pytest.mark.slow),
    ],
)
def test_each_benchmark_writes_markdown_csv_and_png(module, words: str, tmp_path: Path) -> None:
    text = module.run(Options(quick=True, output=tmp_path, data_dir=None, progress=False))
    assert words in text
    assert text == (tmp_path / f"{module.NAME}.md").read_text()
    names = {path.name for path in tmp_path.iterdir()}
    assert f"{module.NAME}.csv" in names
    assert any(name.endswith(".png") for name in names)
    assert not any("partial" in name for name in names)


@pytest.mark.usefixtures("small")
def test_the_raw_results_of_fastlloyd_plus_hold_every_run(tmp_path: Path) -> None:
    text = plus.run(Options(quick=True, output=tmp_path, data_dir=None, progress=False))
    assert "wine is left out" in text
    assert text == (tmp_path / "fastlloyd-plus.md").read_text()
    assert (tmp_path / "fastlloyd-plus.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((tmp_path / "fastlloyd-plus.csv").read_text().splitlines()))
    assert list(rows[0]) == ["dataset", "protocol", "epsilon", "run", "nicv"]
    assert len(rows) == 2 * len(EPSILONS) * TINY.runs
    assert {row["protocol"] for row in rows} == {FASTLLOYD.name, PLUS.name}
    assert all(float(row["nicv"]) > 0 for row in rows)
