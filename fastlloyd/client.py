"""`mpirun -n N python -m fastlloyd.client [flags]`: rank 0 serves, ranks 1 to N - 1 are clients.

Nothing heavy is imported before the flags are read, so that --help answers at once.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from fastlloyd.cli.options import Parser, add_run_options, parse_run_options
from fastlloyd.config import RunConfig
from fastlloyd.display import printable
from fastlloyd.errors import ConfigError, FastLloydError, Interrupted, Reason
from fastlloyd.wire import SERVER

if TYPE_CHECKING:
    from fastlloyd.net.control import Ending
    from fastlloyd.net.mpi import MpiTransport
    from fastlloyd.net.transport import Transport
    from fastlloyd.report.announcer import Announcer

_ABORT_AFTER_S = 0.3
_LEAVE_AFTER_S = 2.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def parser(prog: str = "mpirun -n N python -m fastlloyd.client") -> Parser:
    """Make the parser of a rank's command line."""
    made = Parser(
        prog=prog,
        description="Run one rank of a federated clustering: rank 0 serves, ranks 1 to N - 1 are clients. "
        "Without flags: FastLloyd at epsilon = 1 on the pixels of a photograph.",
        epilog="Exit codes: 0 done, 2 bad input or configuration, 3 a peer failed, 4 budget exceeded, 70 a bug.",
    )
    add_run_options(made)
    return made


def main(argv: Sequence[str] | None = None, *, serve_only: bool = False) -> int:
    """Run this process's rank and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
    serve_only : bool
        Refuse to be anything but rank 0 (`fastlloyd.server`).
    """
    for variable in _THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    words = sys.argv[1:] if argv is None else argv
    config: RunConfig | FastLloydError
    events = "--events" in words  # even if the other flags are wrong
    try:
        config, _ = parse_run_options(parser(), words)
    except ConfigError as error:
        config = error
    return _run_rank(config, events=events, serve_only=serve_only)


def _run_rank(config: RunConfig | FastLloydError, *, events: bool, serve_only: bool) -> int:
    """Join the MPI world and run."""
    from fastlloyd.net.mpi import MpiTransport

    usable = config if isinstance(config, RunConfig) else RunConfig()
    try:
        transport = MpiTransport(transport=usable.transport, init_deadline_s=usable.setup_deadline)  # type: ignore[arg-type]
    except FastLloydError as error:
        sys.stderr.write(f"fastlloyd: {config if isinstance(config, FastLloydError) else error}\n")
        return error.exit_code
    from fastlloyd.net.launcher import detect
    from fastlloyd.net.lifeline import hold_lifelines
    from fastlloyd.report.announcer import Announcer

    rank = transport.me.rank
    try:
        start_log(usable, rank)
    except ConfigError as error:
        config = error
    announcer = Announcer(
        transport.me, events=events, quiet=usable.quiet, one_host=detect().on_one_host, mpi=transport.library
    )
    if events:
        hold_lifelines(rank)
    announcer.event("started", rank=rank, pid=os.getpid(), host=socket.gethostname()) if events else None
    if serve_only and rank != 0:
        config = ConfigError(
            f"fastlloyd.server is for rank 0, this is rank {rank}; put it first: mpirun -n 1 .. : -n M .."
        )
    ending, carrier = run_party(config, transport, announcer)
    if events:
        announcer.event("done", rank=rank, code=ending.code)
    _leave(carrier, transport, ending)
    return ending.code


def run_party(
    config: RunConfig | FastLloydError, transport: Transport, announcer: Announcer
) -> tuple[Ending, Transport]:
    """Run this process's party from its inputs to its end; signals become an agreed end.

    Returns
    -------
    ending : Ending
    carrier : Transport
        To be closed by the caller; it may be `transport` with `--delay` added.
    """
    from fastlloyd.execute import execute
    from fastlloyd.net.delay import delayed

    # What has been imported stays to the end: the collector need not go through it in the midst of a round.
    gc.freeze()
    carrier = delayed(transport, config.delay if isinstance(config, RunConfig) else 0.0)
    catch_signals()
    ending = execute(config, carrier, announcer)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN if ending.code else signal.SIG_DFL)
    return ending, carrier


def _leave(carrier: Transport, mpi: MpiTransport, ending: Ending) -> None:
    """Finalise MPI, unless a peer is lost: finalising would wait for it."""
    lost = ending.lost
    try:
        carrier.close(lost=lost)
    except FastLloydError:
        lost = True
    if lost:
        sys.stdout.flush()
        sys.stderr.flush()
        # MPI's own abort ends a stopped rank too. One rank calls it, once the others had time to print;
        # they wait for it, so that the launcher does not report their exit as the failure.
        server_lost = ending.rank == SERVER.rank and ending.reason in (Reason.TIMEOUT, Reason.GONE)
        aborts = mpi.me.rank == (1 if server_lost else SERVER.rank)
        time.sleep(_ABORT_AFTER_S if aborts else _LEAVE_AFTER_S)
        if aborts:
            mpi.abort(ending.code)
        os._exit(ending.code)


def catch_signals() -> None:
    """Turn SIGTERM and SIGINT into an `Interrupted` error where the main thread stands."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)


def limit_threads() -> None:
    """Keep to one thread per rank: ranks share the cores, and spinning BLAS threads would steal them."""
    for variable in _THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Turn a signal into an agreed end."""
    signal.signal(number, signal.SIG_IGN)
    raise Interrupted(
        f"told to stop by {signal.Signals(number).name}: by a person, or by the launcher because another rank ended"
    )


class PlainFormatter(logging.Formatter):
    """Writes what does not print as escapes: names in a message come from files and peers."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Write the message on one line."""
        return printable(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Write the message, and the lines of a trace."""
        return printable(super().format(record), lines=True)


def start_log(config: RunConfig, rank: int) -> None:
    """Log to a file or to standard error; never records, masks or keys.

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
            handler = logging.FileHandler(path, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"--log-file {path}: cannot be written ({error.strerror}); check path and rights"
            ) from error
    handler.setFormatter(PlainFormatter(f"%(asctime)s rank {rank} %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("fastlloyd")
    root.addHandler(handler)
    root.setLevel(config.log_level.upper())


if __name__ == "__main__":
    sys.exit(main())
