"""The parties of a run as processes between sites, which can be killed and started again."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.run_file import to_toml
from fastlloyd.testing.whole_run import LIMIT_S

_TICK_S = 0.02


class Sites:
    """One server and its clients, each a process with a folder, `0` for the server's; `state` in it is kept.

    Parameters
    ----------
    folder : Path
    config : RunConfig
        What is not a site's own is written as the run file of all.
    n_clients : int
    flags : str
        Of every party, besides.
    """

    def __init__(self, folder: Path, config: RunConfig, n_clients: int, *flags: str) -> None:
        self.folder = folder
        common = [name for name, entry in OPTIONS.items() if not entry.own]
        (folder / "run.toml").write_text(to_toml(config, only=common))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            at = f"127.0.0.1:{free.getsockname()[1]}"
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for rank in range(n_clients + 1):
            own = folder / str(rank)
            own.mkdir(exist_ok=True)
            role = ("join", "--server", at, "--rank", str(rank))
            if not rank:
                role = ("serve", "--listen", at, "--clients", str(n_clients))
            words = (*role, "--config", "../run.toml", "--state-dir", "state", "--output", "result", *flags)
            with (own / "said").open("ab") as said:
                self._processes[rank] = subprocess.Popen(
                    [sys.executable, "-m", "fastlloyd", *words],
                    cwd=own,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def run_folder(self, rank: int) -> Path:
        """Return the folder in which a client keeps its interrupted run."""
        return self.folder / str(rank) / "state" / f"client-{rank}" / "run"

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so, while all parties run."""
        end = time.monotonic() + LIMIT_S
        while not condition():
            ended = {rank: process.poll() for rank, process in self._processes.items()}
            assert not any(code is not None for code in ended.values()), f"ended too early: {ended}: {self.said}"
            assert time.monotonic() < end, f"did not happen within {LIMIT_S:g} s: {self.said}"
            time.sleep(_TICK_S)

    def kill(self, rank: int) -> None:
        """Kill a party: it writes nothing more and tells nobody."""
        self._processes[rank].kill()

    def finish(self) -> list[int]:
        """Wait until all have ended; return their exit codes by rank."""
        end = time.monotonic() + LIMIT_S
        return [process.wait(max(0.0, end - time.monotonic())) for process in self._processes.values()]

    @property
    def said(self) -> str:
        """All that the parties have written to their terminals."""
        return "".join((self.folder / str(rank) / "said").read_text() for rank in self._processes)
