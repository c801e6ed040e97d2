"""One party's run from its inputs to its exit code: start, links, plan, rounds, counters, result.

Alike for mpirun, `fastlloyd run` and any other transport. Every way out is one of the exit codes of
`errors`, agreed with the other parties, and one sentence.

Source: docs/protocol.md, "A run from start to end".
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from fastlloyd.crypto.link.identity import Identity, make_identity
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.errors import (
    EXIT_OK,
    Aborted,
    ConfigError,
    FastLloydError,
    FormError,
    InternalError,
    Interrupted,
    Reason,
    name_some,
)
from fastlloyd.gate.decisions import Decisions
from fastlloyd.kmeans.metrics import check_available
from fastlloyd.lifecycle.sizes import setup_bounds
from fastlloyd.net.link.control import Ending, NotStarted, abort, agree_start, leave_together
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.meter import Meter
from fastlloyd.net.transport import Transport
from fastlloyd.party.transcript import Transcript
from fastlloyd.privacy.delta import large_delta
from fastlloyd.privacy.ledger import Ledger, Release
from fastlloyd.protocols.registry import find
from fastlloyd.report.announcer import Announcer
from fastlloyd.report.earlier import find_earlier
from fastlloyd.report.files import output_folder
from fastlloyd.run.checks import build_numbers, refuse_other_build, refuse_other_protocol
from fastlloyd.run.config import RunConfig
from fastlloyd.run.driver import Deadlines, Driver
from fastlloyd.run.files import Files, HeldFiles, ResultFiles, ServerFiles
from fastlloyd.run.inputs import CommonInputs, told
from fastlloyd.run.machine import CostKeeper, Host
from fastlloyd.run.outcome import Claim, Facts, Outcome
from fastlloyd.run.own_rank import load_identity
from fastlloyd.run.session import Session, find_face
from fastlloyd.run.state import StateDir, interrupted_words, resume_words
from fastlloyd.run.vertical import refuse_one_file
from fastlloyd.wire.header import SERVER, PartyId, clients
from fastlloyd.wire.values import explain

T = TypeVar("T")

_SAME_FORM = (
    "Flags of one command hold for all clients: where only some files differ, save them alike, or see docs/guide.md, "
    '"Tables that are written otherwise"'
)
_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Prepared:
    """What a party has once its inputs were checked, or why it cannot start."""

    config: RunConfig
    problem: FastLloydError | None = None
    common: CommonInputs | None = None
    own: Any = field(default=None, repr=False)
    identity: Identity
    roster: Roster | None = None
    state: StateDir | None = None
    ledger: Ledger | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    approve: Approve | None = None

    @property
    def clipped(self) -> str:
        """What to say to the owner of this party's records of values outside of the bounds; '' for nothing."""
        return getattr(self.own, "clipped", "")

    @property
    def certificates(self) -> Mapping[PartyId, bytes] | None:
        """The other parties' certificates; None without a roster."""
        if self.roster is None:
            return None
        own = self.identity.certificate_der
        return {party: der for party, der in self.roster.certificates().items() if der != own}

    @property
    def run_id(self) -> bytes | None:
        """The interrupted run's id on resume."""
        return bytes.fromhex(self.facts["run_id"]) if "run_id" in self.facts else None


class Approve(Protocol):
    """What refuses a run that was not approved."""

    def check_public(self, config: RunConfig, common: CommonInputs, roster: Roster | None) -> None:
        """Look at what is public, before this party's records are opened."""

    def check_claim(self, claim: Claim | None, planned: Sequence[Release]) -> None:
        """Look at what the plan will claim and release, before the first release is recorded."""


def execute(
    config: RunConfig | FastLloydError,
    transport: Transport,
    announcer: Announcer,
    *,
    approve: Approve | None = None,
) -> Ending:
    """Run one party to its end.

    Parameters
    ----------
    config : RunConfig or FastLloydError
        Or why there is none: the other parties must hear of it.
    transport : Transport
    announcer : Announcer
    approve : Approve, optional
        Sees the public facts that the links will be confirmed with, and later the plan.

    Returns
    -------
    Ending
        The agreed exit code; `lost` says that MPI must not be finalised.
    """
    started = time.perf_counter()
    if announcer.speaks:
        announcer.patience.start()
    prepared = _prepare(config, transport, announcer, approve)
    meter = Meter(transport.wire)
    links = SecureLinks(transport, prepared.identity, prepared.certificates, meter, linked=_linked(prepared, transport))
    clipped = prepared.clipped
    first = setup_bounds(transport.me)
    links.bound(message_bytes=first.largest, ahead_bytes=first.ahead_bytes)
    files: Files | None = None
    outcome: Outcome | None = None
    try:
        session, files = _meet(prepared, transport, links, announcer, meter=meter, started=started)
        outcome = _live(prepared, session, links, files, announcer)
        files.write(outcome)
        leave_together(links, deadline_s=prepared.config.setup_deadline, late=outcome.late)
        if prepared.state is not None:
            prepared.state.finish()  # not before: whoever could not write its files resumes to have them
    except Exception as caught:
        announcer.patience.end()
        error = _as_ours(caught)
        if files is not None:
            _in_spite_of_a_signal(files.discard)
        fault = None if outcome is None else outcome.fault
        if isinstance(error, Aborted) and fault is not None and fault.rank == error.by:
            error = fault  # it lied to us before it spoke of another
        _in_spite_of_a_signal(partial(_keep_ledger, prepared))
        ending = _in_spite_of_a_signal(partial(abort, links, error))
        _explain(error, ending, announcer)
        _point_to_resume(prepared, ending, announcer)
        return ending
    files.announce(announcer.note)
    if clipped:
        announcer.confide(f"these records were not used well, whatever the verdict says of the noise: {clipped}")
    if announcer.own_terminal:
        announcer.note(files.last_line)
    return Ending(EXIT_OK, transport.me.rank, Reason.INTERNAL, bool(outcome.late))


def _prepare(
    config: RunConfig | FastLloydError, transport: Transport, announcer: Announcer, approve: Approve | None
) -> _Prepared:
    """Check all inputs. Keep the error: the other parties must be told."""
    me, count = transport.me, len(transport.peers)
    if isinstance(config, FastLloydError):
        return _Prepared(config=RunConfig(), problem=config, identity=make_identity(str(me), me.rank))
    prepared = _Prepared(config=config, identity=make_identity(str(me), me.rank), approve=approve)
    try:
        face = find_face(config.protocol)
        if config.evaluate:
            check_available()
        prepared.config, prepared.common = face.gather(config, count)
        prepared.identity, prepared.roster = load_identity(config, me, count)
        if prepared.roster is not None:
            announcer.names = announcer.view.names = {entry.rank: entry.name for entry in prepared.roster.entries}
        if approve is not None:
            approve.check_public(prepared.config, prepared.common, prepared.roster)
        if config.state_dir is not None:
            prepared.state = StateDir(config.state_dir, me, resume=config.resume)
            prepared.ledger = prepared.state.open_ledger()
            prepared.state.keep_unit(config.unit or face.people(config))
            if config.review:
                Decisions(prepared.state.path)  # a damaged one is found before anything is spent
            if config.resume:
                prepared.facts = prepared.state.facts()
                refuse_other_protocol(prepared.facts["plan"], config.protocol)
                refuse_other_build(prepared.facts, config.protocol)
        if announcer.one_host:
            refuse_one_file(prepared.config, prepared.common, count)
        if not config.overwrite:
            own_run = None if prepared.run_id is None else prepared.run_id.hex()
            find_earlier(output_folder(config.output, me)).refuse(own_run)
        prepared.own = face.load(prepared.config, prepared.common, me)
    except Exception as caught:
        prepared.problem = _as_ours(caught)
        if announcer.one_host and count > 1 and isinstance(caught, FormError):
            prepared.problem = FormError(f"{caught}. {_SAME_FORM}")
    if prepared.problem is None and announcer.speaks:
        _point_out(prepared, announcer)
    if prepared.problem is None and prepared.clipped:
        announcer.confide(f"{prepared.clipped} (said to the owner of these records only)")
    return prepared


def _linked(prepared: _Prepared, transport: Transport) -> tuple[PartyId, ...]:
    """Return the parties that this one needs links to: not other clients, where the protocol can do without."""
    if transport.me.is_server or prepared.common is None:
        return transport.peers
    return transport.peers if find_face(prepared.config.protocol).links_clients(prepared.config) else (SERVER,)


def _point_out(prepared: _Prepared, announcer: Announcer) -> None:
    """Tell people before the start what they may not have meant."""
    if prepared.roster is None:
        announcer.note(
            "demonstration: links are encrypted but the parties' keys are not authenticated (no --roster and --key)"
        )
    if prepared.state is not None and prepared.state.interrupted and not prepared.config.resume and _resumes(prepared):
        announcer.note(interrupted_words(prepared.state.path))
    public = None if prepared.common is None else prepared.common.public
    delta = getattr(public, "delta", None)
    note = large_delta(delta, public.n_total) if public is not None and isinstance(delta, float) else None
    if note is not None:
        announcer.note(f"--delta: {note}")


def _resumes(prepared: _Prepared) -> bool:
    """Whether the protocol can go on after an interruption."""
    return find(prepared.config.protocol).resumes


def _point_to_resume(prepared: _Prepared, ending: Ending, announcer: Announcer) -> None:
    """After a failure say that the run can go on, where it can; under `fastlloyd run` that command does."""
    state = prepared.state
    if (
        announcer.speaks
        and not announcer.events
        and state is not None
        and state.keeps_own
        and _resumes(prepared)
        and ending.reason != Reason.RESUME
    ):
        announcer.complain(resume_words(state.path))


def _awaited(links: SecureLinks, what: str) -> str:
    """Say which parties the set-up waits for, and for what."""
    if what == "start" and not links.me.is_server:
        return "waiting for the server to say that all parties can start"
    peers = [peer for peer in links.peers if peer not in links.starts] if what == "start" else links.pending
    words = {"start": "to say that they can start", "links": "to bring the encrypted links up"}[what]
    return f"waiting for {name_some(peers) or 'nobody: working'} {words if peers else ''}".rstrip()


def _meet(
    prepared: _Prepared, transport: Transport, links: SecureLinks, announcer: Announcer, *, meter: Meter, started: float
) -> tuple[Session, Files]:
    """Start together and bring the links up; gives what this party's life starts from, and what it will write."""
    config, common = prepared.config, prepared.common
    announcer.patience.stage = partial(_awaited, links, "start")
    run_id = agree_start(links, prepared.problem, deadline_s=config.setup_deadline, run_id=prepared.run_id)
    if common is None:
        raise InternalError("the start was agreed although this party has no public parameters")
    if prepared.run_id is not None and prepared.run_id != run_id:
        raise ConfigError(
            "--resume: the stored run of this party is not the one the server resumes; give all parties the "
            "state directories of the same run",
            reason=Reason.RESUME,
        )
    roster = b"" if prepared.roster is None else prepared.roster.digest()
    digest = hashlib.sha256(run_id + common.digest(config, roster)).digest()
    announcer.patience.stage = partial(_awaited, links, "links")
    announcer.view.run, announcer.view.stage = run_id.hex(), "setup"
    values = told(config, common, prepared.roster)
    links.connect(digest, deadline_s=config.setup_deadline, told=values, explain=partial(explain, own=values))
    facts = Facts(
        config=config,
        common=common,
        run_id=run_id,
        authenticated=links.authenticated,
        started=started,
        me=links.me,
        resumed=bool(prepared.facts),
        mpi=announcer.mpi,
        carrier=announcer.carrier or _carrier(transport, config, announcer),
        prints=announcer.may_print if config.print_result is None else config.print_result,
    )
    files = _files(prepared, facts)
    own, prepared.own = prepared.own, None  # the records are the session's now: no second copy stays alive
    session = Session(
        me=links.me,
        everybody=clients(len(links.peers)),
        config=config,
        common=common,
        own=own,
        ledger=files.ledger,
        stored=prepared.facts,
        facts=facts,
        meter=meter,
        digest=digest,
        identity=prepared.identity,
        roster=prepared.roster,
    )
    return session, files


def _carrier(transport: Transport, config: RunConfig, announcer: Announcer) -> str:
    """Return what brings the frames by now; where that is not what was asked for, rank 0 says so."""
    carrier = transport.carrier or config.transport
    if config.transport == "tcp" and carrier != "tcp" and announcer.speaks:
        way = "shared memory" if carrier == "shm" else "a way of its choice"
        announcer.remark(
            f"--transport: expected MPI to pass messages over TCP, and it takes {way}: it was started so, or variables "
            "or files of this MPI say so; `fastlloyd run` starts it right, `--transport shm` is for who wants it so"
        )
    return carrier


def _files(prepared: _Prepared, facts: Facts) -> Files:
    """Return what this party writes its files with."""
    if not find_face(prepared.config.protocol).writes_result(facts.me):
        return ServerFiles(facts, prepared.ledger)
    if prepared.config.review and prepared.state is not None:
        key = None if prepared.roster is None else prepared.identity.key
        return HeldFiles(facts, prepared.ledger, prepared.state.path, key)
    return ResultFiles(facts, prepared.ledger)


def _live(prepared: _Prepared, session: Session, links: SecureLinks, files: Files, announcer: Announcer) -> Outcome:
    """Drive this party's life over its links."""
    config, face = prepared.config, find_face(prepared.config.protocol)

    def hold_to_approval(planned: tuple[Release, ...], delta: float) -> None:
        if prepared.approve is not None:
            prepared.approve.check_claim(face.claim_of(config, session.plan), planned)

    tells = announcer.own_terminal or (announcer.one_host and session.me.rank == 1)  # one client of a host is enough
    host = Host(
        files.ledger,
        run_id=session.facts.run_id,
        state=prepared.state,
        resumed=session.resumed,
        build=build_numbers(config.protocol),
        budget=config.budget,
        budget_delta=config.budget_delta,
        transcript=Transcript(session.digest),
        afford=hold_to_approval,
        publish=CostKeeper(session.facts, session.meter, announcer, session.everybody).publish,
        elect=files.choose_writer,
        tell=announcer.note if tells else None,
    )
    deadlines = Deadlines(setup_s=config.setup_deadline, round_s=config.deadline)
    life = face.serve(session) if session.me.is_server else face.take_part(session)
    driver = Driver(session.me, links, session.meter, deadlines, host)
    announcer.patience.stage = driver.awaited
    return driver.drive(life)


def _keep_ledger(prepared: _Prepared) -> None:
    """After a failure, note how long the ledger is and give it back; the run's folder says so too, if this cannot."""
    if prepared.state is not None and prepared.ledger is not None:
        with contextlib.suppress(ConfigError):
            prepared.state.note_ledger()
        prepared.ledger.close()


def _in_spite_of_a_signal(work: Callable[[], T]) -> T:
    """Do what must be done after a failure; a signal that comes in the midst of it is the only one."""
    try:
        return work()
    except Interrupted:
        return work()


def _as_ours(error: Exception) -> FastLloydError:
    """Turn anything unforeseen into an InternalError, with the trace in the log only."""
    if isinstance(error, FastLloydError):
        return error
    _log.exception("unforeseen error")
    if isinstance(error, MemoryError):
        return InternalError("out of memory; use fewer records per process or a machine with more memory")
    wrapped = InternalError(
        f"{type(error).__name__}: {error}; this is a bug in fastlloyd, please report it (--log-level debug shows where)"
    )
    wrapped.__cause__ = error
    return wrapped


def _explain(error: FastLloydError, ending: Ending, announcer: Announcer) -> None:
    """Print what this rank has to say: its own details, and, where it speaks, what all see."""
    shared = str(Aborted(rank=ending.rank, reason=ending.reason, code=ending.code, by=ending.by))
    if isinstance(error, NotStarted):
        if error.own is not None and (announcer.own_terminal or not error.printed_elsewhere):
            announcer.complain(str(error.own))
        if announcer.speaks:
            announcer.complain(shared)
    elif not isinstance(error, Aborted):
        announcer.complain(str(error))
    elif announcer.speaks:
        announcer.complain(shared)
