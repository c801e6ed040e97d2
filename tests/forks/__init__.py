"""Starts of `python -m fastlloyd..` that cost no imports: a fresh interpreter hands its program to a warm one.

Hundreds of processes start in these tests, and each takes most of its processor time for the same imports: a third of
a second, or two with those that account for Laplace noise. With `environment()` in its environment a Python
process still starts as always: by its launcher, with its arguments, descriptors, folder and signals. But before it
imports anything it asks a server, which has imported everything and imports nothing else, to fork, gives the fork all
that it was given, and then only stands between: it passes on signals to the fork, and ends as the fork does.

What such a start does not show: how long imports take, that they succeed in the right order, and what they do; nor
what depends on the parent, session or process group of the process itself, or on namespaces other than those of users,
mounts and networks. A SIGKILL of the process that was started ends the fork a moment later; SIGSTOP of it stops
nothing. Tests about these start processes without `environment()`.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

from tests.forks import handover

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
VARIABLE = "FASTLLOYD_TEST_FORKS"
_START_S = 20.0
# How long the command line and the environment of a fork may be.
_WORDS_BYTES, _VARIABLES_BYTES = 1 << 14, 1 << 16


@functools.cache
def _name() -> str:
    """Start the server of this session of tests, or find the one that another of its processes has started."""
    name = os.environ.get(VARIABLE, "").partition(":")[0]
    link = socket.socket(socket.AF_UNIX)
    if not handover.is_near(name) or link.connect_ex(name):
        session = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}-{time.monotonic_ns()}"
        numbers = Path("/proc/self/ns/pid").stat().st_ino  # of processes mean the same here only
        name = str(Path(tempfile.gettempdir()) / f"fastlloyd-forks-{session}-{numbers}")
        _start(name, link)
    link.detach()  # open until this process ends, and then the server may end
    return name


def _start(name: str, link: socket.socket) -> None:
    """Connect to the server of this name; start it, if nobody has."""
    started = False
    end = time.monotonic() + _START_S
    while link.connect_ex(name):
        assert time.monotonic() < end, f"the server that forks did not start within {_START_S:g} s"
        if not started:
            words = [sys.executable, str(HERE / "server.py"), name, "." * _WORDS_BYTES]
            given = os.environ | {"PYTHONPATH": str(ROOT), "FASTLLOYD_TEST_ROOM": "." * _VARIABLES_BYTES}
            nothing = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
            os.posix_spawn(sys.executable, words, given, file_actions=nothing, setsid=True)
            started = True
        time.sleep(0.01)


def connect() -> socket.socket:
    """Return a link to the server, for one fork: it ends with the link."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(_name())
    return link


def environment() -> dict[str, str]:
    """Return what to add to the environment of a process whose Python programs are to be forked."""
    return {VARIABLE: f"{_name()}:{sys.prefix}:{ROOT}", "PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}"}


def mark(pid: int) -> bytes:
    """Return what the environment of a fork holds besides, of the process that was started."""
    return f"FASTLLOYD_TEST_FORK_OF={pid}".encode()
