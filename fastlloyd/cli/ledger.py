"""`fastlloyd ledger`: what runs have spent, by the records and by whom epsilon protects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fastlloyd.cli.options import Parser, add_ledger_options
from fastlloyd.errors import EXIT_OK, printable
from fastlloyd.gate.held import SHOWN_DIGITS
from fastlloyd.privacy.accountant import spent as spent_by
from fastlloyd.privacy.release import Release
from fastlloyd.report.unit import format_count
from fastlloyd.run.history import LedgerSummary, epsilon_words, read_ledgers, summary_lines


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
    for summary in read_ledgers(Path(options.folder), options.delta):
        print(printable("\n".join(_lines(summary)), lines=True))
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd ledger",
        description="Show what the runs of a state directory have spent, and what is left of the budget.",
        epilog="Exit codes: 0 shown, 2 no ledger there, or a damaged one.",
    )
    add_ledger_options(parser)
    return parser


def _lines(summary: LedgerSummary) -> Iterator[str]:
    """Yield what a party's ledger says."""
    releases, delta = summary.releases, summary.delta
    yield from summary_lines(summary)
    kinds: dict[tuple[str, str], list[Release]] = {}
    for release in releases:
        kinds.setdefault((release.data, release.neighbours), []).append(release)
    if len({release.data for release in releases if release.data}) > 1:
        yield "  the same people may stand under several records: a digest is of records as a run used them"
    for (data, neighbours), those in kinds.items():
        named = f"records {data[:SHOWN_DIGITS]}" if data else "no records"
        yield f"  {named}: {epsilon_words(spent_by(those, delta))} for {neighbours}"
        for run in dict.fromkeys(release.run for release in those):
            part = [release for release in those if release.run == run]
            count = format_count(len(part), "release")
            yield f"    run {run[:SHOWN_DIGITS]}: {epsilon_words(spent_by(part, delta))}, {count}"
