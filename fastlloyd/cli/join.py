"""`fastlloyd join`: join a run whose sites no single mpirun can start."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from fastlloyd.cli.options import (
    BETWEEN_SITES,
    EXIT_CODES,
    Parser,
    add_run_options,
    number,
    parse_run_options,
)
from fastlloyd.errors import ConfigError, FastLloydError
from fastlloyd.net.tcp.address import parse_address
from fastlloyd.run.rank import catch_signals, limit_threads, run_party, start_log

# How long a site that does not start tries to reach the server, to say so to the others.
_REFUSAL_S = 3.0


def main(argv: Sequence[str]) -> int:
    """Connect to the server, and run as a client once it admits this one.

    A site whose approval, output folder, state directory or log file does not fit joins too, and only says that it does
    not start: otherwise the others would wait for it until the set-up deadline.

    Raises
    ------
    ConfigError
        Flags, roster, key or rank are wrong, or the host does not exist.
    PeerError
        No server admitted this client.
    """
    limit_threads()
    config, arguments = parse_run_options(parser(), argv, foreign=True)
    address = parse_address(arguments.server, "--server")
    patience = math.inf if arguments.patience is None else arguments.patience
    if not patience > 0:
        raise ConfigError(f"--patience: expected more than 0 seconds, got {patience:g}")
    from fastlloyd.dossier.approval import approved
    from fastlloyd.net.tcp.proxy import find_proxy
    from fastlloyd.net.tcp.route import Route
    from fastlloyd.net.tcp.spoke import join
    from fastlloyd.report.announcer import Announcer
    from fastlloyd.report.lines import Journal
    from fastlloyd.run.files import check_folders
    from fastlloyd.run.own_rank import CARRIER, CONNECTION, connection_keys, find_own_rank

    proxy = find_proxy(address, os.environ)
    place = find_own_rank(config, arguments.rank)
    if place.me.is_server:
        raise ConfigError("--key: this is the server's key; `fastlloyd join` is for clients, see `fastlloyd serve`")
    keys = connection_keys(place)
    journal, approve, problem = Journal.TEXT, None, None
    try:
        journal = start_log(config, place.me.rank)
        if arguments.approval is not None:
            approve = approved(Path(arguments.approval), config, place)
        check_folders(config, place.me)
    except FastLloydError as error:
        problem = error
    catch_signals()
    announcer = Announcer(
        place.me, events=arguments.events, quiet=config.quiet, own_terminal=True, carrier=CARRIER, journal=journal
    )
    try:
        transport = join(
            Route(address, place.me.rank, keys, proxy),
            deadline_s=min(patience, config.setup_deadline, math.inf if problem is None else _REFUSAL_S),
            allows="--patience" if patience < config.setup_deadline else "--setup-deadline",
            note=announcer.note if problem is None else lambda _: None,
            reconnect_s=config.reconnect_s,
            silence_s=config.silence_s,
        )
    except FastLloydError:
        if problem is not None:
            raise problem from None  # nobody is there to hear of it
        raise
    with transport:
        through = "" if proxy is None else f" through the proxy {proxy}"
        announcer.note(
            f"joined {address}{through} as {place.me} of {len(transport.peers)} ({CONNECTION[keys is not None]}); "
            "waiting for the others"
        )
        ending, carrier = run_party(problem or config, transport, announcer, approve=approve)
        carrier.close(lost=ending.lost)
    return ending.code


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd join",
        usage="%(prog)s --server HOST:PORT [flags]",
        description="Join a federated clustering that `fastlloyd serve` serves (docs/sites.md). Connects through the "
        "proxy of HTTPS_PROXY, except to the hosts of NO_PROXY.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--server", required=True, metavar="HOST:PORT", help="where `fastlloyd serve` listens")
    parser.add_argument(
        "--rank", type=number(int, 1), metavar="R", help="this client's number (default: from roster and key)"
    )
    parser.add_argument(
        "--approval", metavar="FILE", help="file from `fastlloyd agree`; a run with other public values is refused"
    )
    parser.add_rare(
        "--patience",
        type=float,
        metavar="SECONDS",
        help="how long to try to reach the server, if less than --setup-deadline",
    )
    add_run_options(parser, unused=("transport", "network"), needed=BETWEEN_SITES)
    return parser
