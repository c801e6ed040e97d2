"""`fastlloyd release`: show a person the result that a run with `--review` holds, and let it go."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fastlloyd.cli.arguments import ask
from fastlloyd.cli.options import Parser
from fastlloyd.cli.report import read_centroids
from fastlloyd.crypto.link.identity import load_key
from fastlloyd.errors import EXIT_OK, ConfigError, printable
from fastlloyd.gate.decisions import MOST_NOTE, NAME, Decisions
from fastlloyd.gate.held import SHOWN_DIGITS, Held, find_held
from fastlloyd.report.colour import paint
from fastlloyd.report.document import load
from fastlloyd.report.table import render


def main(argv: Sequence[str]) -> int:
    """Show what waits, ask, enter the decision, and write the files.

    Raises
    ------
    ConfigError
        Nothing waits, it was changed since the run, the key does not fit, it cannot be written, or the answer was no.

    Sees
    ----
    Whoever reads the terminal sees released values; after a yes, whoever may read the output folder.
    """
    options = parser().parse_args(list(argv))
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
        # Whoever may write to the state directory may have put another key there, or none.
        named = f"signed with {waiting.key_file}" if waiting.public_key else "not signed"
        print(printable(f"{named}, as the ledger of decisions says; --key FILE makes sure of this site's own key"))
    if not options.yes:
        ask(printable(f"Type yes to release them to {output}:"), "not released; the result is held as before")
    held.release(output, overwrite=options.overwrite, note=options.note, key=key)
    print(printable(f"released: files in {output}; the decision stands in {held.state / NAME}"))
    return EXIT_OK


def site_key(held: Held, given: Path | None) -> Ed25519PrivateKey | None:
    """Load the key of this site: the one that is given, or else the one that the run had."""
    if given is not None:
        return load_key(given)
    line = Decisions(held.state).held(held.run)
    return load_key(Path(line.key_file)) if line is not None and line.key_file else None


def check_note(note: str) -> None:
    """Refuse a note that the ledger of decisions cannot hold."""
    if len(note) > MOST_NOTE:
        raise ConfigError(f"--note: expected at most {MOST_NOTE} characters, got {len(note)}")


def decision_parser(prog: str, description: str, verb: str) -> Parser:
    """Return the flags that both decisions take."""
    parser = Parser(prog=prog, description=description, epilog=f"Exit codes: 0 {verb}, 2 not {verb}, or bad input.")
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="the --state-dir of the run, or one party's folder in it"
    )
    parser.add_argument("--run", metavar="ID", default="", help="how the run's id begins, where several results wait")
    parser.add_argument("--key", metavar="FILE", type=Path, help="this site's own key (default: the one of the run)")
    parser.add_argument("--note", metavar="TEXT", default="", help="kept with the decision: who decided, and why")
    parser.add_argument("--yes", action="store_true", help="do not ask; for scripts")
    return parser


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = decision_parser(
        "fastlloyd release",
        "Show the result that a run with --review holds in its state directory, and let it go after a yes.",
        "released",
    )
    parser.add_argument("--output", metavar="DIR", type=Path, help="where it goes (default: as the run was told)")
    parser.add_argument("--overwrite", action="store_true", help="replace the files of another run there")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
