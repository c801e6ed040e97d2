"""One rank's process: its threads, its log, its signals, and the run of its party in it.

Nothing heavy is imported before a party runs, so that --help answers at once.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from fastlloyd.errors import ConfigError, FastLloydError, Interrupted, printable
from fastlloyd.report.lines import Journal, JsonFormatter
from fastlloyd.run.config import RunConfig

if TYPE_CHECKING:
    from fastlloyd.net.link.control import Ending
    from fastlloyd.net.transport import Transport
    from fastlloyd.report.announcer import Announcer
    from fastlloyd.run.execute import Approve

_WHY = "by a person, or by the launcher because another rank ended"
_HANGUP = "its terminal or ssh session ended; nohup, tmux or a service of systemd lets it go on"
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def run_party(
    config: RunConfig | FastLloydError,
    transport: Transport,
    announcer: Announcer,
    *,
    approve: Approve | None = None,
) -> tuple[Ending, Transport]:
    """Run this process's party from its inputs to its end; signals become an agreed end. `approve`: as for `execute`.

    Returns
    -------
    ending : Ending
    carrier : Transport
        To be closed by the caller; it may be `transport` with `--delay` added.
    """
    catch_signals()
    # What is imported stays to the end: the collector need not go through it, neither now nor during a round.
    gc.disable()
    import_module("fastlloyd.run.execute")
    gc.freeze()
    gc.enable()
    ending, carrier = carry_out(config, transport, announcer, approve=approve)
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN if ending.code else signal.SIG_DFL)
    return ending, carrier


def carry_out(
    config: RunConfig | FastLloydError,
    transport: Transport,
    announcer: Announcer,
    *,
    approve: Approve | None = None,
) -> tuple[Ending, Transport]:
    """Run a party in a process that others own, in any thread of it: as `run_party`, but signals stay as they are."""
    from fastlloyd.net.delay import delayed
    from fastlloyd.run.execute import execute

    carrier = delayed(transport, config.delay if isinstance(config, RunConfig) else 0.0)
    view = announcer.view
    view.clients = len(transport.peers)
    metrics = None
    if isinstance(config, RunConfig):
        view.protocol, view.epsilon = config.protocol, config.epsilon
        # Under a launcher each rank has its own file, or rank 0 alone has one.
        if config.metrics is not None and ("{client}" in config.metrics or announcer.speaks):
            from fastlloyd.watch.metrics import MetricsFile

            try:
                metrics = MetricsFile(Path(config.metrics.replace("{client}", str(announcer.me.rank))), view)
            except ConfigError as error:
                config = error
    try:
        ending = execute(config, carrier, announcer, approve=approve)
        view.end(ending.code)
    finally:
        if metrics is not None:
            metrics.close()
    return ending, carrier


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a process: SIGTERM, SIGINT, and SIGHUP unless `nohup` has it ignored."""
    hangup = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGTERM, signal.SIGINT, *hangup)


def catch_signals() -> None:
    """Turn the signals that stop a process into an `Interrupted` error where the main thread stands."""
    for number in stop_signals():
        signal.signal(number, _interrupt)


def limit_threads() -> None:
    """Keep to one thread per rank: ranks share the cores, and spinning BLAS threads would steal them."""
    for variable in _THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Turn a signal into an agreed end."""
    signal.signal(number, signal.SIG_IGN)
    why = _HANGUP if number == signal.SIGHUP else _WHY
    raise Interrupted(f"told to stop by {signal.Signals(number).name}: {why}")


class PlainFormatter(logging.Formatter):
    """Writes what does not print as escapes: names in a message come from files and peers."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Write the message on one line."""
        return printable(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Write the message, and the lines of a trace."""
        return printable(super().format(record), lines=True)


class LogFile(logging.FileHandler):
    """A log in a file; what cannot be written there is dropped, and the first loss is said on standard error."""

    _lost = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Say once that a record is lost, in the place of a trace for each."""
        if not self._lost:
            self._lost = True
            why = sys.exc_info()[1]
            reason = why.strerror if isinstance(why, OSError) else str(why)
            print(
                f"fastlloyd: --log-file {self.baseFilename} cannot be written ({reason})", file=sys.stderr, flush=True
            )


def start_log(config: RunConfig, rank: int) -> Journal:
    """Log to a file or to standard error; never records, masks or keys.

    Returns
    -------
    Journal
        Where else than on standard error sentences go, for the `Announcer`.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    handler: logging.Handler
    if config.log_file is None:
        handler = logging.StreamHandler()
    else:
        path = config.log_file.replace("{client}", str(rank))
        try:
            handler = LogFile(path, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"--log-file {path}: cannot be written ({error.strerror}); check path and rights"
            ) from error
    plain = PlainFormatter(f"%(asctime)s rank {rank} %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter(rank) if config.log_format == "json" else plain)
    root = logging.getLogger("fastlloyd")
    root.addHandler(handler)
    root.setLevel(config.log_level.upper())
    if config.log_format == "text":
        return Journal.TEXT
    return Journal.STDERR if config.log_file is None else Journal.FILE
