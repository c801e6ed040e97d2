"""Consent, for `fastlloyd agree` and `fastlloyd site --agree`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastlloyd.crypto.link.identity import group_hex, load_key, write_atomically
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.dossier.approval import sign_approval
from fastlloyd.dossier.content import summarise
from fastlloyd.dossier.own_part import keep_own, own_path, own_values
from fastlloyd.dossier.planned_run import plan_run
from fastlloyd.errors import ConfigError, printable
from fastlloyd.report.files import PUBLIC_MODE
from fastlloyd.run.run_file import load_config, refuse_own_keys
from fastlloyd.wire.values import digest, show_value

_WIDTH = 110


def ask_consent(
    run_file: str | Path,
    given: Mapping[str, Any],
    ask: Callable[[str, str], None],
    *,
    output: str | Path | None = None,
    site: str | None = None,
    d: int | None = None,
    expires: str | None = None,
    yes: bool = False,
    replace: bool = False,
) -> None:
    """Show the run, ask, and write the signed approval.

    Parameters
    ----------
    run_file : str or Path
        The run file that all parties share.
    given : mapping
        Roster and key, if the run file does not name them.
    ask : callable
        Gets a question and what to say if the answer is not yes; raises that.
    output : str or Path, optional
        File of the approval; by default approval_RANK.json.
    site : str, optional
        File with the site's own values.
    d : int, optional
        Number of features, if neither bounds nor columns name them.
    expires : str, optional
        When the approval expires.
    yes : bool
        A person has decided already: do not ask.
    replace : bool
        Take the place of an approval that is there; otherwise it is an error.

    Raises
    ------
    ConfigError
        Run file, roster or key are wrong, nobody can be asked, or the answer was not yes.
    """
    refuse_own_keys(run_file)
    config = load_config(run_file, given, links=False, site=site)
    if config.roster is None or config.key is None:
        raise ConfigError("agree needs --roster and --key: an approval is signed with this site's key")
    roster = Roster.load(Path(config.roster))
    roster.check_complete()
    if "{client}" in config.key:
        raise ConfigError("--key: '{client}' stands for a rank; name this site's own key")
    key = load_key(Path(config.key), config.passphrase_file)
    owner = roster.owner(key)
    if owner is None:
        raise ConfigError("--key: this key is not in the roster; give this site's own key, or the roster that has it")
    path = Path(output or f"approval_{owner.rank}.json")
    if path.exists() and not replace:
        raise ConfigError(f"{path} exists already: name another file with --output, or remove it")
    run = plan_run(config, len(roster.entries) - 1, roster, d=d)
    rows, claim = run.rows, run.claim
    print(f"{printable(owner.name)} ({owner.party}) is asked to take part in this run:\n")
    for line in summarise(run):
        print(textwrap.fill(printable(line), _WIDTH, initial_indent="- ", subsequent_indent="  "))
    print("\nEverything public that must be the same for all parties:\n")
    width = min(max(len(name) for name, _ in rows), 32)
    print(*(f"  {printable(name):<{width}}  {value}" for name, value in rows), sep="\n")
    print(f"\ndigest of all these values: {group_hex(digest(run.values))}")
    print("\nWhat the run must claim; otherwise this site refuses it before anything is released:\n")
    for name, value in (claim or {}).items():
        print(f"  {name:<{width}}  {show_value(value)}")
    if run.foreseen is None:
        print(f"  {'and the rest' if claim else 'nothing'} is not known: {run.why_unforeseen}")
    elif run.foreseen.note:
        print(f"  {'':<{width}}  ({run.foreseen.note})")
    if config.data is not None:
        print("\nThis site's own settings, which stay here; the approval has a commitment to them alone:\n")
        for name, value in own_values(config).items():
            print(f"  {name:<{width}}  {printable(show_value(value))}")
    if expires is not None:
        print(f"\nThe approval holds until {expires}.")
    if not yes:
        ask("Type yes to approve exactly this:", "not approved; nothing was written")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    identity = roster.identity(owner.party, key)
    own = keep_own(path, config)
    approval = sign_approval(run.values, identity, roster, approved_at=now, claim=claim, expires=expires, own=own)
    write_atomically(path, approval.text().encode(), PUBLIC_MODE)
    print(
        f"approved: {path}; `fastlloyd join --approval {path}` refuses any other run. Send a copy to the operator if "
        "asked for it" + ("" if own is None else f"; {own_path(path)} belongs beside it and stays here")
    )
