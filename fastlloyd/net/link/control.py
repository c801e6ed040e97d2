"""How the parties agree to start, and how they agree on why a run ends.

::

    client                         server
      | ---- START (ready or not) ---> |   waits for all
      | <--- VERDICT (run id) -------- |   or the party at fault

      | ---- DONE -------------------> |   after a successful run, once all files are written;
      | <--- DONE -------------------- |   waits for all: MPI ends for all at once

      | ---- ABORT (party, reason) --> |   a client's failure; the first is the verdict,
      | <--- ABORT (verdict) --------- |   exit code 2 before 4 before 70 before 3
      | ---- ABORT_ACK --------------> |   one second at most in all

All parties exit with the code of the party at fault. If the server itself is lost, the clients notify each other.

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

from fastlloyd.errors import Aborted, FastLloydError, PeerError, PeerGone, PeerTimeout, Reason
from fastlloyd.net.link.frame import DIGEST_BYTES, NO_DIGEST, RUN_ID_BYTES, FrameKind, Notice, Start, StartDecision
from fastlloyd.net.link.secure import SecureLinks
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
        This party's own error, if any.
    printed_elsewhere : bool
        Whether the party at fault prints the same sentence, so that `own` need not be printed here.
    """

    def __init__(self, notice: Notice, *, own: FastLloydError | None, printed_elsewhere: bool) -> None:
        super().__init__(rank=notice.rank, reason=notice.reason, code=notice.code, by=notice.by)
        self.own = own
        self.printed_elsewhere = printed_elsewhere


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends; the same at all parties except `lost`.

    Attributes
    ----------
    code : int
        The exit code.
    rank : int
        The party at fault.
    reason : Reason
    lost : bool
        Whether a peer is lost, so that this process must exit by `os._exit` without finalising MPI.
    by : int
        The party that reports it; without a server it may differ between the parties.
    """

    code: int
    rank: int
    reason: Reason
    lost: bool
    by: int = field(default=SERVER.rank, compare=False)


@dataclass(frozen=True, slots=True)
class _Fault:
    """One reason not to start, at the server."""

    notice: Notice
    digest: bytes
    error: FastLloydError | None = None


def agree_start(
    links: SecureLinks, error: FastLloydError | None, *, deadline_s: float, run_id: bytes | None = None
) -> bytes:
    """Agree on whether all parties are ready.

    Parameters
    ----------
    links : SecureLinks
        Not yet connected.
    error : FastLloydError or None
        Why this party cannot start.
    deadline_s : float
        How long the server waits for the clients.
    run_id : bytes, length 16, optional
        On the server: the id of an interrupted run that is resumed; a fresh one by default.

    Returns
    -------
    bytes, length 16
        The run id.

    Raises
    ------
    FastLloydError
        `error` itself, if this party is at fault.
    NotStarted
        Another party is at fault.
    PeerError
        A peer was silent, gone or sent invalid frames.

    Sees: all parties learn the party at fault and a `Reason`; sentences of configuration errors are compared by a
    digest, those of all other errors stay with their owner.
    """
    if links.me == SERVER:
        return _start_server(links, error, deadline_s, run_id)
    return _start_client(links, error, deadline_s)


def leave_together(links: SecureLinks, *, deadline_s: float, late: Collection[PartyId] = ()) -> None:
    """After a successful run, wait until all parties have written their files.

    Parameters
    ----------
    late : collection of PartyId
        At the server: clients that are not awaited.

    Raises
    ------
    PeerTimeout
        Names a party that is not done in time.
    PeerGone, PeerError, Aborted
        As they happen; a client that could not write its files ends the run for all. A client raises only the server's
        verdict and the server's faults: the server alone decides whether all have written. If a client ended the run
        because of another client, the server might already have exited successfully.
    """
    awaited = {SERVER}
    if links.me == SERVER:
        awaited = set(links.peers) - set(late)
    else:
        # The server waits for the slowest client and names it first.
        deadline_s += _VERDICT_GRACE_S
        links.post(SERVER, FrameKind.DONE, b"", FINAL_ROUND)
    end = time.monotonic() + deadline_s
    while missing := sorted(awaited - links.finished):
        if lost := [peer for peer in missing if peer in links.gone]:
            raise PeerGone(f"{lost[0]} is gone: it ended before it had written its files", rank=lost[0].rank)
        remaining_s = end - time.monotonic()
        if remaining_s <= 0 or not _step_at_the_end(links, remaining_s, late):
            raise PeerTimeout(
                f"{missing[0]} did not finish writing its files within {deadline_s:g} s (--setup-deadline): look at "
                "its own messages",
                rank=missing[0].rank,
            )
    if links.me == SERVER:
        for peer in links.peers:
            links.post(peer, FrameKind.DONE, b"", FINAL_ROUND)


def _step_at_the_end(links: SecureLinks, timeout_s: float, late: Collection[PartyId]) -> bool:
    """Handle one frame; a client ignores faults of other clients, the server those of clients that are not awaited."""
    try:
        return links.step(timeout_s)
    except (PeerError, Aborted) as error:
        if links.me == SERVER and isinstance(error, Aborted) and PartyId(error.by) in late:
            links.dismiss(PartyId(error.by))
            return True
        by_server = error.rank == SERVER.rank if isinstance(error, PeerError) else links.verdict is not None
        if links.me == SERVER or by_server:
            raise
        return True


def abort(links: SecureLinks, error: FastLloydError) -> Ending:
    """Agree with all remaining parties on why the run ends, within a second; never raise.

    For use after `agree_start` or `connect` failed, or during the run. A `PeerError` blames its peer, an `Aborted` the
    party that the notice named, all other errors blame this party.
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


def _start_server(links: SecureLinks, error: FastLloydError | None, deadline_s: float, run_id: bytes | None) -> bytes:
    """Receive all clients' starts, decide, and send the decision."""
    faults = [] if error is None else [_fault(error, links.me)]
    faults += _receive_starts(links, deadline_s, doomed=error is not None)
    for peer, start in links.starts.items():
        if start.reason is not None:
            faults.append(_Fault(Notice(peer.rank, start.reason, start.code, by=peer.rank), start.digest))
    run_id = os.urandom(RUN_ID_BYTES) if run_id is None else run_id
    if not faults:
        _send_decision(links, StartDecision(run_id))
        return run_id
    worst = min(faults, key=lambda fault: (fault.notice.severity, fault.notice.rank))
    lost = bool(links.gone) or any(fault.notice.lost for fault in faults)
    notice = replace(worst.notice, lost=lost)
    links.verdict = notice
    _send_decision(links, StartDecision(run_id, notice, worst.digest))
    if worst.error is not None:
        raise worst.error
    raise NotStarted(notice, own=error, printed_elsewhere=_is_printed(error, worst.digest))


def _receive_starts(links: SecureLinks, deadline_s: float, *, doomed: bool) -> list[_Fault]:
    """Wait until every client has sent its start; return the faults of the others.

    A run that cannot start does not wait long for clients that have not joined: sites may start hours apart.
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
            # It may blame another party, but the sender will send no more: leaving then is not its fault.
            faults.setdefault(links.notices[-1][0], _fault(error, links.me))
            continue
        except PeerError as error:
            faults.setdefault(PartyId(error.rank), _fault(error, links.me))
            continue
        if grace_end < end:
            break
        faults.update((peer, _fault(_no_report(peer, deadline_s, links.refused), links.me)) for peer in missing)
    return list(faults.values())


def _no_report(peer: PartyId, deadline_s: float, refused: str) -> PeerTimeout:
    """Return the error for a client that has not sent its start; it may be the one that was `refused`."""
    why = refused or "check that it runs and can be reached, or allow more time for the set-up (--setup-deadline)"
    return PeerTimeout(
        f"{peer} did not report within {deadline_s:g} s: {why}",
        rank=peer.rank,
    )


def _start_client(links: SecureLinks, error: FastLloydError | None, deadline_s: float) -> bytes:
    """Send the server this client's start, and receive its verdict."""
    start = Start() if error is None else Start(error.exit_code, error.reason, _digest(error))
    links.post(SERVER, FrameKind.START, start.encode(), SETUP_ROUND)
    # The server's wait ends first, so that it can name a silent client.
    end = time.monotonic() + deadline_s + _VERDICT_GRACE_S
    while links.start_verdict is None:
        remaining_s = end - time.monotonic()
        try:
            if SERVER not in links.gone and remaining_s > 0 and links.step(remaining_s):
                continue
        except PeerGone as gone:
            # The server judges the loss of other clients.
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


def _server_silent(links: SecureLinks, deadline_s: float) -> PeerError:
    """Return the error for a server that is gone or silent."""
    if SERVER in links.gone:
        return PeerGone(f"{SERVER} is gone: look at its own messages", rank=SERVER.rank)
    return PeerTimeout(
        f"{SERVER} gave no verdict on the start within {deadline_s + _VERDICT_GRACE_S:g} s: check that it runs "
        "and can be reached, or allow more time for the set-up (--setup-deadline)",
        rank=SERVER.rank,
    )


def _send_decision(links: SecureLinks, verdict: StartDecision) -> None:
    """Send the decision to every client, including silent ones."""
    for peer in links.peers:
        links.post(peer, FrameKind.VERDICT, verdict.encode(), SETUP_ROUND)


def _abort_server(links: SecureLinks, own: Notice) -> None:
    """Choose one verdict among the notices so far, and send it to every remaining peer."""
    end = time.monotonic() + ABORT_S
    while time.monotonic() < end - ABORT_S + _DRAIN_S and links.step(0.0):
        pass
    faults = [own, *(notice for _, notice in links.notices)]
    worst = min(faults, key=lambda notice: notice.severity)
    lost = bool(links.gone) or any(notice.lost for notice in faults)
    verdict = replace(worst, lost=lost)
    _send_notice(links, links.peers, verdict)
    silent = {PartyId(notice.rank) for notice in faults if notice.lost}
    missing = _wait_for(links, set(links.peers) - silent, end)
    links.verdict = replace(verdict, lost=lost or bool(missing))


def _abort_client(links: SecureLinks, own: Notice) -> None:
    """Ask the server for its verdict; without one, notify the other clients."""
    start = time.monotonic()
    if SERVER not in links.gone:
        _send_notice(links, (SERVER,), own)
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
    _send_notice(links, others, worst)
    # Senders of notices know it already and may have exited.
    informed = {peer for peer, _ in links.notices}
    _wait_for(links, set(others) - informed, start + ABORT_S)
    # A verdict that arrived meanwhile is the one that the others receive too.
    links.verdict = links.verdict or worst


def _send_notice(links: SecureLinks, peers: Iterable[PartyId], notice: Notice) -> None:
    """Send an abort notice to every peer that is not known to be gone."""
    for peer in peers:
        if peer not in links.gone:
            links.post(peer, FrameKind.ABORT, notice.encode(), FINAL_ROUND)


def _wait_for(links: SecureLinks, peers: set[PartyId], end: float) -> set[PartyId]:
    """Wait for acknowledgements; return the peers that sent none."""
    while missing := peers - links.acknowledged - links.gone:
        remaining_s = end - time.monotonic()
        if remaining_s <= 0 or not links.step(remaining_s):
            return missing
    return peers & links.gone


def _blame(error: FastLloydError, me: PartyId) -> Notice:
    """Return the notice for an error: the party it blames."""
    rank = error.rank if isinstance(error, PeerError | Aborted) else me.rank
    by = error.by if isinstance(error, Aborted) else me.rank
    return Notice(rank, error.reason, error.exit_code, error.reason in _LOST, by)


def _fault(error: FastLloydError, me: PartyId) -> _Fault:
    """Return an error of this party as a fault."""
    return _Fault(_blame(error, me), _digest(error), error)


def _digest(error: FastLloydError) -> bytes:
    """Return a digest of a sentence about the public configuration; zeros for any other error."""
    # A digest of a sentence that names rows, files or spent budget could be guessed.
    if error.reason is not Reason.BAD_CONFIG:
        return NO_DIGEST
    return hashlib.sha256(str(error).encode()).digest()[:DIGEST_BYTES]


def _is_printed(error: FastLloydError | None, digest: bytes) -> bool:
    """Whether the party at fault prints the same sentence."""
    return error is not None and digest != NO_DIGEST and _digest(error) == digest
