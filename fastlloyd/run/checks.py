"""Checks at the start of a run, the same for every protocol with a plan and a ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastlloyd.errors import ConfigError, DataError, PeerError, RangeError, Reason
from fastlloyd.lifecycle.hello import Announced, refuse_plan
from fastlloyd.protocols.registry import find
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import Session
from fastlloyd.wire.header import PROTOCOL_VERSION, SERVER

P = TypeVar("P")


def accept_plan(session: Session, values: Mapping[str, Any], read: Callable[[Mapping[str, Any]], P]) -> P:
    """Read and check the server's plan; run by a client.

    Parameters
    ----------
    session : Session
    values : mapping
        As the server sent it.
    read : callable
        Decodes the plan and compares it with this party's configuration; raises ValueError, TypeError or KeyError. What
        it raises as ConfigError is the plan's fault too: this party's configuration was checked before.

    Raises
    ------
    PeerError
        The plan does not fit: the server is at fault.
    """
    try:
        plan = read(values)
    except (ValueError, TypeError, KeyError, ConfigError, RangeError) as error:
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
