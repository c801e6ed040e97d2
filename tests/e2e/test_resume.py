"""A crash in the middle, and the run that goes on: no release twice, no mask over two vectors, no fresh noise."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.__main__ import main
from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum
from fastlloyd.report.document import load
from fastlloyd.report.unit import format_epsilon
from fastlloyd.run.history import NAME as HISTORY
from tests.mpi.support import PROGRAMS, Ended, Job, content, done, hospitals, once
from tests.protocols import whole

pytestmark = pytest.mark.mpi

ROUNDS = 8
FLAGS = ("--data", "hospital_{client}.csv", "--k", "2", "--bounds", "-1,1", "--n-total", "80", "--output", "res")
STATE = (*FLAGS, "--protocol", "glloyd", "--rounds", str(ROUNDS), "--state-dir", "state")


def files(folder: Path) -> dict[str, bytes]:
    """Everything below a folder but the history, which has refused runs as well."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != HISTORY]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def stored(folder: Path, party: str, kind: str) -> dict[int, bytes]:
    """A party's stored uplinks or replies by round."""
    found = (folder / "state" / party / "run").glob(f"{kind}-*")
    return {int(path.name.rpartition("-")[2]): content(path) for path in found}


def run_id(folder: Path) -> str:
    """The interrupted run's id."""
    facts: dict[str, str] = json.loads(content(folder / "state" / "client-1" / "run" / "facts.json"))
    return facts["run_id"]


def rewind(folder: Path, party: str, replies: int, *, rounds: bool = True, ledger: bool = True) -> None:
    """Restore what a client had when it had sent its update after so many replies: its rounds, its ledger, or both."""
    home = folder / "state" / party
    if rounds:
        for path in (home / "run").glob("*-*"):
            kind, _, t = path.name.partition("-")
            if int(t) >= replies + (kind == "uplink"):
                path.unlink()
    if ledger:
        found = (home / "ledger.jsonl").read_bytes().splitlines()
        kept = [line for line in found if json.loads(line)["round"] <= replies]
        link = hashlib.sha256(b"fastlloyd ledger 2").digest()
        for line in kept:
            link = hashlib.sha256(link + line).digest()
        (home / "ledger.jsonl").write_bytes(b"".join(line + b"\n" for line in kept))
        head = {"state": 2, "ledger": {"entries": len(kept), "link": link.hex()}}
        (home / "ledger.jsonl.head").write_text(json.dumps(head))


def ledger(folder: Path, party: str) -> list[tuple[str, int, str]]:
    """Run, round and name of a party's releases, line by line."""
    lines = (folder / "state" / party / "ledger.jsonl").read_text().splitlines()
    return [(entry["run"], entry["round"], entry["name"]) for entry in map(json.loads, lines)]


def interrupted(folder: Path, rank: int, flags: Sequence[str] = STATE, **options: Any) -> Ended:
    """Kill a rank once a client has accepted three replies."""
    with Job(folder, [*flags, "--delay", "0.1", "--new-state"], **options) as job:
        job.until(lambda: (folder / "state" / "client-1" / "run" / "reply-2").exists(), limit_s=60.0)
        job.kill(rank, signal.SIGKILL)
        ended = job.finish()
    assert ended.code != 0 and not ended.left, ended
    return ended


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose client 2 was killed."""

    def make(folder: Path) -> None:
        hospitals(folder)
        ended = interrupted(folder, 2, supervised=True)
        assert ended.err.count("what was done is kept in state: ") == 1 and "--resume" in ended.err
        shutil.rmtree(folder / "res")

    return once(tmp_path_factory, "crash", make)[0]


@pytest.fixture
def crashed(crash: Path, tmp_path: Path) -> Path:
    """A copy of it: each test resumes the same crash."""
    folder = tmp_path / "crashed"
    shutil.copytree(crash, folder, ignore=shutil.ignore_patterns("out.*", "err.*"))
    return folder


def check_whole(folder: Path, run_id: str) -> None:
    """All rounds are done, each released once, and what was kept for a resume is gone."""
    written = load(folder / "res" / "report.json")
    assert written["run"] == run_id
    assert [entry["round"] for entry in written["rounds"]] == list(range(ROUNDS))
    assert written["privacy"]["spent_epsilon"] <= 1.0
    # Of rounds that were closed before nobody knows what they cost; where their centres went, everybody does.
    costs = [(entry["seconds"], entry["sent_bytes"], entry["received_bytes"]) for entry in written["rounds"]]
    earlier = costs.count((None, None, None))
    assert 2 <= earlier < ROUNDS and all(None not in cost for cost in costs[earlier:])
    assert None not in written["result"]["movement"]
    expected = Counter((run_id, t, name) for t in range(ROUNDS) for name in ("counts", "sums"))
    for party in ("client-1", "client-2", "server"):
        assert Counter(ledger(folder, party)) == expected
        assert not (folder / "state" / party / "run").exists()


def test_a_resumed_run_sends_the_stored_bytes_again(crashed: Path) -> None:
    run = run_id(crashed)
    # As if client 1 had crashed too, before it could keep the last reply.
    replies = stored(crashed, "server", "reply")
    last = max(replies)
    rewind(crashed, "client-1", last)
    uplinks = {rank: stored(crashed, f"client-{rank}", "uplink") for rank in (1, 2)}
    assert max(uplinks[2]) >= max(uplinks[1]) == last >= 2

    done(crashed, [*STATE, "--resume"], program=[str(PROGRAMS / "recording.py")])

    check_whole(crashed, run)
    sent = {rank: messages(crashed, rank) for rank in range(3)}
    first_open = max(replies) + 1
    for rank, own in uplinks.items():
        bodies = {m["round"]: bytes.fromhex(m["body"]) for m in sent[rank] if m["type"] == MaskedUpdate.TYPE}
        assert sorted(bodies) == list(range(first_open, ROUNDS))
        again = own.keys() & bodies.keys()
        assert all(bodies[t] == own[t] for t in again)
    again = [m for m in sent[0] if m["type"] == NoisyMaskedSum.TYPE and m["round"] < first_open]
    assert (1, last) in {(m["peer"], m["round"]) for m in again}
    assert all(bytes.fromhex(m["body"]) == replies[m["round"]] for m in again)


def messages(folder: Path, rank: int) -> list[dict[str, Any]]:
    """What a recording rank sent inside its links."""
    lines = map(json.loads, (folder / f"sent.{rank}").read_text().splitlines())
    return [line for line in lines if line["what"] == "message"]


def test_a_run_is_resumed_after_two_crashes(crashed: Path) -> None:
    run = run_id(crashed)
    before = stored(crashed, "server", "reply")
    with Job(crashed, [*STATE, "--delay", "0.1", "--resume"], supervised=True) as job:
        job.until(lambda: (crashed / "state" / "client-2" / "run" / "reply-5").exists(), limit_s=60.0)
        job.kill(0, signal.SIGKILL)
        ended = job.finish()
    assert ended.code == 3 and "rank 0 (the server) died" in ended.err
    after = stored(crashed, "server", "reply")
    assert before.items() <= after.items() and len(after) > len(before)
    done(crashed, [*STATE, "--resume"], supervised=True)
    check_whole(crashed, run)


def kept(folder: Path) -> dict[str, bytes]:
    """The state of all parties, but how long a ledger was when it was last opened."""
    return {name: data for name, data in files(folder / "state").items() if not name.endswith(".head")}


def refused(folder: Path, flags: Sequence[str], code: int, only: dict[int, list[str]] | None = None) -> whole.Ended:
    """A resume that must not begin leaves the stored run as it is."""
    before = kept(folder)
    ended = whole.run_flags(folder, flags, only=only)
    assert ended.codes == {code}, ended
    assert kept(folder) == before
    assert not (folder / "res").exists() or not files(folder / "res")
    return ended


def test_other_records_are_refused_by_their_owner(crashed: Path) -> None:
    path = crashed / "hospital_1.csv"
    original = path.read_text()
    path.write_text(original.replace("\n", "\n0.5,0.5\n", 1).rpartition("\n")[0].rpartition("\n")[0] + "\n")
    ended = refused(crashed, [*STATE, "--resume"], 2)
    assert "these are not the records that the interrupted run started with" in ended.own(1)[0]
    told = "fastlloyd: client 1 did not start: bad input (the details stand on its own standard error)"
    assert ended.own(0)[0] == told
    assert ended.own(2) == []
    path.write_text(original)
    whole.done_flags(crashed, [*STATE, "--resume"])


@pytest.mark.parametrize("only", [None, {2: ["--epsilon", "2"]}], ids=["all", "one"])
def test_another_epsilon_is_refused(crashed: Path, only: dict[int, list[str]] | None) -> None:
    flags = [*STATE, "--resume", *(["--epsilon", "2"] if only is None else [])]
    ended = refused(crashed, flags, 3, only=only)
    if only is None:
        assert "plan that was refused: the plan has epsilon = 1.0, expected 2.0" in ended.own(1)[0]
    else:
        assert "client 2 runs with another public configuration: epsilon is 2 there and 1 here;" in ended.said


def test_a_party_that_starts_anew_is_refused(crashed: Path) -> None:
    ended = refused(crashed, STATE, 3, only={0: ["--resume"], 1: ["--resume"]})
    assert "client 2 runs with another public configuration: resume is false there and true here;" in ended.said


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"ledger": False}, "the ledger holds round 3, but the folder run/ explains no round after 2"),
        ({"rounds": False}, "got another one of 4: it was cut, changed or restored from an old copy"),
    ],
    ids=["run folder", "ledger"],
)
def test_half_a_state_that_was_restored_is_refused(crashed: Path, what: dict[str, bool], said: str) -> None:
    rewind(crashed, "client-1", 1, **what)
    ended = refused(crashed, [*STATE, "--resume"], 2)
    assert said in ended.own(1)[0]


def test_a_whole_state_that_was_restored_is_noticed_by_the_server(crashed: Path) -> None:
    rewind(crashed, "client-1", 1)
    ended = refused(crashed, [*STATE, "--resume"], 3)
    assert "client 1 was part of round 2, but has stored the replies of 1 round only" in ended.own(0)[0]


def test_a_server_that_was_restored_is_noticed(crashed: Path) -> None:
    rewind(crashed, "server", 1)
    ended = refused(crashed, [*STATE, "--resume"], 3)
    assert "says that it has finished 3 rounds, the server has closed 1" in ended.said


def test_a_party_without_its_state_is_refused(crashed: Path) -> None:
    shutil.rmtree(crashed / "state" / "client-2")
    ended = whole.run_flags(crashed, [*STATE, "--resume"])
    assert ended.codes == {2}
    assert "client 2 cannot resume: its stored state does not fit this run" in ended.own(0)[0]
    assert "state/client-2 holds no interrupted run" in ended.own(2)[0]
    assert ended.own(1) == []


def test_resume_needs_a_state_directory(tmp_path: Path) -> None:
    hospitals(tmp_path)
    ended = whole.run_flags(tmp_path, [*FLAGS, "--resume"])
    assert ended.codes == {2}
    assert "--resume needs the --state-dir" in ended.own(0)[0]


def test_a_refused_run_does_not_forget_the_interrupted_one(crashed: Path) -> None:
    ended = refused(crashed, [*STATE, "--budget", "0.1"], 4)
    assert "its privacy budget would be exceeded" in ended.own(0)[0]


def test_a_result_that_could_not_be_written_is_there_after_a_resume(tmp_path: Path) -> None:
    hospitals(tmp_path)
    flags = [*FLAGS, "--protocol", "lloyd", "--state-dir", "state"]
    blocked = tmp_path / "res" / "centroids.csv"
    blocked.mkdir(parents=True)
    assert whole.run_flags(tmp_path, [*flags, "--new-state"]).codes == {2}
    interrupted = run_id(tmp_path)
    before = ledger(tmp_path, "client-1")
    blocked.rmdir()
    # All rounds are stored: nothing is sent or released any more.
    done(tmp_path, [*flags, "--resume"], program=[str(PROGRAMS / "recording.py")])
    assert load(tmp_path / "res" / "report.json")["run"] == interrupted
    assert blocked.is_file() and ledger(tmp_path, "client-1") == before
    assert not [m for rank in (1, 2) for m in messages(tmp_path, rank) if m["type"] == MaskedUpdate.TYPE]
    assert not (tmp_path / "state" / "client-1" / "run").exists()


def test_the_report_shows_the_budget_of_the_state_whether_or_not_the_flag_is_given_again(tmp_path: Path) -> None:
    hospitals(tmp_path)
    assert main(["init-state", str(tmp_path / "state"), "-n", "3", "--budget", "9", "--budget-delta", "1e-6"]) == 0
    for _ in range(2):
        whole.done_flags(tmp_path, [*STATE, "--overwrite"])
        shown = load(tmp_path / "res" / "report.json")["privacy"]
        assert (shown["budget"], shown["lifetime_delta"]) == (9.0, 1e-6)
        assert "<dt>Budget</dt><dd>9 at delta 1e-06</dd>" in (tmp_path / "res" / "report.html").read_text()


def test_a_budget_holds_over_runs(tmp_path: Path) -> None:
    hospitals(tmp_path)
    again = [*STATE, "--overwrite", "--budget", "1.2"]
    whole.done_flags(tmp_path, [*again, "--new-state"])
    first = load(tmp_path / "res" / "report.json")["privacy"]
    assert first["lifetime_epsilon"] <= first["budget"] == 1.2
    before = files(tmp_path / "state") | files(tmp_path / "res")

    ended = whole.run_flags(tmp_path, again)
    assert ended.codes == {4}, ended
    assert "its privacy budget would be exceeded" in ended.own(0)[0]
    # How much was spent is between a client and its own terminal.
    spent = f"{first['lifetime_epsilon']:g} was spent"
    for rank in (1, 2):
        assert spent in ended.own(rank)[0] and "the limit is 1.2" in ended.own(rank)[0]
    assert spent not in "".join(ended.own(0))
    assert files(tmp_path / "state") | files(tmp_path / "res") == before

    raised = [*STATE, "--overwrite", "--budget", "1.8"]
    ended = whole.run_flags(tmp_path, raised)
    assert ended.codes == {2}, ended
    assert "--budget 1.8: expected the limit that state/client-1/budget.json holds, 1.2 at delta" in ended.own(1)[0]
    for rank in (1, 2):
        (tmp_path / "state" / f"client-{rank}" / "budget.json").unlink()
    ended = done(tmp_path, raised)
    said = (
        f"state: 1 run before has spent epsilon {format_epsilon(first['lifetime_epsilon'])} on these records; this one"
    )
    assert said in ended.ranks[1].out and " of the budget 1.8, at delta" in ended.ranks[1].out
    assert "state: " not in ended.ranks[0].out + ended.ranks[2].out
    second = load(tmp_path / "res" / "report.json")["privacy"]
    assert first["lifetime_epsilon"] < second["lifetime_epsilon"] <= 1.8
    assert len(ledger(tmp_path, "client-1")) == 2 * 2 * ROUNDS
