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
        if files._facts.me == PartyId(1) and not struck:
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
