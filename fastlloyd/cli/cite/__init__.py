"""`fastlloyd cite`: what to cite for a run, as BibTeX."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fastlloyd.cli.options import Parser
from fastlloyd.errors import EXIT_OK
from fastlloyd.protocols.registry import find
from fastlloyd.report.citation import bibtex, cite_run
from fastlloyd.report.document import load


def main(argv: Sequence[str]) -> int:
    """Print the entries of the software and of a protocol's paper, of a run's folder also the run's; return 0.

    Raises
    ------
    ConfigError
        No protocol has this name, or the folder has no report.
    """
    name = parser().parse_args(argv).protocol
    if name is not None and Path(name).is_dir():
        report = load(Path(name) / "report.json")
        sys.stdout.write(f"{cite_run(report)[1]}\n{bibtex(find(report['protocol']), report['version'])}")
    else:
        sys.stdout.write(bibtex(None if name is None else find(name)))
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd cite",
        description="Print what to cite, as BibTeX: a run, the software, and the paper that a protocol comes from.",
    )
    parser.add_argument(
        "protocol",
        nargs="?",
        metavar="PROTOCOL|DIR",
        help="as for --protocol (default: all papers), or the folder of a run",
    )
    return parser
