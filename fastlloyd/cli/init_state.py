"""`fastlloyd init-state`: make a party's state directory, once, before its first run with it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fastlloyd.cli.options import Parser
from fastlloyd.errors import EXIT_OK, ConfigError, printable
from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.own_rank import find_own_rank
from fastlloyd.run.state import StateDir
from fastlloyd.wire.header import PartyId

_MOST_RANK = 100_000


def main(argv: Sequence[str]) -> int:
    """Make an empty ledger for each party, and its lifetime limit where one is given.

    Raises
    ------
    ConfigError
        Runs were made with it already, another limit stands there, or it cannot be written.
    """
    options = parser().parse_args(argv)
    if (options.budget is None) != (options.budget_delta is None):
        raise ConfigError("--budget and --budget-delta belong together: epsilon says nothing without its delta")
    budget, delta = (
        None if value is None else OPTIONS[name].read(value)
        for name, value in (("budget", options.budget), ("budget_delta", options.budget_delta))
    )
    for me in _parties(options):
        state = StateDir(options.folder, me, new=True)
        with state.open_ledger():
            limit = state.terms.limit(budget, 0.0, stated=delta)
            if limit is not None:
                state.terms.keep_limit(limit)
        limited = "no budget" if limit is None else f"budget {limit.epsilon:g} at delta {limit.delta:g}"
        print(printable(f"made: {state.path}, the state of {me}; nothing spent, {limited}"))
    return EXIT_OK


def _parties(options: argparse.Namespace) -> list[PartyId]:
    """Return whose state is made."""
    if options.roster is not None or options.key is not None:
        if options.n is not None:
            raise ConfigError("-n is for all parties of one host, --roster and --key are for one; give one of the two")
        return [find_own_rank(RunConfig(roster=options.roster, key=options.key), options.rank).me]
    last = options.rank if options.n is None else options.n - 1
    if last is None:
        raise ConfigError("expected --rank RANK, or --roster and --key, or -n for all parties of one host; got none")
    if not 0 <= last <= _MOST_RANK:
        raise ConfigError(f"expected 0 for the server, or a client's number up to {_MOST_RANK}; see --help")
    return list(map(PartyId, [last] if options.n is None else range(options.n)))


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd init-state",
        description="Make a party's --state-dir before its first run with it. Runs refuse one that is not there: it "
        "might be on a disk that is not mounted, and its budget be spent.",
        epilog="Exit codes: 0 made, 2 there already, or bad input.",
    )
    parser.add_argument("folder", metavar="DIR", help="as for --state-dir; may contain '{client}'")
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--rank", type=int, help="this party's: 0 for the server, 1 and up for clients")
    who.add_argument("-n", type=int, metavar="N", help="for all N parties of a run on one host")
    parser.add_argument("--roster", metavar="FILE", help="with --key: the rank is that of the key")
    parser.add_argument("--key", metavar="FILE", help="this party's own")
    parser.add_argument("--budget", type=float, metavar="EPSILON", help="lifetime limit over all runs")
    parser.add_argument("--budget-delta", type=float, metavar="DELTA", help="the delta that belongs to it")
    return parser
