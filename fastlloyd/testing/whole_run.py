"""Whole runs of all parties, whoever runs them: what each party with the result came to.

A runner takes (configuration, number of clients, folder) and returns a `PartyEnd` of each party with the result. What a
run is given must not depend on the runner, nor must what follows from it. `Sites` are parties as processes that can
be killed and started again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fastlloyd.net.tcp.address import listen, parse_address
from fastlloyd.net.tcp.hub import TcpServer
from fastlloyd.net.tcp.route import Route
from fastlloyd.net.tcp.spoke import join
from fastlloyd.net.transport import Transport
from fastlloyd.report.announcer import Announcer
from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.execute import execute
from fastlloyd.run.files import privacy_entry
from fastlloyd.run.run_file import to_toml
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import SERVER, PartyId, clients

LIMIT_S = 120.0
_TICK_S = 0.02


@dataclass(frozen=True)
class PartyEnd:
    """What one party with the result came to.

    Attributes
    ----------
    files : mapping from file name to text
        The tables that every party with the result makes the same.
    payload_bytes : int
        Of all parties.
    messages_counted : bool
        Whether the counters of all parties came.
    spent_epsilon : float or None
        None: without bound.
    verdict : str
    """

    files: Mapping[str, str]
    payload_bytes: int
    messages_counted: bool
    spent_epsilon: float | None
    verdict: str


_OWN = ("labels_", "clusters.csv")  # files that a party makes of the result by itself

Runner = Callable[[RunConfig, int, Path], list[PartyEnd]]
Endpoint = Callable[[PartyId], contextlib.AbstractContextManager[Transport]]


def run_alone(config: RunConfig, n_clients: int) -> list[PartyEnd]:
    """Run all parties in one thread."""
    ends = []
    for outcome in run_together(config, n_clients).outcomes.values():
        if outcome.result is not None:
            result, traffic = outcome.result, outcome.traffic
            spent = privacy_entry(result.claim, result.releases)["spent_epsilon"]
            counted = traffic["incomplete"] is None
            files = {name: text for name, text in result.files.items() if name.endswith(".csv")}
            ends.append(PartyEnd(files, traffic["payload_bytes"], counted, spent, result.quality.verdict))
    return ends


def over_tcp(config: RunConfig, n_clients: int, folder: Path) -> list[PartyEnd]:
    """Run a thread for each party, with one open port on this host."""
    listeners = listen(parse_address("127.0.0.1:0", "--listen", listening=True))
    address = parse_address(f"127.0.0.1:{listeners[0].getsockname()[1]}", "--server")
    server = TcpServer(listeners, n_clients, keys=None, note=_quiet, warn=_quiet, stall_s=LIMIT_S)

    def endpoint(me: PartyId) -> contextlib.AbstractContextManager[Transport]:
        return server if me == SERVER else join(Route(address, me.rank, None), deadline_s=LIMIT_S, note=_quiet)

    return in_threads(config, n_clients, folder, endpoint)


def over_mpi(config: RunConfig, n_clients: int, folder: Path) -> list[PartyEnd]:
    """Run a process for each party, started by mpirun."""
    (folder / "run.toml").write_text(to_toml(config))
    words = ["run", "-n", str(n_clients + 1), "--config", "run.toml", "--output", "result"]
    command(folder, *words)
    return written(folder / "result")


def in_threads(config: RunConfig, n_clients: int, folder: Path, endpoint: Endpoint) -> list[PartyEnd]:
    """Run a thread for each party over the links of `endpoint`; each writes into the folder of its rank."""

    def one(me: PartyId) -> int:
        threading.current_thread().name = f"rank_{me.rank}"  # what it draws goes by this name
        mine = dataclasses.replace(config, output=str(folder / str(me.rank)))
        with endpoint(me) as transport:
            return execute(mine, transport, Announcer(me, quiet=True)).code

    everybody = (SERVER, *clients(n_clients))
    with ThreadPoolExecutor(len(everybody)) as pool:
        codes = list(pool.map(one, everybody))
    assert codes == [0] * len(everybody), f"expected the exit code 0 of every party, got {codes}"
    return [end for me in everybody for end in written(folder / str(me.rank))]


def written(folder: Path) -> list[PartyEnd]:
    """Return what a party has written; nothing if it has no result."""
    path = folder / "report.json"
    if not path.exists():
        return []
    report = json.loads(path.read_text())
    traffic = report["traffic"]
    return [
        PartyEnd(
            {file.name: file.read_text() for file in folder.glob("*.csv") if not file.name.startswith(_OWN)},
            traffic["payload_bytes"],
            not traffic.get("incomplete"),
            report["privacy"]["spent_epsilon"],
            report["quality"]["verdict"],
        )
    ]


def compare(
    found: Sequence[PartyEnd], expected: Sequence[PartyEnd], *, exact: bool = False, varying_bytes: bool = False
) -> None:
    """Compare a run with one in a single thread, and both with what every run must come to.

    Parameters
    ----------
    found, expected : sequence of PartyEnd
    exact : bool
        Whether nothing is drawn that the result depends on: then it is the same to the last digit, and has no noise.
    varying_bytes : bool
        Whether the length of messages is not fixed.
    """
    assert expected and found
    for end in (*expected, *found):
        assert end.messages_counted
        assert end.files.keys() == expected[0].files.keys()
        if exact:
            assert end.files == expected[0].files
        if not varying_bytes:
            assert end.payload_bytes == expected[0].payload_bytes
        # Noise is planned from public numbers alone.
        spent = (math.inf if one.spent_epsilon is None else one.spent_epsilon for one in (end, expected[0]))
        assert math.isclose(*spent, rel_tol=1e-12)
        assert end.payload_bytes > 0
        assert (end.verdict == "exact") == exact
        assert end.verdict != "unknown"


def command(folder: Path, *words: str, code: int = 0) -> str:
    """Run `fastlloyd WORDS` in a folder, which must end with this exit code; return its standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "fastlloyd", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == code, f"fastlloyd {' '.join(words)}: expected exit code {code}, got {done}"
    return done.stdout


def _quiet(*_: Any) -> None:
    """Say nothing."""


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
        self._killed: set[int] = set()
        for rank in range(n_clients + 1):
            own = folder / str(rank)
            own.mkdir(exist_ok=True)
            role = ("join", "--server", at, "--rank", str(rank))
            if not rank:
                role = ("serve", "--listen", at, "--clients", str(n_clients))
            state = ("--state-dir", "state", *([] if "--resume" in flags else ["--new-state"]))
            words = (*role, "--config", "../run.toml", *state, "--output", "result", *flags)
            self._processes[rank] = self._start(words, own)

    def _start(self, words: Sequence[str], own: Path) -> subprocess.Popen[bytes]:
        """Run `fastlloyd WORDS` in a party's folder; what it writes to its terminal is added to `said`."""
        with (own / "said").open("ab") as said:
            return subprocess.Popen(
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
        """Return the folder in which a party keeps its interrupted run."""
        return self.folder / str(rank) / "state" / (f"client-{rank}" if rank else "server") / "run"

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so, while all parties run that were not killed."""
        end = time.monotonic() + LIMIT_S
        while not condition():
            ended = {rank: process.poll() for rank, process in self._processes.items() if rank not in self._killed}
            assert not any(code is not None for code in ended.values()), f"ended too early: {ended}: {self.said}"
            assert time.monotonic() < end, f"did not happen within {LIMIT_S:g} s: {self.said}"
            time.sleep(_TICK_S)

    def kill(self, rank: int) -> None:
        """Kill a party: it writes nothing more and tells nobody."""
        self._killed.add(rank)
        self._processes[rank].kill()

    def finish(self) -> list[int]:
        """Wait until all have ended; return their exit codes by rank."""
        end = time.monotonic() + LIMIT_S
        return [process.wait(max(0.0, end - time.monotonic())) for process in self._processes.values()]

    @property
    def said(self) -> str:
        """All that the parties have written to their terminals."""
        return "".join((self.folder / str(rank) / "said").read_text() for rank in self._processes)
