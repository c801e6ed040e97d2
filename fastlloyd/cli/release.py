"""`fastlloyd release`: show a person the result that a run with `--review` holds, and release it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fastlloyd.cli.options import Parser, ask, decision_parser
from fastlloyd.errors import EXIT_OK, printable
from fastlloyd.gate.decisions import NAME, check_note
from fastlloyd.gate.held import SHOWN_DIGITS, find_held, site_key
from fastlloyd.report.display import paint
from fastlloyd.report.document import load
from fastlloyd.report.files import read_centroids
from fastlloyd.report.table import render


def main(argv: Sequence[str]) -> int:
    """Show the held result, ask, record the decision, and write the files.

    Raises
    ------
    ConfigError
        No result waits, it was changed after the run, the key is wrong, it cannot be written, or the answer was no.

    Sees
    ----
    Everybody who reads the terminal sees released values; after a yes, everybody who may read the output folder.
    """
    options = parser().parse_args(argv)
    check_note(options.note)
    held = find_held(options.folder, options.run)
    key = site_key(held, options.key)
    waiting = held.check(key)
    output = (options.output or Path(waiting.output)).resolve()
    if "report.json" in waiting.files:
        document = load(held.folder / "report.json")
        table = render(document, read_centroids(held.folder / "centroids.csv", document["result"]))
        sys.stdout.write(paint(table, sys.stdout))
    own = f"; this party's alone: {', '.join(waiting.own)}" if waiting.own else ""
    print(printable(f"run {held.run[:SHOWN_DIGITS]}, held since {waiting.at}: {len(waiting.files)} files{own}"))
    if options.key is None:
        # Anybody who may write to the state directory may have put another key there, or none.
        named = f"signed with {waiting.key_file}" if waiting.public_key else "not signed"
        print(printable(f"{named}, as the ledger of decisions says; --key FILE makes sure of this site's own key"))
    if not options.yes:
        ask(printable(f"Type yes to release them to {output}:"), "not released; the result is held as before")
    held.release(output, overwrite=options.overwrite, note=options.note, key=key)
    print(printable(f"released: files in {output}; the decision stands in {held.state / NAME}"))
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = decision_parser(
        "fastlloyd release",
        "Show the result that a run with --review holds in its state directory, and release it after a yes.",
        "released",
    )
    parser.add_argument("--output", metavar="DIR", type=Path, help="output folder (default: the run's --output)")
    parser.add_argument("--overwrite", action="store_true", help="replace the files of another run there")
    return parser
