"""Standard output and error: what cannot be written there ends nothing, and is said once; no locale is in the way."""

from __future__ import annotations

import io
import os
import pty
import sys
from pathlib import Path

import pytest

from fastlloyd.__main__ import main
from fastlloyd.report.announcer import Announcer
from fastlloyd.report.stream import guard_streams, lost_output
from fastlloyd.wire.header import SERVER
from tests.protocols.whole import LIMIT_S
from tests.unit.report.streams import LOST, own_streams

ROUND = {"round": 0, "rounds": 3, "clients": 2, "seconds": 0.0042, "bytes": 96}


@pytest.mark.parametrize("says_pipe", [True, False])
@pytest.mark.parametrize("lost", LOST)
def test_output_that_is_lost_is_said_once_and_ends_nothing(
    lost: str, says_pipe: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = tmp_path / "err"
    with own_streams(monkeypatch, out=lost, err=str(error)):
        guard_streams(says_pipe=says_pipe)
        announcer = Announcer(SERVER)
        for _ in range(3):
            announcer.note("listening")
            announcer.event("round", **ROUND)
            print("no flush")
        found = lost_output()
        sys.stderr.flush()
    said = error.read_text()
    assert (found is None) == (lost == "closed")
    assert said.count("\n") == (lost == "full" or (lost == "pipe" and says_pipe))
    assert not said or "fastlloyd: standard output cannot be written (" in said


@pytest.mark.parametrize("lost", LOST)
def test_standard_error_that_is_lost_ends_nothing(lost: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with own_streams(monkeypatch, out=str(tmp_path / "out"), err=lost):
        guard_streams()
        Announcer(SERVER).complain("no")
        assert main(["dataset"]) == 2
        sys.stderr.flush()
        assert lost_output() is None


def test_a_command_whose_output_is_lost_has_not_done_its_work_unless_its_reader_had_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for lost, words, code in (
        ("full", ["datasets"], 2),
        ("full", ["plan", "--help"], 2),
        ("pipe", ["datasets"], 0),
        ("closed", ["datasets"], 0),
        ("full", ["dataset"], 2),
    ):
        with own_streams(monkeypatch, out=lost, err=str(tmp_path / "err")):
            assert main(words) == code, (lost, words)


def test_a_stream_that_python_closed_counts_as_one_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    announcer = Announcer(SERVER)  # in another's process, which has not called `guard_streams`
    announcer.event("round", **ROUND)
    announcer.note("listening")
    announcer.complain("no")


@pytest.mark.parametrize("words", [["choose"], ["choose", "--n", "600", "--k", "2", "--d", "2", "--split", "rows"]])
def test_a_standard_input_that_is_closed_is_one_without_a_person(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with own_streams(monkeypatch, err=str(tmp_path / "err")):
        guard_streams()
        assert sys.stdin.read() == "" and not sys.stdin.isatty()
        assert main(words) in (0, 2)
        sys.stdin.close()
    assert "Traceback" not in (tmp_path / "err").read_text("utf-8")


def test_a_terminal_gets_its_own_encoding_and_a_file_utf_8(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    read, write = pty.openpty()
    terminal = io.TextIOWrapper(os.fdopen(write, "wb", 0), encoding="iso-8859-1")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "__stdout__", terminal)
    with own_streams(monkeypatch, err=str(tmp_path / "err"), encoding="iso-8859-1"):
        guard_streams()
        Announcer(SERVER).note("é β-HCG")
        Announcer(SERVER).complain("é β-HCG")
        sys.stderr.flush()
        assert os.read(read, 100) == b"\xe9 \\u03b2-HCG\r\n"
    terminal.close()
    os.close(read)
    assert (tmp_path / "err").read_text("utf-8") == "fastlloyd: é β-HCG\n"


def test_a_slow_reader_of_a_pipe_that_does_not_wait_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Thread

    read, write = os.pipe()
    os.set_blocking(write, False)
    stream = io.TextIOWrapper(os.fdopen(write, "wb", 0), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "__stdout__", stream)
    guard_streams()
    got: list[bytes] = []

    def drain() -> None:
        while piece := os.read(read, 4096):
            got.append(piece)

    reader = Thread(target=drain)
    reader.start()
    text = "x" * 1000 + "\n"
    for _ in range(1000):
        sys.stdout.write(text)
    assert lost_output() is None
    sys.stdout.flush()
    stream.close()
    reader.join(LIMIT_S)
    assert b"".join(got) == text.encode() * 1000


def test_lines_are_broken_between_words_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    leader, follower = pty.openpty()
    terminal = os.fdopen(follower, "w")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "__stdout__", terminal)
    guard_streams()
    said = (
        "unit      one record, which is one row of one client; somebody with g rows has g times the epsilon\n"
        "\x1b[1;33mwarn\x1b[0m  2 cores for 3 ranks: works, but timings suffer very much\n"
        "          WARNING: noise may have made this result worse than it could be\n"
        "a   1.0000000000000  2.0000000000000  3.0000000000000\n"
        '{"event": "a line of JSON that is longer than the terminal"}\n'
        "round 1 of 10: 2 clients, 4 ms, 96 B, and more\rand more\n"
        "short\n"
    )
    sys.stdout.write(said)
    sys.stdout.flush()
    lines = os.read(leader, 1 << 12).decode().replace("\r\n", "\n").splitlines()
    terminal.close()
    os.close(leader)
    assert lines[:3] == [
        "unit      one record, which is one row",
        "          of one client; somebody with g",
        "          rows has g times the epsilon",
    ]
    assert lines[3:5] == ["\x1b[1;33mwarn\x1b[0m  2 cores for 3 ranks: works, but", "      timings suffer very much"]
    assert lines[5:8] == [
        "          WARNING: noise may have made",
        "          this result worse than it",
        "          could be",
    ]
    assert "\n".join(lines).replace("\n          ", " ").replace("\n      ", " ") + "\n" == said.replace(
        "\n          ", " "
    ).replace("\r", "\n")
