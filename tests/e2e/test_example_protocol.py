"""The example of a protocol from another package: installed by itself, it does what every protocol must."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.data.public.named import load_named
from fastlloyd.run.config import RunConfig
from fastlloyd.run.simulation import run_together
from fastlloyd.testing import ProtocolContract
from tests.forked import ForkedSites, forked_command
from tests.mpi.support import start_quickly
from tests.parsed import code_lines, imported_packages
from tests.protocols.lossy import check_noise, check_result, play

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "kmedians"
OURS = ("fastlloyd.protocol", "fastlloyd.protocols", "fastlloyd.kmeans")


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the example's distribution for this process and those that it starts."""
    site = tmp_path_factory.mktemp("site")
    words = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(site), str(EXAMPLE)]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *words], check=True, timeout=120)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        start_quickly(patch, site)
        yield


class TestKMedians(ProtocolContract):
    sites = ForkedSites
    command = staticmethod(forked_command)

    @property
    def config(self) -> RunConfig:  # known once the example is installed
        return RunConfig(protocol="kmedians", dataset="iris", bounds="0,8", k=2, epsilon=20.0, rounds=6)


def test_its_settings_are_help_and_are_read() -> None:
    words = [sys.executable, "-m", "fastlloyd", "plan", "--protocol", "kmedians", "--dataset", "iris", "--k", "2"]
    done = subprocess.run([*words, "--set", "kmedians.stride=2"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--set kmedians.stride: expected" in done.stderr
    done = subprocess.run([*words, "--set", "kmedians.decay=0.5"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "kmedians: 150 records at most" in done.stdout


def test_it_comes_close_to_exact_medians() -> None:
    """On 273,280 records noise hardly matters: the cost is at most 5 % above that of exact medians from its end."""
    ended = run_together(RunConfig(protocol="kmedians", dataset="photo", k=4, epsilon=1.0, rounds=10), 2)
    result = next(outcome.result for outcome in ended.outcomes.values() if outcome.result is not None)
    half = (result.bounds.hi - result.bounds.lo) / 2.0
    points = (load_named("photo", None).values - result.bounds.lo) / half - 1.0

    def away(centers: np.ndarray) -> np.ndarray:
        return np.stack([np.abs(points - center).sum(axis=1) for center in centers])

    centers = np.asarray(result.evaluated)
    for _ in range(10):
        labels = away(centers).argmin(axis=0)
        centers = np.stack([np.median(points[labels == j], axis=0) for j in range(4)])
    assert away(np.asarray(result.evaluated)).min(axis=0).mean() <= 1.05 * away(centers).min(axis=0).mean()
    assert result.quality.verdict in ("good", "fair")


def test_with_all_clients_lost_that_may_be_the_medians_are_those_of_the_others_and_the_noise_is_the_planned_one() -> (
    None
):
    public = {"masking": "threshold", "data": "{client}.csv", "bounds": "-1,1", "n_total": 5000, "ring_bits": 64}
    lost = (5, 6)
    # From other public starts, such as that of seed 0, k-medians ends elsewhere, whoever is lost.
    few = RunConfig(protocol="kmedians", k=3, epsilon=4.0, rounds=10, seed=1, **public)
    check_result(play(few, 6, lost), near=0.05)
    wide = RunConfig(protocol="kmedians", k=150, epsilon=4.0, rounds=8, **public)
    check_noise(play(wide, 6, lost, d=8), count=6, lost=lost)


def test_an_author_writes_little() -> None:
    files = sorted(EXAMPLE.rglob("*.py"))
    assert len(files) <= 3 and sum(map(code_lines, files)) <= 110
    assert {name for path in files for name in imported_packages(path)} <= set(OURS)
