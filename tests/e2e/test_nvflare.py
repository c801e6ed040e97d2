"""Runs as NVFlare jobs, in its own simulator; skipped where NVFlare is not installed."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.crypto.link.identity import make_identity, save_identity
from fastlloyd.crypto.link.roster import Roster, RosterEntry

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("nvflare") is None, reason="NVFlare is not installed"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]
EXAMPLE = Path(__file__).parents[2] / "examples/nvflare"
LIMIT_S = 300
SHARED = 'bounds = "0,8"\nn_total = 600\nk = 3\nepsilon = 20\n'


@dataclass
class Simulated:
    """What one simulator run left."""

    code: int
    said: str
    folder: Path

    def own(self, site: str) -> Path:
        """A site's folder."""
        return self.folder / site / "local/fastlloyd"

    def log(self, site: str) -> str:
        """What a site's party said to its owner."""
        return (self.own(site) / "run.log").read_text()

    def public(self) -> str:
        """All that NVFlare keeps of all sites, which it may send to its server."""
        files = [path for path in self.folder.rglob("*log*") if path.is_file() and "fastlloyd" not in path.parts]
        return self.said + "".join(path.read_text(errors="replace") for path in files)


class Simulator:
    """NVFlare's simulator over one folder; every site gets a copy of `local`."""

    def __init__(self, folder: Path, sites: int = 2) -> None:
        self.folder = folder
        self.names = [f"site-{rank}" for rank in range(1, sites + 1)]
        self.local = folder / "local/fastlloyd"
        self.local.mkdir(parents=True)
        shutil.copy(EXAMPLE / "resources.json", folder / "local")

    def records(self) -> None:
        """Give each site records around three places."""
        centers = np.array([[1.0, 1.0], [4.0, 7.0], [7.0, 2.0]])
        for rank, _ in enumerate(self.names, start=1):
            rng = np.random.default_rng(rank)
            rows = np.clip(centers.repeat(60, 0) + rng.normal(0, 0.3, (180, 2)), 0, 8)
            np.savetxt(self.local / f"data_{rank}.csv", rows, delimiter=",", header="a,b", comments="", fmt="%.4f")

    def keys(self) -> str:
        """Give each party a key, and all a roster; returns what a run file says of them."""
        roster = Roster(())
        for rank, name in enumerate(["operator", *self.names]):
            mine = make_identity(name, rank)
            save_identity(mine, self.local / f"{rank}.key", self.local / f"{rank}.pem")
            roster = roster.add(RosterEntry(name, "client" if rank else "server", rank, mine.certificate_pem))
        roster.save(self.local / "roster.toml")
        return 'roster = "roster.toml"\nkey = "{client}.key"\n'

    def start(self, text: str, job: Path = EXAMPLE / "job") -> subprocess.Popen[str]:
        """Start the simulator with one run file for all sites."""
        (self.local / "run.toml").write_text(text)
        words = [str(Path(sys.executable).with_name("nvflare")), "simulator", str(job), "-w", str(self.folder)]
        words += ["-c", ",".join(self.names), "-t", str(len(self.names))]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder)

    def end(self, process: subprocess.Popen[str]) -> Simulated:
        """Wait for its end."""
        try:
            said, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return Simulated(process.returncode, said, self.folder)

    def run(self, text: str, job: Path = EXAMPLE / "job") -> Simulated:
        """Run a job to its end."""
        return self.end(self.start(text, job))


def test_the_example_runs_as_it_is(tmp_path: Path) -> None:
    simulator = Simulator(tmp_path)
    done = simulator.run((EXAMPLE / "run.toml").read_text())
    assert done.code == 0, done.said
    for rank, site in enumerate(simulator.names, start=1):
        result = done.own(site) / "fastlloyd-run"
        report = json.loads((result / "report.json").read_text())
        assert report["parties"] == report["parties"] | {"clients": 2, "authenticated": False}
        assert (result / f"labels_{rank}.csv").stat().st_mode & 0o777 == 0o600
        assert "fastlloyd: exit code 0" in done.public()
    server = done.own("server") / "fastlloyd-run"
    assert {path.name for path in server.iterdir()} >= {"server.json"}
    assert not (server / "centroids.csv").exists()


def test_sites_with_keys_get_the_result_that_the_estimator_would(tmp_path: Path) -> None:
    """Records, roster and keys lie at each site; the centres are where the records are."""
    simulator = Simulator(tmp_path, sites=3)
    simulator.records()
    done = simulator.run(
        SHARED + simulator.keys() + 'data = "data_{client}.csv"\nstate_dir = "state"\nnew_state = true\n'
    )
    assert done.code == 0, done.said + done.log("server")
    found = [
        np.loadtxt(done.own(site) / "fastlloyd-run/centroids.csv", delimiter=",", skiprows=1)
        for site in simulator.names
    ]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    nearest = np.linalg.norm(found[0][:, None] - np.array([[1.0, 1.0], [4.0, 7.0], [7.0, 2.0]]), axis=2).min(0)
    assert nearest.max() < 1
    report = json.loads((done.own("site-2") / "fastlloyd-run/report.json").read_text())
    assert report["parties"]["authenticated"] is True
    assert list((done.own("site-2") / "state").rglob("ledger.jsonl"))
    assert not re.search(r"\b\d\.\d{4},\d\.\d{4}\b", done.public())


def test_an_approval_of_another_run_refuses_this_one(tmp_path: Path) -> None:
    simulator = Simulator(tmp_path)
    simulator.records()
    text = SHARED + simulator.keys() + 'data = "data_{client}.csv"\n'
    (simulator.local / "other.toml").write_text(text.replace("epsilon = 20", "epsilon = 2"))
    words = [sys.executable, "-m", "fastlloyd", "agree", "--config", "other.toml", "--roster", "roster.toml"]
    words += ["--key", "1.key", "--output", "run.approval.json", "--yes"]
    subprocess.run(words, cwd=simulator.local, check=True, capture_output=True, timeout=LIMIT_S)
    done = simulator.run(text)
    assert done.code != 0
    assert "this is not the run that client 1 (site-1) approved: epsilon" in done.log("site-1")
    assert "it is the approval of 'site-1' (client 1), and this is client 2" in done.log("site-2")
    assert not list(tmp_path.rglob("labels_*.csv"))


def test_what_is_wrong_with_records_stays_at_their_site(tmp_path: Path) -> None:
    simulator = Simulator(tmp_path)
    simulator.records()
    (simulator.local / "data_2.csv").write_text("a,b\n1,2\n3,secret\n")
    done = simulator.run(SHARED + 'data = "data_{client}.csv"\n')
    assert done.code != 0
    assert "data_2.csv, row 2" in done.log("site-2")
    assert "client 2 did not start: bad input" in done.log("site-1")
    assert "client 2 did not start: bad input" in done.log("server")
    assert "exit code 2: client 2 did not start: bad input" in done.public()
    assert "data_2.csv" not in done.public()


def kill_site_2_in_a_round(simulator: Simulator, text: str) -> Simulated:
    """Run, and kill a site's process after round 1."""
    import psutil  # NVFlare needs it

    process = simulator.start(text)
    log = simulator.folder / "server/local/fastlloyd/run.log"
    end = time.monotonic() + LIMIT_S
    while not (log.exists() and "round 1 " in log.read_text()):
        assert process.poll() is None and time.monotonic() < end, process.communicate()[0]
        time.sleep(0.2)
    workers = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "site-2" in child.cmdline() and any("simulator_worker" in word for word in child.cmdline())
    ]
    assert workers
    for worker in workers:
        worker.send_signal(signal.SIGKILL)
    return simulator.end(process)


def test_a_site_whose_process_is_killed_is_named(tmp_path: Path) -> None:
    simulator = Simulator(tmp_path, sites=3)
    simulator.records()
    text = SHARED + 'data = "data_{client}.csv"\ndelay = 1\nrounds = 20\nreconnect = 2\n'
    done = kill_site_2_in_a_round(simulator, text)
    assert done.code != 0
    assert "client 2 is gone" in done.log("server")
    assert "client 2 is gone" in done.log("site-1")
    assert "exit code 3: client 2 is gone" in done.public()


def test_a_run_goes_on_without_a_site_where_that_is_agreed(tmp_path: Path) -> None:
    simulator = Simulator(tmp_path, sites=3)
    simulator.records()
    text = SHARED + 'data = "data_{client}.csv"\ndelay = 0.5\nrounds = 8\nreconnect = 2\nmin_clients = 2\n'
    done = kill_site_2_in_a_round(simulator, text)
    for site in ("site-1", "site-3"):
        report = json.loads((done.own(site) / "fastlloyd-run/report.json").read_text())
        assert [1, 3] in [each["clients_included"] for each in report["rounds"]]
        assert "done" in done.log(site)
    assert done.public().count("fastlloyd: exit code 0") >= 3


def test_a_job_cannot_name_a_file(tmp_path: Path) -> None:
    simulator = Simulator(tmp_path / "simulator")
    job = tmp_path / "job"
    shutil.copytree(EXAMPLE / "job", job)
    path = job / "app/config/config_fed_client.json"
    path.write_text(path.read_text().replace('"run": "run"', '"run": "../run"'))
    (simulator.local.parent / "run.toml").write_text((EXAMPLE / "run.toml").read_text())
    done = simulator.run((EXAMPLE / "run.toml").read_text(), job)
    assert done.code != 0
    assert "exit code 2: client 1 did not start: wrong configuration" in done.public()
    assert not list(tmp_path.rglob("report.json"))
