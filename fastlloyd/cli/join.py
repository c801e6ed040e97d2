"""`fastlloyd join`: one client of a run whose sites no single mpirun can start."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fastlloyd.cli.options import Parser, add_run_options, parse_run_options
from fastlloyd.cli.serve import CARRIER, CONNECTION, connection_keys
from fastlloyd.errors import ConfigError
from fastlloyd.net.tcp.address import parse_address
from fastlloyd.run.rank import catch_signals, limit_threads, run_party, start_log


def main(argv: Sequence[str]) -> int:
    """Connect to the server, be let in, and run as that client.

    Raises
    ------
    ConfigError
        Flags, roster, key or rank, or a host that does not exist.
    PeerError
        No server let this client in.
    """
    limit_threads()
    config, arguments = parse_run_options(_parser(), argv)
    address = parse_address(arguments.server, "--server")
    if arguments.rank is not None and arguments.rank < 1:
        raise ConfigError(f"--rank: expected a client's number, 1 or more, got {arguments.rank}")
    from fastlloyd.net.tcp.spoke import join
    from fastlloyd.report.announcer import Announcer
    from fastlloyd.run.inputs import find_place

    place = find_place(config, arguments.rank)
    keys = connection_keys(place)
    start_log(config, place.me.rank)
    catch_signals()
    announcer = Announcer(place.me, events=arguments.events, quiet=config.quiet, own_terminal=True, carrier=CARRIER)
    with join(address, place.me.rank, keys=keys, deadline_s=config.setup_deadline, note=announcer.note) as transport:
        announcer.note(
            f"joined {address} as {place.me} of {len(transport.peers)} ({CONNECTION[keys is not None]}); "
            "waiting for the others"
        )
        ending, carrier = run_party(config, transport, announcer)
        carrier.close(lost=ending.lost)
    return ending.code


def _parser() -> Parser:
    """Describe the flags."""
    parser = Parser(
        prog="fastlloyd join",
        description="Join a federated clustering that `fastlloyd serve` serves (docs/sites.md).",
        epilog="Exit codes: 0 done, 2 bad input or configuration, 3 a peer failed, 4 budget exceeded, 70 a bug.",
    )
    parser.add_argument("--server", required=True, metavar="HOST:PORT", help="where `fastlloyd serve` listens")
    parser.add_argument("--rank", type=int, metavar="R", help="this client's number (default: as roster and key say)")
    add_run_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
