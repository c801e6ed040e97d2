"""What the whole run of the parties of every protocol must come to, whoever runs it.

A runner takes (configuration, number of clients, folder), returns a `PartyEnd` of each party: in one thread, or as real
parties with links of their own. What a run is given must not depend on the runner, nor must what follows from it.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.net.tcp.address import listen, parse_address
from fastlloyd.net.tcp.hub import TcpServer
from fastlloyd.net.tcp.spoke import join
from fastlloyd.net.transport import Transport
from fastlloyd.report.announcer import Announcer
from fastlloyd.run.config import RunConfig
from fastlloyd.run.execute import execute
from fastlloyd.run.files import privacy_entry
from fastlloyd.run.in_memory import run_together
from fastlloyd.run.run_file import to_toml
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.mpi.support import done
from tests.net.calls import joined, unreliable
from tests.net.memory import MemoryNetwork
from tests.protocols.whole import without_plots

LIMIT_S = 120.0
SETTINGS: dict[str, dict[str, Any]] = {
    "secfc": {"rounds": 2},
    "vertical-he": {"k": 2, "rounds": 1, "epsilon": 10.0},
    "feddp": {"rounds": 1},
}
CLIENTS = {"secfc": 5}
# Nothing is drawn that the result depends on: it must be the same to the last digit, whoever runs it.
EXACT = ("lloyd", "kfed", "secfc", "vertical-plain")
# Ciphertexts are compressed, so their length is not fixed.
VARYING_BYTES = ("vertical-he",)


@dataclass(frozen=True)
class PartyEnd:
    """What one party with the result came to."""

    files: Mapping[str, str]
    payload_bytes: int
    messages_counted: bool
    spent_epsilon: float | None
    verdict: str


Runner = Callable[[RunConfig, int, Path], list[PartyEnd]]


def config(protocol: str) -> RunConfig:
    """A small run."""
    return RunConfig(protocol=protocol, dataset="iris", bounds="0,10", **{"k": 3, **SETTINGS.get(protocol, {})})


def alone(protocol: str) -> list[PartyEnd]:
    """All parties in one thread."""
    chosen = config(protocol)
    ended = run_together(chosen, CLIENTS.get(protocol, 2))
    lives = []
    for outcome in ended.outcomes.values():
        if outcome.result is not None:
            privacy = privacy_entry(outcome.result.claim, outcome.result.releases)
            traffic = outcome.traffic
            lives.append(
                PartyEnd(
                    outcome.result.files,
                    traffic["payload_bytes"],
                    traffic["incomplete"] is None,
                    privacy["spent_epsilon"],
                    outcome.result.quality.verdict,
                )
            )
    return lives


def in_memory(config: RunConfig, n_clients: int, folder: Path) -> list[PartyEnd]:
    """A thread for each party, links of TLS records over queues."""
    network = MemoryNetwork(n_clients + 1)
    return _threads(config, n_clients, folder, network.endpoint)


def over_tcp(config: RunConfig, n_clients: int, folder: Path) -> list[PartyEnd]:
    """A thread for each party, one open port on this host."""
    listeners = listen(parse_address("127.0.0.1:0", "--listen", listening=True))
    address = parse_address(f"127.0.0.1:{listeners[0].getsockname()[1]}", "--server")
    server = TcpServer(listeners, n_clients, keys=None, note=_quiet, warn=_quiet, stall_s=LIMIT_S)

    def endpoint(me: PartyId) -> contextlib.AbstractContextManager[Transport]:
        return server if me == SERVER else join(address, me.rank, keys=None, deadline_s=LIMIT_S, note=_quiet)

    return _threads(config, n_clients, folder, endpoint)


def over_calls(config: RunConfig, n_clients: int, folder: Path) -> list[PartyEnd]:
    """A thread for each party, frames as calls of a framework that loses some."""
    with joined(n_clients + 1, unreliable(0.02)) as transports:
        return _threads(config, n_clients, folder, lambda me: transports[me.rank])


def over_mpi(config: RunConfig, n_clients: int, folder: Path) -> list[PartyEnd]:
    """A process for each party, started by mpirun."""
    (folder / "run.toml").write_text(to_toml(config))
    done(folder, ["--config", str(folder / "run.toml")], n=n_clients + 1)
    return _written(folder / "fastlloyd-run")


RUNNERS: dict[str, Runner] = {
    "in_memory": in_memory,
    "over_tcp": over_tcp,
    "over_calls": over_calls,
    "over_mpi": over_mpi,
}


def check(protocol: str, runner: Runner, folder: Path, expected: list[PartyEnd]) -> None:
    """Compare a run with one in a single thread (`alone`), and both with what every run must come to."""
    found = runner(config(protocol), CLIENTS.get(protocol, 2), folder)
    assert expected and found
    for life in (*expected, *found):
        assert life.messages_counted
        assert life.files.keys() == expected[0].files.keys()
        if protocol in EXACT:
            assert life.files == expected[0].files
        if protocol not in VARYING_BYTES:
            assert life.payload_bytes == expected[0].payload_bytes
        # Noise is planned from public numbers alone.
        spent = expected[0].spent_epsilon
        assert life.spent_epsilon == (None if spent is None else pytest.approx(spent, rel=1e-12))
        assert life.payload_bytes > 0
        assert (life.verdict == "exact") == (protocol in EXACT)
        assert life.verdict != "unknown"


def _threads(
    config: RunConfig,
    n_clients: int,
    folder: Path,
    endpoint: Callable[[PartyId], contextlib.AbstractContextManager[Transport]],
) -> list[PartyEnd]:
    def one(me: PartyId) -> int:
        threading.current_thread().name = f"rank_{me.rank}"  # what it draws goes by this name
        mine = RunConfig(**{**vars_of(config), "output": str(folder / str(me.rank))})
        with endpoint(me) as transport:
            return execute(mine, transport, Announcer(me, quiet=True)).code

    everybody = (SERVER, *clients(n_clients))
    with without_plots(), ThreadPoolExecutor(len(everybody)) as pool:
        assert list(pool.map(one, everybody)) == [0] * len(everybody)
    return [life for me in everybody for life in _written(folder / str(me.rank))]


def vars_of(config: RunConfig) -> dict[str, Any]:
    """The fields of a configuration."""
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def _written(folder: Path) -> list[PartyEnd]:
    path = folder / "report.json"
    if not path.exists():
        return []
    report = json.loads(path.read_text())
    files = {
        name: (folder / name).read_text()
        for name in ("bounds.csv", "centroids.csv", "sizes.csv", "elbow.csv")
        if (folder / name).exists()
    }
    traffic = report["traffic"]
    return [
        PartyEnd(
            files,
            traffic["payload_bytes"],
            not traffic.get("incomplete"),
            report["privacy"]["spent_epsilon"],
            report["quality"]["verdict"],
        )
    ]


def _quiet(*_: object) -> None:
    """Say nothing."""
