"""One party's run from its inputs to its exit code: start, links, plan, rounds, counters, result.

Alike for mpirun, `fastlloyd run` and any other transport. Every way out is one of the exit codes of
`errors`, agreed with the other parties, and one sentence.

Source: docs/protocol.md, "A run from start to end".
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastlloyd.config import RunConfig
from fastlloyd.crypto.identity import Identity, make_identity
from fastlloyd.errors import (
    EXIT_OK,
    Aborted,
    ConfigError,
    DataError,
    FastLloydError,
    InternalError,
    Interrupted,
    PeerError,
    Reason,
)
from fastlloyd.inputs import Common, OwnRecords, gather_common, load_identity, load_own
from fastlloyd.net.control import Ending, NotStarted, abort, agree_start, leave_together
from fastlloyd.net.meter import Meter
from fastlloyd.net.secure import SecureLinks
from fastlloyd.net.transport import Transport
from fastlloyd.outcome import ClientOutcome, Facts, ServerOutcome, own_traffic
from fastlloyd.privacy.ledger import Ledger, Release, keyed_digest
from fastlloyd.privacy.secret import SecretRandom
from fastlloyd.protocols.fastlloyd.plan import Plan, check_plan, lifetime_delta, make_plan
from fastlloyd.protocols.session import (
    await_ready,
    exchange_counters_client,
    exchange_counters_server,
    gather_schema,
    propose_plan,
    receive_plan,
    refuse_plan,
    tell_ready,
)
from fastlloyd.report.announcer import Announcer
from fastlloyd.run import Deadlines, Driver
from fastlloyd.state import StateDir
from fastlloyd.wire import PartyId, clients

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Prepared:
    """What a party has once its inputs were checked, or why it cannot start."""

    config: RunConfig
    problem: FastLloydError | None = None
    common: Common | None = None
    own: OwnRecords | None = None
    identity: Identity
    certificates: Mapping[PartyId, bytes] | None = None
    roster_digest: bytes = b""
    state: StateDir | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def run_id(self) -> bytes | None:
        """The interrupted run's id on resume."""
        return bytes.fromhex(self.facts["run_id"]) if "run_id" in self.facts else None


def execute(config: RunConfig | FastLloydError, transport: Transport, announcer: Announcer) -> Ending:
    """Run one party to its end.

    Parameters
    ----------
    config : RunConfig or FastLloydError
        Or why there is none: the other parties must hear of it.
    transport : Transport
    announcer : Announcer

    Returns
    -------
    Ending
        The agreed exit code; `lost` says that MPI must not be finalised.
    """
    started = time.perf_counter()
    prepared = _prepare(config, transport, announcer)
    meter = Meter()
    links = SecureLinks(transport, prepared.identity, prepared.certificates, meter)
    outcome: ClientOutcome | ServerOutcome | None = None
    try:
        outcome = _run(prepared, links, meter, announcer, started)
        outcome.write()
        leave_together(links, deadline_s=prepared.config.setup_deadline, late=outcome.late)
        if prepared.state is not None:
            prepared.state.finish()  # not before: whoever could not write its files resumes to have them
    except Exception as caught:
        error = _as_ours(caught)
        if outcome is not None:
            outcome.discard()
        try:
            ending = abort(links, error)
        except Interrupted:  # a signal that came in the midst of it; there is no second one
            ending = abort(links, error)
        _explain(error, ending, announcer)
        return ending
    outcome.announce(announcer.note)
    return Ending(EXIT_OK, transport.me.rank, Reason.INTERNAL, bool(outcome.late))


def _prepare(config: RunConfig | FastLloydError, transport: Transport, announcer: Announcer) -> _Prepared:
    """Check all inputs; a problem is kept, for the others must hear of it."""
    me, count = transport.me, len(transport.peers)
    if isinstance(config, FastLloydError):
        return _Prepared(config=RunConfig(), problem=config, identity=make_identity(str(me), me.rank))
    prepared = _Prepared(config=config, identity=make_identity(str(me), me.rank))
    try:
        prepared.config, prepared.common = gather_common(config, count)
        prepared.identity, prepared.certificates, prepared.roster_digest = load_identity(config, me, count)
        if config.state_dir is not None:
            prepared.state = StateDir(config.state_dir, me)
            if config.resume:
                prepared.facts = prepared.state.facts()
        if not me.is_server:
            prepared.own = load_own(prepared.config, prepared.common, me)
    except Exception as caught:
        prepared.problem = _as_ours(caught)
    if prepared.problem is None and prepared.certificates is None and announcer.speaks:
        announcer.note(
            "demonstration: links are encrypted but the parties' keys are not authenticated (no --roster and --key)"
        )
    return prepared


def _run(
    prepared: _Prepared, links: SecureLinks, meter: Meter, announcer: Announcer, started: float
) -> ClientOutcome | ServerOutcome:
    """Start together, bring the links up, and run this party's role."""
    config, common = prepared.config, prepared.common
    run_id = agree_start(links, prepared.problem, deadline_s=config.setup_deadline, run_id=prepared.run_id)
    if common is None:
        raise InternalError("the start was agreed although this party has no public parameters")
    if prepared.run_id is not None and prepared.run_id != run_id:
        raise ConfigError(
            "--resume: the stored run of this party is not the one the server resumes; give all parties the "
            "state directories of the same run",
            reason=Reason.RESUME,
        )
    digest = hashlib.sha256(run_id + common.digest(config, prepared.roster_digest)).digest()
    links.connect(digest, deadline_s=config.setup_deadline)
    facts = Facts(
        config=config,
        common=common,
        run_id=run_id,
        authenticated=links.authenticated,
        started=started,
        me=links.me,
        resumed=bool(prepared.facts),
        mpi=announcer.mpi,
        carrier=announcer.carrier or config.transport,
        prints=announcer.may_print if config.print_result is None else config.print_result,
    )
    if links.me.is_server:
        return _Server(prepared, facts, links, meter, announcer).run()
    return _Client(prepared, facts, links, meter, announcer, digest=digest).run()


class _Role:
    """What both roles share: driver, ledger, timing."""

    def __init__(
        self, prepared: _Prepared, facts: Facts, links: SecureLinks, meter: Meter, announcer: Announcer
    ) -> None:
        self.prepared = prepared
        self.facts = facts
        self.links = links
        self.meter = meter
        self.announcer = announcer
        self.me = links.me
        self.everybody = clients(len(links.peers))

    def driver(self, ledger: Ledger, data_digest: str = "") -> Driver:
        """Make the driver of this run."""
        config, state = self.prepared.config, self.prepared.state
        return Driver(
            self.me,
            self.links,
            self.meter,
            Deadlines(setup_s=config.setup_deadline, round_s=config.deadline),
            ledger=ledger,
            run_id=self.facts.run_id,
            data_digest=data_digest,
            save=None if state is None else state.save,
            publish=self.publish,
        )

    def publish(self, event: str, values: dict[str, Any]) -> None:
        """Note a round's time; whoever speaks tells people, with all payload bytes that passed it."""
        self.facts.round_seconds.append(values["seconds"])
        if self.announcer.speaks:
            counts = (self.meter.sent, self.meter.received)
            payload = sum(c[peer, values["round"]].payload_bytes for c in counts for peer in self.links.peers)
            self.announcer.event(event, **values, bytes=payload)

    def rounds_start(self, driver: Driver) -> None:
        """Set-up is over."""
        driver.restart_clock()
        self.facts.setup_seconds = time.perf_counter() - self.facts.started
        if self.announcer.speaks:
            self.announcer.event("setup", seconds=self.facts.setup_seconds)


class _Server(_Role):
    """Rank 0."""

    def run(self) -> ServerOutcome:
        from fastlloyd.protocols.fastlloyd.rounds import draw_noise
        from fastlloyd.protocols.fastlloyd.server import server

        state, common = self.prepared.state, self.facts.common
        ledger = Ledger(None if state is None else state.ledger_path)
        driver = self.driver(ledger)
        schema = driver.drive(gather_schema(self.everybody))
        stored = {} if state is None or not self.prepared.facts else state.rounds("reply")
        if self.prepared.facts:
            plan = Plan.from_json(self.prepared.facts["plan"])
        else:
            plan = make_plan(common.public, d=len(schema.names), names=schema.names)
        ahead = [party for party, done in schema.rounds_done.items() if done > len(stored)]
        if ahead:
            raise PeerError(
                f"{ahead[0]} has finished more rounds than the server has stored; resume with the state directories "
                "of the same run",
                rank=0,
                reason=Reason.RESUME,
            )
        driver.drive(propose_plan(self.everybody, plan.to_json(), len(stored)))
        driver.drive(await_ready(self.everybody))
        if state is not None and not self.prepared.facts:
            # Not before all are ready: a run that is refused must not make this party forget an interrupted one.
            state.start({"run_id": self.facts.run_id.hex(), "plan": plan.to_json()})
        self.rounds_start(driver)
        secret = SecretRandom()
        result = driver.drive(
            server(plan, lambda t: draw_noise(plan, t, secret), stored=stored, rounds_done=schema.rounds_done)
        )
        traffic = driver.drive(
            exchange_counters_server(
                self.everybody, own_traffic(self.meter), late=result.late, at_least=plan.min_clients
            )
        )
        ledger.close()
        return ServerOutcome(self.facts, plan, result, traffic)


class _Client(_Role):
    """Ranks 1 to M."""

    def __init__(
        self,
        prepared: _Prepared,
        facts: Facts,
        links: SecureLinks,
        meter: Meter,
        announcer: Announcer,
        *,
        digest: bytes,
    ) -> None:
        super().__init__(prepared, facts, links, meter, announcer)
        self.digest = digest

    def run(self) -> ClientOutcome:
        from fastlloyd.agreement import MaskAgreement
        from fastlloyd.kmeans.grid import quantise
        from fastlloyd.protocols.fastlloyd.client import StoredRounds, client
        from fastlloyd.protocols.fastlloyd.rounds import draw_share

        own, state, config = self.prepared.own, self.prepared.state, self.prepared.config
        if own is None:
            raise InternalError("a client started without records")
        outcome = ClientOutcome(self.facts, own.bounds, own.names)
        try:
            ledger = Ledger(outcome.ledger_path if state is None else state.ledger_path)
            outcome.ledger = ledger
            self.refuse_old_run(ledger)
            data_digest = keyed_digest(ledger.digest_key(), own.raw_points)
            driver = self.driver(ledger, data_digest)
            replies = {} if state is None or not self.prepared.facts else state.rounds("reply")
            if self.prepared.facts.get("data", data_digest) != data_digest:
                raise DataError(
                    "--resume: these are not the records that the interrupted run started with; resume with the "
                    "same file, or start anew without --resume"
                )
            proposal = driver.drive(receive_plan(own.names, len(replies)))
            outcome.plan = plan = self.accept(proposal.values["plan"], own)
            if config.budget is not None:
                ledger.check_budget(self.unrecorded(ledger, plan), lifetime_delta(plan), config.budget)
            agreement = MaskAgreement(
                me=self.me,
                clients=self.everybody,
                run_id=self.facts.run_id,
                set_up=self.digest,
                state=state,
                resumed=bool(self.prepared.facts),
            )
            masks = agreement.masks(driver, plan, data_digest)
            points = quantise(own.raw_points, plan.fraction_bits)
            self.prepared.own = None  # the scaled copy is no longer needed
            del own
            uplinks = {} if state is None or not self.prepared.facts else state.rounds("uplink")
            stored = StoredRounds(uplinks, replies, int(proposal.values["rounds_done"]))
            driver.drive(tell_ready())
            self.rounds_start(driver)
            secret = SecretRandom()
            share = partial(draw_share, plan, secret=secret) if plan.masking == "pairwise" else None
            outcome.result = driver.drive(client(self.me, points, plan, masks, share=share, stored=stored))
            outcome.choose_writer()
            outcome.traffic = driver.drive(exchange_counters_client(own_traffic(self.meter)))
            return outcome
        except BaseException:
            outcome.discard()
            raise

    def accept(self, values: Mapping[str, Any], own: OwnRecords) -> Plan:
        """Check the server's plan against the own configuration."""
        try:
            plan = Plan.from_json(values)
            check_plan(plan, self.facts.common.public, d=len(own.names), names=own.names)
        except (ValueError, TypeError, KeyError) as error:
            raise refuse_plan(ValueError(str(error))) from error
        stored = self.prepared.facts.get("plan")
        if stored is not None and stored != json.loads(json.dumps(plan.to_json())):
            raise refuse_plan(ValueError("it is not the plan that the interrupted run started with"))
        return plan

    def refuse_old_run(self, ledger: Ledger) -> None:
        """Refuse a run id that the ledger already holds: its releases would not be counted again."""
        run = self.facts.run_id.hex()
        if not self.prepared.facts and any(release.run == run for release in ledger.releases):
            raise PeerError("the server gave the id of an earlier run to this one, expected a fresh id", rank=0)

    def unrecorded(self, ledger: Ledger, plan: Plan) -> list[Release]:
        """Give the planned releases that this run has not recorded yet (all, unless it resumes)."""
        run = self.facts.run_id.hex()
        recorded = {(release.round, release.name) for release in ledger.releases if release.run == run}
        return [release for release in plan.all_releases() if (release.round, release.name) not in recorded]


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
    shared = str(Aborted(rank=ending.rank, reason=ending.reason, code=ending.code))
    if isinstance(error, NotStarted):
        if error.own is not None and (announcer.own_terminal or not error.printed_elsewhere):
            announcer.complain(str(error.own))
        if announcer.speaks:
            announcer.complain(shared)
    elif not isinstance(error, Aborted):
        announcer.complain(str(error))
    elif announcer.speaks:
        announcer.complain(shared)
