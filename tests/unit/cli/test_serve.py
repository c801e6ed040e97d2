"""`fastlloyd serve`: how many clients, and where the run under way is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastlloyd.cli import join, serve
from fastlloyd.errors import ConfigError
from fastlloyd.net.tcp.address import Address
from fastlloyd.run.history import note_begun
from fastlloyd.run.own_rank import OwnRank
from fastlloyd.wire.header import SERVER


@pytest.mark.parametrize(("stated", "listed", "count"), [(2, None, 2), (None, 3, 3), (3, 3, 3)])
def test_clients_are_counted_by_the_roster_or_else_by_the_flag(
    stated: int | None, listed: int | None, count: int
) -> None:
    assert serve._count_clients(stated, OwnRank(me=SERVER, clients=listed)) == count


@pytest.mark.parametrize(
    ("stated", "listed", "sentence"),
    [
        (None, None, "--clients: expected the number of clients, or a --roster, which lists them"),
        (2, 3, "--clients: the roster names 3 clients, got 2; leave the flag out"),
        (2, 1, "--clients: the roster names 1 client, got 2; leave the flag out"),
        (0, 1, "--clients: the roster names 1 client, got 0; leave the flag out"),
    ],
)
def test_a_number_that_is_missing_or_not_the_rosters_is_refused(
    stated: int | None, listed: int | None, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        serve._count_clients(stated, OwnRank(me=SERVER, clients=listed))


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ([], "expected the state of {party} in .*, found no ledger there"),
        (["--resume"], "holds no interrupted run"),
    ],
)
def test_a_state_directory_that_is_not_there_is_found_before_anybody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], sentence: str
) -> None:
    monkeypatch.setattr(join, "_REFUSAL_S", 0.01)
    monkeypatch.setattr(join, "catch_signals", lambda: None)
    where = ["--data", "none.csv", "--bounds", "0,1", "--k", "2", "--n-total", "9", "--output", str(tmp_path / "out")]
    where += ["--state-dir", str(tmp_path / "state"), *flags]
    for command, words, party in (
        (serve, ["--listen", "127.0.0.1:0", "--clients", "2"], "the server"),
        (join, ["--server", "127.0.0.1:1", "--rank", "1"], "client 1"),
    ):
        with pytest.raises(ConfigError, match=sentence.format(party=party)):
            command.main([*words, *where])


def status_address(*flags: str) -> Address | None:
    return serve._status_address(serve.parser().parse_args(["--listen", "127.0.0.1:0", *flags]))


def test_the_run_is_shown_where_status_says_and_to_others_if_wanted() -> None:
    assert status_address() is None
    assert status_address("--status", "127.0.0.1:4401") == Address("127.0.0.1", 4401)
    assert status_address("--status", "192.0.2.1:4401", "--status-remote") == Address("192.0.2.1", 4401)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--status-remote"], "--status-remote: expected with --status HOST:PORT, where the run is shown"),
        (["--status-linger", "9"], "--status-linger: expected with --status HOST:PORT, where the run is shown"),
        (["--status", "192.0.2.1:4401"], "--status 192.0.2.1:4401: expected a loopback address"),
    ],
)
def test_a_status_page_that_is_nowhere_or_open_to_others_unasked_is_refused(flags: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        status_address(*flags)


def test_earlier_runs_are_for_this_machine_alone(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    note_begun(tmp_path / "server", "ab" * 16, protocol="lloyd", title=None, parties=["North"], output=tmp_path)
    for words, count in ((["--status", "h:1"], 1), (["--status", "h:1", "--status-remote"], 0), ([], 0)):
        arguments = serve.parser().parse_args(["--listen", ":1", "--clients", "2", *words])
        assert len(serve._earlier(arguments, str(tmp_path))) == count
        assert serve._earlier(arguments, None) == ()
    (tmp_path / "server" / "runs.jsonl").write_text("{}\n")  # no reason to hold up a run
    arguments = serve.parser().parse_args(["--listen", ":1", "--clients", "2", "--status", "h:1"])
    assert serve._earlier(arguments, str(tmp_path)) == ()
