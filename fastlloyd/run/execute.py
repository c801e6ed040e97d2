"""One party's run from its inputs to its exit code: start, links, plan, rounds, counters, result.

The same for mpirun, `fastlloyd run` and any other transport. Every way out is one of the exit codes of
`errors`, agreed with the other parties, and one sentence.

Source: docs/protocol.md, "A run from start to end".
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from fastlloyd.crypto.hybrid import require_hybrid
from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.data.findings import Findings
from fastlloyd.errors import (
    EXIT_OK,
    Aborted,
    ConfigError,
    FastLloydError,
    FormError,
    InternalError,
    Interrupted,
    PeerError,
    Reason,
    name_some,
    unusable_path,
)
from fastlloyd.gate.decisions import Decisions
from fastlloyd.kmeans.metrics import check_available
from fastlloyd.lifecycle.messages import setup_bounds
from fastlloyd.net.link.control import Ending, NotStarted, abort, agree_start, leave_together
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.meter import Meter
from fastlloyd.net.transport import Transport
from fastlloyd.privacy.calibration import large_delta
from fastlloyd.privacy.ledger import Release
from fastlloyd.report.announcer import Announcer
from fastlloyd.report.earlier import find_earlier
from fastlloyd.report.files import PRIVATE_MODE, output_folder, refuse_running, write_atomic
from fastlloyd.run.checks import refuse_other_build, refuse_other_protocol
from fastlloyd.run.config import RunConfig
from fastlloyd.run.driver import Deadlines, Driver
from fastlloyd.run.files import Files, HeldFiles, ResultFiles, ServerFiles
from fastlloyd.run.history import note_begun, note_ended
from fastlloyd.run.inputs import PublicInputs, encode_public
from fastlloyd.run.machine import CostKeeper, Host
from fastlloyd.run.outcome import Claim, Outcome
from fastlloyd.run.own_rank import load_identity
from fastlloyd.run.session import Session, find_protocol
from fastlloyd.run.state import StateDir, resume_words
from fastlloyd.run.vertical import refuse_one_file
from fastlloyd.wire.header import SERVER, clients
from fastlloyd.wire.values import explain

T = TypeVar("T")

_SAME_FORM = (
    "Flags of one command hold for all clients: where only some files differ, save all in one format, or see "
    'docs/guide.md, "Other CSV formats"'
)
RECORDS = "records.txt"
"""In a party's state folder: what became of its records in its last run."""
_log = logging.getLogger(__name__)


class Approve(Protocol):
    """What refuses a run that was not approved."""

    def check_public(self, config: RunConfig, inputs: PublicInputs, roster: Roster | None) -> None:
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
        Or why there is none: the other parties must know.
    transport : Transport
    announcer : Announcer
    approve : Approve, optional
        Sees the public values that the links will be confirmed with, and later the plan.

    Returns
    -------
    Ending
        The agreed exit code; `lost` says that MPI must not be finalised.
    """
    return _Execution(transport, announcer, approve).participate(config)


class _Execution:
    """One party's run under way: what its steps share.

    Attributes
    ----------
    identity : Identity
        The key of a party that no roster names, or that cannot start.
    session : Session or None
        None: the configuration or the public inputs are at fault.
    state : StateDir or None
    unfit : str
        What to say to the owner of this party's records, again, of bounds that do not fit them; '' for nothing.
    written : bool
        All files of this party are written.
    """

    def __init__(self, transport: Transport, announcer: Announcer, approve: Approve | None) -> None:
        self.started = time.perf_counter()
        self.transport = transport
        self.announcer = announcer
        self.approve = approve
        self.identity = make_identity(str(transport.me), transport.me.rank)
        self.session: Session | None = None
        self.state: StateDir | None = None
        self.unfit = ""
        self.written = False
        self.files: Files | None = None

    def participate(self, config: RunConfig | FastLloydError) -> Ending:
        """Check the inputs, meet the other parties, run, write the files, and leave together."""
        announcer = self.announcer
        problem = config if isinstance(config, FastLloydError) else self._prepare(config)
        deadline_s = (RunConfig() if isinstance(config, FastLloydError) else config).setup_deadline
        links = self._links()
        outcome: Outcome | None = None
        try:
            session = self._meet(links, problem, deadline_s)
            session.carrier = announcer.carrier or self._carrier(session.config.transport)
            session.key_exchange = links.key_exchange
            self.files = self._make_files(session)
            outcome = self._live(session, links, self.files)
            self.files.write(outcome)
            self.written = True
            self._note_ended(EXIT_OK, _verdict(session, outcome))
            leave_together(links, deadline_s=session.config.setup_deadline, late=outcome.late)
            if self.state is not None:
                self.state.finish()  # not before: whoever could not write its files resumes to have them
        except Exception as caught:
            return self._end(_as_ours(caught), None if outcome is None else outcome.fault, links)
        self.files.announce(announcer.note)
        for sentence in self.files.left_out:
            announcer.complain(sentence)
        if self.unfit:
            announcer.confide(f"these records were not used well, whatever the verdict says of the noise: {self.unfit}")
        if announcer.own_terminal:
            announcer.note(self.files.last_line)
        return Ending(EXIT_OK, self.transport.me.rank, Reason.INTERNAL, bool(outcome.late))

    def _prepare(self, config: RunConfig) -> FastLloydError | None:
        """Check all inputs and make the session; return what is wrong: the other parties must know."""
        me, announcer, count = self.transport.me, self.announcer, len(self.transport.peers)
        try:
            if announcer.speaks:
                announcer.patience.start()
            protocol = find_protocol(config.protocol)
            if config.evaluate:
                check_available()
            require_hybrid()
            settled, inputs = protocol.gather(config, count)
            self.session = session = Session(
                me=me,
                everybody=clients(count),
                config=settled,
                inputs=inputs,
                identity=self.identity,
                mpi=announcer.mpi,
                prints=announcer.may_print if settled.print_result is None else settled.print_result,
                started=self.started,
            )
            session.identity, session.roster = load_identity(settled, me, count)
            if session.roster is not None:
                announcer.names = announcer.view.names = {one.rank: one.name for one in session.roster.entries}
                session.roster.check_dates()
                own = next(one for one in session.roster.entries if one.party == me)
                announcer.view.certificate_ends = own.valid[1].timestamp()
            if self.approve is not None:
                self.approve.check_public(settled, inputs, session.roster)
            if settled.state_dir is not None:
                self._open_state(session, settled.state_dir)
            if announcer.one_host:
                refuse_one_file(settled, inputs, count)
            refuse_running(output_folder(settled.output, me))
            if not settled.overwrite:
                find_earlier(output_folder(settled.output, me)).refuse(session.stored.get("run_id"))
            session.own = protocol.load(settled, inputs, me)
            findings = getattr(session.own, "findings", None)
            if isinstance(findings, Findings):
                self._say_of_records(settled, findings)
        except Exception as caught:
            if announcer.one_host and count > 1 and isinstance(caught, FormError):
                return FormError(f"{caught}. {_SAME_FORM}")
            return _as_ours(caught)
        if announcer.speaks:
            self._point_out(session)
        return None

    def _say_of_records(self, config: RunConfig, findings: Findings) -> None:
        """Before anything is spent, say to their owner what became of this party's records, and keep it.

        Where a launcher collects the standard error of several hosts, and there is no state folder, the file stands
        beside the owner's labels, which are as private.
        """
        self.unfit = findings.unfit
        for sentence in findings.said:
            self.announcer.confide(f"{sentence} (said to the owner of these records only)")
        me = self.announcer.me
        if self.state is not None:
            write_atomic(self.state.path / RECORDS, findings.text, mode=PRIVATE_MODE, flag="--state-dir")
        elif not self.announcer.may_print:
            folder = output_folder(config.output, me)
            with contextlib.suppress(OSError):  # whatever is wrong, writing says it
                folder.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / f"records_{me.rank}.txt", findings.text, mode=PRIVATE_MODE)

    def _open_state(self, session: Session, root: str) -> None:
        """Open this party's state directory and its ledger, and read what is stored of the run to resume."""
        config = session.config
        self.state = state = StateDir(root, session.me, resume=config.resume, new=config.new_state)
        session.ledger = state.open_ledger()
        state.keep_unit(config.unit or session.protocol.people(config))
        if config.review:
            Decisions(state.path)  # a damaged one is found before anything is spent
        if config.resume:
            session.stored = state.interrupted_run()
            refuse_other_protocol(session.stored["plan"], config.protocol)
            refuse_other_build(session.stored, config.protocol)

    def _point_out(self, session: Session) -> None:
        """Before the start, point out what people may not have meant."""
        announcer, state = self.announcer, self.state
        if session.roster is None:
            announcer.note(
                "demonstration: links are encrypted but the parties' keys are not authenticated (no --roster and --key)"
            )
        for line in () if session.roster is None else session.roster.check_dates():
            announcer.note(line)
        if state is not None and state.interrupted and not session.resumed and session.config.row.resumes:
            announcer.note(
                f"state: an interrupted run stands in {state.path}; --resume goes on with it and spends nothing twice, "
                "this new run spends anew and takes its place"
            )
        public = session.inputs.public
        delta = getattr(public, "delta", None)
        note = large_delta(delta, public.n_total) if isinstance(delta, float) else None
        if note is not None:
            announcer.note(f"--delta: {note}")

    def _links(self) -> SecureLinks:
        """Return the links that this party needs: none to other clients, where the protocol can do without."""
        transport, session = self.transport, self.session
        me, linked, certificates = transport.me, transport.peers, None
        first = setup_bounds(me)
        if session is None:
            links = SecureLinks(transport, self.identity, None, Meter(transport.wire))
        else:
            session.meter = Meter(transport.wire)
            if not me.is_server and not session.protocol.links_clients(session.config):
                linked = (SERVER,)
            if session.roster is not None:
                certificates = {party: der for party, der in session.roster.certificates().items() if party != me}
            links = SecureLinks(transport, session.identity, certificates, session.meter, linked=linked)
        links.bound(message_bytes=first.largest, ahead_bytes=first.ahead_bytes)
        return links

    def _meet(self, links: SecureLinks, problem: FastLloydError | None, deadline_s: float) -> Session:
        """Start together with the other parties and bring the links up."""
        session, announcer = self.session, self.announcer
        announcer.patience.stage = partial(_awaited, links, "start")
        before = None if session is None or not session.resumed else bytes.fromhex(session.stored["run_id"])
        run_id = agree_start(links, problem, deadline_s=deadline_s, run_id=before)
        if session is None:
            raise InternalError("the start was agreed although this party has no session")
        if before not in (None, run_id):
            raise ConfigError(
                "--resume: the stored run of this party is not the one the server resumes; give all parties the "
                "state directories of the same run",
                reason=Reason.RESUME,
            )
        session.begin_run(run_id)
        self._note_begun(session)
        announcer.patience.stage = partial(_awaited, links, "links")
        announcer.view.run, announcer.view.stage = run_id.hex(), "setup"
        values = encode_public(session.config, session.inputs, session.roster)
        links.connect(session.digest, deadline_s=deadline_s, values=values, explain=partial(explain, own=values))
        return session

    def _carrier(self, asked: str) -> str:
        """Return what brings the frames by now; where that is not what was asked for, rank 0 says so."""
        carrier = self.transport.carrier or asked
        if asked == "tcp" and carrier != "tcp" and self.announcer.speaks:
            way = "shared memory" if carrier == "shm" else "a way of its choice"
            self.announcer.remark(
                f"--transport: expected MPI to pass messages over TCP, and it takes {way}: it was started so, or "
                "variables or files of this MPI say so; `fastlloyd run` starts it right, `--transport shm` is for who "
                "wants it so"
            )
        return carrier

    def _make_files(self, session: Session) -> Files:
        """Return what this party writes its files with."""
        if not session.protocol.writes_result(session.me):
            return ServerFiles(session)
        if session.config.review and self.state is not None:
            return HeldFiles(session, self.state.path)
        return ResultFiles(session)

    def _live(self, session: Session, links: SecureLinks, files: Files) -> Outcome:
        """Drive this party's session over its links."""
        config, protocol, announcer = session.config, session.protocol, self.announcer

        def hold_to_approval(planned: tuple[Release, ...], delta: float) -> None:
            if self.approve is not None:
                self.approve.check_claim(protocol.claim(config, session.plan), planned)

        # One client of a host is enough.
        tells = announcer.own_terminal or (announcer.one_host and session.me.rank == 1)
        host = Host(
            session,
            state=self.state,
            afford=hold_to_approval,
            publish=CostKeeper(session, announcer).publish,
            elect=files.choose_writer,
            view=announcer.view,
            tell=announcer.note if tells else None,
        )
        deadlines = Deadlines(setup_s=config.setup_deadline, round_s=config.deadline)
        party = protocol.serve(session) if session.me.is_server else protocol.take_part(session)
        driver = Driver(session.me, links, session.meter, deadlines, host)
        announcer.patience.stage = driver.awaited
        return driver.drive(party)

    def _end(self, error: FastLloydError, fault: PeerError | None, links: SecureLinks) -> Ending:
        """Clean up after a failure, and agree on its exit code; `fault` is what a peer did wrong in closing."""
        announcer, state = self.announcer, self.state
        announcer.patience.end()
        if self.files is not None:
            _in_spite_of_a_signal(self.files.discard)
        if isinstance(error, Aborted) and fault is not None and fault.rank == error.by:
            error = fault  # it lied to us before it spoke of another
        _in_spite_of_a_signal(self._keep_ledger)
        ending = _in_spite_of_a_signal(partial(abort, links, error))
        if not self.written:
            _in_spite_of_a_signal(partial(self._note_ended, ending.code, str(error)))
        _explain(error, ending, announcer)
        if self.written and announcer.own_terminal:
            announcer.complain("before that, all files of this party were written: they are whole")
        # Under `fastlloyd run` that command says so.
        says = announcer.speaks and not announcer.events and ending.reason != Reason.RESUME
        resumes = self.session is not None and self.session.config.row.resumes
        # Those whose run has ended successfully have nothing to resume.
        if says and resumes and state is not None and state.keeps_own and SERVER not in links.finished:
            announcer.complain(resume_words(state.path))
        return ending

    def _note_begun(self, session: Session) -> None:
        """Note in the history of this party that a run begins."""
        if self.state is None:
            return
        config, me, names = session.config, session.me, self.announcer.names
        others = [party for party in (SERVER, *session.everybody) if party != me]
        note_begun(
            self.state.path,
            session.run_id.hex(),
            protocol=config.protocol,
            title=config.title,
            parties=[names.get(party.rank, str(party)) for party in others],
            output=output_folder(config.output, me),
        )

    def _note_ended(self, code: int, said: str) -> None:
        """Note in the history of this party how a run ended."""
        if self.state is not None and self.session is not None and self.session.run_id:
            note_ended(self.state.path, self.session.run_id.hex(), code=code, said=said)

    def _keep_ledger(self) -> None:
        """Note how long the ledger is and give it back; the run's folder says so too, if this cannot."""
        if self.state is not None and self.session is not None:
            with contextlib.suppress(ConfigError):
                self.state.note_ledger()
            self.session.ledger.close()


def _verdict(session: Session, outcome: Outcome) -> str:
    """Return the verdict on a result; '' where this party has none, or where it waits for a person."""
    return "" if outcome.result is None or session.config.review else outcome.result.quality.sentence


def _awaited(links: SecureLinks, what: str) -> str:
    """Say which parties the set-up waits for, and for what."""
    if what == "start" and not links.me.is_server:
        return "waiting for the server to say that all parties can start"
    peers = [peer for peer in links.peers if peer not in links.starts] if what == "start" else links.pending
    words = {"start": "to say that they can start", "links": "to bring the encrypted links up"}[what]
    return f"waiting for {name_some(peers) or 'nobody: working'} {words if peers else ''}".rstrip()


def _in_spite_of_a_signal(work: Callable[[], T]) -> T:
    """Do what must be done after a failure, again if a signal interrupts it: no second signal comes."""
    try:
        return work()
    except Interrupted:
        return work()


def _as_ours(error: Exception) -> FastLloydError:
    """Turn anything unforeseen into an InternalError, with the trace in the log only."""
    if isinstance(error, FastLloydError):
        return error
    met = error.__context__
    while met is not None:  # a signal may meet Python's own code, whose cleaning up then fails: thread starts do
        if isinstance(met, Interrupted):
            return met
        met = met.__context__
    if isinstance(error, OSError) and error.filename is not None:
        return unusable_path(error)
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
