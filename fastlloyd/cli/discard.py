"""`fastlloyd discard`: refuse the result that a run with `--review` holds, and remove it."""

from __future__ import annotations

from collections.abc import Sequence

from fastlloyd.cli.options import Parser, ask, decision_parser
from fastlloyd.errors import EXIT_OK, printable
from fastlloyd.gate.decisions import NAME, check_note
from fastlloyd.gate.held import SHOWN_DIGITS, find_held, site_key


def main(argv: Sequence[str]) -> int:
    """Ask, record the decision, and remove the files; the privacy ledger stays unchanged.

    Raises
    ------
    ConfigError
        No result waits, it was released already, the key is wrong, or the answer was no.
    """
    options = parser().parse_args(argv)
    check_note(options.note)
    held = find_held(options.folder, options.run)
    key = site_key(held, options.key)
    run = held.run[:SHOWN_DIGITS]
    if not options.yes:
        ask(
            printable(f"Type yes to remove the result of run {run} in {held.folder}:"),
            "not discarded; the result is held as before",
        )
    held.discard(note=options.note, key=key)
    print(
        printable(
            f"discarded: run {run}; the decision stands in {held.state / NAME}. What the run has spent stays spent, "
            "and the other parties have what the protocol sent them"
        )
    )
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    return decision_parser(
        "fastlloyd discard",
        "Refuse the result that a run with --review holds in its state directory, and remove its files after a yes.",
        "discarded",
    )
