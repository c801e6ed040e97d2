"""The FedDP-KMeans benchmarks on small data: what is measured, and what stands in the files."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.data.public.mixture import Mixture
from fastlloyd.errors import ConfigError
from fastlloyd.protocols.feddp.math.record import RecordStatistics
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.feddp import fig1 as feddp_fig1
from fastlloyd_papers.feddp import fig2 as feddp_fig2
from fastlloyd_papers.feddp import fig3 as feddp_fig3
from fastlloyd_papers.feddp import fig7 as feddp_fig7
from fastlloyd_papers.feddp import tables as feddp_tables
from fastlloyd_papers.feddp.cost import run_figure
from fastlloyd_papers.feddp.data import FILES, Source, file_source, is_there, load_problem, mixture_source
from fastlloyd_papers.feddp.design import OURS, PUBLISHED, Figure, Size, list_cells
from fastlloyd_papers.feddp.run import KFED, OPTIMAL, STARTS, Trial, Workbench, run_kfed, run_optimal
from tests.protocols.vertical_dp.support import replays

TINY = Mixture(clients=6, points=60, d=5, k=3, variance=0.01, server=10, uniform=15)
SIZE = Size(epsilons=(2.0, 8.0), runs=1, own_rounds=(0,), baseline_rounds=(1,))
ONE = dataclasses.replace(SIZE, epsilons=(8.0,))


def tiny(level: str = "record", **changes: int) -> Source:
    return Source(title=f"tiny {level}", level=level, k=3, mixture=dataclasses.replace(TINY, **changes))


def figure(*panels: tuple[Source, Size]) -> Figure:
    return Figure(name="feddp-fig0", title="Figure 0", paper="nothing", quick=panels, full=panels)


@pytest.fixture
def fixed_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise each time: how good centres are is up to chance otherwise, with a long tail."""
    monkeypatch.setattr("fastlloyd_papers.feddp.central.SecretRandom", replays())


@pytest.mark.parametrize("level", ["record", "client"])
def test_each_method_costs_what_its_centres_cost(level: str) -> None:
    bench = Workbench(None)
    problem = bench.problem(tiny(level), 0)
    optimum = problem.cost(run_optimal(problem))
    # Variance 0.01 along each of 5 axes, three separated components.
    assert optimum == pytest.approx(0.05, rel=0.1)
    assert optimum <= problem.cost(run_kfed(problem, 0)) * (1 + 1e-6)
    for start in STARTS.values():
        trial = Trial(start=start, epsilon=50.0, rounds=1, run=0)
        plan, epsilon, result = bench.private(problem, trial)
        assert 0.995 * 50 <= epsilon <= 50
        assert plan.privacy_level == level
        assert optimum * (1 - 1e-6) <= problem.cost(result.centers.exact)
    grid = problem.points * problem.half_width + 0.5
    assert grid.min() > -0.7 and grid.max() < 1.7


def test_records_are_prepared_once_for_plans_of_the_same_grids() -> None:
    bench = Workbench(None)
    problem = bench.problem(tiny(), 0)
    assert bench.problem(tiny(), 0) is problem
    bench.private(problem, Trial(start="feddp", epsilon=2.0, rounds=0, run=0))
    (kept,) = bench._pools.values()
    bench.private(problem, Trial(start="feddp", epsilon=2.0, rounds=1, run=0))
    assert list(bench._pools.values()) == [kept]
    for bound in (0.5, 0.6, 0.7, 0.8, 0.9):
        bench.private(problem, Trial(start="feddp", epsilon=2.0, rounds=0, run=0, settings={"norm_bound": bound}))
    assert len(bench._pools) == 4
    assert kept not in bench._pools.values()
    assert bench.problem(tiny(), 1) is not problem
    assert not bench._pools


def test_a_step_by_the_same_centres_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    step = RecordStatistics.lloyd_step

    def count(self: RecordStatistics, centers: NDArray[np.int64]) -> NDArray[np.int64]:
        asked.append(centers.tobytes())
        return step(self, centers)

    monkeypatch.setattr(RecordStatistics, "lloyd_step", count)
    bench = Workbench(None)
    problem = bench.problem(tiny(), 0)
    trials = [
        Trial(start="server-kmeans++", epsilon=epsilon, rounds=rounds, run=0, noise=False)
        for epsilon in (50.0, 60.0)
        for rounds in (1, 2)
    ]
    results = [bench.private(problem, trial)[2].centers.exact for trial in trials]
    assert len(asked) == len(set(asked)) == 2
    assert (results[0] == results[2]).all() and (results[1] == results[3]).all()
    assert (results[0] != results[1]).any()
    alone = Workbench(None)
    for trial, found in zip(trials, results, strict=True):
        fresh = alone.private(problem, trial)[2].centers.exact
        assert (fresh == found).all()
        alone._pools.clear()


def test_what_the_server_has_leaves_the_optimum_and_k_fed_as_they_are() -> None:
    bench = Workbench(None)
    found = {}
    for missing in (0, 1):
        problem = bench.problem(tiny(missing=missing), 0)
        found[missing] = bench.optimal(problem, 0), bench.kfed(problem, 0)
        assert (found[missing][0] == run_optimal(problem)).all()
        assert (found[missing][1] == run_kfed(problem, 0)).all()
    assert found[0][0] is found[1][0] and found[0][1] is found[1][1]
    other = bench.problem(tiny(), 1)
    assert (bench.optimal(other, 1) == run_optimal(other)).all()
    assert (bench.optimal(other, 1) != found[0][0]).any()


def test_the_published_calibration_has_delta_times_less_noise_on_the_outer_product_alone() -> None:
    bench = Workbench(None)
    problem = bench.problem(tiny(), 0)
    trial = Trial(start="feddp", epsilon=2.0, rounds=0, run=0)
    right, _, _ = bench.private(problem, trial)
    wrong, _, _ = bench.private(problem, dataclasses.replace(trial, published=True))
    delta = right.norm_bound * problem.half_width
    assert delta == pytest.approx(np.linalg.norm(problem.server_points, axis=1).max() * problem.half_width)
    assert right.rounds[0].sigma / wrong.rounds[0].sigma == pytest.approx(delta)
    assert right.rounds[1:] == wrong.rounds[1:]


@pytest.mark.usefixtures("fixed_noise")
def test_a_figure_becomes_markdown_csv_and_png(tmp_path: Path) -> None:
    fig = figure((tiny("record"), SIZE), (tiny("client"), ONE), (file_source("census-federal"), SIZE))
    text = run_figure(fig, Options(jobs=1, output=tmp_path, data_dir=None, progress=False))
    assert text == (tmp_path / "feddp-fig0.md").read_text()
    assert "US census, federal employees is left out" in text
    assert "published calibration (no privacy claim)" in text
    rows = list(csv.DictReader((tmp_path / "feddp-fig0.csv").read_text().splitlines()))
    at = {(row["level"], row["method"], row["epsilon"]): float(row["cost"]) for row in rows}
    assert len(at) == (2 + len(STARTS) * 2 + 2) + (2 + len(STARTS))
    for level in ("record", "client"):
        optimum = at[level, OPTIMAL, ""]
        assert all(cost >= optimum * (1 - 1e-6) for (of, _, _), cost in at.items() if of == level)
        assert (level, KFED, "") in at
    assert ("client", PUBLISHED, "8.0") not in at
    assert ("record", PUBLISHED, "2.0") in at
    # At record level the budget is ample: our start finds the three components.
    assert at["record", OURS, "8.0"] < 1.2 * at["record", OPTIMAL, ""]
    assert (tmp_path / "feddp-fig0.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.partial.json"))


def test_cells_are_distinct_and_the_published_calibration_is_for_records_only() -> None:
    for module in (feddp_fig1, feddp_fig2, feddp_fig3):
        for panels in (module.FIGURE.quick, module.FIGURE.full):
            for source, size in panels:
                cells = list_cells(source, size)
                keys = {tuple(sorted(cell.items())) for cell in cells}
                assert len(keys) == len(cells)
                assert any(cell["method"] == PUBLISHED for cell in cells) <= (source.level == "record")
    assert {source.label for source, _ in feddp_fig3.FIGURE.full} == {
        mixture_source("record", 100, 1000, missing=missing).label for missing in (0, 1, 2, 5)
    }


@pytest.mark.parametrize("name", ["census-self", "stackoverflow-github-pdf"])
def test_files_of_the_user_are_read(tmp_path: Path, name: str) -> None:
    server = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    own = np.array([[7, 0.0, 1.0], [7, 1.0, 1.0], [3, 2.0, 0.5]])
    np.savetxt(tmp_path / f"{name}-server.csv", server, delimiter=",", header="a,b", comments="")
    np.savetxt(tmp_path / f"{name}.csv", own, delimiter=",", header="owner,a,b", comments="")
    source = file_source(name)
    assert is_there(source, str(tmp_path)) == ""
    problem = load_problem(source, str(tmp_path), 0)
    assert problem.owners.tolist() == [7, 7, 3]
    assert problem.clients == 2
    assert problem.half_width == 0.5
    # 2 lies outside the server's range and counts as its end.
    assert problem.points.tolist() == [[-1, 1], [1, 1], [1, 0]]
    assert problem.cost(np.array([[-1.0, 1.0], [1.0, 0.0]])) == pytest.approx(0.25 / 3)
    assert source.level == ("record" if name.startswith("census") else "client")


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    for name in FILES:
        assert name in is_there(file_source(name), str(tmp_path))
    assert "--data-dir" in is_there(file_source("census-self"), None)
    with pytest.raises(ConfigError, match="census-self"):
        load_problem(file_source("census-self"), str(tmp_path), 0)


@pytest.mark.usefixtures("fixed_noise")
def test_the_elbow_of_separated_clusters_is_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feddp_fig7, "SOURCE", tiny())
    monkeypatch.setattr(feddp_fig7, "K_MAX", 8)
    monkeypatch.setattr(feddp_fig7, "QUICK", feddp_fig7.Size(epsilons=(20.0,), runs=2))
    text = feddp_fig7.run(Options(jobs=1, quick=True, output=tmp_path, progress=False))
    assert "| 20 | 3, 3 | 2 of 2 |" in text
    rows = list(csv.DictReader((tmp_path / "feddp-fig7.csv").read_text().splitlines()))
    assert [int(row["k"]) for row in rows] == [*range(1, 9)] * 2
    assert float(rows[0]["cost_per_record"]) > 4 * float(rows[2]["cost_per_record"])
    assert (tmp_path / "feddp-fig7.png").read_bytes().startswith(b"\x89PNG")


def test_the_front_keeps_what_nothing_else_beats() -> None:
    figures = [(1.0, 9.0), (1.0, 8.0), (2.0, 8.5), (3.0, 5.0), (4.0, 5.0), (5.0, 4.0)]
    cells = [{"name": "a", "i": i} for i in range(len(figures))]
    values = [{"epsilon": epsilon, "cost": cost} for epsilon, cost in figures]
    assert [cell["i"] for cell in feddp_tables.pareto(cells, values, "a")] == [1, 3, 5]
    front = [{"shares": [2, 1, 1, 0], "rounds": 0}, {"shares": [0, 1, 1, 2], "rounds": 2}]
    assert feddp_tables.mean_shares(front) == [0.25, 0.25, 0.25, 0.25]
    assert feddp_tables.step_fractions(front) == [0.5, 0.0, 0.5]


def test_trials_spread_over_budgets_shares_and_steps() -> None:
    for row in feddp_tables.ROWS:
        cells = feddp_tables.list_cells(row, 60)
        assert feddp_tables.list_cells(row, 60) == cells
        totals = sorted(cell["epsilon"] for cell in cells)
        assert (totals[0], totals[-1]) == pytest.approx(row.epsilons)
        assert [cell["rounds"] for cell in cells].count(1) == 20
        means = np.mean([cell["shares"] for cell in cells], axis=0)
        assert means.sum() == pytest.approx(1.0, abs=1e-3)
        assert (abs(means - 0.25) < 0.1).all()


def test_the_tables_show_published_and_own_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(
        dataclasses.replace(row, source=row.source if row.source.file else tiny(row.level), epsilons=(5.0, 20.0))
        for row in feddp_tables.ROWS
    )
    measured = feddp_tables.QUICK.titles
    monkeypatch.setattr(feddp_tables, "ROWS", rows)
    # A set that is not there is left out.
    titles = (*measured, "US Census (Federal)")
    monkeypatch.setattr(feddp_tables, "QUICK", dataclasses.replace(feddp_tables.QUICK, titles=titles, trials=4))
    text = feddp_tables.run(Options(quick=True, output=tmp_path, progress=False))
    for table in (2, 3, 4, 5):
        assert f"## Table {table}:" in text
    assert "| US Census (Federal) | 0.15 | 0.16 |" in text
    assert "| default | 0.20 | 0.20 | 0.45 | 0.15 |" in text
    lines = list(csv.DictReader((tmp_path / "feddp-tables2-5.csv").read_text().splitlines()))
    assert len(lines) == 8
    assert {line["data"] for line in lines} == set(measured)
    assert sum(int(line["on_front"]) for line in lines) >= 2
    assert (tmp_path / "feddp-tables2-5.png").read_bytes().startswith(b"\x89PNG")
