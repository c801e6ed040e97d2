"""A run that finds its bounds first is killed and goes on: the bounds are released once, and so is every round."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from fastlloyd.cli.run import main as run_command
from fastlloyd.errors import ConfigError
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import Release
from fastlloyd.report.document import load
from fastlloyd.run.state import StateDir
from fastlloyd.wire.header import PartyId
from tests.mpi.support import Job, done, hospitals

pytestmark = pytest.mark.mpi

ROUNDS = 8
FLAGS = ("--data", "hospital_{client}.csv", "--k", "2", "--n-total", "80", "--output", "res", "--state-dir", "state")
WORDS = (*FLAGS, "--protocol", "glloyd", "--rounds", str(ROUNDS), "--epsilon", "60", "--masking", "threshold")


def releases(folder: Path, rank: int) -> list[Release]:
    with StateDir(str(folder / "state"), PartyId(rank)).open_ledger() as ledger:
        return list(ledger.releases)


def test_a_run_that_is_killed_goes_on_with_the_bounds_that_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hospitals(tmp_path)
    words = [*WORDS, "--bounds", "private:0.2", "--delay", "0.1"]
    with Job(tmp_path, [*words, "--new-state"], supervised=True) as job:
        job.until(lambda: (tmp_path / "state" / "client-1" / "run" / "reply-2").exists())
        job.kill(2, signal.SIGKILL)
        killed = job.finish()
    assert killed.code == 3 and killed.err.count("run the same command with --resume") == 1
    found = (tmp_path / "res-bounds" / "bounds.csv").read_bytes()
    first = load(tmp_path / "res-bounds" / "report.json")
    facts = (tmp_path / "state" / "client-1" / "run" / "facts.json").read_bytes().partition(b"\n")[2]

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="res-bounds has bounds already: .* goes on with --resume"):
        run_command(["-n", "3", *words])  # whoever forgets --resume spends nothing
    (tmp_path / "res-bounds" / "report.json").write_text(json.dumps(first | {"run": "0" * 32}))
    with pytest.raises(ConfigError, match="--resume: expected in res-bounds the bounds that the interrupted run found"):
        run_command(["-n", "3", *words, "--resume"])
    (tmp_path / "res-bounds" / "report.json").write_text(json.dumps(first))
    done(tmp_path, [*words, "--resume"], supervised=True)

    assert (tmp_path / "res-bounds" / "bounds.csv").read_bytes() == found
    report = load(tmp_path / "res" / "report.json")
    assert report["run"] == json.loads(facts)["run_id"] != first["run"]
    for rank in range(3):
        made = releases(tmp_path, rank)
        bounds = [(first["run"], 0, "counts in bins")]
        rounds = [(report["run"], t, name) for t in range(ROUNDS) for name in ("counts", "sums")]
        assert Counter((one.run, one.round, one.name) for one in made) == Counter([*bounds, *rounds])
        assert 59.9 < spent(made, report["privacy"]["delta"]) <= 60.0
    with pytest.raises(ConfigError, match="expected a run that was interrupted, got the result res/report.json"):
        run_command(["-n", "3", *words, "--resume"])
