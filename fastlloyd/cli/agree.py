"""`fastlloyd agree`: show a site the run that it is asked to join, and write its signed approval."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from fastlloyd.cli.options import Parser, add_planned_run_options, ask, given_options
from fastlloyd.dossier.approval import read_expiry
from fastlloyd.dossier.consent import ask_consent
from fastlloyd.errors import EXIT_OK, ConfigError


def main(argv: Sequence[str]) -> int:
    """Show the run, ask, and write the approval.

    Raises
    ------
    ConfigError
        Run file, roster or key are wrong, nobody can be asked, or the answer was not yes.
    """
    options = parser().parse_args(argv)
    ask_consent(
        options.config,
        given_options(options),
        ask,
        output=options.output,
        site=options.site,
        d=options.d,
        expires=options.expires,
        yes=options.yes,
    )
    return EXIT_OK


def _expiry(text: str) -> str:
    """Check when an approval ends."""
    try:
        end = read_expiry(text)
    except ValueError as error:
        raise ConfigError(f"--expires: {error}") from error
    if end <= datetime.now(UTC):
        raise ConfigError(f"--expires {text}: expected a day or time in the future, this one has passed")
    return text


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd agree",
        description="Show this site the run that it is asked to join, and write its signed approval; opens no records "
        "and contacts nobody.",
        epilog="Exit codes: 0 approved, 2 not approved, or bad input.",
    )
    add_planned_run_options(parser)
    parser.add_argument("--key", metavar="FILE", help="this site's own key (default: from --site)")
    parser.add_argument("--passphrase-file", metavar="FILE", help="of an encrypted key (default: from --site)")
    parser.add_argument("--output", metavar="FILE", help="file of the approval (default approval_RANK.json)")
    parser.add_argument(
        "--expires", type=_expiry, metavar="DAY|TIME", help="when it expires: 2027-01-31, or a time with its zone"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask; for scripts")
    return parser
