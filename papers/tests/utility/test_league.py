"""The league: its figures, the methods it takes from the last time, and the comparisons that it draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd_papers.baselines.packages import find_problem
from fastlloyd_papers.engine.registry import Options, run_bench
from fastlloyd_papers.utility import league
from fastlloyd_papers.utility.data import load_points, real_source, unequal_sources
from fastlloyd_papers.utility.design import EPSILONS, FASTLLOYD, PLUS, Method
from fastlloyd_papers.utility.league import EUGKM, METHODS, OPTIMUM, read_results
from fastlloyd_papers.utility.league_report import LEAGUE_EPSILONS, League, above_text, area_text, excess_table
from fastlloyd_papers.utility.measure import Measured

IRIS = real_source("iris")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of all methods on iris alone, in this process."""
    monkeypatch.setattr("fastlloyd_papers.utility.measure.cores", lambda: 1)
    monkeypatch.setattr(league, "_QUICK_REAL", ("iris", "wine"))
    monkeypatch.setattr(league, "_QUICK_RUNS", 2)
    monkeypatch.setattr(league, "unequal_sources", lambda: ())


def options(output: Path, *only: str) -> Options:
    return Options(quick=True, output=output, progress=False, only=only)


@pytest.mark.usefixtures("small")
def test_a_method_is_measured_anew_beside_the_figures_of_the_last_time(tmp_path: Path) -> None:
    text = run_bench(league.NAME, options(tmp_path))
    assert text == (tmp_path / "utility-league.md").read_text()
    assert "wine is left out" in text
    assert (tmp_path / "utility-league.png").read_bytes().startswith(b"\x89PNG")
    table = tmp_path / "utility-league.csv"
    before, written = read_results(table), table.read_text()
    usable = [method for method in METHODS if not find_problem(method.name)]
    assert {method for _, method, _ in before} == {method.name for method in usable}
    assert {epsilon for _, method, epsilon in before if method == PLUS.name} == set(EPSILONS)
    assert {epsilon for _, method, epsilon in before if method == EUGKM.name} == set(LEAGUE_EPSILONS)
    assert len(before["iris", EUGKM.name, 1.0]) == 2
    changed = written.replace(f"iris,{EUGKM.name},1.0,", f"iris,{EUGKM.name},1.0,9 ")
    table.write_text(changed)
    run_bench(league.NAME, options(tmp_path, EUGKM.name))
    assert read_results(table) == before
    table.write_text(changed)
    run_bench(league.NAME, options(tmp_path, "lloyd"))
    assert read_results(table) == {**before, ("iris", EUGKM.name, 1.0): [9.0, *before["iris", EUGKM.name, 1.0]]}


def test_what_cannot_be_measured_anew_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no method 'plus'; known are kmeans, lloyd"):
        run_bench(league.NAME, options(tmp_path, "plus"))
    with pytest.raises(ConfigError, match="--only takes the other methods' figures from"):
        run_bench(league.NAME, options(tmp_path, "lloyd"))
    (tmp_path / "utility-league.md").write_text("# The league (quick)\n")
    (tmp_path / "utility-league.csv").write_text("dataset,method,epsilon,nicv\niris,lloyd,,x\n")
    with pytest.raises(ConfigError, match="expected the CSV of utility-league"):
        run_bench(league.NAME, options(tmp_path, "lloyd"))
    with pytest.raises(ConfigError, match="--only means nothing to fastlloyd-fig2"):
        run_bench("fastlloyd-fig2", options(tmp_path, "lloyd"))


def test_the_unequal_sets_have_sizes_from_one_to_twenty() -> None:
    sources = unequal_sources()
    assert len({source.name for source in sources}) == 4
    points = load_points(sources[0], None)
    assert points.shape == (6000, 2)
    assert (np.abs(points).max(axis=0) == 1.0).all()


def made(own: list[float], other: list[float], *, optimum: float = 1.0) -> League:
    """A league of iris with the same runs at all epsilons."""
    figures = [(OPTIMUM, None, [optimum])]
    for epsilon in EPSILONS:
        figures += [(PLUS, epsilon, own), (FASTLLOYD, epsilon, other), (EUGKM, epsilon, [8.0, 9.0, 10.0])]
    cells = [{"name": "iris", "method": m.name, "epsilon": epsilon} for m, epsilon, _ in figures]
    measured = Measured(cells, [{"nicv": [*runs]} for _, _, runs in figures])
    methods: list[Method] = [OPTIMUM, FASTLLOYD, PLUS, EUGKM]
    return League(real=[IRIS, real_source("mnist")], unequal=[], methods=methods, measured=measured)


def test_another_method_is_below_only_beyond_the_interval() -> None:
    below = above_text(made([3.0, 3.1, 3.2], [2.0, 2.1, 2.2]))
    # Student's interval of three runs 0.1 apart: 4.303 * 0.1 / root 3 = 0.248; root of two squares: 0.351.
    assert below.startswith("In 4 of 8 comparisons")
    assert "| iris | 0.1 | 3.10 ± 0.25 | fastlloyd | 2.10 ± 0.25 |" in below
    assert above_text(made([2.3, 2.4, 2.5], [2.0, 2.1, 2.2])).startswith("Nowhere, in 8 comparisons")


def test_excesses_and_areas_are_those_of_the_means() -> None:
    text = excess_table(made([3.0, 3.0, 3.0], [6.0, 6.0, 6.0], optimum=2.0))
    assert "| fastlloyd-plus | 0.500 (1 sets) |" in text
    assert "| fastlloyd | 2.000 (1 sets) |" in text
    single = made([3.0, 3.0, 3.0], [6.0, 6.0, 6.0])
    whole = League(real=[IRIS], unequal=[], methods=single.methods, measured=single.measured)
    assert "mean of 1 sets 0.500 ± 0.000, largest 0.500 ± 0.000 (iris)" in area_text(whole)
