"""Starts real runs under the mpirun beside this interpreter and gathers what each rank left."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.net.mpi.launcher import Mpirun, find_mpirun, mpirun_command
from fastlloyd.report.progress import split_event
from fastlloyd.supervise.process import collect, kill_marked, marked_processes
from tests import forks

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs")
CLIENT = ("-m", "fastlloyd.client")
# The PYTHONPATH of processes of which no plots and no page are asked.
QUICK = os.pathsep.join(map(str, (PROGRAMS / "quick", forks.HERE, ROOT)))
LIMIT_S = 60.0
# What a run may take beyond its deadline to end: the contract's five seconds.
GRACE_S = 5.0
# What a busy machine may take beside that; the contract knows no such moment.
BUSY_S = 10.0
_TICK_S = 0.02
_RANK_VARIABLES = (b"PMI_RANK=", b"OMPI_COMM_WORLD_RANK=")


@dataclass(frozen=True)
class Rank:
    """What one rank printed, and the exit code that it announced."""

    out: str
    err: str
    code: int | None
    events: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Ended:
    """What a run left: the launcher's code and words, each rank's, and processes still running."""

    code: int
    out: str
    err: str
    ranks: tuple[Rank, ...]
    seconds: float
    left: tuple[int, ...]

    @property
    def codes(self) -> set[int | None]:
        return {rank.code for rank in self.ranks}

    @property
    def said(self) -> str:
        """Everything that anybody wrote to standard error."""
        return self.err + "".join(rank.err for rank in self.ranks)


@cache
def mpirun() -> Mpirun:
    return find_mpirun()


class Job:
    """One run under way.

    Parameters
    ----------
    folder : Path
        Holds what the ranks print; a rank starts in `rank-I` inside it if there is one.
    flags : sequence of str
        Of every rank.
    n : int
    only : mapping from rank to flags
        Further flags of single ranks: they are then started as several programs of one job.
    program : sequence of str
        What the ranks run under this interpreter.
    server : sequence of str, optional
        What rank 0 runs instead.
    supervised : bool
        Start `fastlloyd run` instead of a bare mpirun.
    fresh : bool
        Let each process import what it needs itself, see `tests.forks`.
    env : mapping
    """

    def __init__(
        self,
        folder: Path,
        flags: Sequence[str],
        *,
        n: int = 3,
        only: Mapping[int, Sequence[str]] | None = None,
        program: Sequence[str] = CLIENT,
        server: Sequence[str] | None = None,
        supervised: bool = False,
        fresh: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.n = n
        folder.mkdir(parents=True, exist_ok=True)
        self._mark = f"FASTLLOYD_TEST_MARK={secrets.token_hex(16)}"
        words = [str(flag) for flag in flags]
        added: dict[str, str] = {}
        if supervised:
            command = [sys.executable, "-m", "fastlloyd", "run", "-n", str(n), *words]
        else:
            command, added = _bare(n, [program if server is None else server, *[program] * (n - 1)], words, only or {})
        name, value = self._mark.split("=")
        added |= {"PYTHONPATH": QUICK} if fresh else quick()
        added |= {"RANK_NOTES": str(folder), name: value, **(env or {})}
        with (folder / "launcher.out").open("wb") as out, (folder / "launcher.err").open("wb") as err:
            self.started = time.monotonic()
            self.process = subprocess.Popen(
                command, env={**os.environ, **added}, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sweep()

    def until(self, condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
        """Wait until something is so; fail when the run ends before, or it takes too long."""
        end = time.monotonic() + limit_s
        while not condition():
            assert self.process.poll() is None, f"the run ended too early: {self._ended(())}"
            assert time.monotonic() < end, f"did not happen within {limit_s} s: {self._ended(())}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_TICK_S)

    def rounds_done(self) -> int:
        """How many rounds the server has announced."""
        if (self.folder / "out.0").exists():
            return sum(event["event"] == "round" for event in _events(self._read("out.0"))[1])
        return self._read("launcher.out").count("\nround ")

    def pid(self, rank: int) -> int:
        """Find a rank's process."""
        expected = {variable + str(rank).encode() for variable in _RANK_VARIABLES}
        found = {}
        for pid in marked_processes(self._mark):
            with contextlib.suppress(OSError):
                environment = (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0")
                command = (Path("/proc") / str(pid) / "cmdline").read_bytes()
                if expected.intersection(environment) and b"python" in command.split(b"\0")[0]:
                    found[pid] = environment
        for pid in found:  # the fork, not what waits for it
            if not any(forks.mark(pid) in environment for environment in found.values()):
                return pid
        raise AssertionError(f"rank {rank} does not run")

    def kill(self, rank: int, number: int) -> float:
        """Send a rank a signal and give the time."""
        os.kill(self.pid(rank), number)
        return time.monotonic()

    def finish(self, limit_s: float = LIMIT_S) -> Ended:
        """Wait for the end; what still runs ten seconds later is reported and killed."""
        try:
            self.process.wait(limit_s)
            end = time.monotonic() + BUSY_S
            while marked_processes(self._mark) and time.monotonic() < end:
                time.sleep(_TICK_S)
        finally:
            left = self._sweep()
        return self._ended(left)

    def _sweep(self) -> tuple[int, ...]:
        left = tuple(marked_processes(self._mark))
        if left:
            kill_marked(self._mark)
        self.process.wait()
        collect(left)
        return left

    def _ended(self, left: tuple[int, ...]) -> Ended:
        ranks = []
        for rank in range(self.n):
            text, events = _events(self._read(f"out.{rank}"))
            codes = [event["code"] for event in events if event["event"] == "done"]
            ranks.append(Rank(text, complaints(self._read(f"err.{rank}")), codes[-1] if codes else None, tuple(events)))
        seconds = time.monotonic() - self.started
        code = self.process.returncode if self.process.returncode is not None else -1
        return Ended(
            code, self._read("launcher.out"), complaints(self._read("launcher.err")), tuple(ranks), seconds, left
        )

    def _read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""


def once(tmp: pytest.TempPathFactory, name: str, make: Callable[[Path], T]) -> tuple[Path, T]:
    """Make a folder that tests only read, once for all workers of a session; give it and what `make` gave."""
    root = tmp.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, kept = root / name, root / f"{name}.pickle"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a worker that comes meanwhile waits for the first one
        if not kept.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            kept.write_bytes(pickle.dumps(make(folder)))
        return folder, pickle.loads(kept.read_bytes())


def run(folder: Path, flags: Sequence[str], **options: Any) -> Ended:
    """Run to the end."""
    with Job(folder, flags, **options) as job:
        return job.finish()


def done(folder: Path, flags: Sequence[str], **options: Any) -> Ended:
    """Run to the end, which must be a good one."""
    ended = run(folder, flags, **options)
    assert (ended.code, ended.left) == (0, ()), ended
    return ended


def complaints(said: str) -> str:
    """Leave out what a party says of a set-up that takes long: on a busy machine any does."""
    return re.sub(r"(?m)^fastlloyd: set-up: .+ so far; .+\n", "", said)


def quick(*first: object) -> dict[str, str]:
    """Return the variables of processes that are to be forked and draw nothing; `first` is before all in PYTHONPATH."""
    return forks.environment() | {"PYTHONPATH": os.pathsep.join(map(str, (*first, QUICK)))}


def start_quickly(patch: pytest.MonkeyPatch, *first: object) -> None:
    """Have the variables of `quick` in this process, for those that it starts."""
    for name, value in quick(*first).items():
        patch.setenv(name, value)


def report(folder: Path, name: str = "report.json") -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / name).read_text())
    return document


def content(path: Path) -> bytes:
    """Read a file of a `run/` folder without its label."""
    return path.read_bytes().partition(b"\n")[2]


def read_matrix(path: Path) -> NDArray[np.float64]:
    """Read a CSV of numbers below one header line."""
    return np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)


def hospitals(folder: Path, *, clients: int = 2, k: int = 2, d: int = 2, rows: int = 40) -> list[Path]:
    """Write hospital_1.csv .. with records inside [-1, 1]: k well separated groups."""
    rng = np.random.default_rng(clients * 100 + k * 10 + d)
    groups = rng.permutation(np.linspace(-0.8, 0.8, k * d)).reshape(k, d)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for client in range(1, clients + 1):
        values = groups[np.arange(rows) % k] + rng.uniform(-0.1, 0.1, (rows, d))
        path = folder / f"hospital_{client}.csv"
        np.savetxt(path, values, "%.6f", ",", header=",".join(f"f{i + 1}" for i in range(d)), comments="")
        paths.append(path)
    return paths


def _bare(
    n: int, programs: Sequence[Sequence[str]], flags: Sequence[str], only: Mapping[int, Sequence[str]]
) -> tuple[list[str], dict[str, str]]:
    """Build the command of a bare mpirun; as one program per rank where they differ."""
    start = ["bash", str(PROGRAMS / "apart.sh"), sys.executable]
    argvs = [[*start, *program, "--events", *flags, *only.get(rank, ())] for rank, program in enumerate(programs)]
    command, env = mpirun_command(mpirun(), n, argvs[0])
    if all(argv == argvs[0] for argv in argvs):
        return command, env
    head = command[: -len(argvs[0])]
    head[head.index("-n") + 1] = "1"
    rest = [word for argv in argvs[1:] for word in (":", "-n", "1", *argv)]
    return [*head, *argvs[0], *rest], env


def _events(text: str) -> tuple[str, list[dict[str, Any]]]:
    """Split a rank's output into what people read and its events."""
    rest, events = [], []
    for line in text.splitlines(keepends=True):
        words, event = split_event(line)
        rest.append(words)
        if event is not None:
            events.append(event)
    return "".join(rest), events
