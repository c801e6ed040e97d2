"""`fastlloyd plan`: what a run would do, from public numbers alone: rounds, noise, arithmetic, bytes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fastlloyd.cli.options import Parser, add_run_options, parse_run_options

_UNUSED = (
    *("data", "columns", "missing", "id", "categories", "split", "evaluate", "roster", "key", "transport", "network"),
    *("delay", "deadline", "setup_deadline", "budget", "state_dir", "resume", "output", "print_result", "quiet"),
    *("log_level", "log_file", "workers"),
)
"""A plan opens no private file and starts nothing; it takes their flags, for it reads the run file of a run."""


def main(argv: Sequence[str]) -> int:
    """Print the plan and return 0; no data is opened but a public --dataset, and no key."""
    config, arguments = parse_run_options(parser(), argv, links=False)
    from fastlloyd.run.session import find_face

    lines = find_face(config.protocol).plan_lines(config, arguments.n - 1, arguments.d)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd plan",
        usage="%(prog)s [-n N] [--d D] [flags]",
        description="Show what a run would do, from public numbers alone; opens no private data.",
    )
    parser.add_argument(
        "-n", type=int, default=3, metavar="N", help="processes: a server and N - 1 clients (default 3)"
    )
    parser.add_argument("--d", type=int, help="number of features (default: those of --dataset)")
    add_run_options(parser, unused=_UNUSED)
    return parser
