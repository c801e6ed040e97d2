"""The check of the roster and of this party's key in `fastlloyd check`; without any connection.

A missing file is reported and does not end the check, because records are often checked before keys exist or on another
machine. A wrong file ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastlloyd.crypto.link.identity import load_key
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.errors import ConfigError, format_count


@dataclass(frozen=True, slots=True)
class LinkCheck:
    """The result of the check.

    Attributes
    ----------
    lines : tuple of str
        For the owner's terminal.
    missing : str or None
        What a run needs but is missing.
    """

    lines: tuple[str, ...] = ()
    missing: str | None = None


def check_links(
    roster: str | None, key: str | None, client: int | None, passphrase_file: str | None = None
) -> LinkCheck:
    """Check roster and key as far as they exist.

    Parameters
    ----------
    roster : str or None
        File.
    key : str or None
        File; '{client}' stands for the rank.
    client : int or None
        Which client this is.
    passphrase_file : str, optional
        Of an encrypted key.

    Raises
    ------
    ConfigError
        A file is invalid, a certificate has expired, or the key is not this party's.

    Sees: nobody but the caller.
    """
    if roster is None:
        return LinkCheck() if key is None else LinkCheck(("key       not checked: no --roster",), "a roster")
    if not Path(roster).exists():
        return LinkCheck((f"roster    missing: no file {roster}; the key is not checked",), f"the roster {roster}")
    parties = Roster.load(Path(roster))
    parties.check_complete()
    complete = f"roster    complete: the server and {format_count(len(parties.entries) - 1, 'client')}"
    opening = (complete, *(f"warning   {line}" for line in parties.check_dates()))
    entries = _chosen(parties, client)
    if key is None:
        missing = f"the key of {_named(entries)}"
        return LinkCheck((*opening, f"key       missing: no --key; a run needs {missing}"), missing)
    if client is None and "{client}" not in key:
        if not Path(key).exists():
            line = f"key       missing: no file {key}; a run needs the key of {_named(parties.entries)}"
            return LinkCheck((*opening, line), f"the key {key}")
        owner = parties.owner(load_key(Path(key), passphrase_file))
        if owner is None:
            raise ConfigError(
                f"--key {key} is not in the roster: add its certificate with `fastlloyd roster add`, at all parties"
            )
        return LinkCheck((*opening, f"key       of {_named([owner])}, as in the roster"))
    lines, missing = [*opening], f"the key of {_named(entries)}"
    for entry in entries:
        path = Path(key.replace("{client}", str(entry.rank)))
        if not path.exists():
            lines.append(f"key       missing for {_named([entry])}: no file {path}")
            continue
        parties.identity(entry.party, load_key(path, passphrase_file))
        lines.append(f"key       of {_named([entry])}, as in the roster")
        missing = ""
    return LinkCheck(tuple(lines), missing or None)


def own_place(roster: str | None, key: str | None, passphrase_file: str | None = None) -> tuple[int | None, int | None]:
    """Return this party's rank by roster and key, and the number of clients; None if unknown.

    `check_links` reports errors in them later, after the records.
    """
    if roster is None or not Path(roster).exists():
        return None, None
    try:
        parties = Roster.load(Path(roster))
        parties.check_complete()
        there = key is not None and Path(key).exists()
        owner = parties.owner(load_key(Path(key or ""), passphrase_file)) if there else None
    except ConfigError:
        return None, None
    return None if owner is None else owner.rank or None, len(parties.entries) - 1


def _chosen(roster: Roster, client: int | None) -> Sequence[RosterEntry]:
    """Return this client's entry, or all if the client is not known."""
    if client is None:
        return roster.entries
    own = [entry for entry in roster.entries if entry.rank == client]
    if not own:
        raise ConfigError(
            f"--client {client}: the roster has {format_count(len(roster.entries) - 1, 'client')}; give the number of "
            "one of them, or the roster that has this one"
        )
    return own


def _named(entries: Sequence[RosterEntry]) -> str:
    """Format parties with rank and name."""
    names = ", ".join(f"rank {entry.rank} ({entry.name!r})" for entry in entries)
    return names if len(entries) == 1 else f"one of {names}; --client says which"
