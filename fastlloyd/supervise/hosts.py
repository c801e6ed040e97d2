"""Ranks on other hosts: one quiet ssh connection to each, which breaks only if that host, or its ssh, is lost.

mpirun does not tell. MPICH's gives up without a name once one of its helpers is gone, waits for ever for a host that
refuses the login, and what it started over ssh all ends at one moment.

Source: docs/operations.md, "Several hosts".
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Sequence

from fastlloyd.errors import ConfigError, printable
from fastlloyd.supervise.watched import Watched

_CONNECT_S = 30.0
_LEAVE_S = 1.0
# Says that it is there, then nothing, until this end closes its input.
_COMMAND = "echo up; exec cat"


class HostLines(Watched):
    """The connections to all hosts but the first, which is this one.

    Parameters
    ----------
    hosts : sequence of str
        As ssh knows them, in the order of the ranks; empty where all ranks are on this host.

    Raises
    ------
    ConfigError
        A host does not let this user in without a password.
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
    """Begin a connection, in a session of its own: a signal from the terminal is not for it."""
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
    """Return the descriptor that stays silent as long as the connection lasts."""
    assert ssh.stdout is not None and ssh.stderr is not None
    descriptor = ssh.stdout.fileno()
    ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
    if ready and os.read(descriptor, 1 << 16):
        return descriptor
    said = "no answer"
    if ready:
        with contextlib.suppress(IndexError):
            said = printable(ssh.stderr.read().decode("utf-8", errors="replace").strip().splitlines()[-1])
    raise ConfigError(
        f"--hosts: cannot log in to {host} over ssh without a password within {_CONNECT_S:g} s ({said}); "
        f"`ssh {host} true` must work from here and print nothing"
    )
