"""`fastlloyd agree`: show a site what it is about to take part in, and write its signed approval."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from fastlloyd.cli.consent import ask_consent
from fastlloyd.cli.options import Parser, add_site_option
from fastlloyd.dossier.approval import read_expiry
from fastlloyd.errors import EXIT_OK, ConfigError


def main(argv: Sequence[str]) -> int:
    """Show the run, ask, and write the approval.

    Raises
    ------
    ConfigError
        Run file, roster or key do not fit, nobody can be asked, or the answer was not yes.
    """
    options = parser().parse_args(argv)
    given = {name: getattr(options, name) for name in ("roster", "key") if getattr(options, name) is not None}
    ask_consent(
        options.config,
        given,
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
        raise ConfigError(f"--expires {text}: expected a day or time to come, this one has passed")
    return text


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd agree",
        description="Show this site what it is about to take part in, and write its signed approval; opens no records "
        "and contacts nobody.",
        epilog="Exit codes: 0 approved, 2 not approved, or bad input.",
    )
    parser.add_argument("--config", required=True, metavar="FILE.toml", help="the run file that all parties share")
    add_site_option(parser)
    parser.add_argument("--roster", metavar="FILE", help="the parties (default: as the run file says)")
    parser.add_argument("--key", metavar="FILE", help="this site's own key (default: as --site says)")
    parser.add_argument("--output", metavar="FILE", help="where the approval goes (default approval_RANK.json)")
    parser.add_argument("--d", type=int, help="number of features, where neither bounds nor columns name them")
    parser.add_argument(
        "--expires", type=_expiry, metavar="DAY|TIME", help="until when it holds: 2027-01-31, or a time with its zone"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask; for scripts")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
