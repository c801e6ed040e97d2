"""`fastlloyd cite`: what to cite for a run, as BibTeX."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fastlloyd.cli.options import Parser
from fastlloyd.errors import EXIT_OK
from fastlloyd.protocols.registry import find
from fastlloyd.report.citation import bibtex


def main(argv: Sequence[str]) -> int:
    """Print the entries of the software and of a protocol's paper; return 0.

    Raises
    ------
    ConfigError
        No protocol has this name.
    """
    name = parser().parse_args(argv).protocol
    sys.stdout.write(bibtex(None if name is None else find(name)))
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd cite",
        description="Print what to cite, as BibTeX: the software, and the paper that a protocol comes from.",
    )
    parser.add_argument("protocol", nargs="?", metavar="PROTOCOL", help="as for --protocol (default: all papers)")
    return parser
