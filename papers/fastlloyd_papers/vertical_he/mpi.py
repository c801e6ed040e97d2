"""Runs vertical-he once under mpirun over TCP with TLS, and says what it took: time, bytes, memory.

Each party has its own file of columns, as a user's parties have. Times are rank 0's; memory is the largest peak of any
process of the run, ranks and their workers alike.

Source: Vertical HE, §5.3.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.table import read_table
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.net.mpi.launcher import Mpirun
from fastlloyd.protocols.vertical_he.parameters import PAIRWISE, RENEWED
from fastlloyd_papers.engine.runner import CLIENT_PROGRAM, Hosts, launch_command, run_program
from fastlloyd_papers.vertical_he.run import Case

LIMIT_S = 4 * 3600.0
# Of TCP and of TLS, which are no messages of the protocol: two round trips.
_HANDSHAKE_MESSAGES = 4
_TICK_S = 0.3


def run_over_mpi(
    case: Case, points: NDArray[np.float64], workers: int, mpirun: Mpirun, hosts: Hosts | None = None
) -> dict[str, Any]:
    """Run one case.

    Parameters
    ----------
    case : Case
        At least two rounds: the first one's time counts as set-up, but for a mean round.
    points : float64 array, shape (n, d), scaled to [-1, 1]
    workers : int
        Processes of the computing party.
    mpirun : Mpirun
    hosts : Hosts, optional
        By default all ranks run here, over the loopback interface.

    Returns
    -------
    dict
        As `run_case`, and: wall_seconds (from mpirun's start to its end), cpu_seconds (of all processes),
        peak_mib (of the largest one), setup_messages (that wait for one another).

    Raises
    ------
    ConfigError
        The run failed; ends with its last words.
    """
    with tempfile.TemporaryDirectory(prefix="fastlloyd-bench-") as name:
        folder = Path(name)
        write_offices(folder, case, points)
        words = [sys.executable, *CLIENT_PROGRAM, *flags(case, len(points), workers, folder)]
        command, env = launch_command(mpirun, case.ranks, words, hosts)
        before, start = _children_seconds(), time.perf_counter()
        with PeakMemory() as memory:
            run_program(command, env, what="a run of the benchmark", cwd=folder, limit_s=LIMIT_S)
        wall, cpu = time.perf_counter() - start, _children_seconds() - before
        report = json.loads((folder / "out-0" / "report.json").read_text(encoding="utf-8"))
        centers = read_table(folder / "out-0" / "centroids.csv").values
    return {
        **from_report(report),
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "peak_mib": memory.peak_kib / 1024.0,
        "loss": nearest(points, centers)[1] / 4.0,
        "centers": centers.tolist(),
    }


def write_offices(folder: Path, case: Case, points: NDArray[np.float64]) -> None:
    """Write each owner's file: ids and its own columns."""
    first, at = case.ranks - len(case.widths), 0
    for place, width in enumerate(case.widths):
        names = ",".join(f"x{place}_{column}" for column in range(width))
        table = np.column_stack((np.arange(len(points)), points[:, at : at + width]))
        form = ("%d", *["%.10g"] * width)
        np.savetxt(folder / f"office_{first + place}.csv", table, form, ",", header=f"id,{names}", comments="")
        at += width


def flags(case: Case, n: int, workers: int, folder: Path) -> list[str]:
    """Return the flags of the ranks."""
    values: dict[str, Any] = {
        "protocol": "vertical-he",
        "data": folder / "office_{client}.csv",
        "bounds": "-1,1",
        "n-total": n,
        "k": case.k,
        "epsilon": case.epsilon,
        "delta": repr(1.0 / n),  # as in the paper
        "seed": case.seed,
        "transport": "tcp",
        "workers": workers,
        "deadline": 3600,
        "setup-deadline": 3600,
        "output": folder / "out-{client}",
    }
    if case.rounds is not None:
        values["rounds"] = case.rounds
    settings = [f"--set=vertical-he.{key}={value}".lower() for key, value in case.settings.items()]
    return [*(f"--{name}={value}" for name, value in values.items()), *settings, "--quiet"]


def from_report(report: dict[str, Any]) -> dict[str, Any]:
    """Take from rank 0's report what the tables need."""
    parameters, traffic, rounds = report["parameters"], report["traffic"], len(report["rounds"])
    timing = report["timing"]
    # Keys and encryption belong to the first round there.
    steady = statistics.fmean(entry["seconds"] for entry in report["rounds"][1:])
    ring, scheme = parameters["encryption"]["ring"], parameters["scheme"]
    encrypting = sum(owner != parameters["computing"] for owner in parameters["owners"])
    blocks = encrypting * math.ceil(parameters["n_total"] / (ring // 2 if scheme == PAIRWISE else ring))
    blocks *= rounds if scheme in RENEWED else 1
    up_and_down = len(parameters["owners"]) if parameters["mode"] == "server-aided" else 2
    waiting = traffic["messages"] - up_and_down * rounds - blocks
    return {
        "scheme": scheme,
        "rounds": rounds,
        "setup_seconds": max(timing["setup_seconds"], timing["total_seconds"] - rounds * steady),
        "round_seconds": steady,
        "setup_bytes": traffic["setup_bytes"],
        "round_bytes": (traffic["link_bytes"] - traffic["setup_bytes"]) / rounds,
        "setup_messages": waiting + _HANDSHAKE_MESSAGES,
    }


class PeakMemory:
    """Watches the descendants of this process and keeps the largest peak of resident memory of any of them.

    Attributes
    ----------
    peak_kib : int
    """

    def __init__(self) -> None:
        self.peak_kib = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(_TICK_S):
            self.peak_kib = max(self.peak_kib, *map(_peak_kib, descendants(os.getpid())), 0)


def descendants(pid: int) -> list[int]:
    """Find the children of a process, and theirs."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                children[parent].append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        own = children[waiting.pop()]
        found += own
        waiting += own
    return found


def _peak_kib(pid: int) -> int:
    """Return a process's peak of resident memory; 0 when it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def _children_seconds() -> float:
    """Return the processor seconds of all processes that this one has started and collected."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
