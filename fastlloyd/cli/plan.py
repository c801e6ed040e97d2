"""`fastlloyd plan`: show what a run would do, from public numbers alone: rounds, noise, arithmetic, bytes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fastlloyd.cli.options import Parser, add_run_options, parse_run_options
from fastlloyd.errors import ConfigError
from fastlloyd.run.config import RunConfig

_UNUSED = (
    *("data", "query", "table", "columns", "missing", "id", "categories", "split", "evaluate", "roster", "key"),
    *("described", "passphrase_file", "transport", "network", "delay", "reconnect", "budget", "budget_delta"),
    *("state_dir", "new_state", "resume", "output", "overwrite", "print_result", "review", "quiet", "log_level"),
    *("log_file", "log_format", "metrics", "workers", "threads", "memory"),
)
"""A plan opens no private file and starts nothing; it accepts these flags because run files have them."""


def main(argv: Sequence[str]) -> int:
    """Print the plan and return 0; opens no data except a public --dataset, and no key."""
    config, arguments = parse_run_options(parser(), argv, links=False)
    from fastlloyd.run.rank import limit_threads

    limit_threads()  # what is measured is measured as in a run
    from fastlloyd.report.citation import study_words
    from fastlloyd.report.outlook import PlanLine
    from fastlloyd.run.config import study
    from fastlloyd.run.session import find_protocol

    clients = _clients(config) if arguments.n is None else arguments.n - 1
    d = _features(config, arguments.d)
    if config.bounds_share is not None:
        from fastlloyd.protocols.private_bounds.inputs import split_run

        lines = [*split_run(config, clients, d).plan_lines(clients, d)]
    else:
        lines = find_protocol(config.protocol).plan_lines(config, clients, d)
        number = config.row.results
        version = f"version {number} of {config.protocol}; a party with another version is refused"
        lines.insert(1, PlanLine("results", version))
    if about := study_words(study(config)):
        lines.insert(1, PlanLine("study", about))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _clients(config: RunConfig) -> int:
    """Return the number of clients that the run file implies."""
    from fastlloyd.crypto.link.roster import Roster

    if config.roster is not None and Path(config.roster).exists():
        roster = Roster.load(Path(config.roster))
        roster.check_complete()
        return len(roster.entries) - 1
    return len(config.client_caps) or 2


def _features(config: RunConfig, d: int | None) -> int | None:
    """Return the number of features that the public files name; it must equal d if that is given.

    Raises
    ------
    ConfigError
        They name another number.
    """
    from fastlloyd.data.bounds import parse_bounds
    from fastlloyd.data.categories import Categories
    from fastlloyd.report.unit import format_count
    from fastlloyd.run.inputs import count_features

    if config.dataset is not None or config.row.partition == "vertical":
        return d
    categories = Categories() if config.categories is None else Categories.read(config.categories)
    known = config.bounds is not None and config.bounds_share is None
    bounds = categories.bounds(parse_bounds(config.bounds or "")) if known else None
    named = count_features(config.columns, bounds, categories)
    if d is not None and named is not None and d != named:
        source = "--columns names" if config.columns else f"{config.bounds} names"
        raise ConfigError(f"--d {d}: {source} {format_count(named, 'feature')}; leave --d out, or correct one of them")
    return named if d is None else d


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd plan",
        usage="%(prog)s [-n N] [--d D] [flags]",
        description="Show what a run would do, from public numbers alone; opens no private data.",
    )
    parser.add_argument(
        "-n",
        type=int,
        metavar="N",
        help="processes: a server and N - 1 clients (default: from the roster or --client-caps, else 3)",
    )
    parser.add_argument("--d", type=int, help="number of features (default: from bounds, --columns or --dataset)")
    add_run_options(parser, unused=_UNUSED)
    return parser
