"""A package for fastlloyd 0.1, with a module `face`: installed by itself, it runs wherever others do, and warns."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.data.public.named import load_named
from tests.mpi.support import mpirun, quick

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests" / "packages" / "histogram"
LIMIT_S = 120.0
# Noise of standard deviation 0.2: a count is off by 2 with a chance below 1e-11.
FLAGS = (
    *("--protocol", "histogram", "--dataset", "iris", "--columns", "sepal_length", "--bounds", "4,8"),
    *("--k", "4", "--epsilon", "80"),
)
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Install the example's distribution beside nothing; gives what runs Python with it."""
    site = tmp_path_factory.mktemp("site")
    words = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(site), str(EXAMPLE)]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *words], check=True, timeout=LIMIT_S)
    environment = {**os.environ, **quick(site)}

    def command(*words: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == code, done.stderr
        return done

    return command


def fastlloyd(command: Command, *words: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    return command(sys.executable, "-m", "fastlloyd", *words, cwd=cwd, code=code)


def check(folder: Path) -> None:
    """Compare a run's files with the reference on the pooled records."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        from fastlloyd_histogram.reference import histogram
    finally:
        sys.path.remove(str(EXAMPLE))
    dataset = load_named("iris", None)
    values = dataset.values[:, dataset.names.index("sepal_length")]
    report = json.loads((folder / "report.json").read_text())
    assert np.abs(np.array(report["result"]["noisy_sizes"]) - histogram(values, 4.0, 8.0, 4)).max() <= 2
    assert (folder / "centroids.csv").read_text().split() == ["sepal_length", "4.5", "5.5", "6.5", "7.5"]
    assert 79.9 <= report["privacy"]["spent_epsilon"] <= 80.0
    assert len((folder / "ledger.jsonl").read_text().splitlines()) == 1


def test_help_and_plan_know_it(installed: Command, tmp_path: Path) -> None:
    shown = fastlloyd(installed, "run", "--help", cwd=tmp_path).stdout
    assert "histogram       a private histogram of one column (example)" in shown
    planned = fastlloyd(installed, "plan", *FLAGS, cwd=tmp_path)
    assert "histogram: 150 records at most, 4 bins, 2 clients" in planned.stdout
    assert planned.stderr.count("the next version of fastlloyd no longer reads: derive a class") == 1
    wrong = fastlloyd(installed, "plan", "--protocol", "histogramm", cwd=tmp_path, code=2)
    assert "vertical-he, histogram, got 'histogramm'" in wrong.stderr
    many = fastlloyd(installed, "plan", "--protocol", "histogram", "--dataset", "iris", cwd=tmp_path, code=2)
    assert "histogram takes one column, got 4" in many.stderr


def test_without_the_package_the_name_is_unknown(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastlloyd", "plan", *FLAGS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "got 'histogram'" in done.stderr


@pytest.mark.mpi
def test_it_runs_under_mpirun_and_its_report_verifies(installed: Command, tmp_path: Path) -> None:
    launcher = str(mpirun().path)
    words = ["-n", "3", sys.executable, "-m", "fastlloyd.client", *FLAGS, "--output", "result"]
    installed(launcher, *words, cwd=tmp_path)
    check(tmp_path / "result")
    verified = fastlloyd(installed, "report", "result", "--verify", cwd=tmp_path).stdout
    assert "verified: ledger.jsonl holds the 1 release of report.json" in verified


def test_it_runs_between_sites(installed: Command, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{free.getsockname()[1]}"
    sites = [
        ("serve", "--listen", at, "--clients", "2"),
        *(("join", "--server", at, "--rank", str(rank), "--state-dir", "state", "--new-state") for rank in (1, 2)),
    ]
    for name in ("0", "1", "2"):
        (tmp_path / name).mkdir()
    with ThreadPoolExecutor(len(sites)) as pool:
        runs = [
            pool.submit(fastlloyd, installed, *words, *FLAGS, "--output", "result", cwd=tmp_path / str(rank))
            for rank, words in enumerate(sites)
        ]
        for run in runs:
            run.result()
    for rank in ("1", "2"):
        check(tmp_path / rank / "result")
        assert len((tmp_path / rank / "state" / f"client-{rank}" / "ledger.jsonl").read_text().splitlines()) == 1


def test_it_lives_in_one_thread(installed: Command, tmp_path: Path) -> None:
    program = """
from fastlloyd.run.config import RunConfig
from fastlloyd.run.simulation import run_together

config = RunConfig(protocol="histogram", dataset="iris", columns=("sepal_length",), bounds="4,8", k=4, epsilon=80.0)
outcomes = list(run_together(config, 3).outcomes.values())
assert outcomes[0].result is None
sizes = {outcome.result.noisy_sizes for outcome in outcomes[1:]}
assert len(sizes) == 1 and sum(len(outcome.raw_labels) for outcome in outcomes[1:]) == 150
"""
    installed(sys.executable, "-c", program, cwd=tmp_path)


def test_the_estimator_runs_it(installed: Command, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    program = """
import numpy as np
from fastlloyd import FastLloyd

X = np.repeat([[4.5], [5.5], [6.5], [7.5]], [40, 30, 20, 10], axis=0)
model = FastLloyd(4, protocol="histogram", epsilon=80.0, bounds=(4, 8), n_total=100).fit_federated([X[::2], X[1::2]])
assert model.cluster_centers_.tolist() == [[4.5], [5.5], [6.5], [7.5]]
assert np.abs(model.noisy_counts_ - [40, 30, 20, 10]).max() <= 2
assert 79.9 <= model.epsilon_ == model.epsilon_spent_ <= 80.0 and len(model.ledger_.releases) == 1
"""
    installed(sys.executable, "-c", program, cwd=tmp_path)


def test_its_dossier_says_what_its_package_does_not_tell(installed: Command, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'protocol = "histogram"\nbounds = "4,8"\nk = 4\nepsilon = 2.0\nn_total = 150\ncolumns = ["sepal_length"]\n'
    )
    written = fastlloyd(installed, "dossier", "--config", "run.toml", "--clients", "2", cwd=tmp_path).stdout
    assert written.count("comes from another package") == 1 and "epsilon 2" in written
    assert "the exact counts of every client" in written
    assert "the package that adds this protocol does not say them beforehand" in written
