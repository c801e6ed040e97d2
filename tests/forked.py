"""`fastlloyd WORDS` in a process forked from this one, which has imported everything: it starts in no time.

What a fresh interpreter costs, a third of a second of the processor, is not paid for each party of hundreds of runs.
Everything else is as in a process of the operating system: signals, files, folder, environment and sockets.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastlloyd.testing.whole_run import LIMIT_S, Sites

_TICK_S = 0.005
_WARM = (
    *("cli.serve", "cli.join", "net.tcp.hub", "net.tcp.spoke", "run.execute", "protocols.fastlloyd.protocol"),
    *(
        "protocols.feddp.protocol",
        "protocols.kfed.protocol",
        "protocols.secfc.protocol",
        "protocols.vertical_dp.protocol",
    ),
    *("protocols.vertical_he.protocol", "privacy.accountant", "report.announcer"),
    *("run.inputs", "report.table", "privacy.calibration"),
)
_WARM_OTHERS = ("scipy.special", "scipy.optimize", "dp_accounting.pld.privacy_loss_distribution", "tenseal")


@functools.cache
def warm_up() -> None:
    """Import all that a party may need, once."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    for name in _WARM:
        importlib.import_module(f"fastlloyd.{name}")
    for name in _WARM_OTHERS:
        importlib.import_module(name)
    gc.freeze()


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
        Runs in it first.
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
        for path in (out, err):
            path.touch()
        with warnings.catch_warnings():  # of threads of this process, which the other one does not have
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid:
            return
        code = 99
        try:
            os.setsid()
            os.environ.update(environment or {})
            _separate(out, err)
            if folder is not None:
                os.chdir(folder)
            if prepare is not None:
                prepare()
            from fastlloyd.__main__ import main

            code = main(self.args)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code or 0)

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(_TICK_S)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it by SIGKILL, if it still runs."""
        self.send_signal(signal.SIGKILL)


def forked_command(folder: Path, *words: str, code: int = 0) -> str:
    """Run `fastlloyd WORDS` as `fastlloyd.testing.whole_run.command` does, in a forked process."""
    warm_up()
    with tempfile.TemporaryDirectory() as own:
        out, err = Path(own, "out"), Path(own, "err")
        ended = Forked(words, out, err, folder=folder).wait(LIMIT_S)
        assert ended == code, f"fastlloyd {' '.join(words)}: expected exit code {code}, got {ended}: {err.read_text()}"
        return out.read_text()


class ForkedSites(Sites):
    """Whole runs whose parties are forked from this process."""

    def _start(self, words: Sequence[str], own: Path) -> Any:
        warm_up()
        return Forked(words, own / "said", own / "said", folder=own)


def _separate(out: Path, err: Path) -> None:
    """Give a forked process the signals, descriptors, log and outputs that a fresh one has; plots would cost most."""
    gc.freeze()  # nothing of the other process is collected here, and so nothing closes a descriptor that is new
    sys.modules["matplotlib"] = sys.modules["jinja2"] = None  # type: ignore[assignment]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for logger in (None, "fastlloyd"):
        logging.getLogger(logger).handlers.clear()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    os.closerange(3, 8)
    sys.stdout = sys.__stdout__ = open(1, "w", buffering=1, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False)  # type: ignore[misc]  # noqa: SIM115
