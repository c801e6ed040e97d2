"""What people hear while a set-up takes long, and that it ends with the set-up."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastlloyd.report import announcer
from fastlloyd.report.announcer import Announcer, Patience
from fastlloyd.run.config import RunConfig
from fastlloyd.run.execute import execute
from fastlloyd.wire.header import PartyId
from tests.net.memory import MemoryNetwork


def test_pauses_grow_and_the_stage_is_asked_each_time() -> None:
    said: list[str] = []
    heard = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            heard.set()

    waiting = Patience(say, first_s=0.05)
    stages = iter(["waiting for client 1", "waiting for client 2"])
    waiting.stage = lambda: next(stages, "")
    waiting.start()
    assert heard.wait(20)
    waiting.end()
    assert said[:2] == ["set-up: 50 ms so far; waiting for client 1", "set-up: 100 ms so far; waiting for client 2"]


@pytest.mark.parametrize("quiet", [False, True])
def test_a_late_client_is_named_by_the_server(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(announcer, "FIRST_S", 0.3)
    network = MemoryNetwork(3)
    begun = threading.Event()

    def one(rank: int) -> int:
        config = RunConfig(
            protocol="lloyd", dataset="iris", bounds="0,10", k=3, rounds=1, output=str(tmp_path / str(rank))
        )
        announcer = Announcer(PartyId(rank), quiet=quiet)
        if rank == 2:
            begun.wait(20)
        with network.endpoint(PartyId(rank)) as transport:
            return execute(config, transport, announcer).code

    with ThreadPoolExecutor(3) as pool:
        codes = [pool.submit(one, rank) for rank in range(3)]
        end = time.monotonic() + 20
        said = ""
        while "client 2" not in said and time.monotonic() < end and not (quiet and time.monotonic() > end - 19):
            time.sleep(0.05)
            said += capsys.readouterr().err
        begun.set()
        assert [code.result() for code in codes] == [0, 0, 0]
    if quiet:
        assert said == ""
    else:
        assert "so far; waiting for client 2 to say that they can start" in said
