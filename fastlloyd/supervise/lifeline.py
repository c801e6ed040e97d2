"""Finds which rank or host was lost first, although a launcher kills all other ranks at once.

A killed process closes its files first and only then counts as ended. A launcher that sees its connection break may
kill the others before the kernel reports that first end, so the order of those reports proves nothing. Therefore each
rank holds two pipes whose other ends the supervisor watches. Linux closes a dying process's files in the order of their
numbers, upwards or downwards depending on its version. One pipe has the lowest number of all, the other one a number
above all that the launcher handed down. So one of the two breaks before the launcher can notice, hence before any
pipe of the ranks that it kills.

For each other host there is one quiet ssh connection, which breaks only if that host, or its ssh, is lost. mpirun does
not report such a loss: MPICH's gives up without a name once one of its helpers is gone, waits forever for a host that
refuses the login, and everything it started over ssh ends at one moment.

Source: docs/operations.md, "How a run ends" and "Several hosts".
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from fastlloyd.errors import ConfigError, printable

VARIABLE = "FASTLLOYD_LIFELINES"
_ENDS = ("low", "high")
_STDIN = 0
# Above all descriptors that a launcher hands down, below any limit on open files.
_HIGH = 100
# Two descriptors each: with more ranks on one host there are none.
_MOST_RANKS = 128
_CONNECT_S = 30.0
_LEAVE_S = 1.0
# Prints one line, then nothing until this end closes its input.
_COMMAND = "echo up; exec cat"


class Watched(ABC):
    """Descriptors of ranks; iterate over those to watch: a descriptor becomes ready once its rank is gone.

    Attributes
    ----------
    fallen : list of int
        The ranks whose descriptors broke, in order.
    """

    def __init__(self) -> None:
        self.fallen: list[int] = []
        self._ranks: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, descriptor: int) -> bool:
        return descriptor in self._ranks

    def __iter__(self) -> Iterator[int]:
        return iter(self._ranks)

    def broke(self, descriptor: int) -> None:
        """Note that a descriptor broke."""
        rank = self._ranks[descriptor]
        if rank not in self.fallen:
            self.fallen.append(rank)

    @abstractmethod
    def close(self) -> None:
        """Close everything; idempotent."""


class Lifelines(Watched):
    """The supervisor's ends of the pipes of `n` ranks; empty if the system cannot provide them.

    A pipe reports a hang-up once a rank has held its other end and is gone.

    Parameters
    ----------
    n : int
    """

    def __init__(self, n: int) -> None:
        super().__init__()
        self._folder: Path | None = None
        if n > _MOST_RANKS:
            return
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="fastlloyd-run-"))
            for rank in range(n):
                for path in _paths(self._folder, rank):
                    os.mkfifo(path, 0o600)
                    self._ranks[os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)] = rank
        except OSError:
            self.close()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which the ranks find their ends."""
        return {} if self._folder is None else {VARIABLE: str(self._folder)}

    def close(self) -> None:
        """Close everything; idempotent."""
        for descriptor in self._ranks:
            os.close(descriptor)
        self._ranks = {}
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def hold_lifelines(rank: int, environ: Mapping[str, str] | None = None) -> None:
    """Keep this process's pipe ends open until it exits, one as standard input; without a supervisor do nothing."""
    folder = (os.environ if environ is None else environ).get(VARIABLE)
    if folder is None:
        return
    with contextlib.suppress(OSError):
        paths = _paths(Path(folder), rank)
        low, high = (os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC) for path in paths)
        # No child process may keep them open.
        os.dup2(low, _STDIN, inheritable=False)
        fcntl.fcntl(high, fcntl.F_DUPFD_CLOEXEC, _HIGH)
        os.close(low)
        os.close(high)
        # The names are not needed any more. The last rank removes the folder, even if the supervisor is gone.
        for path in paths:
            path.unlink()
        Path(folder).rmdir()


def _paths(folder: Path, rank: int) -> tuple[Path, ...]:
    return tuple(folder / f"{rank}-{end}" for end in _ENDS)


class HostLines(Watched):
    """Connections to all hosts except the first, which is this one.

    Parameters
    ----------
    hosts : sequence of str
        Names for ssh, in rank order; empty if all ranks are on this host.

    Raises
    ------
    ConfigError
        A host does not let this user log in without a password.
    """

    def __init__(self, hosts: Sequence[str] = ()) -> None:
        super().__init__()
        self._ssh: list[subprocess.Popen[bytes]] = []
        try:
            for host in hosts[1:]:
                self._ssh.append(_call(host))
            deadline = time.monotonic() + _CONNECT_S
            for rank, (host, ssh) in enumerate(zip(hosts[1:], self._ssh, strict=True), start=1):
                self._ranks[_wait_until_up(host, ssh, deadline)] = rank
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connections; idempotent."""
        for ssh in self._ssh:
            for pipe in (ssh.stdin, ssh.stdout, ssh.stderr):
                if pipe is not None:
                    pipe.close()
        for ssh in self._ssh:
            try:
                ssh.wait(_LEAVE_S)
            except subprocess.TimeoutExpired:
                ssh.kill()
                ssh.wait()
        self._ssh, self._ranks = [], {}


def _call(host: str) -> subprocess.Popen[bytes]:
    """Start a connection in a separate session, so that signals from the terminal do not reach it."""
    command = ["ssh", "-x", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_S:.0f}", host, _COMMAND]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise ConfigError(f"--hosts: expected ssh on the PATH to reach {host}: {error.strerror}") from error


def _wait_until_up(host: str, ssh: subprocess.Popen[bytes], deadline: float) -> int:
    """Return the descriptor that stays silent until the connection breaks."""
    assert ssh.stdout is not None and ssh.stderr is not None
    descriptor = ssh.stdout.fileno()
    ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
    if ready and os.read(descriptor, 1 << 16):
        return descriptor
    problem = "no answer"
    if ready:
        with contextlib.suppress(IndexError):
            problem = printable(ssh.stderr.read().decode("utf-8", errors="replace").strip().splitlines()[-1])
    raise ConfigError(
        f"--hosts: cannot log in to {host} over ssh without a password within {_CONNECT_S:g} s ({problem}); "
        f"`ssh {host} true` must work from here and print nothing"
    )
