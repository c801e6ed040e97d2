"""Vertical-he's rounds in clear, and what weighing gives; that the sums are those of the schemes: tests/protocols."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.reference import opened
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.vertical_he import weighing
from fastlloyd_papers.vertical_he.clear import draw, run_in_clear, soft_sums

CELL = {"name": "made", "k": 3, "widths": [2, 1], "epsilon": 1.0, "runs": 2}


def made(n: int = 600) -> np.ndarray:
    rng = np.random.default_rng(5)
    centers = np.array([[-0.6, -0.6, 0.5], [0.6, -0.4, -0.5], [0.0, 0.6, 0.0]])
    return np.clip(centers[np.arange(n) % 3] + rng.normal(0.0, 0.1, (n, 3)), -1.0, 1.0)


def made_plan(*, shrink: bool = True) -> Plan:
    return weighing.plan_of(CELL, 600, shrink=shrink)


def test_noise_has_the_plan_s_scales() -> None:
    plan, rng = made_plan(), np.random.default_rng(1)
    assert plan.stepping == (0, 1) and plan.noises == 2
    drawn = np.array([draw(plan, rng) for _ in range(2000)]).reshape(-1, plan.d + 1)
    scales = np.array([plan.count_scale, plan.step_scale, plan.step_scale, plan.sum_scale])
    # 6,000 values of each: the deviation's own is about 0.9 %.
    np.testing.assert_allclose(drawn.std(axis=0), np.sqrt(2.0) * scales, rtol=0.04)


@pytest.mark.parametrize("shrink", [True, False])
def test_sums_by_landmarks_are_those_of_the_reference(shrink: bool) -> None:
    cell = {**CELL, "widths": [3, 3]}
    plan, rng = weighing.plan_of(cell, 200, shrink=shrink), np.random.default_rng(2)
    assert plan.scheme == "landmarks" and bool(plan.stepping) == shrink
    points, centers = rng.uniform(-1, 1, (200, 6)), rng.uniform(-1, 1, (3, 6))
    np.testing.assert_allclose(soft_sums(plan, points, centers, 2), opened(points, centers, plan, 2), atol=1e-9)


@pytest.mark.parametrize("shrink", [True, False])
def test_a_run_without_noise_ends_near_the_clusters(shrink: bool) -> None:
    quiet = dataclasses.replace(made_plan(shrink=shrink), count_scale=0.0, sum_scale=0.0, step_scale=0.0, rounds=8)
    points = made()
    found = nearest(points, run_in_clear(quiet, points, np.random.default_rng(0)).centers)[1]
    assert found < 1.02 * 3 * 0.1**2


def test_the_bench_has_a_line_for_each_set_and_epsilon_and_says_what_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str, data_dir: str | None) -> np.ndarray:
        if name == "absent":
            raise ConfigError("no data set 'absent'")
        return made()

    monkeypatch.setattr(weighing, "load_points", load)
    splits = (("made", 3, (2, 1)), ("made", 3, (1, 1, 1)), ("absent", 2, (1, 1)))
    monkeypatch.setattr(weighing, "SPLITS", tuple(weighing.Split(*split) for split in splits))
    text = weighing.run(Options(quick=True, output=tmp_path, progress=False, jobs=1))
    assert "absent is left out: no data set 'absent'" in text and "(quick)" in text
    lines = list(csv.DictReader((tmp_path / "vertical-he-weighing.csv").read_text().splitlines()))
    assert [(line["columns"], line["scheme"], float(line["epsilon"])) for line in lines] == [
        (columns, scheme, epsilon)
        for columns, scheme in (("2 + 1", "linear"), ("1 + 1 + 1", "pairwise"))
        for epsilon in weighing.EPSILONS
    ]
    for line in lines:
        assert line["runs"] == "5" and line["weighed_rounds"] == "10"
        assert float(line["kmeans_nicv"]) < min(float(line["weighed_nicv"]), float(line["divided_nicv"]))
    assert float(lines[2]["weighed_nicv"]) < float(lines[0]["weighed_nicv"])  # epsilon 1, 0.1
    assert {path.name for path in tmp_path.iterdir()} == {"vertical-he-weighing.csv", "vertical-he-weighing.md"}
