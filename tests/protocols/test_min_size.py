"""`--min-size` in whole runs: no file of a result has a cluster whose published size is below it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.data.bounds import parse_bounds
from fastlloyd.data.public.named import load_named
from fastlloyd.dossier.verify import verify
from fastlloyd.errors import ConfigError
from fastlloyd.protocols.registry import PROTOCOLS, find
from fastlloyd.report.labelling import label_records
from fastlloyd.report.page.render import available
from fastlloyd.run.config import RunConfig
from tests.contracts import whole_run
from tests.protocols.whole import make_rosters, run_whole

RUNS: dict[str, dict[str, Any]] = {name: {"protocol": name} for name in PROTOCOLS if find(name).sizes}
RUNS |= {
    "choose k": {"protocol": "fastlloyd-plus", "k": 4, "choose_k": True, "rounds": 3, "epsilon": 20.0},
    "vertical-dp, shared": {"protocol": "vertical-dp", "settings": {"vertical-dp": {"share_result": True}}},
}


@pytest.fixture(scope="module")
def roster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_rosters(tmp_path_factory.mktemp("keys"))


def run(
    name: str, roster: Path, folder: Path, min_size: int, bounds: str = "0,10"
) -> list[tuple[Path, dict[str, Any]]]:
    """Run all parties; return the folders with a result, and their reports."""
    chosen = {"k": 3, "bounds": bounds, **whole_run.SETTINGS.get(RUNS[name]["protocol"], {}), **RUNS[name]}
    parties = 1 + whole_run.CLIENTS.get(chosen["protocol"], 3)
    keys = {"roster": str(roster / f"{parties}.toml"), "key": str(roster / "{client}.key")}
    assert set(run_whole(folder, parties, **keys, **chosen, min_size=min_size)) == {0}
    found = [(path.parent, json.loads(path.read_text())) for path in sorted(folder.glob("*/report.json"))]
    assert found
    for place, report in found:
        assert "; not by" not in verify(place, roster / f"{parties}.toml")
        assert report["parameters"]["min_size"] == min_size
    return found


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text().splitlines()))[1:] if path.exists() else []


def labels(folder: Path) -> set[int]:
    return {int(row[-1]) for path in folder.glob("*/labels_*.csv") for row in rows(path)}


@pytest.mark.parametrize("name", RUNS)
def test_no_file_of_a_result_has_a_smaller_cluster(name: str, roster: Path, tmp_path: Path) -> None:
    """Iris has 150 records, so without noise at most one of three clusters has 76."""
    left_out, shown = set(), 0
    for folder, report in run(name, roster, tmp_path, 76):
        result, centroids = report["result"], rows(folder / "centroids.csv")
        sizes = result["noisy_sizes"]
        if name == "secfc":
            sizes = [int(size) for _, size in rows(folder / "sizes.csv")]
        assert len(sizes or []) == len(centroids) or name == "secfc"
        assert all(size >= 76 for size in sizes or [])
        ranges = report["quality"]["size_ranges"]
        assert ranges is None or len(ranges) == len(sizes)
        left_out.add(result["left_out"])
        shown = len(sizes or [])
        assert name == "choose k" or result["left_out"] + shown == report["parameters"]["k"]
        if available():
            page = (folder / "report.html").read_text()
            assert "publishes no cluster of a size below 76 records" in page
    assert len(left_out) == 1
    assert labels(tmp_path) <= set(range(shown))


@pytest.mark.parametrize("name", ["fastlloyd-plus", "choose k", "secfc", "vertical-he"])
def test_where_all_are_smaller_the_report_says_so_and_nothing_else(name: str, roster: Path, tmp_path: Path) -> None:
    for folder, report in run(name, roster, tmp_path, 10**6 if name == "choose k" else 150_000):
        assert not rows(folder / "centroids.csv") and not rows(folder / "sizes.csv")
        assert report["result"]["noisy_sizes"] is None and report["result"]["left_out"] >= 1
        assert "no cluster reaches" in report["quality"]["sentence"]
        assert not list(folder.glob("*.png")) and not list(folder.glob("elbow.csv"))
    assert not list(tmp_path.glob("*/labels_*.csv"))


def test_without_noise_what_stays_is_what_the_whole_result_has(roster: Path, tmp_path: Path) -> None:
    whole, some = tmp_path / "whole", tmp_path / "some"
    whole.mkdir()
    some.mkdir()
    (first, every), *_ = run("lloyd", roster, whole, 1, "auto-public")
    sizes = np.array(every["result"]["noisy_sizes"])
    least = int(np.sort(sizes)[1])
    (second, report), *_ = run("lloyd", roster, some, least, "auto-public")
    kept = np.flatnonzero(sizes >= least)
    assert len(kept) == 2 and every["result"]["left_out"] == 0 and report["result"]["left_out"] == 1
    assert rows(second / "centroids.csv") == [rows(first / "centroids.csv")[place] for place in kept]
    assert report["result"]["noisy_sizes"] == sizes[kept].tolist()
    numbers: dict[str, set[str]] = {}
    for path in sorted(whole.glob("*/labels_*.csv")):
        for before, after in zip(rows(path), rows(some / path.relative_to(whole)), strict=True):
            numbers.setdefault(before[-1], set()).add(after[-1])
    assert [numbers[str(place)] for place in kept] == [{"0"}, {"1"}] and len(numbers) == 3


@pytest.mark.parametrize("name", ["fastlloyd", "fastlloyd-plus", "choose k", "feddp"])
def test_labels_are_those_of_the_nearest_centre_that_stays(name: str, roster: Path, tmp_path: Path) -> None:
    (folder, report), *_ = run(name, roster, tmp_path, 30)
    assert report["result"]["noisy_sizes"]
    dataset = load_named("iris", None)
    bounds = parse_bounds(str(folder / "bounds.csv"))
    _, *rest = (folder / "centroids.csv").read_text().splitlines()
    centers = np.array([[float(cell) for cell in row.split(",")] for row in rest])
    found = label_records(dataset.values.copy(), centers, bounds, report["parameters"]["fraction_bits"])
    own = {int(row[0]): int(row[-1]) for path in tmp_path.glob("*/labels_*.csv") for row in rows(path)}
    assert own and [found[row - 1] for row in own] == list(own.values())


def test_a_result_without_sizes_cannot_be_held_to_a_threshold() -> None:
    with pytest.raises(ConfigError, match="--min-size 5: the result of kfed has no sizes of clusters"):
        RunConfig(protocol="kfed", min_size=5)
    with pytest.raises(ConfigError, match="--min-size 101: expected at most --n-total, 100"):
        RunConfig(n_total=100, min_size=101)
