"""The end of a run: a signal while it is cleaned up leaves nobody waiting, and nothing optional takes a result away."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.cli.report import main as show
from fastlloyd.errors import ConfigError, Interrupted
from fastlloyd.report import files as report_files
from fastlloyd.report.announcer import Announcer, Patience
from fastlloyd.report.files import RunFolder
from fastlloyd.report.stream import guard_streams
from fastlloyd.run import files as run_files
from fastlloyd.run.config import RunConfig
from fastlloyd.run.execute import execute
from fastlloyd.run.files import ResultFiles
from fastlloyd.run.horizontal import Begun
from fastlloyd.wire.header import PartyId
from tests.net.memory import MemoryNetwork
from tests.unit.report.streams import LOST, own_streams


def test_a_signal_during_the_clean_up_is_outlived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    struck: list[int] = []
    discard, start = ResultFiles.discard, Begun.start

    def interrupted(files: ResultFiles) -> None:
        if files._session.me == PartyId(1) and not struck:
            struck.append(1)
            raise Interrupted("told to stop by SIGTERM")
        discard(files)

    def fails(begun: Begun):
        if begun.session.me == PartyId(1):
            raise ConfigError("no")
        yield from start(begun)

    monkeypatch.setattr(ResultFiles, "discard", interrupted)
    monkeypatch.setattr(Begun, "start", fails)
    network = MemoryNetwork(3)

    def one(rank: int) -> int:
        config = RunConfig(
            protocol="lloyd", dataset="iris", bounds="0,10", k=3, output=str(tmp_path / str(rank)), deadline=30.0
        )
        with network.endpoint(PartyId(rank)) as transport:
            return execute(config, transport, Announcer(PartyId(rank), quiet=True)).code

    begun = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(one, range(3))) == [2, 2, 2]
    assert struck == [1] and time.monotonic() - begun < 20.0
    # What became of its records is said to their owner before anything is spent; nothing else stays.
    assert {path.name for path in (tmp_path / "1").iterdir()} == {"records_1.txt"}


def test_a_signal_that_meets_the_start_of_a_thread_is_an_agreed_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def met(patience: Patience) -> None:
        try:
            raise Interrupted("told to stop by SIGHUP")
        except Interrupted:  # what `Thread.start` does, when the thread runs already
            raise KeyError(patience)

    monkeypatch.setattr(Patience, "start", met)
    network = MemoryNetwork(2)

    def one(rank: int) -> int:
        config = RunConfig(protocol="lloyd", dataset="iris", bounds="0,10", k=3, output=str(tmp_path / str(rank)))
        with network.endpoint(PartyId(rank)) as transport:
            return execute(config, transport, Announcer(PartyId(rank), quiet=True)).code

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, range(2))) == [3, 3]
    assert "told to stop by SIGHUP" in capsys.readouterr().err


@pytest.mark.parametrize("one_host", [True, False])
def test_a_file_written_otherwise_says_what_to_do_where_one_command_starts_all(tmp_path: Path, one_host: bool) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    (tmp_path / "2.csv").write_text("a;b\n1;2\n3;4\n5;6\n")
    network, said = MemoryNetwork(3), ["", "", ""]

    class Heard(Announcer):
        def complain(self, sentence: str) -> None:
            said[self.me.rank] += sentence

    def one(rank: int) -> int:
        me, data = PartyId(rank), str(tmp_path / "{client}.csv")
        config = RunConfig(protocol="lloyd", data=data, bounds="0,10", n_total=9, k=2, output=str(tmp_path / "out"))
        with network.endpoint(me) as transport:
            return execute(config, transport, Heard(me, quiet=True, own_terminal=True, one_host=one_host)).code

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(one, range(3))) == [2, 2, 2]
    assert "add --delimiter ';'" in said[2]
    assert ("Flags of one command hold for all clients" in said[2]) == one_host


def run_lloyd(folder: Path, *, plots: bool = False, **changes: Any) -> list[int]:
    """Run two clients and their server, each on a terminal of its own; return the exit codes."""
    network = MemoryNetwork(3)

    def one(rank: int) -> int:
        values = {"protocol": "lloyd", "dataset": "iris", "bounds": "0,10", "k": 3, "output": str(folder / str(rank))}
        config = RunConfig(**{**values, "deadline": 30.0, **changes})
        with network.endpoint(PartyId(rank)) as transport:
            return execute(config, transport, Announcer(PartyId(rank), own_terminal=True)).code

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(3) as pool:
        patch.setattr("fastlloyd.report.plot.available", lambda: plots)
        return list(pool.map(one, range(3)))


@pytest.mark.parametrize("lost", LOST)
def test_a_run_goes_on_where_nobody_reads_its_progress(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_streams(monkeypatch, out=lost, err="pipe"):
        guard_streams()
        assert run_lloyd(tmp_path) == [0, 0, 0]
    assert (tmp_path / "1" / "report.json").exists()


def no_folder(*_: object, **__: object) -> bytes:
    raise OSError("Matplotlib requires access to a writable cache directory")


def test_pictures_that_cannot_be_drawn_and_a_page_that_cannot_be_written_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = RunFolder.write

    def full(folder: RunFolder, name: str, *content: Any, **more: Any) -> Path:
        if name == "report.html":
            raise ConfigError("--output: report.html cannot be written (No space left on device)")
        return write(folder, name, *content, **more)

    monkeypatch.setattr("fastlloyd.run.files.file_of", no_folder)
    monkeypatch.setattr(RunFolder, "write", full)
    assert run_lloyd(tmp_path, plots=True) == [0, 0, 0]
    said = capsys.readouterr().err
    for rank in (1, 2):
        names = {path.name for path in (tmp_path / str(rank)).iterdir()}
        report = json.loads((tmp_path / str(rank) / "report.json").read_text())
        assert names == {*report["output"]} and not names & {"centroids.png", "report.html"}
        assert {"centroids.csv", "ledger.jsonl", f"labels_{rank}.csv"} <= names
        assert show([str(tmp_path / str(rank)), "--verify"]) == 0
    for sentence in (
        "centroids.png is left out (OSError: Matplotlib requires access to a writable cache directory)",
        "report.html is left out (--output: report.html cannot be written (No space left on device))",
    ):
        assert said.count(sentence) == 2


def test_a_signal_that_an_import_wraps_is_not_taken_for_a_picture_that_cannot_be_drawn() -> None:
    left_out: list[str] = []
    with pytest.raises(Interrupted), run_files._noting(left_out, "centroids.png"):
        try:
            raise Interrupted("stopped by SIGTERM")
        except Interrupted as stopped:  # as Python 3.11 does around __set_name__
            raise RuntimeError("Error calling __set_name__") from stopped
    assert not left_out


def test_figures_have_the_forms_that_were_asked_for_and_the_report_names_every_file(tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")
    assert run_lloyd(tmp_path, plots=True, figures=("svg", "pdf"), output=shared) == [0, 0, 0]
    names = {path.name for path in (tmp_path / "shared").iterdir()}
    assert names == {*json.loads((tmp_path / "shared" / "report.json").read_text())["output"]}
    assert names >= {
        "centroids.svg",
        "centroids.pdf",
        "profiles.svg",
        "profiles.pdf",
        "clusters.csv",
        "labels_1.csv",
        "labels_2.csv",
        "server.json",
    }
    assert not any(name.endswith(".png") for name in names)
    with pytest.raises(
        ConfigError, match="--figures: expected a list of png, svg, pdf, such as svg,pdf, got 'jpg,png'"
    ):
        RunConfig(figures=("jpg", "png"))


def test_pictures_take_the_place_of_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that is full once pictures and page are there: without them the result is whole."""
    write = report_files.replace_file

    def fill(path: Path, pieces: Iterable[bytes], *, mode: int) -> None:
        if path.with_name("report.html").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, pieces, mode=mode)

    monkeypatch.setattr(report_files, "replace_file", fill)
    assert run_lloyd(tmp_path, plots=True) == [0, 0, 0]
    said = capsys.readouterr().err
    assert said.count("report.html: left out (--output: ") == said.count("No space left on device); check path") == 2
    for rank in (1, 2):
        names = {path.name for path in (tmp_path / str(rank)).iterdir()}
        assert names == {*json.loads((tmp_path / str(rank) / "report.json").read_text())["output"]}
        assert {"centroids.csv", "config.toml", "ledger.jsonl", f"labels_{rank}.csv"} <= names
        assert not any(name.endswith((".png", ".html")) for name in names)
        assert show([str(tmp_path / str(rank)), "--verify"]) == 0


def test_a_signal_while_a_picture_is_drawn_is_no_reason_to_leave_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> bytes:
        raise Interrupted("told to stop by SIGTERM")

    monkeypatch.setattr("fastlloyd.run.files.file_of", interrupted)
    assert run_lloyd(tmp_path, plots=True) == [3, 3, 3]
