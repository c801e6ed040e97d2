"""Tells which of several processes ended first, where the end of one makes a launcher kill the others at once.

A process that is killed first lets go of its files and only then counts as ended. A launcher that sees its connection
break may kill the others before the kernel reports that first end, so the order of those reports proves nothing.
Therefore each rank holds two pipes whose other ends the supervisor watches. Linux lets go of a dying process's files
in the order of their numbers, upwards or downwards as the version has it; one pipe has the lowest number of all and
the other one a number above all that the launcher handed down. So one of the two breaks before the launcher
can know, hence before any pipe of those whom it kills in turn.

Source: docs/operations.md, "How a run ends".
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fastlloyd.supervise.watched import Watched

VARIABLE = "FASTLLOYD_LIFELINES"
_ENDS = ("low", "high")
_STDIN = 0
# Above all that a launcher hands down, below any limit on the number of open files.
_HIGH = 100
# Two descriptors each: more ranks than this on one host do without.
_MOST_RANKS = 128


class Lifelines(Watched):
    """The supervisor's ends of the pipes of `n` ranks; without them if the system has no room for them.

    One reports a hang-up once a rank has held its other end and is gone.

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
        """What the ranks need to find their ends."""
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
    """Hold this process's ends until it ends, one in place of standard input; without a supervisor do nothing."""
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
        # Nobody needs the names any more; the last rank takes the folder away, whatever becomes of the supervisor.
        for path in paths:
            path.unlink()
        Path(folder).rmdir()


def _paths(folder: Path, rank: int) -> tuple[Path, ...]:
    return tuple(folder / f"{rank}-{end}" for end in _ENDS)
