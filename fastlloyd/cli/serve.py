"""`fastlloyd serve`: serve a run whose sites no single mpirun can start."""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastlloyd.cli.options import (
    BETWEEN_SITES,
    EXIT_CODES,
    Parser,
    add_run_options,
    number,
    parse_run_options,
)
from fastlloyd.errors import ConfigError, format_count
from fastlloyd.net.tcp.address import Address, listen, parse_address
from fastlloyd.run.config import RunConfig
from fastlloyd.run.rank import catch_signals, limit_threads, run_party, start_log
from fastlloyd.run.run_file import without_records
from fastlloyd.wire.header import SERVER

if TYPE_CHECKING:
    from fastlloyd.report.lines import Journal
    from fastlloyd.run.own_rank import OwnRank

_MOST_LINGER_S = 86_400.0
_log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Listen on one port, wait for all clients, and run as the server.

    Raises
    ------
    ConfigError
        Flags, roster or key are wrong, or the port cannot be opened.
    """
    limit_threads()
    config, arguments = parse_run_options(parser(), argv)
    config = without_records(config)
    journal = start_log(config, SERVER.rank)
    address = parse_address(arguments.listen, "--listen", listening=True)
    from fastlloyd.run.own_rank import find_own_rank

    place = find_own_rank(config, SERVER.rank)
    if arguments.parent is not None:
        return pass_on(config, arguments, address, place, journal=journal)
    return _serve(config, arguments, address, place, journal)


def pass_on(
    config: RunConfig, arguments: argparse.Namespace, address: Address, place: OwnRank, *, journal: Journal
) -> int:
    """Run an aggregator below `--parent`.

    Raises
    ------
    ConfigError, PeerError
        As `supervise.aggregate.aggregate`; or a flag has no meaning for an aggregator.
    """
    from fastlloyd.supervise.aggregate import aggregate

    parent = parse_address(arguments.parent, "--parent")
    reasons = {
        "--require-approvals": "it is for the server itself, an aggregator (--parent) decides nothing",
        "--proxy-protocol": "an aggregator (--parent) takes connections from its clients alone",
        "--offer": "it is for the server itself, an aggregator (--parent) passes on its parent's",
        "--status": "it is for the server itself, an aggregator (--parent) knows nothing of the run",
        "--status-remote": "it is for the server itself, an aggregator (--parent) knows nothing of the run",
        "--status-linger": "it is for the server itself, an aggregator (--parent) knows nothing of the run",
    }
    for flag, reason in reasons.items():
        if getattr(arguments, flag.removeprefix("--").replace("-", "_")) not in (None, False):
            raise ConfigError(f"{flag}: {reason}; leave it out")
    return aggregate(config, parent, address, place, events=arguments.events, journal=journal)


def _count_clients(stated: int | None, place: OwnRank) -> int:
    """Return the number of clients: the roster's or, without one, the stated one."""
    count = stated if place.clients is None else place.clients
    if count is None:
        raise ConfigError("--clients: expected the number of clients, or a --roster, which lists them")
    if stated not in (None, count):
        raise ConfigError(
            f"--clients: the roster names {format_count(count, 'client')}, got {stated}; leave the flag out"
        )
    return count


def _earlier(arguments: argparse.Namespace, state_dir: str | None) -> tuple[dict[str, str], ...]:
    """Return the runs of this server for its status page: none where others can reach it, who took part in others."""
    from fastlloyd.run.history import latest_runs

    here = arguments.status is not None and not arguments.status_remote
    try:
        return latest_runs(state_dir, SERVER) if here and state_dir is not None else ()
    except ConfigError as error:  # the run does not depend on it
        _log.warning("--status shows no earlier runs: %s", error)
        return ()


def _status_address(arguments: argparse.Namespace) -> Address | None:
    """Return the address of the status page; None without one."""
    from fastlloyd.watch.status import check_address

    if arguments.status is not None:
        status = parse_address(arguments.status, "--status", listening=True)
        check_address(status, remote=arguments.status_remote)
        return status
    if arguments.status_remote or arguments.status_linger is not None:
        flag = "--status-remote" if arguments.status_remote else "--status-linger"
        raise ConfigError(f"{flag}: expected with --status HOST:PORT, where the run is shown")
    return None


def _serve(config: RunConfig, arguments: argparse.Namespace, address: Address, place: OwnRank, journal: Journal) -> int:
    """Check the flags of a server, open the port, admit all clients, and run; return the exit code."""
    from fastlloyd.dossier.approval import approved_by_all
    from fastlloyd.net.tcp.door import allow_files
    from fastlloyd.net.tcp.forwarded import parse_networks
    from fastlloyd.net.tcp.hub import TcpServer
    from fastlloyd.report.announcer import Announcer
    from fastlloyd.run.files import check_folders
    from fastlloyd.run.own_rank import CARRIER, CONNECTION, connection_keys
    from fastlloyd.run.session import find_protocol
    from fastlloyd.supervise.offers import write_offer
    from fastlloyd.watch.status import StatusPage

    named, folder, offer = arguments.proxy_protocol, arguments.require_approvals, arguments.offer
    balancers = () if named is None else parse_networks(named, "--proxy-protocol")
    clients = _count_clients(arguments.clients, place)
    approve = None if folder is None else approved_by_all(Path(folder), config)
    status = _status_address(arguments)
    keys = connection_keys(place)
    if offer is not None and keys is None:
        raise ConfigError("--offer: needs --roster and --key, which say who may ask")
    offered = b"" if offer is None else write_offer(config, offer)
    check_folders(config, SERVER)
    catch_signals()
    announcer = Announcer(
        SERVER, events=arguments.events, quiet=config.quiet, own_terminal=True, carrier=CARRIER, journal=journal
    )
    allow_files(clients)
    with contextlib.ExitStack() as stack:
        shown = [] if status is None else listen(status, "--status")
        for listener in shown:
            stack.callback(listener.close)
        listeners = listen(address)
        transport = stack.enter_context(
            TcpServer(
                listeners,
                clients,
                keys=keys,
                note=announcer.note,
                warn=_log.warning,
                stall_s=config.deadline / 2,
                adds_up=keys is not None and find_protocol(config.protocol).adds_up(config),
                reconnect_s=config.reconnect_s,
                silence_s=config.silence_s,
                balancers=balancers,
                offer=offered,
            )
        )
        announcer.view.clients = clients
        announcer.view.earlier = _earlier(arguments, config.state_dir)
        announcer.view.absent = lambda: [party.rank for party in transport.absent]
        at = Address(address.host, listeners[0].getsockname()[1])
        announcer.note(
            f"listening at {at} ({CONNECTION[keys is not None]}); waiting {config.setup_deadline:g} s for "
            f"{format_count(clients, 'client')}"
        )
        page = None
        if status is not None:
            page = stack.enter_context(contextlib.closing(StatusPage(shown, announcer.view, status.host)))
            announcer.note(f"status at http://{Address(status.host, page.port)}/")
        ending, carrier = run_party(config, transport, announcer, approve=approve)
        carrier.close(lost=ending.lost)
        if page is not None and arguments.status_linger:
            announcer.note(f"the status stays for {arguments.status_linger:g} s (--status-linger)")
            page.linger(arguments.status_linger)
    return ending.code


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd serve",
        usage="%(prog)s --listen HOST:PORT [flags]",
        description="Serve a federated clustering; clients connect with `fastlloyd join` (docs/sites.md).",
        epilog=EXIT_CODES,
    )
    parser.add_argument(
        "--listen", required=True, metavar="HOST:PORT", help="where clients connect; *:PORT for all addresses"
    )
    parser.add_argument("--clients", type=int, metavar="M", help="number of clients (default: from the roster)")
    parser.add_argument(
        "--parent",
        metavar="HOST:PORT",
        help="run an aggregator: pass clients on to the `fastlloyd serve` that listens there, and add their updates up",
    )
    parser.add_argument(
        "--require-approvals",
        metavar="DIR",
        help="refuse the run unless DIR has each client's approval (`fastlloyd agree`) of exactly this run",
    )
    parser.add_rare(
        "--offer",
        metavar="NAME",
        help="send the public values of this run, for consent, to clients that ask (`fastlloyd site`, ask = true)",
    )
    parser.add_argument(
        "--status",
        metavar="HOST:PORT",
        help="serve the progress of the run as a page, JSON and metrics, such as at 127.0.0.1:4401",
    )
    parser.add_rare("--status-remote", action="store_true", help="let --status listen where others can reach it")
    parser.add_rare(
        "--status-linger",
        type=number(float, 0.0, _MOST_LINGER_S),
        metavar="SECONDS",
        help="keep --status after the end, so that how the run ended is seen; a signal ends it",
    )
    parser.add_rare(
        "--proxy-protocol",
        metavar="ADDRESSES",
        help="load balancers (10.0.0.7,10.1.0.0/24) that state their clients' addresses by the PROXY protocol",
    )
    add_run_options(
        parser,
        unused=("data", "missing", "id", "evaluate", "budget", "budget_delta", "transport", "network", "print_result"),
        needed=BETWEEN_SITES,
    )
    return parser
