"""From the command line to the files of a run, as a person would do it."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.data.bounds import scale
from fastlloyd.report.document import load, schema
from fastlloyd.run.config import RunConfig
from fastlloyd.run.run_file import load_config
from fastlloyd.run.session import find_protocol
from tests.mpi.support import ROOT, Ended, done, read_matrix, report

pytestmark = pytest.mark.mpi

FILES = {
    "bounds.csv",
    "centroids.csv",
    "report.json",
    "server.json",
    "config.toml",
    "ledger.jsonl",
    "labels_1.csv",
    "labels_2.csv",
}


@dataclass(frozen=True)
class Run:
    """A finished run and its folder."""

    ended: Ended
    folder: Path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`mpirun -n 3 python -m fastlloyd.client`, no flag at all, with its plots and its page."""
    folder = tmp_path_factory.mktemp("plain")
    return Run(done(folder, [], env={"PYTHONPATH": str(ROOT)}), folder / "fastlloyd-run")


def test_a_run_without_flags_leaves_the_files_of_a_run(plain: Run) -> None:
    names = {path.name for path in plain.folder.iterdir()}
    assert names >= FILES | {"palette.png", "clusters.csv", "centroids.png", "report.html"}
    assert not [name for name in names if name.startswith(".")]
    assert names == set(report(plain.folder)["output"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in plain.folder.iterdir()}
    # Released values are between the clients: other users of a host see the configuration only.
    assert {name for name, mode in modes.items() if mode != 0o600} == {"server.json", "config.toml"}
    for path in plain.folder.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert plain.ended.said == "", "a good run complains about nothing"


def test_rank_0_prints_one_line_a_round_and_client_1_the_table(plain: Run) -> None:
    written = report(plain.folder)
    events = [event for event in plain.ended.ranks[0].events if event["event"] == "round"]
    assert [event["round"] for event in events] == list(range(written["parameters"]["rounds"]))
    assert sum(event["bytes"] for event in events) == written["traffic"]["payload_bytes"]
    # Round 0 asks for a histogram, the others for sums and counts: of twice as many clusters at first.
    sizes = [event["bytes"] for event in events]
    assert sizes[0] > sizes[1] == 2 * sizes[-1] and set(sizes[1:]) == {sizes[1], sizes[-1]}
    assert "noisy size" in plain.ended.ranks[1].out
    assert plain.ended.ranks[2].out == ""


def test_reports_follow_the_shipped_schema(plain: Run) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for name, definition in (("report.json", "report"), ("server.json", "server")):
        document = load(plain.folder / name, definition)
        rules = {**schema(), "$ref": f"#/$defs/{definition}"}
        jsonschema.Draft202012Validator(rules).validate(document)
    written = report(plain.folder)
    assert written["privacy"]["epsilon"] == 1.0
    assert 0.99 < written["privacy"]["spent_epsilon"] <= 1.0
    assert len(written["rounds"]) == written["parameters"]["rounds"] > 0
    assert written["timing"]["seconds_per_round"] > 0
    assert set(written["machine"]["packages"]) >= {"numpy", "mpi4py", "cryptography"}


def test_the_server_writes_nothing_that_it_may_not_see(plain: Run) -> None:
    text = (plain.folder / "server.json").read_text()
    document = json.loads(text)
    assert not {"evaluation", "result", "clusters"} & set(document)
    # Whole rows and all sizes: a single number of six digits is met by chance once in some 10^4 runs.
    for row in read_matrix(plain.folder / "centroids.csv"):
        assert not all(f"{value:.6g}" in text for value in row)
        assert not any(repr(float(value)) in text for value in row if len(repr(float(value))) > 12)
    assert not all(repr(size) in text for size in report(plain.folder)["result"]["noisy_sizes"])
    assert document["run"] == report(plain.folder)["run"]


def test_labels_are_the_nearest_released_centroids(plain: Run) -> None:
    common = find_protocol("fastlloyd").gather(RunConfig(), 2)[1]
    assert common.dataset is not None and common.splits is not None
    points = scale(common.dataset.values.copy(), common.bounds)
    centers = scale(read_matrix(plain.folder / "centroids.csv"), common.bounds)
    grid = 2.0 ** -report(plain.folder)["parameters"]["fraction_bits"]
    for client, rows in enumerate(common.splits, start=1):
        labels = read_matrix(plain.folder / f"labels_{client}.csv")[:, 1].astype(int)
        distances = ((points[rows][:, None, :] - centers[None, :, :]) ** 2).sum(axis=2)
        slack = 8 * grid * points.shape[1]
        assert len(labels) == len(rows)
        assert (distances[np.arange(len(rows)), labels] <= distances.min(axis=1) + slack).all()
        nearest, next_one = np.sort(distances, axis=1)[:, :2].T
        clear = next_one - nearest > slack  # 92 to 98 % with any noise, as fine as the grid is
        assert clear.mean() > 0.8 and (labels == distances.argmin(axis=1))[clear].all()


def fastlloyd(*words: object, cwd: Path = ROOT, code: int = 0) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [sys.executable, "-m", "fastlloyd", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ended.returncode == code, ended
    return ended


def test_report_verifies_a_run_from_its_ledger(plain: Run) -> None:
    fastlloyd("report", plain.folder, "--verify")
    shown = fastlloyd("report", plain.folder).stdout
    assert "noisy size" in shown


def test_a_changed_ledger_is_not_verified(plain: Run, tmp_path: Path) -> None:
    for name in ("report.json", "centroids.csv"):
        (tmp_path / name).write_bytes((plain.folder / name).read_bytes())
    lines = (plain.folder / "ledger.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "ledger.jsonl").write_text("".join(lines[:-1]))
    assert "ledger" in fastlloyd("report", tmp_path, "--verify", code=2).stderr


# --- own files in their own units, from a run file, supervised ---------------------------------------------


@pytest.fixture(scope="module")
def supervised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """`fastlloyd run` on two hospitals' own files, everything in a run file."""
    folder = tmp_path_factory.mktemp("supervised")
    write_hospitals(folder)
    yield Run(done(folder, ["--config", "run.toml"], supervised=True), folder)


def write_hospitals(folder: Path) -> None:
    """Patients of two kinds: young with low, old with high pressure."""
    rng = np.random.default_rng(1)
    for client in (1, 2):
        kind = np.arange(60) % 2
        age = np.where(kind, 30, 70) + rng.uniform(-5, 5, 60)
        pressure = np.where(kind, 110, 160) + rng.uniform(-9, 9, 60)
        rows = "".join(f"{a:.2f},{p:.2f}\n" for a, p in zip(age, pressure, strict=True))
        (folder / f"hospital_{client}.csv").write_text("age,pressure\n" + rows)
    (folder / "bounds.csv").write_text("feature,lo,hi\nage,0,120\npressure,60,220\n")
    (folder / "run.toml").write_text(
        'protocol = "lloyd"\ndata = "hospital_{client}.csv"\nbounds = "bounds.csv"\nk = 2\nn_total = 200\n'
        'rounds = 5\nseed = 3\noutput = "results"\n'
    )


def centroids(folder: Path) -> NDArray[np.float64]:
    values = read_matrix(folder / "centroids.csv")
    return values[values[:, 0].argsort()]


def test_centroids_stand_in_original_units(supervised: Run) -> None:
    results = supervised.folder / "results"
    assert (results / "centroids.csv").read_text().splitlines()[0] == "age,pressure"
    everybody = np.vstack([read_matrix(supervised.folder / f"hospital_{client}.csv") for client in (1, 2)])
    young = everybody[:, 0] < 50
    means = np.stack([everybody[young].mean(axis=0), everybody[~young].mean(axis=0)])
    # Without noise only the grid is between the two: 60 and 80 units to 2^15 steps at least.
    assert np.abs(centroids(results) - means).max() < 80 * 2.0**-12


def test_fastlloyd_run_shows_progress_and_the_table(supervised: Run) -> None:
    assert re.findall(r"^round (\d) of 5: 2 clients", supervised.ended.out, re.MULTILINE) == list("12345")
    assert "noisy size" in supervised.ended.out and "NOT PRIVATE" in supervised.ended.out
    assert "@fastlloyd" not in supervised.ended.out and supervised.ended.err == ""


def test_the_written_run_file_runs_again_and_gives_the_same(supervised: Run, tmp_path: Path) -> None:
    written = supervised.folder / "results" / "config.toml"
    assert load_config(written) == load_config(supervised.folder / "run.toml")
    write_hospitals(tmp_path)
    (tmp_path / "results").mkdir()  # paths in a run file begin at its folder
    (tmp_path / "results" / "run.toml").write_bytes(written.read_bytes())
    ended = done(tmp_path, ["--config", "results/run.toml", "--output", "again", "--quiet"], supervised=True)
    # Without noise the same run file gives the same result, to the last bit.
    for name in ("centroids.csv", "labels_1.csv", "labels_2.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (supervised.folder / "results" / name).read_bytes()
    assert (ended.out, ended.err) == ("", ""), "--quiet"


def test_new_records_are_labelled_with_released_centroids(supervised: Run) -> None:
    folder = supervised.folder
    (folder / "new.csv").write_text("age,pressure\n31,112\n68,150\n28,104\n")
    released = ("--centroids", "results/centroids.csv")
    fastlloyd("label", *released, "--data", "new.csv", "--out", "new_labels.csv", cwd=folder)
    young = int(read_matrix(folder / "results" / "centroids.csv")[:, 0].argmin())
    assert read_matrix(folder / "new_labels.csv")[:, 1].tolist() == [young, 1 - young, young]
