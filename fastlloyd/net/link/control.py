"""How the parties agree to start, and how they agree on why a run ends.

::

    client                         server
      | ---- START (how I stand) ----> |   waits for all
      | <--- VERDICT (run id) -------- |   or who is at fault

      | ---- DONE -------------------> |   after a good run, once all files are written;
      | <--- DONE -------------------- |   waits for all: MPI ends for all at once

      | ---- ABORT (whom, why) ------> |   a client's failure; the first come is the verdict,
      | <--- ABORT (verdict) --------- |   exit code 2 before 4 before 70 before 3
      | ---- ABORT_ACK --------------> |   one second at most in all

All parties leave with the exit code of the party at fault. If the server itself is lost, the clients tell
each other.

Sees: every party learns which party is at fault and a `Reason`, nothing else.
Source: docs/protocol.md, "How a run ends".
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from fastlloyd.errors import (
    Aborted,
    FastLloydError,
    PeerError,
    PeerGone,
    PeerTimeout,
    Reason,
)
from fastlloyd.net.link.channel import Channel
from fastlloyd.net.link.frame import DIGEST_BYTES, NO_DIGEST, RUN_ID_BYTES, FrameKind, Notice, Start, StartDecision
from fastlloyd.wire.header import FINAL_ROUND, SERVER, SETUP_ROUND, PartyId

ABORT_S = 1.0
_SERVER_ANSWER_S = 0.5
_VERDICT_GRACE_S = 3.0
_DRAIN_S = 0.05
_ABSENT_GRACE_S = 5.0
_LOST = (Reason.TIMEOUT, Reason.GONE)


class NotStarted(Aborted):
    """The run does not start because of another party.

    Attributes
    ----------
    own : FastLloydError or None
        What this party itself had to complain about, besides.
    printed_elsewhere : bool
        Whether the party at fault prints the same sentence, word for word, so that `own` need not be
        printed here.
    """

    def __init__(self, notice: Notice, *, own: FastLloydError | None, printed_elsewhere: bool) -> None:
        super().__init__(rank=notice.rank, reason=notice.reason, code=notice.code, by=notice.by)
        self.own = own
        self.printed_elsewhere = printed_elsewhere


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends, the same at all parties but for `lost`.

    Attributes
    ----------
    code : int
        The exit code.
    rank : int
        The party at fault.
    reason : Reason
    lost : bool
        Whether a peer is lost, so that this process must leave by `os._exit` and not finalise MPI.
    by : int
        The party that says so; without a server the parties may have it from different ones.
    """

    code: int
    rank: int
    reason: Reason
    lost: bool
    by: int = field(default=SERVER.rank, compare=False)


@dataclass(frozen=True, slots=True)
class _Fault:
    """One reason not to start, as the server knows it."""

    notice: Notice
    digest: bytes
    error: FastLloydError | None = None


def agree_start(
    links: Channel, error: FastLloydError | None, *, deadline_s: float, run_id: bytes | None = None
) -> bytes:
    """Find out whether all parties are ready.

    Parameters
    ----------
    links : SecureLinks, or any other Channel
        Not yet connected.
    error : FastLloydError or None
        Why this party cannot start.
    deadline_s : float
        How long the server waits for the clients.
    run_id : bytes, length 16, optional
        On the server: the id of an interrupted run that goes on; a fresh one otherwise.

    Returns
    -------
    bytes, length 16
        The run id.

    Raises
    ------
    FastLloydError
        `error` itself, where this party is the one at fault.
    NotStarted
        Another party is at fault.
    PeerError
        A peer was silent, gone or sent nonsense.

    Sees: all parties learn of the party at fault and a `Reason`; the sentence of a configuration error is
    compared by a digest, those of all other errors stay with their owner.
    """
    if links.me == SERVER:
        return _start_server(links, error, deadline_s, run_id)
    return _start_client(links, error, deadline_s)


def leave_together(links: Channel, *, deadline_s: float, late: Collection[PartyId] = ()) -> None:
    """After a good run, wait until all parties have written their files.

    Parameters
    ----------
    late : collection of PartyId
        At the server: clients that are not waited for.

    Raises
    ------
    PeerTimeout
        Names whoever is not done in time.
    PeerGone, PeerError, Aborted
        As they happen; a client that could not write its files ends the run for all. At a client: the server's word
        and what the server does wrong. The server alone decides whether all have written. If a client ended the run
        because of another's nonsense, the server might already have left with a good end.
    """
    awaited = {SERVER}
    if links.me == SERVER:
        awaited = set(links.peers) - set(late)
    else:
        # The server waits for the slowest of all and names it first.
        deadline_s += _VERDICT_GRACE_S
        links.post(SERVER, FrameKind.DONE, b"", FINAL_ROUND)
    end = time.monotonic() + deadline_s
    while missing := sorted(awaited - links.finished):
        remaining_s = end - time.monotonic()
        if remaining_s <= 0 or not _step_at_the_end(links, remaining_s):
            raise PeerTimeout(
                f"{missing[0]} did not finish writing its files within {deadline_s:g} s: look at its own messages",
                rank=missing[0].rank,
            )
    if links.me == SERVER:
        for peer in links.peers:
            links.post(peer, FrameKind.DONE, b"", FINAL_ROUND)


def _step_at_the_end(links: Channel, timeout_s: float) -> bool:
    """Deal with one frame; at a client, pass over what another client is to blame for."""
    try:
        return links.step(timeout_s)
    except (PeerError, Aborted) as error:
        by_server = error.rank == SERVER.rank if isinstance(error, PeerError) else links.verdict is not None
        if links.me == SERVER or by_server:
            raise
        return True


def abort(links: Channel, error: FastLloydError) -> Ending:
    """Agree with all live parties on why the run ends; takes a second at most and never raises.

    After `agree_start` or `connect` failed, or during the run. Uniform for all errors: a `PeerError`
    blames its peer, an `Aborted` whom the notice named, all others this party.
    """
    links.begin_ending()
    if links.verdict is None:
        own = _blame(error, links.me)
        if links.me == SERVER:
            _abort_server(links, own)
        else:
            _abort_client(links, own)
    verdict = links.verdict or _blame(error, links.me)
    return Ending(verdict.code, verdict.rank, verdict.reason, verdict.lost or bool(links.gone), verdict.by)


def _start_server(links: Channel, error: FastLloydError | None, deadline_s: float, run_id: bytes | None) -> bytes:
    """Hear all clients, decide, tell them."""
    faults = [] if error is None else [_fault(error, links.me)]
    faults += _hear(links, deadline_s, doomed=error is not None)
    for peer, start in links.starts.items():
        if start.reason is not None:
            faults.append(_Fault(Notice(peer.rank, start.reason, start.code, by=peer.rank), start.digest))
    run_id = os.urandom(RUN_ID_BYTES) if run_id is None else run_id
    if not faults:
        _tell_all(links, StartDecision(run_id))
        return run_id
    worst = min(faults, key=lambda fault: (fault.notice.severity, fault.notice.rank))
    lost = bool(links.gone) or any(fault.notice.lost for fault in faults)
    notice = replace(worst.notice, lost=lost)
    links.verdict = notice
    _tell_all(links, StartDecision(run_id, notice, worst.digest))
    if worst.error is not None:
        raise worst.error
    raise NotStarted(notice, own=error, printed_elsewhere=_is_printed(error, worst.digest))


def _hear(links: Channel, deadline_s: float, *, doomed: bool) -> list[_Fault]:
    """Wait until every client has said how it stands; give the faults of those that have not.

    A run that cannot start does not wait long for clients that have not even come: sites may start hours apart.
    """
    end = time.monotonic() + deadline_s
    grace_end = math.inf
    faults: dict[PartyId, _Fault] = {}
    while missing := [peer for peer in links.peers if peer not in links.starts and peer not in faults]:
        doomed = doomed or bool(faults) or any(start.reason is not None for start in links.starts.values())
        if doomed and links.absent.issuperset(missing):
            grace_end = min(grace_end, time.monotonic() + _ABSENT_GRACE_S)
        else:
            grace_end = math.inf
        remaining_s = min(end, grace_end) - time.monotonic()
        try:
            if remaining_s > 0 and links.step(remaining_s):
                continue
        except Aborted as error:
            # Whom it blames may be another, but it is the sender that says no more.
            faults[links.notices[-1][0]] = _fault(error, links.me)
            continue
        except PeerError as error:
            faults[PartyId(error.rank)] = _fault(error, links.me)
            continue
        if grace_end < end:
            break
        faults.update((peer, _fault(_silent(peer, deadline_s), links.me)) for peer in missing)
    return list(faults.values())


def _silent(peer: PartyId, deadline_s: float) -> PeerTimeout:
    """Name a client that has not said how it stands."""
    return PeerTimeout(
        f"{peer} did not report within {deadline_s:g} s: check that it runs and can be reached, or allow more time "
        "for the set-up",
        rank=peer.rank,
    )


def _start_client(links: Channel, error: FastLloydError | None, deadline_s: float) -> bytes:
    """Tell the server how this client stands, and hear its verdict."""
    start = Start() if error is None else Start(error.exit_code, error.reason, _digest(error))
    links.post(SERVER, FrameKind.START, start.encode(), SETUP_ROUND)
    # The server's own wait ends first, so that it can name the client that was silent.
    end = time.monotonic() + deadline_s + _VERDICT_GRACE_S
    while links.start_verdict is None:
        remaining_s = end - time.monotonic()
        try:
            if SERVER not in links.gone and remaining_s > 0 and links.step(remaining_s):
                continue
        except PeerGone as gone:
            # Another client's end is for the server to judge.
            if gone.rank != SERVER.rank:
                continue
        except Aborted as ended:
            notice = Notice(ended.rank, ended.reason, ended.exit_code, by=ended.by)
            raise NotStarted(notice, own=error, printed_elsewhere=False) from ended
        raise error or _server_silent(links, deadline_s)
    verdict = links.start_verdict
    if verdict.notice is None:
        if error is not None:
            raise error
        return verdict.run_id
    if error is not None and verdict.notice.rank == links.me.rank:
        raise error
    raise NotStarted(verdict.notice, own=error, printed_elsewhere=_is_printed(error, verdict.digest))


def _server_silent(links: Channel, deadline_s: float) -> PeerError:
    """Name the server, which is gone or silent."""
    if SERVER in links.gone:
        return PeerGone(f"{SERVER} is gone: look at its own messages", rank=SERVER.rank)
    return PeerTimeout(
        f"{SERVER} gave no verdict on the start within {deadline_s + _VERDICT_GRACE_S:g} s: check that it runs "
        "and can be reached",
        rank=SERVER.rank,
    )


def _tell_all(links: Channel, verdict: StartDecision) -> None:
    """Send the verdict on the start to every client, the silent ones too."""
    for peer in links.peers:
        links.post(peer, FrameKind.VERDICT, verdict.encode(), SETUP_ROUND)


def _abort_server(links: Channel, own: Notice) -> None:
    """Fix one verdict among those that are there already, and tell every live peer."""
    end = time.monotonic() + ABORT_S
    while time.monotonic() < end - ABORT_S + _DRAIN_S and links.step(0.0):
        pass
    faults = [own, *(notice for _, notice in links.notices)]
    worst = min(faults, key=lambda notice: notice.severity)
    lost = bool(links.gone) or any(notice.lost for notice in faults)
    verdict = replace(worst, lost=lost)
    _tell(links, links.peers, verdict)
    silent = {PartyId(notice.rank) for notice in faults if notice.lost}
    missing = _wait_for(links, set(links.peers) - silent, end)
    links.verdict = replace(verdict, lost=lost or bool(missing))


def _abort_client(links: Channel, own: Notice) -> None:
    """Ask the server for its verdict; without one, tell the other clients."""
    start = time.monotonic()
    if SERVER not in links.gone:
        _tell(links, (SERVER,), own)
        end = start + _SERVER_ANSWER_S
        while links.verdict is None and (remaining_s := end - time.monotonic()) > 0:
            if SERVER in links.gone or not links.step(remaining_s):
                break
    if links.verdict is not None:
        return
    others = [peer for peer in links.peers if peer != SERVER]
    faults = [own, *(notice for _, notice in links.notices)]
    worst = min(faults, key=lambda notice: notice.severity)
    worst = replace(worst, lost=True)
    _tell(links, others, worst)
    # Who told us knows already and may have left.
    knowing = {peer for peer, _ in links.notices}
    _wait_for(links, set(others) - knowing, start + ABORT_S)
    # A verdict that came after all is the one that the others hear, too.
    links.verdict = links.verdict or worst


def _tell(links: Channel, peers: Iterable[PartyId], notice: Notice) -> None:
    """Send an abort notice to every peer that is not known to be gone."""
    for peer in peers:
        if peer not in links.gone:
            links.post(peer, FrameKind.ABORT, notice.encode(), FINAL_ROUND)


def _wait_for(links: Channel, peers: set[PartyId], end: float) -> set[PartyId]:
    """Wait for acknowledgements; give the peers that sent none."""
    while missing := peers - links.acknowledged - links.gone:
        remaining_s = end - time.monotonic()
        if remaining_s <= 0 or not links.step(remaining_s):
            return missing
    return peers & links.gone


def _blame(error: FastLloydError, me: PartyId) -> Notice:
    """Say whom an error blames."""
    rank = error.rank if isinstance(error, PeerError | Aborted) else me.rank
    by = error.by if isinstance(error, Aborted) else me.rank
    return Notice(rank, error.reason, error.exit_code, error.reason in _LOST, by)


def _fault(error: FastLloydError, me: PartyId) -> _Fault:
    """Keep an error of this party as a fault."""
    return _Fault(_blame(error, me), _digest(error), error)


def _digest(error: FastLloydError) -> bytes:
    """Return a digest of a sentence about the public configuration; zeros for any other error."""
    # A digest of a sentence that names rows, files or spent budget could be guessed back.
    if error.reason is not Reason.BAD_CONFIG:
        return NO_DIGEST
    return hashlib.sha256(str(error).encode()).digest()[:DIGEST_BYTES]


def _is_printed(error: FastLloydError | None, digest: bytes) -> bool:
    """Whether the party at fault prints this very sentence."""
    return error is not None and digest != NO_DIGEST and _digest(error) == digest
