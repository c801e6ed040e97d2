"""Whatever goes wrong ends in one exit code and one sentence, in time, with nothing left behind."""

from __future__ import annotations

import contextlib
import re
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.report.document import load
from tests.mpi.support import BUSY_S, GRACE_S, PROGRAMS, Ended, Job, done, hospitals, mpirun, run

pytestmark = pytest.mark.mpi
slow = pytest.mark.slow

DEADLINE_S = 2.0
PUBLIC = ("--protocol", "lloyd", "--k", "2", "--bounds", "-1,1", "--n-total", "80", "--output", "res", "--overwrite")
FLAGS = ("--data", "hospital_{client}.csv", *PUBLIC)
# About ten rounds a second, twenty seconds in all: time to interfere.
MISSING = ("--delay", "0.05", "--deadline", str(DEADLINE_S), "--min-clients", "2")
SLOW = (*FLAGS, "--rounds", "200", "--delay", "0.05", "--deadline", str(DEADLINE_S))
KEPT = r"interrupted-\w+-client-\d\.ledger\.jsonl|\.fastlloyd-\w+-\d(\.ledger\.jsonl(\.key)?)?"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Two hospitals, and the results of an earlier run, which a failing one must leave alone."""
    hospitals(tmp_path)
    (tmp_path / "res").mkdir()
    (tmp_path / "res" / "report.json").write_text("of an earlier run")
    yield tmp_path
    assert (tmp_path / "res" / "report.json").read_text() == "of an earlier run"


def check_ending(ended: Ended, folder: Path, code: int, *, lost: int | None = None, supervised: bool = False) -> None:
    """The same code everywhere, nothing running, nothing half-written; ledgers of what was paid for may stay.

    `fastlloyd run` reads what its ranks announce: only its own code is there to see. Open MPI wakes a stopped
    rank before it ends it, so that this one may speak as well.
    """
    codes = [rank.code for place, rank in enumerate(ended.ranks) if place != lost and not supervised]
    assert (ended.code, ended.left, set(codes) <= {code}) == (code, (), True), ended
    check_output(folder)


def check_output(folder: Path) -> None:
    for path in (folder / "res").iterdir():
        name = path.name
        # A killed process leaves its marker and its whole ledger, both hidden.
        assert name == "report.json" or re.fullmatch(KEPT, name), name
        if name.endswith(".jsonl"):
            assert path.read_text().endswith("\n")
            with _open_ledger(path) as ledger:
                assert ledger.chained or not ledger.releases


def _open_ledger(path: Path) -> Ledger:
    """Open it, once the process that had it is gone: one that dies holds its files a moment after it was last seen."""
    since = time.monotonic()
    while True:
        try:
            return Ledger(path)
        except ConfigError:
            if time.monotonic() - since > BUSY_S:
                raise
            time.sleep(0.05)


# --- before the run: configuration and records -----------------------------------------------------------


def test_a_wrong_configuration_is_told_once(folder: Path) -> None:
    ended = run(folder, [*FLAGS, "--frobnicate"])
    check_ending(ended, folder, 2)
    assert "unrecognized arguments: --frobnicate" in ended.ranks[0].err and ended.ranks[0].err.count("\n") == 1, ended
    assert ended.ranks[1].err == ended.ranks[2].err == ""
    assert "Traceback" not in ended.said


def test_what_is_wrong_with_records_is_told_to_their_owner_only(folder: Path) -> None:
    (folder / "hospital_2.csv").write_text("f1,f2\n0.1234,nan\n1,1\n")
    ended = run(folder, FLAGS)
    check_ending(ended, folder, 2)
    server, other, owner = ended.ranks
    assert "hospital_2.csv, row 1 (line 2), column 'f2'" in owner.err and owner.err.count("\n") == 1, ended
    assert server.err == (
        "fastlloyd: client 2 did not start: bad input (the details stand on its own standard error)\n"
    )
    assert (other.err, other.out, owner.out) == ("", "", "")
    for text in (server.out, ended.out, ended.err):
        assert "hospital_2" not in text and "f2" not in text


def test_a_database_that_does_not_answer_is_named_to_all_before_they_stop_waiting(folder: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / "own_2.db", isolation_level=None)) as writer:
        writer.executescript("CREATE TABLE people (f1, f2); BEGIN EXCLUSIVE")
        own = ["--data", "sqlite:///own_{client}.db", "--table", "people"]
        ended = run(folder, [*FLAGS, "--setup-deadline", "8"], only={2: own})
    check_ending(ended, folder, 3)
    server, other, owner = ended.ranks
    assert "does not answer, or broke off: database is locked" in owner.err
    assert "client 2 did not start: the database of its records does not answer" in server.err, ended
    assert other.err == "" or other.err == server.err, ended


def test_another_public_configuration_is_refused(folder: Path) -> None:
    ended = run(folder, FLAGS, only={2: ["--seed", "7"]})
    check_ending(ended, folder, 3)
    assert "client 2 runs with another public configuration: seed is 7 there and 0 here;" in ended.ranks[0].err


# --- silent, lost and lying parties ------------------------------------------------------------------------


def interfere(folder: Path, rank: int, number: int, **options: Any) -> tuple[Ended, float]:
    """Send a rank a signal in the middle of a run; give the end and the seconds it took."""
    with Job(folder, SLOW, fresh=True, **options) as job:
        job.until(lambda: job.rounds_done() >= 2)
        since = job.kill(rank, number)
        ended = job.finish()
        return ended, ended.seconds - (since - job.started)


@pytest.mark.parametrize(
    ("rank", "name", "supervised"),
    [
        pytest.param(2, "client 2", False, id="client-mpirun"),
        pytest.param(0, "the server", True, id="server-fastlloyd-run"),
        pytest.param(2, "client 2", True, id="client-fastlloyd-run", marks=slow),
        pytest.param(0, "the server", False, id="server-mpirun", marks=slow),
    ],
)
def test_a_stopped_party_is_named_within_the_deadline(folder: Path, rank: int, name: str, supervised: bool) -> None:
    ended, seconds = interfere(folder, rank, signal.SIGSTOP, supervised=supervised)
    check_ending(ended, folder, 3, lost=rank, supervised=supervised)
    assert seconds < DEADLINE_S + GRACE_S + BUSY_S
    assert re.search(rf"{name} sent no \w+ within \d", ended.said), ended


@pytest.mark.parametrize("rank", [pytest.param(0, marks=slow), 2])
def test_a_killed_party_ends_a_bare_mpirun(folder: Path, rank: int) -> None:
    ended, seconds = interfere(folder, rank, signal.SIGKILL)
    assert ended.code != 0 and not ended.left
    assert seconds < GRACE_S + BUSY_S
    check_output(folder)


@pytest.mark.parametrize(("rank", "name"), [(0, "the server"), (1, "client 1")])
def test_a_killed_party_is_named_by_fastlloyd_run(folder: Path, rank: int, name: str) -> None:
    # MPICH kills the other ranks within a millisecond of the first death: it is the first one that is named.
    ended, seconds = interfere(folder, rank, signal.SIGKILL, supervised=True)
    assert seconds < GRACE_S + BUSY_S
    check_ending(ended, folder, 3, supervised=True)
    assert f"rank {rank} ({name}) died: killed by signal 9" in ended.err
    assert "Traceback" not in ended.err and "====" not in ended.err


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=slow)])
def test_a_launcher_told_to_stop_ends_all(folder: Path, number: int) -> None:
    with Job(folder, SLOW, fresh=True) as job:
        job.until(lambda: job.rounds_done() >= 2)
        since = time.monotonic()
        job.process.send_signal(number)
        ended = job.finish()
    assert ended.code != 0 and not ended.left
    assert ended.seconds - (since - job.started) < GRACE_S + BUSY_S
    check_output(folder)
    if mpirun().vendor == "mpich":
        # Open MPI's mpirun may kill the ranks before they can speak.
        assert (ended.code, ended.codes) == (3, {3})
        assert "told to stop by" in ended.ranks[0].err


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("corrupt", "a record from client 2 was refused"),
        # Over TCP: tests/adversary/test_real.py.
        pytest.param("nonsense", "client 2 sent a frame that does not belong here: kind 255", marks=slow),
        pytest.param("short", "client 2 sent a malformed MaskedUpdate: expected 24 payload bytes", marks=slow),
        ("later", "client 2 sent message type 32 of round 1, expected MaskedUpdate of round 0"),
    ],
)
def test_a_lying_client_is_named(folder: Path, how: str, sentence: str) -> None:
    ended = run(folder, [*FLAGS, "--deadline", str(DEADLINE_S)], program=[str(PROGRAMS / "faulty.py"), how])
    check_ending(ended, folder, 3)
    assert sentence in ended.ranks[0].err, ended
    assert ended.ranks[1].err == ""


# --- slow parties that cost no run ---------------------------------------------------------------------------


def test_a_client_that_comes_back_costs_its_own_rounds_only(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=3)
    flags = [*FLAGS, *MISSING, "--n-total", "120", "--rounds", "24"]
    with Job(tmp_path, flags, n=4) as job:
        job.until(lambda: job.rounds_done() >= 2)
        job.kill(3, signal.SIGSTOP)
        stopped = job.rounds_done()
        job.until(lambda: job.rounds_done() >= stopped + 4)
        job.kill(3, signal.SIGCONT)
        ended = job.finish()
    assert (ended.code, ended.codes, ended.left) == (0, {0}, ()), ended
    included = [entry["clients_included"] for entry in load(tmp_path / "res" / "report.json")["rounds"]]
    assert included[0] == included[-1] == [1, 2, 3]
    assert 2 <= included.count([1, 2]) <= 12
    assert all(entry in ([1, 2], [1, 2, 3]) for entry in included)


def test_a_client_that_never_comes_back_costs_nobody_the_result(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    # The evaluation takes client 1 seconds after the last message: the server must not end the job meanwhile.
    flags = ["--dataset", "iris", "--protocol", "lloyd", "--evaluate", "--output", "res"]
    with Job(tmp_path, [*flags, *MISSING, "--rounds", "8"], n=4) as job:
        job.until(lambda: job.rounds_done() >= 2)
        job.kill(3, signal.SIGSTOP)
        ended = job.finish()
    assert (ended.code, [rank.code for rank in ended.ranks[:3]], ended.left) == (0, [0, 0, 0], ()), ended
    written = load(tmp_path / "res" / "report.json")
    assert written["rounds"][-1]["clients_included"] == [1, 2]
    assert (tmp_path / "res" / "labels_2.csv").exists() and not (tmp_path / "res" / "labels_3.csv").exists()


def test_all_wait_for_whoever_writes_longest(tmp_path: Path) -> None:
    hospitals(tmp_path)
    done(tmp_path, FLAGS, program=[str(PROGRAMS / "slow_writer.py")])
    assert load(tmp_path / "res" / "report.json")["not_private"]


def test_a_result_that_cannot_be_written_ends_the_run_for_all(tmp_path: Path) -> None:
    hospitals(tmp_path)
    (tmp_path / "res" / "centroids.csv").mkdir(parents=True)
    ended = run(tmp_path, FLAGS)
    assert (ended.code, ended.codes, ended.left) == (2, {2}, ()), ended
    assert "client 1 could not write its result files" in ended.ranks[0].err
    assert "res/centroids.csv cannot be written" in ended.ranks[1].err
    assert ended.ranks[2].err == ""
    assert not [path for path in (tmp_path / "res").iterdir() if path.name.startswith(".")]
