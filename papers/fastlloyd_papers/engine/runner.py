"""One run under mpirun, and what the server's report says of its rounds.

A benchmark starts mpirun itself, without `fastlloyd run`: the supervisor would take part of a core.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fastlloyd.errors import ConfigError
from fastlloyd.net.mpi.launcher import Mpirun, mpirun_command
from fastlloyd.supervise.process import kill_marked
from fastlloyd_papers.engine.generate import Shares

CLIENT_PROGRAM = ("-m", "fastlloyd.client")
LIMIT_S = 900.0
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_SHOWN_LINES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one run does.

    Attributes
    ----------
    shares : Shares
        The clients' files, scaled to [-1, 1].
    rounds : int
        At least 2: the first one is not counted.
    delay_s : float
        Injected before each message.
    epsilon : float
        The paper's timings take 0.1.
    seed : int
        Public: the start.
    """

    shares: Shares
    k: int
    rounds: int
    ring_bits: int = 32
    delay_s: float = 0.0
    epsilon: float = 0.1
    seed: int = 0

    @property
    def ranks(self) -> int:
        """The server and the clients."""
        return 1 + len(self.shares.caps)

    def flags(self, output: Path) -> list[str]:
        """Return the flags of the ranks."""
        values: dict[str, Any] = {
            "protocol": "fastlloyd",
            "data": self.shares.template,
            "bounds": "-1,1",
            "n-total": self.shares.n,
            "client-caps": ",".join(map(str, self.shares.caps)),
            "k": self.k,
            "epsilon": self.epsilon,
            "rounds": self.rounds,
            "seed": self.seed,
            "ring-bits": self.ring_bits,
            "delay": repr(self.delay_s),
            "transport": "tcp",
            "output": output,
        }
        return [*(f"--{name}={value}" for name, value in values.items()), "--quiet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Where ranks run other than on this machine's own network.

    Attributes
    ----------
    prefix : sequence of str
        Command that runs the launcher on the first host.
    addresses : sequence of str
        In rank order.
    interface : str
        Joins them.
    launcher : sequence of str
        Options by which mpirun reaches the other hosts.
    """

    prefix: Sequence[str]
    addresses: Sequence[str]
    interface: str
    launcher: Sequence[str] = ()


def run_job(
    job: Job,
    mpirun: Mpirun,
    *,
    program: Sequence[str] = CLIENT_PROGRAM,
    hosts: Hosts | None = None,
    cwd: Path | None = None,
    limit_s: float = LIMIT_S,
) -> dict[str, Any]:
    """Run once over TCP and give what the server saw of the rounds.

    Parameters
    ----------
    job : Job
    mpirun : Mpirun
    program : sequence of str
        What each rank runs under this interpreter.
    hosts : Hosts, optional
        By default all ranks run here, over the loopback interface.
    cwd : Path, optional
        Where ranks run, and look for the package first; by default here.
    limit_s : float
        After so long the run is killed.

    Returns
    -------
    dict
        `seconds`: of each round but the first; `setup_seconds`; `payload_bytes_per_round` (of the rounds alone);
        `rounds_link_bytes`: all that left for the transport after the set-up.

    Raises
    ------
    ConfigError
        The run failed or took too long; ends with its last words.
    """
    with tempfile.TemporaryDirectory(prefix="fastlloyd-bench-") as folder:
        output = Path(folder)
        command, env = launch_command(mpirun, job.ranks, [sys.executable, *program, *job.flags(output)], hosts)
        run_program(command, env, what="a run of the benchmark", cwd=cwd, limit_s=limit_s)
        report = json.loads((output / "server.json").read_text(encoding="utf-8"))
    traffic = report["traffic"]
    return {
        "seconds": [entry["seconds"] for entry in report["rounds"][1:]],
        "setup_seconds": report["timing"]["setup_seconds"],
        "payload_bytes_per_round": traffic["payload_bytes_per_round"],
        "rounds_link_bytes": traffic["link_bytes"] - traffic["setup_bytes"],
    }


def launch_command(
    mpirun: Mpirun, ranks: int, words: Sequence[str], hosts: Hosts | None
) -> tuple[list[str], dict[str, str]]:
    """Build the launcher's command over TCP, here or on other hosts."""
    if hosts is None:
        return mpirun_command(mpirun, ranks, words, transport="tcp")
    command, env = mpirun_command(
        mpirun, ranks, words, transport="tcp", interface=hosts.interface, hosts=hosts.addresses
    )
    return [*hosts.prefix, command[0], *hosts.launcher, *command[1:]], env


def run_program(
    command: Sequence[str], env: Mapping[str, str], *, what: str, cwd: Path | None = None, limit_s: float = LIMIT_S
) -> str:
    """Run a command with one BLAS thread per process, leave none of its processes behind, give its output.

    Raises
    ------
    ConfigError
        It cannot be started, failed, or took longer than `limit_s`.
    """
    mark = secrets.token_hex(8)
    marked = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, "1"), **env, "FASTLLOYD_RUN": mark}
    # A file, not a pipe: what an orphan holds open is not waited for.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
        with _start(command, marked, words, cwd) as process:
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired as error:
                raise ConfigError(f"{what} was not done after {limit_s:g} s; run it on a quieter machine") from error
            finally:
                if process.poll() is None:
                    process.kill()
                kill_marked(f"FASTLLOYD_RUN={mark}")
        words.seek(0)
        said = words.read()
    if process.returncode:
        last = " | ".join([line.strip() for line in said.splitlines() if line.strip()][-_SHOWN_LINES:])
        raise ConfigError(f"{what} ended with code {process.returncode}: {last or 'it said nothing'}")
    return said


def _start(command: Sequence[str], env: Mapping[str, str], words: IO[str], cwd: Path | None) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, so that a signal from the terminal reaches us first."""
    try:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
        )
    except OSError as error:
        raise ConfigError(f"cannot start {command[0]}: {error.strerror}; `fastlloyd doctor` tests it") from error
