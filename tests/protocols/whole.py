"""Whole runs in memory: every party from its inputs to its exit code, each in a thread of its own."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.cli.options import parse_run_options
from fastlloyd.client import parser
from fastlloyd.report.announcer import Announcer
from fastlloyd.run.config import RunConfig
from fastlloyd.run.execute import execute
from fastlloyd.wire.header import PartyId
from tests.net.memory import MemoryNetwork

LIMIT_S = 120.0


@contextlib.contextmanager
def without_plots() -> Iterator[None]:
    """Let nobody draw: it takes most of the time of a small run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastlloyd.report.plot.available", lambda: False)
        yield


def run_whole(folder: Path, parties: int, *, quiet: bool = True, plots: bool = False, **config: Any) -> list[int]:
    """Run all parties and give their exit codes."""
    network = MemoryNetwork(parties)

    def one(rank: int) -> int:
        me = PartyId(rank)
        threading.current_thread().name = f"rank_{rank}"  # what it draws goes by this name
        options = {"dataset": "iris", "deadline": LIMIT_S, "setup_deadline": LIMIT_S, **config}
        with network.endpoint(me) as transport:
            ending = execute(
                RunConfig(output=str(folder / str(rank)), **options), transport, Announcer(me, quiet=quiet)
            )
        return ending.code

    with contextlib.nullcontext() if plots else without_plots(), ThreadPoolExecutor(parties) as pool:
        return list(pool.map(one, range(parties)))


@dataclass(frozen=True)
class Ended:
    """What the parties of a run in memory left: their exit codes, and all that they wrote to standard error."""

    codes: set[int]
    said: str


def run_flags(folder: Path, flags: Sequence[str], *, n: int = 3, plots: bool = False) -> Ended:
    """Run all parties with the flags that mpirun would start them with, in this folder."""
    config, _ = parse_run_options(parser(), [str(flag) for flag in flags])
    network, said = MemoryNetwork(n), io.StringIO()

    def one(rank: int) -> int:
        threading.current_thread().name = f"rank_{rank}"  # what it draws goes by this name
        me = PartyId(rank)
        with network.endpoint(me) as transport:
            return execute(config, transport, Announcer(me, quiet=True, one_host=True)).code

    drawn = contextlib.nullcontext() if plots else without_plots()
    with pytest.MonkeyPatch.context() as patch, drawn, contextlib.redirect_stderr(said):
        patch.chdir(folder)
        with ThreadPoolExecutor(n) as pool:
            codes = set(pool.map(one, range(n)))
    return Ended(codes, said.getvalue())


def done_flags(folder: Path, flags: Sequence[str], *, n: int = 3, plots: bool = False) -> None:
    """Run to the end, which must be a good one."""
    ended = run_flags(folder, flags, n=n, plots=plots)
    assert ended.codes == {0}, ended.said
