"""Whole runs under --review: nothing leaves a state folder before a person says so, and what was spent stays spent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastlloyd.__main__ import main
from fastlloyd.gate.decisions import Decisions
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.report.document import load
from fastlloyd.run.run_file import load_config
from tests.mpi.support import hospitals
from tests.protocols.whole import done_flags, run_flags

OWN = ("--data", "hospital_{client}.csv", "--bounds", "-1,1", "--output", "res", "--k", "2", "--n-total", "80")
REVIEW = (*OWN, "--rounds", "2", "--state-dir", "state", "--review")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def waiting(state: Path) -> Path:
    (folder,) = (state / "held").iterdir()
    return folder


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Two clients and a server on one host, with one output folder."""
    hospitals(tmp_path)
    ended = done_flags(tmp_path, [*REVIEW, "--new-state"], quiet=False)
    assert ended.out.count("is held in state/client-") == 2 and "noisy size" not in ended.out
    return tmp_path


def test_nothing_of_the_result_leaves_before_it_is_released(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert names(ran / "res") == {"server.json"}
    state = ran / "state"
    assert not (state / "server" / "held").exists()
    run = load(ran / "res/server.json", "server")["run"]
    for client in (1, 2):
        folder = waiting(state / f"client-{client}")
        assert folder.name == run and load(folder / "report.json")["run"] == run
        assert {"centroids.csv", "report.json", "ledger.jsonl", "config.toml", f"labels_{client}.csv"} <= names(folder)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
        assert not (state / f"client-{client}" / "run").exists()  # the seed, from which the result would follow
    assert main(["report", str(ran / "res")]) == 0
    assert "noisy size" not in capsys.readouterr().out
    held = waiting(state / "client-1")
    assert main(["report", str(held)]) == 0
    shown = capsys.readouterr().out
    assert "noisy size" in shown and shown.endswith("waits for `fastlloyd release` or `fastlloyd discard`\n")
    assert main(["report", str(held), "--html"]) == 2
    assert "name a FILE in another folder" in capsys.readouterr().err


def test_both_clients_of_a_host_release_into_one_folder(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = load(ran / "res/server.json", "server")["run"]
    monkeypatch.chdir(ran / "state")  # the folder of the run is not that of the person
    assert main(["release", "client-2", "--yes", "--note", "Dr B"]) == 0
    out = capsys.readouterr().out
    assert f"\nrun {run[:8]}, held since " in out and "this party's alone: labels_2.csv" in out
    assert "noisy size" in out and f"released: files in {ran / 'res'}" in out
    assert {"report.json", "labels_2.csv", "server.json"} <= names(ran / "res")
    first = (ran / "res/report.json").read_bytes()
    assert main(["release", str(ran / "state"), "--yes"]) == 0
    assert {"labels_1.csv", "labels_2.csv"} <= names(ran / "res") and (ran / "res/report.json").read_bytes() == first
    assert main(["report", str(ran / "res"), "--verify"]) == 0
    config = load_config(ran / "res/config.toml")
    assert config.data == str(ran / "hospital_{client}.csv") and config.review
    for client in (1, 2):
        decisions = Decisions(ran / f"state/client-{client}")
        assert decisions.runs() == (run,)
        last = decisions.last(run)
        assert last is not None and (last.what, last.output) == ("released", str(ran / "res"))
    assert main(["release", str(ran / "state"), "--yes"]) == 2
    assert "no result waits for a decision" in capsys.readouterr().err


def test_what_was_spent_stays_spent(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ran / "state/client-1/ledger.jsonl"
    before = path.read_bytes()
    with Ledger(path) as ledger:
        spent = ledger.epsilon(1e-5)
    assert before and spent > 0.5
    assert main(["discard", str(ran / "state/client-1"), "--yes"]) == 0
    assert "stays spent" in capsys.readouterr().out
    assert path.read_bytes() == before and not list((ran / "state/client-1/held").iterdir())
    # The next run counts on top of it, and is refused by a budget that the two together exceed.
    ended = run_flags(ran, [*REVIEW, "--overwrite", "--budget", "1.2"])
    assert ended.codes == {4}
    assert [entry.what for entry in Decisions(ran / "state/client-1")._entries] == ["held", "discarded"]


def test_an_earlier_result_stays_until_the_next_is_released(ran: Path) -> None:
    state = ran / "state"
    assert main(["release", str(state / "client-1"), "--yes"]) == 0
    first = (ran / "res/centroids.csv").read_bytes()
    assert run_flags(ran, REVIEW).codes == {2}  # files of another run, as without --review
    done_flags(ran, [*REVIEW, "--overwrite"])
    assert (ran / "res/centroids.csv").read_bytes() == first
    assert main(["release", str(state / "client-1"), "--yes"]) == 2
    assert main(["release", str(state / "client-1"), "--yes", "--overwrite"]) == 0
    report = load(ran / "res/report.json")
    assert report["run"] == load(ran / "res/server.json", "server")["run"]
    assert not (ran / "res/labels_2.csv").exists()  # client 2 has released nothing


def test_a_run_that_fails_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hospitals(tmp_path)

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fastlloyd.gate.store.sync_directory", fails)
    ended = run_flags(tmp_path, [*REVIEW, "--new-state"])
    assert ended.codes == {2} and "--review" in ended.said and "No space left" in ended.said
    for client in (1, 2):
        held = tmp_path / f"state/client-{client}/held"
        assert not held.exists() or not list(held.iterdir())
        assert Decisions(tmp_path / f"state/client-{client}").runs() == ()
    monkeypatch.undo()
    ended = done_flags(tmp_path, [*REVIEW, "--resume"])  # nothing is spent twice
    for client in (1, 2):
        assert load(waiting(tmp_path / f"state/client-{client}") / "report.json")["rounds"]
        with Ledger(tmp_path / f"state/client-{client}/ledger.jsonl") as ledger:
            assert len({release.run for release in ledger.releases}) == 1


def test_a_damaged_ledger_of_decisions_is_found_before_anything_is_spent(ran: Path) -> None:
    path = ran / "state/client-2/decisions.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    before = (ran / "state/client-2/ledger.jsonl").read_bytes()
    ended = run_flags(ran, [*REVIEW, "--output", "other"])
    assert ended.codes == {2} and "line 1 of the ledger of decisions" in ended.own(2)[0]
    assert (ran / "state/client-2/ledger.jsonl").read_bytes() == before


def test_a_server_that_has_the_result_holds_it_too(tmp_path: Path) -> None:
    done_flags(
        tmp_path,
        ["--dataset", "iris", "--protocol", "kfed", "--output", "res", "--state-dir", "s", "--new-state", "--review"],
    )
    assert not (tmp_path / "res").exists()
    assert "centroids.csv" in names(waiting(tmp_path / "s/server"))
    assert main(["release", str(tmp_path / "s/server"), "--yes"]) == 0
    assert json.loads((tmp_path / "res/report.json").read_text())["protocol"] == "kfed"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--review",), "--review holds the result in the state directory and needs --state-dir"),
        (("--review", "--state-dir", "s", "--print-result"), "--review holds back what --print-result shows"),
    ],
)
def test_flags_that_do_not_go_together(tmp_path: Path, flags: tuple[str, ...], sentence: str) -> None:
    hospitals(tmp_path)
    ended = run_flags(tmp_path, [*OWN, *flags])
    assert ended.codes == {2} and sentence in ended.said
