"""The utility benchmarks on small data: runs equal to the reference, metrics as scikit-learn's."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from fastlloyd.kmeans.grid import quantise
from fastlloyd.protocols.fastlloyd.reference import reference
from fastlloyd_papers.engine.cells import seed_of
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.utility.data import (
    ABLATION_SEPARATIONS,
    REAL,
    Source,
    ablation_source,
    ablation_sources,
    find_missing,
    fresh_sources,
    g2_source,
    load_points,
    real_source,
    synth_source,
)
from fastlloyd_papers.utility.design import EPSILONS, FASTLLOYD, LLOYD, PLUS, SULLOYD, Size, list_cells
from fastlloyd_papers.utility.measure import Measured, batches_of, measure_jobs
from fastlloyd_papers.utility.metric import matched_error, sample_rows, silhouette
from fastlloyd_papers.utility.report import heat_map, mean_ratio, ratio
from fastlloyd_papers.utility.run import Workbench, generator_noise, plan_run, simulate
from tests.protocols.support import blobs, central_plus

SMALL = Source(name="iris", kind="named", k=3)
TINY = Size(runs=3, large_runs=3)


@pytest.mark.parametrize("protocol", ["lloyd", "sulloyd", "glloyd", "fastlloyd", "fastlloyd-plus"])
def test_a_run_is_the_reference_bit_by_bit(protocol: str) -> None:
    points = blobs(150, 3, 2)
    plan = plan_run(protocol, 1.0, k=4, d=2, n=150, settings={})
    rng = np.random.default_rng(0)
    noise = [generator_noise(plan, rng)(t) for t in range(len(plan.rounds))]
    got = simulate(quantise(points, plan.fraction_bits), plan, noise.__getitem__)
    central = central_plus if plan.plus is not None else reference
    expected = central(points, plan, noise.__getitem__)
    assert (got.grid == expected.grid).all()


@pytest.mark.parametrize("protocol", ["sulloyd", "glloyd", "fastlloyd", "fastlloyd-plus"])
def test_the_noise_has_the_ledgers_scale(protocol: str) -> None:
    plan = plan_run(protocol, 1.0, k=40, d=20, n=5000, settings={})
    noise = generator_noise(plan, np.random.default_rng(1))
    factor = np.sqrt(2.0) if protocol == "sulloyd" else 1.0
    for t, planned in enumerate(plan.rounds):
        draws = np.stack([noise(t) for _ in range(100)])
        # Fixed seed: no false alarm; at least 80,000 and 4,000 draws.
        sums = plan.lengths(t)[0]
        assert draws[:, :sums].std() == pytest.approx(factor * planned.sum_scale, rel=0.02)
        assert draws[:, sums:].std() == pytest.approx(factor * planned.count_scale, rel=0.08)


def test_a_cell_gives_the_same_figures_again_and_others_with_other_contents() -> None:
    cell = list_cells(SMALL, [FASTLLOYD], [0.5], 3)[0]
    first, second = (Workbench(None).measure(SMALL, cell) for _ in range(2))
    assert first == second
    assert len(first["nicv"]) == 3
    assert seed_of(cell) != seed_of({**cell, "epsilon": 1.0})


def test_all_metrics_of_a_cell() -> None:
    cell = list_cells(SMALL, [LLOYD], EPSILONS, 2, everything=True)
    assert len(cell) == 1
    found = Workbench(None).measure(SMALL, cell[0])
    assert set(found) == {"nicv", "silhouette", "davies_bouldin", "centroid_mse"}
    assert all(len(values) == 2 for values in found.values())


def test_silhouette_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(300, 3))
    labels = rng.integers(0, 4, 300)
    labels[0] = 9  # alone in its cluster
    distances = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    assert silhouette(distances, labels) == pytest.approx(silhouette_score(points, labels))
    assert silhouette(distances, np.zeros(300, dtype=np.int64)) == -1.0
    assert len(sample_rows(5000)) == 2000 == len(np.unique(sample_rows(5000)))


def test_centres_are_matched_before_they_are_compared() -> None:
    centers = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])
    assert matched_error(centers[[2, 0, 1]], centers) == 0.0
    assert matched_error(centers + np.array([3.0, 0.0]), centers) <= 9.0


def test_areas_are_trapezoids_of_each_run() -> None:
    cells = list_cells(SMALL, [SULLOYD], (0.1, 0.5, 1.0), 2)
    measured = Measured(cells, [{"nicv": [4.0, 1.0]}, {"nicv": [2.0, 1.0]}, {"nicv": [0.0, None]}])
    assert measured.runs("iris", "sulloyd", 1.0) == [0.0]
    flat = Measured(cells, [{"nicv": [1.0, 3.0]}] * 3)
    assert flat.areas("iris", "sulloyd", (0.1, 0.5, 1.0)) == pytest.approx([0.9, 2.7])
    with pytest.raises(KeyError):
        measured.runs("iris", "glloyd", 1.0)


def test_the_ratio_of_means_has_an_interval() -> None:
    assert ratio([2.0, 2.0, 2.0], [4.0, 4.0, 4.0]) == (0.5, 0.0)
    quotient, width = ratio([1.0, 2.0, 3.0], [4.0, 4.0, 4.0])
    assert quotient == 0.5
    assert width == pytest.approx(2.4841 / 4.0, rel=1e-3)
    assert ratio([1.0], [2.0]) == (0.5, None)


def test_generated_sets_have_the_papers_sizes() -> None:
    assert load_points(g2_source(4), None).shape == (2048, 4)
    synth = load_points(synth_source(4, 2, 0), None)
    assert 10_000 <= len(synth) <= 10_100
    assert np.abs(synth).max() <= 1.0
    ablation = load_points(ablation_source(8, 2, 0.5), None)
    assert 1433 <= len(ablation) <= 2662
    assert load_points(SMALL, None).shape == (150, 4)


def test_fresh_sets_are_none_that_were_tuned_on() -> None:
    fresh = fresh_sources()
    assert len({source.name for source in fresh}) == len(fresh) == 16
    assert not {(s.k, s.d) for s in fresh} & {(s.k, s.d) for s in ablation_sources()}
    assert not {s.separation for s in fresh} & set(ABLATION_SEPARATIONS)
    for source in fresh[::5]:
        points = load_points(source, None)
        assert points.shape == (source.n, source.d)
        assert (points.min(axis=0) == -1.0).all()
        assert (points.max(axis=0) == 1.0).all()
        assert (points == load_points(source, None)).all()
    assert {source.uneven for source in fresh[::5]} == {True, False}


def test_a_missing_set_is_named() -> None:
    assert "no data set 'wine'" in find_missing(real_source("wine"), None)
    assert find_missing(synth_source(2, 2, 0), None) == ""
    assert len(REAL) == 10


def test_an_interrupted_benchmark_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastlloyd_papers.utility.measure.cores", lambda: 1)
    jobs = [(SMALL, cell) for cell in list_cells(SMALL, [LLOYD, FASTLLOYD], [0.5, 1.0], 1)]
    options = Options(output=tmp_path, progress=False)
    first, _ = measure_jobs("x", jobs[:2], options)
    seen: list[str] = []
    measure = Workbench.measure

    def noted(self, source, cell):
        seen.append(cell["method"])
        return measure(self, source, cell)

    monkeypatch.setattr(Workbench, "measure", noted)
    whole, done = measure_jobs("x", jobs, options)
    assert seen == ["fastlloyd"]
    assert whole.values[:2] == first.values
    done()
    assert list(tmp_path.iterdir()) == []


def test_several_processes_give_what_one_gives(tmp_path: Path) -> None:
    jobs = [(SMALL, cell) for cell in list_cells(SMALL, [FASTLLOYD, PLUS], [0.5, 1.0], 1)]
    results = []
    for processes in (1, 2):
        measured, done = measure_jobs("x", jobs, Options(output=tmp_path, jobs=processes, progress=False))
        results.append(measured.values)
        done()
    assert results[0] == results[1]


def test_jobs_of_one_set_and_method_stay_together() -> None:
    other = synth_source(2, 2, 0)
    jobs = [(s, cell) for s in (SMALL, other) for cell in list_cells(s, [LLOYD, FASTLLOYD, PLUS], [0.5, 1.0], 1)]
    batches = batches_of(jobs)
    assert [job for batch in batches for job in batch] == jobs
    assert [(batch[0][0].name, batch[0][1]["method"], len(batch)) for batch in batches] == [
        (s.name, method, size)
        for s in (SMALL, other)
        for method, size in (("lloyd", 1), ("fastlloyd", 2), (PLUS.name, 2))
    ]


def test_a_method_without_noise_does_not_depend_on_epsilon() -> None:
    assert [cell["epsilon"] for cell in list_cells(SMALL, [LLOYD, SULLOYD], (0.1, 1.0), 5)] == [None, 0.1, 1.0]
    assert dataclasses.replace(TINY, large_runs=1).runs_of(real_source("adult")) == 1


def test_the_interval_of_a_mean_ratio_is_that_of_the_sets_ratios() -> None:
    others = [SMALL, synth_source(2, 2, 0)]
    values = {"sulloyd": [4.0, 5.0, 6.0], "fastlloyd": [1.0, 2.0, 3.0]}
    cells = [c for s in others for c in list_cells(s, [SULLOYD, FASTLLOYD], EPSILONS, 3)]
    measured = Measured(cells, [{"nicv": [*values[cell["method"]]]} for cell in cells])
    one, width = ratio(values["fastlloyd"], values["sulloyd"])
    assert width is not None
    assert mean_ratio(others, FASTLLOYD, SULLOYD, measured) == pytest.approx((one, width / np.sqrt(2.0)))
    single = Measured(cells, [{"nicv": [1.0]} for _ in cells])
    assert mean_ratio(others, FASTLLOYD, SULLOYD, single) == (1.0, None)
    assert heat_map({(4, 2): "a", (2, 8): "b"}).splitlines()[2:] == ["| 2 |  | b |", "| 4 | a |  |"]
