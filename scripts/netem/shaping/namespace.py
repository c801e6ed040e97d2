"""Network namespaces: making, entering, emptying and removing them, by their names in /run/netns."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .failure import MachineError

NAMESPACE_FOLDER = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_GRACE_S = 2.0
_POLL_S = 0.02
_libc = ctypes.CDLL(None, use_errno=True)


def check_machine() -> None:
    """Check that this process may make namespaces and has the tools.

    Raises
    ------
    MachineError
        When it is not root, or `ip` or `tc` is missing.
    """
    if os.geteuid() != 0:
        raise MachineError(
            "expected to run as root: network namespaces need it; use sudo, or a container with NET_ADMIN"
        )
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise MachineError(f"expected the command {tool} on the PATH, found none; install iproute2")


def call(*command: str, stdin: str | None = None) -> str:
    """Run a command of iproute2 and return its output.

    Raises
    ------
    MachineError
        When it fails; with the command and what it said.
    """
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise MachineError(f"`{' '.join(command)}` failed with {done.returncode}: {said}")
    return done.stdout


def batch(tool: str, namespace: str, lines: Sequence[str]) -> None:
    """Run several `ip` or `tc` commands in a namespace with one process."""
    if lines:
        call(tool, "-n", namespace, "-batch", "-", stdin="\n".join(lines) + "\n")


@contextmanager
def within(namespace: str) -> Iterator[None]:
    """Put this thread into a namespace; sockets opened inside stay there afterwards.

    Raises
    ------
    MachineError
        When the namespace cannot be entered.
    """
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(namespace)
        try:
            yield
        finally:
            _set_namespace(own, "its own namespace")
    finally:
        os.close(own)


def enter(namespace: str) -> None:
    """Put this thread into a namespace for good."""
    try:
        other = os.open(NAMESPACE_FOLDER / namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise MachineError(f"expected a namespace {namespace}, got: {error.strerror}; is the set-up up?") from error
    try:
        _set_namespace(other, namespace)
    finally:
        os.close(other)


def _set_namespace(descriptor: int, name: str) -> None:
    """Call setns."""
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise MachineError(f"cannot enter {name}: {os.strerror(ctypes.get_errno())}; is this process root?")


def listed() -> list[str]:
    """Return the names of all namespaces."""
    return sorted(path.name for path in NAMESPACE_FOLDER.iterdir()) if NAMESPACE_FOLDER.is_dir() else []


def add(namespace: str) -> None:
    """Make a namespace with its loopback up and IPv6 off, so that nothing but the program's own traffic flows."""
    call("ip", "netns", "add", namespace)
    with within(namespace):
        for scope in ("all", "default"):
            with suppress(OSError):  # a kernel without IPv6 has no such file
                Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1", encoding="ascii")
    call("ip", "-n", namespace, "link", "set", "lo", "up")


def processes(namespace: str) -> list[int]:
    """Return the processes in a namespace."""
    return [int(word) for word in call("ip", "netns", "pids", namespace).split()]


def empty(namespaces: Sequence[str]) -> None:
    """End every process in the namespaces: politely first, then by force.

    Raises
    ------
    MachineError
        When this process is in one of them itself, or a process outlives being killed.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _GRACE_S
        while left := [pid for namespace in namespaces for pid in processes(namespace)]:
            if os.getpid() in left:
                raise MachineError("this command runs inside the set-up it is to remove; run it from outside")
            if time.monotonic() > deadline:
                break
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(_POLL_S)
        else:
            return
    raise MachineError(f"processes {left} do not end; look at them with `ip netns pids`, then run `down` again")


def remove(namespace: str) -> None:
    """Remove a namespace and the interfaces in it; nothing happens when there is none."""
    if (NAMESPACE_FOLDER / namespace).exists():
        call("ip", "netns", "del", namespace)
