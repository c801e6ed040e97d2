"""`mpirun -n N python -m fastlloyd.client [flags]`: rank 0 serves, ranks 1 to N - 1 are clients.

Nothing heavy is imported before the flags are read, so that --help answers at once.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from fastlloyd.cli.options import EXIT_CODES, Parser, add_run_options, parse_run_options
from fastlloyd.data.database import refuse_standard_input
from fastlloyd.errors import ConfigError, FastLloydError, Reason
from fastlloyd.report.lines import Journal
from fastlloyd.report.stream import complain, guard_streams, lost_output
from fastlloyd.run.config import RunConfig
from fastlloyd.run.rank import limit_threads, run_party, start_log
from fastlloyd.wire.header import SERVER

if TYPE_CHECKING:
    from fastlloyd.net.link.control import Ending
    from fastlloyd.net.mpi.transport import MpiTransport
    from fastlloyd.net.transport import Transport

_ABORT_AFTER_S = 0.3
_LEAVE_AFTER_S = 2.0


def parser(prog: str = "mpirun -n N python -m fastlloyd.client") -> Parser:
    """Make the parser of a rank's command line."""
    made = Parser(
        prog=prog,
        usage="%(prog)s [flags]",
        description="Run one rank of a federated clustering: rank 0 serves, ranks 1 to N - 1 are clients. "
        "Without flags: FastLloyd at epsilon = 1 on the pixels of a photograph.",
        epilog=EXIT_CODES,
    )
    add_run_options(made, unused=("network", "reconnect"))
    return made


def main(argv: Sequence[str] | None = None, *, serve_only: bool = False) -> int:
    """Run this process's rank and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
    serve_only : bool
        Refuse to be anything but rank 0 (`fastlloyd.server`).
    """
    limit_threads()
    guard_streams()
    words = sys.argv[1:] if argv is None else argv
    config: RunConfig | FastLloydError
    events = "--events" in words  # even if the other flags are wrong
    # The other ranks' flags may be right: they must find this rank to learn what is wrong with its own.
    usable = RunConfig(transport=_transport(words))
    try:
        usable, _ = parse_run_options(parser(), words)
        config = usable
        refuse_standard_input(usable.data, "mpirun hands its standard input to no client")
    except ConfigError as error:
        config = error
    return _run_rank(config, usable, events=events, serve_only=serve_only)


def _transport(words: Sequence[str]) -> str:
    """Return the transport that flags ask for, whatever else is wrong with them."""
    asked = RunConfig().transport
    for word, after in pairwise([*words, ""]):
        flag, _, value = word.partition("=")
        if flag == "--transport" and (value or after) in ("shm", "tcp"):
            asked = value or after
    return asked


def _run_rank(config: RunConfig | FastLloydError, usable: RunConfig, *, events: bool, serve_only: bool) -> int:
    """Join the MPI world and run."""
    from fastlloyd.net.mpi.transport import MpiTransport

    try:
        transport = MpiTransport(transport=usable.transport, init_deadline_s=usable.setup_deadline)  # type: ignore[arg-type]
    except FastLloydError as error:
        complain(str(config if isinstance(config, FastLloydError) else error))
        return error.exit_code
    from fastlloyd.net.mpi.launcher import detect
    from fastlloyd.report.announcer import Announcer
    from fastlloyd.supervise.lifeline import hold_lifelines

    rank = transport.me.rank
    journal = Journal.TEXT
    try:
        journal = start_log(usable, rank)
    except ConfigError as error:
        config = error
    announcer = Announcer(
        transport.me,
        events=events,
        quiet=usable.quiet,
        one_host=detect().on_one_host,
        mpi=transport.library,
        journal=journal,
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
    lost_output()  # writes what is buffered
    _leave(carrier, transport, ending)
    return ending.code


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


if __name__ == "__main__":
    sys.exit(main())
