"""`fastlloyd WORDS` in a process that is forked from one which has imported everything: it starts in no time.

What a fresh interpreter costs, a third of a second of the processor, is not paid for each party of hundreds of runs.
Everything else is as in a process of the operating system: signals, files, folder, environment and sockets. The server
of `tests.forks` forks it: this process has by then so much memory that a fork of it would take as long as some runs.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastlloyd.testing.whole_run import LIMIT_S, Sites
from tests import forks
from tests.forks.handover import ask, read
from tests.same_bits import SameBits

_STREAMS = [("utf-8", "strict"), ("utf-8", "strict"), ("utf-8", "backslashreplace")]


class Forked:
    """One process that runs `fastlloyd WORDS`, with the methods of `subprocess.Popen` that tests need.

    Parameters
    ----------
    words : sequence of str
    out, err : Path
        What it prints, and its complaints.
    folder : Path, optional
        Where it starts.
    environment : mapping, optional
        Added to this process's.
    prepare : callable, optional
        Runs in it first; it is pickled.
    """

    def __init__(
        self,
        words: Sequence[str],
        out: Path,
        err: Path,
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.args = list(words)
        self.returncode: int | None = None
        given: dict[str, Any] = {
            "words": [sys.executable, "-m", "fastlloyd", *words],
            "environment": dict(os.environb) | {os.fsencode(k): os.fsencode(v) for k, v in (environment or {}).items()},
            "folder": os.fsencode(folder or Path.cwd()),
            "numbers": [0, 1, 2],
            "absent": ["matplotlib", "jinja2"],  # plots would cost most
            "path": sys.path,
            "streams": _STREAMS,
        }
        if prepare is not None:
            given["prepare"] = pickle.dumps(prepare)
        if isinstance(os.urandom, SameBits):
            given["bits"] = os.urandom.of_a_fork()
        opened = [os.open(os.devnull, os.O_RDONLY)]
        try:
            opened += [os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) for path in (out, err)]
            self._link = forks.connect()
            ask(self._link, given, opened)
        finally:
            for number in opened:
                os.close(number)
        pid = read(self._link)
        assert pid is not None, "the server that forks has ended"
        self.pid = pid

    def __del__(self) -> None:
        if link := getattr(self, "_link", None):
            link.close()  # what still runs ends

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal, or None while it runs."""
        return self._end(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code."""
        code = self._end(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it by SIGKILL, if it still runs."""
        self.send_signal(signal.SIGKILL)

    def _end(self, timeout: float | None) -> int | None:
        """Wait so long for what the server says of its end."""
        if self.returncode is None:
            if timeout is not None and not select.select([self._link], [], [], timeout)[0]:
                return None
            status = read(self._link)
            assert status is not None, "the server that forks has ended"
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def forked_command(folder: Path, *words: str, code: int = 0) -> str:
    """Run `fastlloyd WORDS` as `fastlloyd.testing.whole_run.command` does, in a forked process."""
    with tempfile.TemporaryDirectory() as own:
        out, err = Path(own, "out"), Path(own, "err")
        ended = Forked(words, out, err, folder=folder).wait(LIMIT_S)
        assert ended == code, f"fastlloyd {' '.join(words)}: expected exit code {code}, got {ended}: {err.read_text()}"
        return out.read_text()


class ForkedSites(Sites):
    """Whole runs whose parties are forked."""

    def _start(self, words: Sequence[str], own: Path) -> Any:
        return Forked(words, own / "said", own / "said", folder=own)
