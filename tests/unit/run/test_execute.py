"""The end of a failed run: a signal that comes while it is cleaned up leaves nobody waiting."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastlloyd.errors import ConfigError, Interrupted
from fastlloyd.report.announcer import Announcer
from fastlloyd.run.config import RunConfig
from fastlloyd.run.execute import execute
from fastlloyd.run.files import ResultFiles
from fastlloyd.run.horizontal import Begun
from fastlloyd.wire.header import PartyId
from tests.net.memory import MemoryNetwork


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
    assert not list((tmp_path / "1").iterdir())


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
