"""`fastlloyd init-state` and `fastlloyd ledger`: a state is made once, and says what was spent under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlloyd.__main__ import main
from fastlloyd.crypto.link.identity import make_identity, save_identity
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.errors import ConfigError, Reason
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import Release
from fastlloyd.report.unit import format_epsilon, format_left
from fastlloyd.run.state import StateDir
from fastlloyd.wire.header import PartyId


def release(run: str, t: int, data: str, noise: float = 10.0) -> Release:
    return Release(
        run=run * 32,
        round=t,
        name="sums",
        mechanism="gaussian",
        sensitivity=1.0,
        norm="l2",
        noise_scale=noise,
        data=data,
    )


def test_a_state_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["init-state", str(tmp_path), "-n", "2", "--budget", "2", "--budget-delta", "1e-6"]
    assert main(words) == 0
    assert capsys.readouterr().out.count("nothing spent, budget 2 at delta 1e-06") == 2
    assert main(words) == 0  # nothing was spent yet
    with StateDir(str(tmp_path), PartyId(1)).open_ledger() as ledger:
        ledger.record([release("a", 0, "d1")])
    assert main(words) == 2
    assert "holds the ledger of earlier runs" in capsys.readouterr().err


@pytest.mark.parametrize(("rank", "folder"), [(0, "server"), (2, "client-2")])
def test_a_state_is_that_of_the_key(rank: int, folder: str, tmp_path: Path) -> None:
    entries = []
    for number, role in enumerate(["server", "client", "client"]):
        one = make_identity(f"site {number}", number)
        save_identity(one, tmp_path / f"{number}.key", tmp_path / f"{number}.pem")
        entries.append(RosterEntry(one.name, role, number, one.certificate_pem))
    Roster(tuple(entries)).save(tmp_path / "roster.toml")
    words = ["--roster", str(tmp_path / "roster.toml"), "--key", str(tmp_path / f"{rank}.key")]
    assert main(["init-state", str(tmp_path / "state"), *words]) == 0
    assert [path.name for path in (tmp_path / "state").iterdir()] == [folder]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected --rank RANK, or --roster and --key, or -n"),
        (["-n", "0"], "expected 0 for the server"),
        (["--rank", "-1"], "expected 0 for the server"),
        (["--rank", str(10**30)], "expected 0 for the server"),
        (["-n", str(10**30)], "expected 0 for the server"),
        (["--rank", "1", "--budget", "2"], "--budget and --budget-delta belong together"),
        (["--rank", "1", "--budget", "nan", "--budget-delta", "1e-6"], "--budget"),
        (["--rank", "1", "--budget", "2", "--budget-delta", "-1"], "--budget-delta"),
        (["-n", "2", "--roster", "r.toml"], "give one of the two"),
        (["--roster", "r.toml"], "--roster and --key belong together"),
    ],
)
def test_what_names_no_state_makes_none(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init-state", str(tmp_path / "s"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_a_ledger_is_shown_by_records_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init-state", str(tmp_path), "--rank", "1", "--budget", "2", "--budget-delta", "1e-6"]) == 0
    one, other = [release("a", t, "d1") for t in range(2)], [release("b", 0, "d2")]
    with StateDir(str(tmp_path), PartyId(1)).open_ledger() as ledger:
        ledger.digest_key()
        ledger.record(one + other)
    capsys.readouterr()
    for folder in (tmp_path, tmp_path / "client-1"):
        assert main(["ledger", str(folder)]) == 0
        shown = capsys.readouterr().out
        whole = spent(one + other, 1e-6)
        assert "3 releases of 2 runs, for rows" in shown
        assert f"together epsilon {format_epsilon(whole)} at delta 1e-06" in shown
        assert f"budget 2 at delta 1e-06: {format_left(2 - whole)} left" in shown
        assert f"records d1: epsilon {format_epsilon(spent(one, 1e-6))} for add-remove record" in shown
        # A description of the same people has another digest; only what is spent together counts for them.
        assert shown.count("the same people may stand under several records") == 1
        assert f"run bbbbbbbb: epsilon {format_epsilon(spent(other, 1e-6))}, 1 release" in shown
    assert main(["ledger", str(tmp_path), "--delta", "1e-3"]) == 0
    assert f"together epsilon {format_epsilon(spent(one + other, 1e-3))} at delta 0.001" in capsys.readouterr().out


def test_no_ledger_is_an_error_and_so_is_a_cut_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", str(tmp_path)]) == 2
    assert "check the path, and that its disk is mounted" in capsys.readouterr().err
    assert main(["init-state", str(tmp_path), "--rank", "0"]) == 0
    with (state := StateDir(str(tmp_path), PartyId(0))).open_ledger() as ledger:
        ledger.record([release("a", 0, "")])
        state.note_ledger()
    (tmp_path / "server" / "ledger.jsonl").write_bytes(b"")
    assert main(["ledger", str(tmp_path)]) == 2
    assert "it was cut, changed or restored from an old copy" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "said"), [(None, "got none; restore it"), (b"short", "expected 32 bytes in the key")])
def test_a_ledger_whose_key_is_lost_is_damaged_for_the_command_and_for_runs(
    key: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (state := StateDir(str(tmp_path), PartyId(1), new=True)).open_ledger() as ledger:
        ledger.digest_key()
        ledger.record([release("a", 0, "d1")])
        state.note_ledger()
    path = tmp_path / "client-1" / "ledger.jsonl.key"
    path.unlink()
    if key is not None:
        path.write_bytes(key)
    assert main(["ledger", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    with pytest.raises(ConfigError, match=said) as caught:
        StateDir(str(tmp_path), PartyId(1)).open_ledger()
    assert caught.value.reason == Reason.STATE
    path.write_bytes(bytes(32))  # as the sentence advises
    assert main(["ledger", str(tmp_path)]) == 0
