"""The figures of vertical DP on small data: what is measured, and what stands in the files."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.vertical import PartyFeatures
from fastlloyd.errors import ConfigError
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocols.vertical_dp.math.fit import GridCells
from fastlloyd.protocols.vertical_dp.plan import PublicParameters, make_plan
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.sets.make import make_sets
from fastlloyd_papers.vertical_dp import fig3 as vertical_dp_fig3
from fastlloyd_papers.vertical_dp import fig5 as vertical_dp_fig5
from fastlloyd_papers.vertical_dp import fig6 as vertical_dp_fig6
from fastlloyd_papers.vertical_dp import fig8 as vertical_dp_fig8
from fastlloyd_papers.vertical_dp import fig9 as vertical_dp_fig9
from fastlloyd_papers.vertical_dp.data import LETTER, LOAN, MIXTURE, TAXI, Source, even, load_problem, missing
from fastlloyd_papers.vertical_dp.data import part_correlated as part
from fastlloyd_papers.vertical_dp.design import (
    CENTRAL_KMEANS,
    CENTRAL_TREE,
    CORRECTED_BASIC,
    CORRECTED_PAIRS,
    IND_LAP,
    LDP_AGG,
    LDP_PAIRS,
    OURS_FIVE,
    PAIRS_KNOWN,
    PAPER_BASIC,
    PAPER_PAIRS,
    PLAIN,
    Figure,
    Size,
    compared,
    list_cells,
)
from fastlloyd_papers.vertical_dp.figure import run_figure
from fastlloyd_papers.vertical_dp.report import ahead, by_epsilon
from fastlloyd_papers.vertical_dp.run import Method, baseline_epsilon, plan_of, run_method, v_score, weight_error
from tests.protocols.vertical_dp.support import replays

FIGURES = (
    vertical_dp_fig3,
    vertical_dp_fig5,
    vertical_dp_fig6,
    vertical_dp_fig8,
    vertical_dp_fig9,
)
N = 1500
TINY = {"rows": 128}


def tiny(parties: int) -> Source:
    return replace(even(MIXTURE, parties), n=N)


def small(method: Method) -> Method:
    """The same method with few rows."""
    return replace(method, settings={**method.settings, **TINY}, local_clusters=3)


@pytest.mark.parametrize("parties", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_each_method_gives_centres_between_the_best_and_one_mean(parties: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Fixed noise and keys: losses of the published basic estimates have a long tail.
    monkeypatch.setattr("fastlloyd_papers.vertical_dp.run.SecretRandom", replays())
    problem = load_problem(tiny(parties), None, 0)
    points = problem.points
    worst = float(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean())
    best = run_method(problem, CENTRAL_KMEANS, 1.0, 0)
    # Five components of standard deviation 0.1 in 8 dimensions, cut at the borders.
    assert best.loss == pytest.approx(8 * 0.01, rel=0.15) and best.v_score > 0.99 and best.error is None
    for method in (*compared(parties), PAIRS_KNOWN):
        found = run_method(problem, small(method), 20.0, 0)
        assert best.loss * (1 - 1e-6) <= found.loss < 1.2 * worst, method.name
        assert 0.0 <= found.v_score <= 1.0
        assert (found.error is None) == (method in (CENTRAL_KMEANS, CENTRAL_TREE))
    assert run_method(problem, small(PLAIN), 1.0, 0).error == 0.0


@pytest.mark.slow
def test_what_is_called_private_spends_what_is_said_and_the_published_claims_nothing() -> None:
    problem = load_problem(tiny(4), None, 0)
    for method in (OURS_FIVE, CORRECTED_PAIRS, CORRECTED_BASIC):
        plan = plan_of(problem, small(method), 3.0, 0)
        assert method.claim and plan.private
        assert 0.99 * 3.0 <= spent(plan.all_releases(), 1.0 / N) <= 3.0
    for method in (PAPER_PAIRS, PAPER_BASIC):
        plan = plan_of(problem, small(method), 3.0, 0)
        assert not method.claim and not plan.private
        assert "no privacy claim" in method.name
    # Baselines: S (epsilon_1 + epsilon_2) + epsilon_0 = epsilon.
    assert 8 * baseline_epsilon(IND_LAP, 3.0, 4) == pytest.approx(3.0 - 0.06)
    for method in (LDP_AGG, LDP_PAIRS):
        assert 8 * baseline_epsilon(method, 3.0, 4) == pytest.approx(3.0)


@pytest.mark.parametrize("method", [OURS_FIVE, replace(OURS_FIVE, local_clusters=None), CORRECTED_PAIRS, PAPER_PAIRS])
def test_methods_share_the_search_for_the_least_noise_and_no_plan_differs(method: Method) -> None:
    method = replace(method, settings={**method.settings, **TINY})
    problem = load_problem(tiny(3), None, 0)
    settings = {**method.settings, "local_clusters": method.local_clusters or "auto"}
    widths = [own.shape[1] for own in problem.columns]
    features = [
        PartyFeatures(names=names, bounds=Bounds(-np.ones(len(names)), np.ones(len(names)), names))
        for names in (tuple(f"p{party}x{h + 1}" for h in range(width)) for party, width in enumerate(widths, 1))
    ]
    public = PublicParameters(
        protocol="vertical-dp", clients=3, k=5, n_total=problem.n, epsilon=3.0, delta=1.0 / problem.n, seed=7,
        settings=settings,
    )  # fmt: skip
    assert plan_of(problem, method, 3.0, 7) == make_plan(public, features)


def test_the_v_score_is_scikit_learns() -> None:
    from sklearn.metrics import v_measure_score

    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, 500)
    for labels in (truth, (truth + 1) % 4, np.where(rng.random(500) < 0.5, truth, 2), rng.integers(0, 3, 500)):
        assert v_score(labels, truth) == pytest.approx(v_measure_score(truth, labels), abs=1e-12)
    assert v_score(np.zeros(5, dtype=np.int64), np.zeros(5, dtype=np.int64)) == 1.0


def test_the_error_of_weights_counts_cells_that_only_one_side_has() -> None:
    truth = GridCells(np.array([[0, 0], [1, 1]]), np.array([6.0, 4.0]))
    found = GridCells(np.array([[1, 1], [0, 1]]), np.array([7.0, 3.0]))
    assert weight_error(found, truth, 2, 10) == pytest.approx((6 + 3 + 3) / 10)
    assert weight_error(truth, truth, 2, 10) == 0.0


def test_columns_that_go_together_are_parted() -> None:
    rng = np.random.default_rng(1)
    base = rng.normal(size=(400, 3))
    points = np.hstack([base, base + 0.1 * rng.normal(size=(400, 3))])  # column i goes with column i + 3
    first, second = part(points, (3, 3))
    assert all((i in first) != (i + 3 in first) for i in range(3))
    assert sorted([*first, *second]) == list(range(6))
    points[:, 0] = 1.0
    assert sorted(len(own) for own in part(points, (2, 4))) == [2, 4]


def test_a_figure_becomes_markdown_csv_and_png(tmp_path: Path) -> None:
    methods = tuple(small(method) for method in (OURS_FIVE, PAPER_PAIRS, IND_LAP, PLAIN, CENTRAL_KMEANS))
    size = Size(epsilons=(4.0, 20.0), runs=1, methods=methods)
    figure = Figure(
        name="vertical-dp-fig0",
        title="Figure 0",
        paper="nothing.",
        metric="loss",
        y_label="loss",
        quick=((tiny(2), size), (even(TAXI, 2), size)),
        full=(),
        views=by_epsilon,
        findings=ahead,
    )
    text = run_figure(figure, Options(jobs=1, quick=True, output=tmp_path, data_dir=None, progress=False))
    assert text == (tmp_path / "vertical-dp-fig0.md").read_text()
    assert "New York taxi, S = 2 (4+4 columns) is left out: no folder for taxi.csv.gz" in text
    assert "no privacy claim" in text and "vertical-dp, k' = 5 is" in text
    header = next(line for line in text.splitlines() if line.startswith("| total epsilon |"))
    assert [label.rpartition(" (")[2].rstrip(")") for label in header.strip("| ").split(" | ")[1:]] == [
        "ours",
        "paper's weights",
        "paper's baseline",
    ]
    parts = "estimate ours, fit ours, phantoms ours, composition ours"
    assert f"- vertical-dp (ours): {parts}; local clusters: ours (shortened)." in text
    forest = "our box tree where the paper has an LSH forest (DPLSF)"
    assert f"phantoms the paper's, composition the paper's; local clusters: {forest}." in text
    rows = list(csv.DictReader((tmp_path / "vertical-dp-fig0.csv").read_text().splitlines()))
    assert len(rows) == 2 * 3 + 2
    assert {row["claim"] for row in rows if row["method"] == PAPER_PAIRS.name} == {"no"}
    assert {row["epsilon"] for row in rows if row["method"] == PLAIN.name} == {""}
    losses = {(row["method"], row["epsilon"]): float(row["loss"]) for row in rows}
    assert losses[CENTRAL_KMEANS.name, ""] <= min(losses.values()) * (1 + 1e-9)
    assert f"{losses[OURS_FIVE.name, '20.0']:.4f}" in text
    assert (tmp_path / "vertical-dp-fig0.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.partial.json"))


def test_figures_of_the_same_runs_stand_on_one_page(tmp_path: Path) -> None:
    methods = tuple(small(method) for method in (OURS_FIVE, IND_LAP, PLAIN))
    size = Size(epsilons=(4.0, 20.0), runs=1, methods=methods)
    figure = replace(vertical_dp_fig3.FIGURE, quick=((tiny(2), size),))
    text = run_figure(figure, Options(jobs=1, quick=True, output=tmp_path, data_dir=None, progress=False))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "vertical-dp-fig3.csv",
        "vertical-dp-fig3.md",
        "vertical-dp-fig3.png",
        "vertical-dp-fig4.png",
        "vertical-dp-fig7.png",
    ]
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## Figure 3: loss", "## Figure 4: V-score", "## Figure 7: error of the weights"]
    row = next(csv.DictReader((tmp_path / "vertical-dp-fig3.csv").read_text().splitlines()))
    found = [section.split("\n| 4 | ")[1].split(" |")[0] for section in text.split("\n## ")[1:]]
    assert found == [f"{float(row[name]):.4f}" for name in ("loss", "v_score", "weight_error")]


def test_findings_name_where_a_method_is_behind() -> None:
    from fastlloyd_papers.vertical_dp.design import Panel

    size = Size(epsilons=(1.0, 2.0), runs=1, methods=(OURS_FIVE, IND_LAP))
    losses = {
        (OURS_FIVE.name, 1.0): 3.0,
        (OURS_FIVE.name, 2.0): 1.0,
        (IND_LAP.name, 1.0): 2.0,
        (IND_LAP.name, 2.0): 2.0,
    }
    cells = [({"method": m, "epsilon": e}, {"loss": x, "v_score": x}) for (m, e), x in losses.items()]
    panel = Panel(tiny(2), size, cells)
    said = {metric: ahead(replace(vertical_dp_fig3.FIGURE, metric=metric), [panel]) for metric in ("loss", "v_score")}
    assert [line.split(": ")[1] for line in said["loss"]] == ["vertical-dp, k' = 5 is behind IND-LAP at epsilon 1."]
    assert said["v_score"][0].endswith("behind IND-LAP at epsilon 2.")


def test_cells_are_distinct_and_views_hold_every_method() -> None:
    for module in FIGURES:
        figure = module.FIGURE
        for panels in (figure.quick, figure.full):
            cells = [cell for source, size in panels for cell in list_cells(source, size)]
            assert len({tuple(sorted(cell.items(), key=lambda item: item[0])) for cell in cells}) == len(cells)
            assert len({source.label for source, _ in panels}) == len(panels)
            for _, size in panels:
                assert len({method.name for method in size.methods}) == len(size.methods)


@pytest.mark.parametrize("module", [vertical_dp_fig6, vertical_dp_fig9])
def test_figures_against_other_than_epsilon_are_drawn(
    module: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure: Figure = module.FIGURE  # type: ignore[attr-defined]
    panels = tuple((source, replace(size, runs=1)) for source, size in figure.quick)
    counts = iter(range(10_000))

    def measure(*_: object) -> dict[str, float]:
        value = 1.0 + next(counts)
        return {"loss": value, "v_score": 0.5, "error": 0.1, "local_clusters": 5, "phantoms": 7}

    monkeypatch.setattr("fastlloyd_papers.vertical_dp.figure.missing", lambda source, data_dir: "")
    monkeypatch.setattr("fastlloyd_papers.vertical_dp.run.Workbench.measure", measure)
    figure = replace(figure, quick=panels)
    text = run_figure(figure, Options(jobs=1, quick=True, output=tmp_path, data_dir=None, progress=False))
    views = figure.views(figure, [])
    assert views == []
    rows = list(csv.DictReader((tmp_path / f"{figure.name}.csv").read_text().splitlines()))
    first = rows[0]
    assert f"| {float(first['loss']):.4f} |" in text or f"{float(first['loss']):.4f} (best tried" in text
    assert (tmp_path / f"{figure.name}.png").read_bytes().startswith(b"\x89PNG")
    assert text.count("## ") == (2 if module is vertical_dp_fig6 else 4)


def test_taxi_and_loan_are_read_as_they_were_made(tmp_path: Path) -> None:
    samples = Path(__file__).parents[1] / "sets" / "samples"
    assert "`fastlloyd datasets make taxi`" in missing(even(TAXI, 2), str(tmp_path))
    for name in (TAXI, LOAN):
        make_sets(name, samples, tmp_path)
        assert missing(even(name, 2), str(tmp_path)) == ""
        problem = load_problem(even(name, 2), str(tmp_path), 0)
        assert problem.points.shape[1] == sum(even(name, 2).sizes)
        assert problem.points.min() == -1.0 and problem.points.max() == 1.0
    # Cut at the 95 % quantile: the largest value stands more than once.
    assert ((problem.points == 1.0).sum(axis=0) >= 2).all()
    size = Size(epsilons=(4.0,), runs=1, methods=(PLAIN,))
    figure = replace(vertical_dp_fig3.FIGURE, name="vertical-dp-fig0", full=((even(TAXI, 2), size),))
    text = run_figure(figure, Options(jobs=1, output=tmp_path, data_dir=str(tmp_path), progress=False))
    read = json.loads((tmp_path / "taxi.made.json").read_text())["files"][0]
    assert f"of {read['name']} (SHA-256 {read['sha256']}); SHA-256 of the table" in text


def test_a_set_that_is_not_there_is_named() -> None:
    assert "give --data-dir" in missing(even(LETTER, 2), None)
    with pytest.raises(ConfigError, match="give --data-dir"):
        load_problem(even(LETTER, 2), None, 0)


def test_even_splits_hold_all_columns() -> None:
    assert even(LETTER, 16).sizes == (1,) * 16
    assert even(MIXTURE, 2).label == "mixture-20000-4+4"
    assert math.prod(even(TAXI, 4).sizes) == 16
