"""`fastlloyd agree`: show a site what it is about to take part in, and write its signed approval."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from fastlloyd.cli.arguments import ask
from fastlloyd.cli.dossier import plan_run
from fastlloyd.cli.options import Parser, add_site_option
from fastlloyd.crypto.link.identity import group_hex, load_key, write_atomically
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.dossier.approval import read_expiry, sign_approval
from fastlloyd.dossier.content import summarise
from fastlloyd.errors import EXIT_OK, ConfigError, printable
from fastlloyd.run.run_file import load_config, refuse_own_keys
from fastlloyd.wire.values import digest, show_value

_MODE = 0o644
_WIDTH = 110


def main(argv: Sequence[str]) -> int:
    """Show the run, ask, and write the approval.

    Raises
    ------
    ConfigError
        Run file, roster or key do not fit, nobody can be asked, or the answer was not yes.
    """
    options = parser().parse_args(argv)
    given = {name: getattr(options, name) for name in ("roster", "key") if getattr(options, name) is not None}
    refuse_own_keys(options.config)
    config = load_config(options.config, given, links=False, site=options.site)
    if config.roster is None or config.key is None:
        raise ConfigError("agree needs --roster and --key: an approval is signed with this site's key")
    roster = Roster.load(Path(config.roster))
    roster.check_complete()
    if "{client}" in config.key:
        raise ConfigError("--key: '{client}' stands for a rank; name this site's own key")
    key = load_key(Path(config.key))
    owner = roster.owner(key)
    if owner is None:
        raise ConfigError(
            "--key: this key belongs to nobody in the roster; give this site's own key, or the roster that has it"
        )
    path = Path(options.output or f"approval_{owner.rank}.json")
    if path.exists():
        raise ConfigError(f"{path} exists already: name another file with --output, or remove it")
    run = plan_run(config, len(roster.entries) - 1, roster, d=options.d)
    values, rows = run.values, run.rows
    print(f"{printable(owner.name)} ({owner.party}) is asked to take part in this run:\n")
    for line in summarise(run):
        print(textwrap.fill(printable(line), _WIDTH, initial_indent="- ", subsequent_indent="  "))
    print("\nEverything public that all parties must have alike:\n")
    width = min(max(len(name) for name, _ in rows), 32)
    print(*(f"  {printable(name):<{width}}  {value}" for name, value in rows), sep="\n")
    print(f"\ndigest of all these values: {group_hex(digest(values))}")
    print("\nWhat the run must claim, else this site refuses it before anything is released:\n")
    claim = run.claim
    for name, value in (claim or {}).items():
        print(f"  {name:<{width}}  {show_value(value)}")
    if run.foreseen is None:
        print(f"  {'and the rest' if claim else 'nothing'} is not known: {run.why_unforeseen}")
    elif run.foreseen.note:
        print(f"  {'':<{width}}  ({run.foreseen.note})")
    if options.expires is not None:
        print(f"\nThe approval holds until {options.expires}.")
    if not options.yes:
        ask("Type yes to approve exactly this:", "not approved; nothing was written")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    identity = roster.identity(owner.party, key)
    approval = sign_approval(values, identity, roster, approved_at=now, claim=claim, expires=options.expires)
    write_atomically(path, approval.text().encode(), _MODE)
    print(
        f"approved: {path}; `fastlloyd join --approval {path}` refuses any other run. Send a copy to the operator if "
        "asked for it"
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
