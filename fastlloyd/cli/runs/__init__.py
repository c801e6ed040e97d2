"""`fastlloyd runs`: all runs of a state directory, in one table."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fastlloyd.cli.options import Parser, add_ledger_options
from fastlloyd.errors import EXIT_OK, ConfigError, printable
from fastlloyd.report.files import PRIVATE_MODE, write_atomic
from fastlloyd.report.page.render import render
from fastlloyd.run.history import past_runs, read_ledgers, run_lines, run_values, runs_csv, summary_lines


def main(argv: Sequence[str]) -> int:
    """Show the runs of each party of a state directory.

    Raises
    ------
    ConfigError
        There is no ledger, one is damaged or held by a run, or a history is damaged.

    Sees
    ----
    Everybody who reads the terminal or the page sees names of parties, folders of this machine, and released verdicts.
    """
    options = parser().parse_args(argv)
    lines, parties, rows = [], [], []
    for summary in read_ledgers(Path(options.folder), options.delta):
        runs = past_runs(summary)
        own = [run_values(summary, one) for one in runs]
        lines += [*summary_lines(summary), "", *run_lines(runs), ""]
        parties.append((list(summary_lines(summary)), own))
        rows += own
    if options.html is not None:
        if options.html.is_dir():
            raise ConfigError(f"--html {options.html}: expected a file, got a folder")
        text = render("runs.html", parties=parties, folder=str(options.folder))
        write_atomic(options.html, text, mode=PRIVATE_MODE, flag="--html")
        sys.stdout.write(printable(f"wrote {options.html}") + "\n")
    elif options.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    elif options.csv:
        sys.stdout.write(runs_csv(rows) if rows else "")
    else:
        sys.stdout.write(printable("\n".join(lines), lines=True))
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd runs",
        description="List all runs of a state directory: when, with whom, epsilon, what is left, verdict and result.",
        epilog="Exit codes: 0 shown, 2 no ledger there, or a damaged file.",
    )
    add_ledger_options(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as a list of objects")
    form.add_argument("--csv", action="store_true", help="as a table for spreadsheets")
    form.add_argument("--html", metavar="FILE", type=Path, help="as a page, for this site alone (mode 0600)")
    return parser
