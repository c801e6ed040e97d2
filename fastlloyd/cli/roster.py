"""`fastlloyd roster`: keep the list of parties and their certificates."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fastlloyd.cli.options import Parser
from fastlloyd.crypto.link.identity import certificate_bytes, group_hex, named_in, read_text
from fastlloyd.crypto.link.roster import ROLES, Roster, RosterEntry
from fastlloyd.errors import EXIT_OK, ConfigError, printable
from fastlloyd.report.unit import format_count
from fastlloyd.wire.header import PartyId


def main(argv: Sequence[str] | None = None) -> int:
    """Run `roster add`, `roster remove`, `roster show` or `roster check`.

    Raises
    ------
    ConfigError
        The roster or certificate is wrong.
    """
    options = parser().parse_args(argv)
    path = Path(options.roster)
    if options.action == "add":
        _add(options, path)
    elif options.action == "remove":
        _remove(options.rank, path)
    elif options.action == "show":
        _show(Roster.load(path))
    else:
        roster = Roster.load(path)
        roster.check_complete()
        for line in roster.check_dates():
            print(printable(f"warning: {line}"))
        print(
            f"complete: the server and {format_count(len(roster.entries) - 1, 'client')}, digest "
            f"{group_hex(roster.digest())}"
        )
    return EXIT_OK


def _add(options: argparse.Namespace, path: Path) -> None:
    """Add one certificate; name and rank default to what it states."""
    certificate_path = Path(options.cert)
    pem = read_text(certificate_path, "certificate")
    stated_name, stated_rank = named_in(certificate_bytes(pem, str(certificate_path)))
    name = options.name or stated_name
    rank = options.rank if options.rank is not None else (0 if options.role == "server" else stated_rank)
    if name is None or rank is None:
        raise ConfigError(f"{certificate_path} states no {'name' if name is None else 'rank'}: give --name and --rank")
    role = options.role or ("server" if rank == 0 else "client")
    entry = RosterEntry(name, role, rank, pem)
    roster = Roster.load(path) if path.exists() else Roster()
    if entry in roster.entries:
        print(f"{path}: {entry.party} is {name!r} with this certificate already; nothing is changed")
        return
    roster.add(entry, replace=options.replace).save(path)
    print(f"{path}: {entry.party} is now {name!r}")
    print(f"fingerprint: {entry.fingerprint}")
    print("compare it with its owner by telephone, then give all parties this same roster file")


def _remove(rank: int, path: Path) -> None:
    """Remove a client; the last one takes over its rank."""
    before = Roster.load(path)
    after = before.remove(rank)
    after.save(path)
    gone = PartyId(rank)
    print(f"{path}: {before.name(gone)!r} is no longer a party")
    if gone in after.certificates():
        old, name = before.entries[-1].party, after.name(gone)
        print(
            f"{name!r} was {old} and is {gone} now: its owner renames its state folder (client-{old.rank} to "
            f"client-{rank}) before the next run: the ledger in it stays"
        )
    print(f"digest of the roster: {group_hex(after.digest())}")
    print("give all parties this same roster file; each compares the digest, and approves runs with it anew")


def _show(roster: Roster) -> None:
    """Print one line per party, and the digest to compare."""
    for entry in roster.entries:
        print(f"{entry.rank:>4}  {entry.role:<6}  {entry.name}\n      {entry.fingerprint}")
        print("      valid from {:%Y-%m-%d} to {:%Y-%m-%d}".format(*entry.valid))
    print(f"digest of the roster: {group_hex(roster.digest())}")


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(prog="fastlloyd roster", description="Keep the list of parties.")
    actions = parser.add_subparsers(dest="action", required=True)
    add = actions.add_parser("add", help="add a party's certificate; make the file if there is none")
    remove = actions.add_parser("remove", help="remove a client; the last one takes over its rank")
    show = actions.add_parser("show", help="list the parties and their fingerprints")
    check = actions.add_parser("check", help="check that the server and all clients are listed")
    for action in (add, remove, show, check):
        action.add_argument("--roster", required=True, metavar="FILE", help="the roster, TOML")
    add.add_argument("--cert", required=True, metavar="FILE", help="the .pem file of `fastlloyd keygen`")
    add.add_argument("--name", help="default: the name in the certificate")
    add.add_argument("--role", choices=ROLES, help="default: server for rank 0, else client")
    add.add_argument("--rank", type=int, help="default: the rank in the certificate")
    remove.add_argument("--rank", type=int, required=True, help="of the client, as `roster show` lists it")
    add.add_argument("--replace", action="store_true", help="replace the party with the same rank")
    return parser
