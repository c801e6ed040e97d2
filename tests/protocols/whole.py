"""Whole runs in memory: every party from its inputs to its exit code, each in a thread of its own."""

from __future__ import annotations

import contextlib
import io
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.cli.options import parse_run_options
from fastlloyd.client import parser
from fastlloyd.crypto.link.identity import make_identity, save_identity
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.errors import ConfigError
from fastlloyd.report.announcer import Announcer
from fastlloyd.run.config import RunConfig
from fastlloyd.run.execute import execute
from fastlloyd.wire.header import PartyId
from tests.mpi.support import complaints
from tests.net.memory import MemoryNetwork, Tap

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
    """What the parties of a run in memory left: their exit codes, and all that they wrote."""

    codes: set[int]
    said: str
    out: str

    def own(self, rank: int) -> list[str]:
        """Return what one party wrote to standard error; each line of a client begins with its name."""
        of_clients = {line: re.match(r"fastlloyd: client (\d+): ", line) for line in self.said.splitlines()}
        return [line for line, found in of_clients.items() if rank == (int(found[1]) if found else 0)]


def run_flags(
    folder: Path,
    flags: Sequence[object],
    *,
    n: int = 3,
    only: Mapping[int, Sequence[str]] | None = None,
    quiet: bool = True,
    plots: bool = False,
    tap: Tap | None = None,
) -> Ended:
    """Run all parties with the flags that mpirun would start them with, in this folder; `only`: as for `Job`."""
    network, said, out = MemoryNetwork(n, tap=tap), io.StringIO(), io.StringIO()

    def one(rank: int) -> int:
        threading.current_thread().name = f"rank_{rank}"  # what it draws goes by this name
        me = PartyId(rank)
        config: RunConfig | ConfigError
        try:
            config, _ = parse_run_options(parser(), [*map(str, flags), *(only or {}).get(rank, ())])
        except ConfigError as error:
            config = error
        with network.endpoint(me) as transport:
            return execute(config, transport, Announcer(me, quiet=quiet, one_host=True)).code

    drawn = contextlib.nullcontext() if plots else without_plots()
    with pytest.MonkeyPatch.context() as patch, drawn:
        patch.chdir(folder)
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(out), ThreadPoolExecutor(n) as pool:
            codes = set(pool.map(one, range(n)))
    return Ended(codes, complaints(said.getvalue()), out.getvalue())


def done_flags(folder: Path, flags: Sequence[object], *, n: int = 3, quiet: bool = True, plots: bool = False) -> Ended:
    """Run to the end, which must be a good one."""
    ended = run_flags(folder, flags, n=n, quiet=quiet, plots=plots)
    assert ended.codes == {0}, ended.said
    return ended


def make_rosters(folder: Path) -> Path:
    """Write keys of six parties, and rosters of the first three, four and six; return the folder."""
    entries = []
    for rank in range(6):
        made = make_identity(f"site {rank}", rank)
        save_identity(made, folder / f"{rank}.key", folder / f"{rank}.pem")
        entries.append(RosterEntry(made.name, "client" if rank else "server", rank, made.certificate_pem))
    for parties in (3, 4, 6):
        Roster(tuple(entries[:parties])).save(folder / f"{parties}.toml")
    return folder
