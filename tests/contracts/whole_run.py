"""What the whole run of the parties of every protocol must come to, whoever runs it.

A runner takes (configuration, number of clients, folder), returns a `PartyEnd` of each party: in one thread, or as real
parties with links of their own. What a run is given must not depend on the runner, nor must what follows from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastlloyd.run.config import RunConfig
from fastlloyd.run.run_file import to_toml
from fastlloyd.testing import whole_run
from fastlloyd.testing.whole_run import LIMIT_S, PartyEnd, Runner, compare, in_threads, written
from tests.mpi.support import done
from tests.net.calls import joined, unreliable
from tests.net.memory import MemoryNetwork
from tests.protocols.whole import without_plots

__all__ = ["CLIENTS", "LIMIT_S", "RUNNERS", "SETTINGS", "PartyEnd", "alone", "check", "config", "vars_of"]

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


def config(protocol: str) -> RunConfig:
    """A small run."""
    return RunConfig(protocol=protocol, dataset="iris", bounds="0,10", **{"k": 3, **SETTINGS.get(protocol, {})})


def alone(protocol: str) -> list[PartyEnd]:
    """All parties in one thread."""
    return whole_run.run_alone(config(protocol), CLIENTS.get(protocol, 2))


def in_memory(config: RunConfig, n_clients: int, folder: Path) -> list[PartyEnd]:
    """A thread for each party, links of TLS records over queues."""
    network = MemoryNetwork(n_clients + 1)
    with without_plots():
        return in_threads(config, n_clients, folder, network.endpoint)


def over_tcp(config: RunConfig, n_clients: int, folder: Path) -> list[PartyEnd]:
    """A thread for each party, one open port on this host."""
    with without_plots():
        return whole_run.over_tcp(config, n_clients, folder)


def over_calls(config: RunConfig, n_clients: int, folder: Path) -> list[PartyEnd]:
    """A thread for each party, frames as calls of a framework that loses some."""
    with without_plots(), joined(n_clients + 1, unreliable(0.02)) as transports:
        return in_threads(config, n_clients, folder, lambda me: transports[me.rank])


def over_mpi(config: RunConfig, n_clients: int, folder: Path) -> list[PartyEnd]:
    """A process for each party, started by mpirun."""
    (folder / "run.toml").write_text(to_toml(config))
    done(folder, ["--config", str(folder / "run.toml")], n=n_clients + 1)
    return written(folder / "fastlloyd-run")


RUNNERS: dict[str, Runner] = {
    "in_memory": in_memory,
    "over_tcp": over_tcp,
    "over_calls": over_calls,
    "over_mpi": over_mpi,
}


def check(protocol: str, runner: Runner, folder: Path, expected: list[PartyEnd]) -> None:
    """Compare a run with one in a single thread (`alone`), and both with what every run must come to."""
    found = runner(config(protocol), CLIENTS.get(protocol, 2), folder)
    compare(found, expected, exact=protocol in EXACT, varying_bytes=protocol in VARYING_BYTES)


def vars_of(config: RunConfig) -> dict[str, Any]:
    """The fields of a configuration."""
    return {name: getattr(config, name) for name in config.__dataclass_fields__}
