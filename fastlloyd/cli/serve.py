"""`fastlloyd serve`: the server of a run whose sites no single mpirun can start."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastlloyd.cli.options import (
    BETWEEN_SITES,
    EXIT_CODES,
    Parser,
    add_run_options,
    parse_run_options,
    show_in_long_help,
)
from fastlloyd.errors import ConfigError, format_count
from fastlloyd.net.tcp.address import Address, Network, listen, parse_address
from fastlloyd.run.config import RunConfig
from fastlloyd.run.rank import catch_signals, limit_threads, run_party, start_log
from fastlloyd.run.run_file import without_records
from fastlloyd.wire.header import SERVER

if TYPE_CHECKING:
    from fastlloyd.net.tcp.admission import Keys
    from fastlloyd.report.lines import Journal
    from fastlloyd.run.execute import Approve
    from fastlloyd.run.own_rank import OwnRank

_log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Listen on one port, wait for all clients, and run as the server.

    Raises
    ------
    ConfigError
        Flags, roster, key, or a port that cannot be had.
    """
    limit_threads()
    config, arguments = parse_run_options(parser(), argv)
    config = without_records(config)
    journal = start_log(config, SERVER.rank)
    address = parse_address(arguments.listen, "--listen", listening=True)
    from fastlloyd.run.files import refuse_other_files
    from fastlloyd.run.own_rank import find_own_rank

    place = find_own_rank(config, SERVER.rank)
    if arguments.parent is not None:
        return pass_on(config, arguments, address, place, journal=journal)
    service = _prepare(config, arguments, address, place)
    refuse_other_files(config, SERVER)
    catch_signals()
    return _serve(service, config, arguments, journal)


def pass_on(
    config: RunConfig, arguments: argparse.Namespace, address: Address, place: OwnRank, *, journal: Journal
) -> int:
    """Be an aggregator, below `--parent`; flags of the server itself are refused.

    Raises
    ------
    ConfigError, PeerError
        As `supervise.aggregate.aggregate`; or a flag has no meaning here.
    """
    from fastlloyd.supervise.aggregate import aggregate

    parent = parse_address(arguments.parent, "--parent")
    _refuse_flags(arguments)
    return aggregate(config, parent, address, place, events=arguments.events, journal=journal)


def _refuse_flags(arguments: argparse.Namespace) -> None:
    """Refuse flags of `serve` that an aggregator has no use for."""
    reasons = {
        "--require-approvals": "it is for the server itself, an aggregator (--parent) decides nothing",
        "--proxy-protocol": "an aggregator (--parent) takes connections from its clients alone",
        "--offer": "it is for the server itself, an aggregator (--parent) passes on its parent's",
        "--status": "it is for the server itself, an aggregator (--parent) knows nothing of the run",
        "--status-remote": "it is for the server itself, an aggregator (--parent) knows nothing of the run",
    }
    for flag, reason in reasons.items():
        if getattr(arguments, flag.removeprefix("--").replace("-", "_")) not in (None, False):
            raise ConfigError(f"{flag}: {reason}; leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """What the flags of a server say, checked before anything is opened."""

    address: Address
    clients: int
    keys: Keys | None
    balancers: tuple[Network, ...]
    approve: Approve | None
    status: Address | None
    offer: bytes
    adds_up: bool


def _prepare(config: RunConfig, arguments: argparse.Namespace, address: Address, place: OwnRank) -> _Service:
    """Check the flags of a server, and read the files that they name."""
    from fastlloyd.dossier.approval import approved_by_all
    from fastlloyd.net.tcp.forwarded import parse_networks
    from fastlloyd.run.own_rank import connection_keys

    named, folder, offer = arguments.proxy_protocol, arguments.require_approvals, arguments.offer
    balancers = () if named is None else parse_networks(named, "--proxy-protocol")
    clients = _count_clients(arguments.clients, place)
    approve = None if folder is None else approved_by_all(Path(folder), config)
    status = _status_address(arguments)
    keys = connection_keys(place)
    return _Service(
        address=address,
        clients=clients,
        keys=keys,
        balancers=balancers,
        approve=approve,
        status=status,
        offer=b"" if offer is None else _offered(offer, config, keys),
        adds_up=keys is not None and _adds_up(config),
    )


def _count_clients(stated: int | None, place: OwnRank) -> int:
    """Return the number of clients: the roster's or, without one, the stated one."""
    count = stated if place.clients is None else place.clients
    if count is None:
        raise ConfigError("--clients: expected the number of clients, or a --roster, which tells it")
    if stated not in (None, count):
        raise ConfigError(
            f"--clients: the roster names {format_count(count, 'client')}, got {stated}; leave the flag out"
        )
    return count


def _status_address(arguments: argparse.Namespace) -> Address | None:
    """Return where the run under way is shown, if it is."""
    from fastlloyd.watch.status import check_address

    if arguments.status is not None:
        status = parse_address(arguments.status, "--status", listening=True)
        check_address(status, remote=arguments.status_remote)
        return status
    if arguments.status_remote:
        raise ConfigError("--status-remote: expected with --status HOST:PORT, which it opens to others")
    return None


def _serve(service: _Service, config: RunConfig, arguments: argparse.Namespace, journal: Journal) -> int:
    """Open the port, let all clients in, and run; give the exit code."""
    from fastlloyd.net.tcp.door import allow_files
    from fastlloyd.net.tcp.hub import TcpServer
    from fastlloyd.report.announcer import Announcer
    from fastlloyd.run.own_rank import CARRIER, CONNECTION
    from fastlloyd.watch.status import StatusPage

    announcer = Announcer(
        SERVER, events=arguments.events, quiet=config.quiet, own_terminal=True, carrier=CARRIER, journal=journal
    )
    allow_files(service.clients)
    with contextlib.ExitStack() as stack:
        shown = [] if service.status is None else listen(service.status, "--status")
        for listener in shown:
            stack.callback(listener.close)
        listeners = listen(service.address)
        transport = stack.enter_context(
            TcpServer(
                listeners,
                service.clients,
                keys=service.keys,
                note=announcer.note,
                warn=_log.warning,
                stall_s=config.deadline / 2,
                adds_up=service.adds_up,
                reconnect_s=config.reconnect_s,
                balancers=service.balancers,
                offer=service.offer,
            )
        )
        announcer.view.clients = service.clients
        announcer.view.absent = lambda: [party.rank for party in transport.absent]
        at = Address(service.address.host, listeners[0].getsockname()[1])
        announcer.note(
            f"listening at {at} ({CONNECTION[service.keys is not None]}); waiting {config.setup_deadline:g} s for "
            f"{format_count(service.clients, 'client')}"
        )
        if service.status is not None:
            page = stack.enter_context(contextlib.closing(StatusPage(shown, announcer.view, service.status.host)))
            announcer.note(f"status at http://{Address(service.status.host, page.port)}/")
        ending, carrier = run_party(config, transport, announcer, approve=service.approve)
        carrier.close(lost=ending.lost)
    return ending.code


def _offered(name: str, config: RunConfig, keys: Keys | None) -> bytes:
    """Return what sites that ask are told of this run."""
    from fastlloyd.supervise.offers import write_offer

    if keys is None:
        raise ConfigError("--offer: needs --roster and --key, which say who may ask")
    return write_offer(config, name)


def _adds_up(config: RunConfig) -> bool:
    """Whether aggregators can add the clients' updates up on their way."""
    from fastlloyd.run.session import find_protocol

    return find_protocol(config.protocol).adds_up(config)


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd serve",
        usage="%(prog)s --listen HOST:PORT [flags]",
        description="Serve a federated clustering; the clients come by `fastlloyd join` (docs/sites.md).",
        epilog=EXIT_CODES,
    )
    parser.add_argument(
        "--listen", required=True, metavar="HOST:PORT", help="where clients connect; *:PORT for all addresses"
    )
    parser.add_argument("--clients", type=int, metavar="M", help="how many clients (default: as the roster says)")
    parser.add_argument(
        "--parent",
        metavar="HOST:PORT",
        help="be an aggregator: pass clients on to the `fastlloyd serve` that listens there, add up what they send",
    )
    parser.add_argument(
        "--require-approvals",
        metavar="DIR",
        help="refuse the run unless DIR has an approval of each client (`fastlloyd agree`) of exactly this run",
    )
    show_in_long_help(
        parser.add_argument(
            "--offer",
            metavar="NAME",
            help="tell clients that ask (`fastlloyd site`, with ask = true) the public values of this run, for consent",
        )
    )
    parser.add_argument(
        "--status",
        metavar="HOST:PORT",
        help="show the run under way as a page, JSON and metrics, such as 127.0.0.1:4401",
    )
    show_in_long_help(
        parser.add_argument(
            "--status-remote", action="store_true", help="let --status listen where others can reach it"
        )
    )
    show_in_long_help(
        parser.add_argument(
            "--proxy-protocol",
            metavar="ADDRESSES",
            help="load balancers (10.0.0.7,10.1.0.0/24) that say by the PROXY protocol whose connections they pass on",
        )
    )
    add_run_options(
        parser,
        unused=("data", "missing", "id", "evaluate", "budget", "budget_delta", "transport", "network", "print_result"),
        needed=BETWEEN_SITES,
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
