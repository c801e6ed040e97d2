"""`fastlloyd doctor`: check this environment and say what to fix, one line each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fastlloyd.cli.options import Parser
from fastlloyd.errors import EXIT_INPUT, EXIT_OK
from fastlloyd.report.display import paint
from fastlloyd.report.unit import format_count
from fastlloyd.supervise.environment import FAIL, examine, probe


def main(argv: Sequence[str]) -> int:
    """Run all checks and print one line for each finding.

    Returns
    -------
    int
        0 when nothing fails (warnings are fine), else 2.
    """
    arguments = parser().parse_args(argv)
    if arguments.probe is not None:
        return probe(arguments.probe)
    failed = 0
    for finding in examine(arguments.ranks, None if arguments.roster is None else Path(arguments.roster)):
        failed += finding.level == FAIL
        sys.stdout.write(paint(f"{finding.level:<5} {finding.text}\n", sys.stdout))
        sys.stdout.flush()
    sys.stdout.write("all well\n" if not failed else f"{format_count(failed, 'check')} failed\n")
    return EXIT_INPUT if failed else EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(prog="fastlloyd doctor", description="Check this environment and say what to fix.")
    parser.add_argument("--ranks", type=int, default=3, metavar="N", help="processes that will share this host")
    parser.add_argument("--roster", metavar="FILE", help="also look at the dates of its certificates")
    parser.add_argument("--probe", choices=("shm", "tcp"), help="internal: what each rank of the test runs")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
