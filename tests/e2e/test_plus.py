"""fastlloyd-plus over real links: a crash, its resume in memory, and a client that stops answering."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from fastlloyd.report.document import load
from tests.mpi.support import Job, content, hospitals
from tests.protocols.whole import done_flags

pytestmark = pytest.mark.mpi

PLUS = ("--protocol", "fastlloyd-plus", "--k", "2", "--bounds", "-1,1", "--output", "res")
FLAGS = ("--data", "hospital_{client}.csv", *PLUS)
ROUNDS = 10
# The accountant is imported first, which takes a while on a busy machine.
START_S = 60.0


def test_a_crashed_run_is_resumed_and_releases_each_round_once(tmp_path: Path) -> None:
    hospitals(tmp_path)
    flags = [*FLAGS, "--n-total", "80", "--state-dir", "state"]
    state = tmp_path / "state" / "client-1" / "run"
    with Job(tmp_path, [*flags, "--new-state", "--delay", "0.1"]) as job:
        job.until(lambda: (state / "reply-3").exists(), limit_s=START_S)
        job.kill(2, signal.SIGKILL)
        assert job.finish().code != 0
    kept = {path.name: content(path) for path in state.glob("reply-*")}
    run_id = json.loads(content(state / "facts.json"))["run_id"]
    done_flags(tmp_path, [*flags, "--resume"])
    written = load(tmp_path / "res" / "report.json")
    assert written["run"] == run_id
    assert [entry["round"] for entry in written["rounds"]] == list(range(ROUNDS))
    assert 0.99 <= written["privacy"]["spent_epsilon"] <= 1.0
    assert 4 <= len(kept) < ROUNDS
    later = range(1, ROUNDS)
    expected = Counter([("histogram", 0), *(("relative sums", t) for t in later), *(("counts", t) for t in later)])
    for party in ("client-1", "client-2", "server"):
        lines = (tmp_path / "state" / party / "ledger.jsonl").read_text().splitlines()
        assert Counter((entry["name"], entry["round"]) for entry in map(json.loads, lines)) == expected


def test_a_client_that_stops_answering_costs_its_own_rounds_only(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=3)
    flags = [*FLAGS, "--n-total", "120", "--delay", "0.05", "--deadline", "2", "--min-clients", "2"]
    flags += ["--rounds", "20"]
    with Job(tmp_path, flags, n=4) as job:
        job.until(lambda: job.rounds_done() >= 2, limit_s=START_S)
        job.kill(3, signal.SIGSTOP)
        stopped = job.rounds_done()
        job.until(lambda: job.rounds_done() >= stopped + 3)
        job.kill(3, signal.SIGCONT)
        ended = job.finish()
    assert (ended.code, ended.codes, ended.left) == (0, {0}, ()), ended
    included = [entry["clients_included"] for entry in load(tmp_path / "res" / "report.json")["rounds"]]
    assert included[0] == [1, 2, 3]
    assert included.count([1, 2]) >= 2
    assert all(entry in ([1, 2], [1, 2, 3]) for entry in included)
