"""Processes that are not children of this one: watching their ends, and ending what a run leaves behind.

Ranks are children of the launcher. A process file descriptor reports the end of one and cannot refer to another process
that gets the same number later. As a subreaper this process inherits ranks whose launcher died. Linux only; without
these calls (an old kernel) everything degrades to process numbers.

Source: docs/operations.md, "Launching".
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_SET_CHILD_SUBREAPER = 36
_GET_CHILD_SUBREAPER = 37
_ENDED = ("Z", "X", "x")
_PAUSE_S = 0.005
# Longest time that a process may be between two programs; milliseconds, unless the host is very busy or its disk slow.
_EXEC_S = 5.0
# Indices of the fields of `_stat`: the size of the memory, and where in it the code and the environment lie.
_VSIZE, _START_CODE, _ENV_START, _ENV_END = 20, 23, 47, 48
# struct pidfd_info of linux/pidfd.h: a mask first, the exit status last.
_PIDFD_INFO = struct.Struct("<Q52xi")
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = 0xC040FF0B


class Process:
    """One process of this host, known by its number.

    Parameters
    ----------
    pid : int
        Of a process that was alive a moment ago.

    Attributes
    ----------
    descriptor : int or None
        Readable once the process has ended; None if it ended before, or on kernels without it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.descriptor: int | None = None
        with contextlib.suppress(OSError):
            self.descriptor = os.pidfd_open(pid)

    @property
    def state(self) -> str:
        """The kernel's letter: 'R', 'S', 'T' (stopped), 'Z' (ended) ...; '' when it is gone."""
        fields = _stat(self.pid)
        return fields[0] if fields else ""

    @property
    def ended(self) -> bool:
        """Whether it has ended, collected by its parent or not."""
        return self.state in ("", *_ENDED)

    def wait_status(self) -> int | None:
        """Return its status as `os.waitpid` would; None if the kernel does not provide it any more, or yet."""
        fields = _stat(self.pid)
        if fields and fields[0] in _ENDED and fields[-1].isdigit():
            return int(fields[-1])
        if self.descriptor is None:
            return None
        # After its parent has reaped it, only Linux 6.15 and later still provide it.
        with contextlib.suppress(OSError):
            answer = fcntl.ioctl(self.descriptor, _PIDFD_GET_INFO, _PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0))
            mask, status = _PIDFD_INFO.unpack(answer)
            return int(status) if mask & _PIDFD_INFO_EXIT else None
        return None

    def signal(self, number: int) -> None:
        """Send a signal to this process, if it still exists."""
        with contextlib.suppress(OSError):
            if self.descriptor is not None:
                signal.pidfd_send_signal(self.descriptor, number)
            elif not self.ended:
                os.kill(self.pid, number)

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Make this process the parent of orphaned descendants within the context."""
    library = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int(0)
    known = library.prctl(_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0) == 0
    if known:
        library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        if known:
            library.prctl(_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def marked_processes(mark: str) -> list[int]:
    """Find the processes of this user on this host that carry `mark` ('NAME=value') in their environment."""
    entry_of_mark = mark.encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if entry_of_mark in _environment(int(entry.name)).split(b"\0"):
                found.append(int(entry.name))
    return found


def kill_marked(mark: str, *, patience_s: float = 2.0) -> int:
    """Kill every process that carries the mark, including those started meanwhile.

    Parameters
    ----------
    mark : str
        As for `marked_processes`.
    patience_s : float
        How long to wait for their ends.

    Returns
    -------
    int
        The number of killed processes.
    """
    killed: set[int] = set()
    end = time.monotonic() + patience_s
    while alive := marked_processes(mark):
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        collect(killed)
        if time.monotonic() > end:
            break
        time.sleep(_PAUSE_S)
    collect(killed)
    return len(killed)


def collect(pids: Iterable[int]) -> None:
    """Reap the ended processes that have become children of this process."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _environment(pid: int) -> bytes:
    """Read the environment of a process; if it is just starting another program, wait until it has one again.

    Without this wait a rank that the launcher is just starting would not be recognised and would be left behind:
    between the two programs the kernel shows no environment.
    """
    end = time.monotonic() + _EXEC_S
    while True:
        found = Path(f"/proc/{pid}/environ").read_bytes()
        if found or not _may_have_environment(pid) or time.monotonic() > end:
            return found
        time.sleep(_PAUSE_S / 10)


def _may_have_environment(pid: int) -> bool:
    """Whether an empty environment may belong to a process between two programs."""
    fields = _stat(pid)
    if len(fields) <= _ENV_END or fields[0] in _ENDED:
        return False
    memory, code, start, end = (int(fields[index]) for index in (_VSIZE, _START_CODE, _ENV_START, _ENV_END))
    # Kernel threads have no memory; the address of the code is set last when a program starts.
    return memory > 0 and (code == 0 or start < end)


def _stat(pid: int) -> list[str]:
    """Read the fields after the name in /proc/PID/stat; empty when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
