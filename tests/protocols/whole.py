"""Whole runs in memory: every party from its inputs to its exit code, each in a thread of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

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
