"""`fastlloyd ledger`: what runs have spent, by the records and by whom epsilon protects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastlloyd.cli.options import Parser
from fastlloyd.errors import EXIT_OK, ConfigError, printable
from fastlloyd.gate.held import SHOWN_DIGITS, party_folders
from fastlloyd.privacy.accountant import spent as spent_by
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import Release
from fastlloyd.report.unit import format_count, format_epsilon
from fastlloyd.run.state import LEDGER, StateDir

_DELTA = 1e-6


def main(argv: Sequence[str]) -> int:
    """Show the ledgers of a state directory, each checked as a run checks it.

    Raises
    ------
    ConfigError
        There is none, it is damaged or shorter than it was, or a run holds it.

    Sees
    ----
    Everybody who reads the terminal sees public parameters, and which runs used the same records in the same form.
    Other bounds or features, or the columns of a description, make another digest of the same people.
    """
    options = parser().parse_args(argv)
    folder = Path(options.folder)
    found = [path for path in (folder, *party_folders(folder)) if (path / LEDGER).exists()]
    if not found:
        raise ConfigError(
            f"{folder}: expected a --state-dir, or one party's folder in it, got no {LEDGER} there; if runs were made "
            "with it, check the path, and that its disk is mounted"
        )
    for path in found:
        state = StateDir.of(path)
        with state.open_ledger() as ledger:
            lines = list(_lines(state, ledger, options.delta))
        print(printable("\n".join(lines), lines=True))
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd ledger",
        description="Show what the runs of a state directory have spent, and what is left of the budget.",
        epilog="Exit codes: 0 shown, 2 no ledger there, or a damaged one.",
    )
    parser.add_argument("folder", metavar="DIR", help="a --state-dir, or one party's folder in it")
    parser.add_argument(
        "--delta", type=float, help=f"at which epsilon is read (default: the budget's, or {_DELTA:g} without one)"
    )
    return parser


def _lines(state: StateDir, ledger: Ledger, delta: float | None) -> Iterator[str]:
    """Yield what a party's ledger says."""
    releases, limit, unit = ledger.releases, state.terms.kept, state.terms.unit
    if delta is None:
        delta = _DELTA if limit is None else limit.delta
    kinds: dict[tuple[str, str], list[Release]] = {}
    for release in releases:
        kinds.setdefault((release.data, release.neighbours), []).append(release)
    runs = len({release.run for release in releases})
    whom = "rows" if unit is None else f"people ({unit})"
    yield f"{state.path}: {format_count(len(releases), 'release')} of {format_count(runs, 'run')}, for {whom}"
    yield f"  together {_epsilon(ledger.total(delta))} at delta {delta:g}"
    if limit is not None:
        spent = ledger.total(limit.delta)
        left = f"{limit.epsilon - spent:.4g} left" if spent <= limit.epsilon else "nothing left"
        yield f"  budget {limit.epsilon:g} at delta {limit.delta:g}: {left}"
    if len({release.data for release in releases if release.data}) > 1:
        yield "  the same people may stand under several records: a digest is of records as a run used them"
    for (data, neighbours), those in kinds.items():
        named = f"records {data[:SHOWN_DIGITS]}" if data else "no records"
        yield f"  {named}: {_epsilon(spent_by(those, delta))} for {neighbours}"
        for run in dict.fromkeys(release.run for release in those):
            part = [release for release in those if release.run == run]
            count = format_count(len(part), "release")
            yield f"    run {run[:SHOWN_DIGITS]}: {_epsilon(spent_by(part, delta))}, {count}"


def _epsilon(value: float) -> str:
    """Write what was spent."""
    return "no epsilon holds" if math.isinf(value) else f"epsilon {format_epsilon(value)}"
