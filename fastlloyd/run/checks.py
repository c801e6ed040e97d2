"""Checks at the start of a run, the same for every protocol with a plan and a ledger; what a crash can leave behind.

A party that resumes compares its ledger and its stored rounds before it sends anything. The order of writing decides
what a crash at any moment can leave, and nothing else is accepted:

1. The ledger holds round t before `uplink-t`, `set-t` or `reply-t` is stored (`run/machine.py` waits for the disk).
2. Replies are stored in the order of rounds, and `uplink-t` and `set-t` after all replies before them.
3. The ledger goes no further than the first round without a reply. Only a client that has stored its uplink of that
   round may have written down the next one as well (`lifecycle/masked_sums.py`).

So a folder `run/` that was restored from a copy while the ledger went on breaks 3, and a ledger that was restored
while `run/` went on breaks 1. If both were restored from one moment, this party cannot tell, but the others can:
whoever was part of a closed round has stored all replies before it.

Source: docs/protocol.md, "Resume".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fastlloyd.errors import ConfigError, DataError, PeerError, RangeError, Reason
from fastlloyd.lifecycle.hello import Announced, refuse_plan
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.registry import find
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import Session
from fastlloyd.wire.header import PROTOCOL_VERSION, SERVER, PartyId

P = TypeVar("P")


def accept_plan(session: Session, values: Mapping[str, Any], read: Callable[[Mapping[str, Any]], P]) -> P:
    """Read and check the server's plan; run by a client.

    Parameters
    ----------
    session : Session
    values : mapping
        As the server sent it.
    read : callable
        Decodes the plan and compares it with this party's configuration; raises ValueError, TypeError or LookupError.
        What it raises as ConfigError, or in arithmetic, is the plan's fault too: this party's configuration was checked
        before.

    Raises
    ------
    PeerError
        The plan does not fit: the server is at fault.
    """
    try:
        plan = read(values)
    except (ValueError, TypeError, LookupError, ArithmeticError, ConfigError, RangeError) as error:
        raise refuse_plan(ValueError(str(error))) from error
    stored = session.stored.get("plan")
    if stored is not None and stored != json.loads(json.dumps(values)):
        raise refuse_plan(ValueError("it is not the plan that the interrupted run started with"))
    return plan


def refuse_old_run(session: Session) -> None:
    """Refuse a run id that the ledger already holds: its releases would not be counted again."""
    run = session.run_id.hex()
    if not session.resumed and any(release.run == run for release in session.ledger.releases):
        raise PeerError("the server gave the id of an earlier run to this one, expected a fresh id", rank=0)


def refuse_other_protocol(stored: Mapping[str, Any], protocol: str) -> None:
    """Refuse to go on with a run of another protocol, such as that of an earlier default.

    Parameters
    ----------
    stored : mapping
        The plan of the interrupted run.
    protocol : str
        Of this run.
    """
    before = stored.get("protocol", protocol)
    if before != protocol:
        raise ConfigError(
            f"--resume: the interrupted run is one of {before}, this is one of {protocol}; go on with --protocol "
            f"{before}, or start anew without --resume",
            reason=Reason.RESUME,
        )


def build_numbers(protocol: str) -> dict[str, int]:
    """Return what a build must have in common with the one that began a run, to go on with it."""
    return {"protocol_version": PROTOCOL_VERSION, "results_version": find(protocol).results}


def refuse_other_build(stored: Mapping[str, Any], protocol: str) -> None:
    """Refuse to go on with a run of a build that sends other messages or comes to other results.

    Parameters
    ----------
    stored : mapping
        What is kept of the interrupted run.
    protocol : str
        Of this run.

    Raises
    ------
    ConfigError
        The numbers of `build_numbers` differ, or the state has none.
    """
    for name, here in build_numbers(protocol).items():
        what = "messages" if name == "protocol_version" else f"the results of {protocol}"
        if stored.get(name) != here:
            there = f"with version {stored[name]}" if name in stored else "by a build that noted no version"
            raise ConfigError(
                f"--resume: the interrupted run was begun {there} of {what}, this build has version {here}; "
                "resume with the build that began it, or start anew without --resume (what was released stays in the "
                "ledger)",
                reason=Reason.RESUME,
            )


def refuse_resume(config: RunConfig, because: str, spent: str) -> None:
    """Refuse --resume where a run cannot go on: `because` says why, `spent` what the broken run costs."""
    if config.resume:
        raise ConfigError(
            f"--resume: {config.protocol} starts anew after an interruption, for {because}; leave --resume out "
            f"({spent})",
            reason=Reason.RESUME,
        )


def refuse_other_data(session: Session, data_digest: str) -> None:
    """Refuse to resume on other records than the interrupted run's."""
    if session.stored.get("data", data_digest) != data_digest:
        raise DataError(
            "--resume: these are not the records that the interrupted run started with; resume with the "
            "same file, or start anew without --resume"
        )


def refuse_ahead(announced: Announced, stored: int, most: int) -> None:
    """Refuse a client that says it has finished rounds that the server has not closed.

    Parameters
    ----------
    announced : Announced
    stored : int
        Rounds that the server has closed.
    most : int
        Rounds that any party can have finished: those of the plan, none in a new run.

    Raises
    ------
    PeerError
        Names the client. In a resumed run an honest one is ahead only of a server that was restored from a backup.
    """
    for party, done in announced.rounds_done.items():
        if done > most:
            raise PeerError(
                f"{party} says that it has finished {format_count(done, 'round')}, expected at most {most}",
                rank=party.rank,
            )
        if done > stored:
            raise PeerError(
                f"{party} says that it has finished {format_count(done, 'round')}, the server has closed {stored}; "
                "resume with the newest state directories of the same run",
                rank=party.rank,
                reason=Reason.RESUME,
            )


def refuse_closed(closed: int, most: int) -> None:
    """Refuse a server that says it has closed more rounds than anybody can have finished.

    Raises
    ------
    PeerError
        The server is at fault.
    """
    if closed > most:
        raise PeerError(
            f"the server says that it has closed {format_count(closed, 'round')}, expected at most {most}; "
            "look at its version",
            rank=SERVER.rank,
        )


def check_stored(
    session: Session,
    planned: Sequence[Release],
    *,
    uplinks: Collection[int],
    replies: Collection[int],
    sets: Collection[int] = (),
    data_digest: str = "",
    ahead: bool = False,
) -> None:
    """Refuse a resume whose ledger and stored rounds are not of one moment.

    Parameters
    ----------
    session : Session
    planned : sequence of Release
        All releases of the run.
    uplinks, replies, sets : collection of int
        Rounds that are stored; sets with threshold masks only.
    data_digest : str
        As it stands in this party's entries.
    ahead : bool
        Whether a client writes down the next round as soon as it has sent its uplink.

    Raises
    ------
    ConfigError
        They do not belong together: one of them was restored from a copy, or changed.
    """
    run = session.run_id.hex()
    expected = {release.key: release for release in (replace(r, run=run, data=data_digest) for r in planned)}
    entries = [release for release in session.ledger.releases if release.run == run]
    problem = "its ledger has other entries for this run than its plan"
    if all(expected.get(entry.key) == entry for entry in entries):
        names = {entry.key for entry in entries}
        whole = {r.round for r in expected.values()} - {r.round for key, r in expected.items() if key not in names}
        problem = _mismatch(
            released={release.round for release in planned},
            written={entry.round for entry in entries},
            whole=whole,
            uplinks=uplinks,
            replies=replies,
            sets=sets,
            ahead=ahead,
        )
    if problem:
        raise ConfigError(
            f"--resume: {problem}; one of the two was restored from an old copy or changed: put back the newest state, "
            "or start anew without --resume (what was released stays in the ledger)",
            reason=Reason.RESUME,
        )


def _mismatch(
    *,
    released: Collection[int],
    written: Collection[int],
    whole: Collection[int],
    uplinks: Collection[int],
    replies: Collection[int],
    sets: Collection[int] = (),
    ahead: bool,
) -> str:
    """Say what no crash can have left behind, or nothing.

    Parameters
    ----------
    released : rounds that release something
    written, whole : rounds of which any, or all, releases stand in the ledger
    uplinks, replies, sets : rounds stored in `run/`
    """
    open_round = len(replies)
    if sorted(replies) != list(range(open_round)):
        return "the stored replies have gaps"
    late = sorted(t for t in uplinks if t > open_round or t not in released)
    if late:
        return f"the folder run/ holds an uplink of round {late[0]}, but no reply of round {open_round}"
    early = sorted(t for t in sets if t > open_round or t not in released)
    if early:
        return f"the folder run/ holds a set of round {early[0]}, but no reply of round {open_round}"
    missing = sorted(t for t in {*uplinks, *replies, *sets} if t in released and t not in whole)
    if missing:
        return f"the folder run/ holds round {missing[0]}, but the ledger does not"
    last = open_round + (1 if ahead and open_round in uplinks else 0)
    unexplained = sorted(t for t in written if t > last)
    if unexplained:
        return f"the ledger holds round {unexplained[0]}, but the folder run/ explains no round after {last}"
    return ""


def refuse_behind(
    stored: Mapping[int, bytes],
    rounds_done: Mapping[PartyId, int],
    included: Callable[[int, bytes], Sequence[PartyId]],
    *,
    harmless: int = 0,
) -> None:
    """Refuse a resume in which clients have forgotten rounds that they were part of; run by the server.

    Parameters
    ----------
    stored : mapping from round to reply bytes
    rounds_done : mapping from client to its number of stored replies
    included : callable
        From a round and its reply's bytes to the clients in its sum.
    harmless : int
        How many may have: with threshold masks, a client that was set back learns what the others have opened.

    Raises
    ------
    PeerError
        Names a client: its state was restored from a copy.
    """
    behind: set[PartyId] = set()
    for t in sorted(stored):
        for party in included(t, stored[t]):
            if rounds_done.get(party, 0) < t:
                behind.add(party)
                if len(behind) <= harmless:
                    continue
                stored_rounds = format_count(rounds_done.get(party, 0), "round")
                raise PeerError(
                    f"{party} was part of round {t}, but has stored the replies of {stored_rounds} "
                    "only: its state directory was restored from an old copy; put back its newest state, or start anew "
                    "without --resume",
                    rank=party.rank,
                    reason=Reason.RESUME,
                )


def refuse_forgetful_server(own_rounds: int, server_rounds: int) -> None:
    """Refuse a resume in which the server has closed fewer rounds than this client has replies of.

    Raises
    ------
    PeerError
        The server's state was restored from a copy.
    """
    if server_rounds < own_rounds:
        raise PeerError(
            f"the server has closed {format_count(server_rounds, 'round')}, but this client has the replies of "
            f"{own_rounds}: the server's state directory was restored from an old copy; put back its newest state, or "
            "start anew without --resume",
            rank=SERVER.rank,
            reason=Reason.RESUME,
        )
