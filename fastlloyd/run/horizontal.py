"""Set-up, plan and resume of the protocols whose clients hold their own records, and the secrets of their masks.

Source: docs/protocol.md, "A run from start to end", "Seed" and "Masks".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

from fastlloyd.data.records import ClientRecords
from fastlloyd.errors import ConfigError, FastLloydError, Reason
from fastlloyd.lifecycle.hello import (
    Announced,
    await_go,
    await_ready,
    gather_announced,
    propose_plan,
    receive_plan,
    send_go,
)
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.lifecycle.sealed import Sealing
from fastlloyd.lifecycle.shared_secrets import agree_pairs, agree_seed, confirm_pairs
from fastlloyd.lifecycle.threshold.client import ClientOpening, DrawParts, read_decisions
from fastlloyd.lifecycle.threshold.returning import come_back, relay_states
from fastlloyd.lifecycle.threshold.server import ServerOpening
from fastlloyd.lifecycle.threshold.setup import ThresholdSetup
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.secrets import ClientSecrets
from fastlloyd.party.declaration import MessageBounds
from fastlloyd.party.effects import Afford, Allow, Expect, Keep, Load, Party, Publish, Recall, Save
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.checks import (
    accept_plan,
    check_stored,
    refuse_ahead,
    refuse_behind,
    refuse_closed,
    refuse_forgetful_server,
    refuse_old_run,
    refuse_other_data,
)
from fastlloyd.run.session import AgreedPlan, Session
from fastlloyd.wire.header import PartyId


class HorizontalPlan(AgreedPlan, Protocol):
    """What the plans of these protocols have in common."""

    @property
    def min_clients(self) -> int:
        """How many a round needs."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave."""


P = TypeVar("P", bound=HorizontalPlan)
R = TypeVar("R")
_SEED, _PAIRS, _THRESHOLD, _GROUP = "seed", "pairs", "threshold", "group"


def run_server(
    session: Session,
    *,
    kind: type[P],
    make: Callable[[Announced], P],
    bounds: Callable[[P], MessageBounds],
    play: Callable[[P, Mapping[int, bytes], Mapping[PartyId, int]], Party[R]],
    included: Callable[[P, int, bytes], Sequence[PartyId]],
    relay: Callable[[P], Party[Any]] | None = None,
) -> Party[tuple[P, R]]:
    """Run the server from the clients' schemas to the last round; gives plan and result.

    Parameters
    ----------
    session : Session
    kind : type
        Of the plan.
    make : callable
        From what the clients announced to a fresh plan.
    bounds : callable
        From the plan to what each client may send.
    play : callable
        From plan, stored replies and what each client has accepted to the server's coroutine.
    included : callable
        From plan, round and the bytes of its reply to the clients whose uplinks are in it.
    relay : callable, optional
        From the plan to the coroutine that relays what the clients agree on through this server; gives what opens
        their rounds, a `ServerOpening`, or None.

    Notes
    -----
    Before Go no client sends or records anything about its records, and by then every party has stored what a resume
    needs. So a run that a crash interrupts either can be resumed or has spent nothing.
    """
    yield from session.begin()
    stored: Mapping[int, bytes] = yield Recall("reply")
    resumed = _stored_plan(session, kind)
    if resumed is not None:
        uplinks, sets = (yield Recall("uplink")), (yield Recall("set"))
        check_stored(session, resumed.all_releases(), uplinks=uplinks, replies=stored, sets=sets)
    announced = yield from gather_announced(session.everybody)
    plan = resumed or make(announced)
    refuse_ahead(announced, len(stored), _most_finished(session, plan))
    yield Allow(bounds(plan))
    yield Expect(plan.all_releases())
    numbers: Numbers | None = getattr(plan, "numbers", None)
    restored = 0 if numbers is None else numbers.restored
    refuse_behind(stored, announced.rounds_done, lambda t, body: included(plan, t, body), harmless=restored)
    yield from propose_plan(session.everybody, plan.to_json(), len(stored))
    opening = None if relay is None else (yield from relay(plan))
    yield from await_ready(session.everybody)
    # Not before all are ready: a run that is refused must not make this party forget an interrupted one.
    yield Keep({"plan": plan.to_json()})
    if isinstance(opening, ServerOpening):
        yield from opening.keep()
    yield from send_go(session.everybody)
    yield Publish("setup")
    result = yield from play(plan, stored, announced.rounds_done)
    return plan, result


def _stored_plan(session: Session, kind: type[P]) -> P | None:
    """Read the plan of the interrupted run that goes on; None for a new run."""
    if not session.resumed:
        return None
    try:
        return kind.from_json(session.stored["plan"])
    except (ValueError, TypeError, KeyError, FastLloydError) as error:
        raise ConfigError(
            f"--resume: the stored plan is damaged or of another version of fastlloyd ({error}); start anew",
            reason=Reason.RESUME,
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskAgreement:
    """How one client comes by the secrets of its masks.

    Attributes
    ----------
    session : Session
        A resumed one takes the stored secrets and compares them with the others'; it never makes new ones.
    context : bytes
        Digest of everything that must be equal at all clients: roster, public parameters, plan, first centres.
    to_keep : mapping
        What a resume compares: the plan, and the digest of this party's records.
    hidden : bytes
        What must be equal at all clients and the server must not see: enters only what a secret of clients keys.

    Notes
    -----
    Sees: the clients; the server passes on what it cannot open.
    """

    session: Session
    context: bytes
    to_keep: Mapping[str, Any]
    hidden: bytes = field(default=b"", repr=False)

    def seed(self) -> Party[bytes]:
        """Agree on the common seed through the server, or confirm the stored one.

        Raises
        ------
        ConfigError
            A resumed run has no seed, or it is damaged.
        SecurityError
            The clients do not agree; names the culprit.
        """
        session = self.session
        sealing = Sealing(
            me=session.me,
            clients=session.everybody,
            run_id=session.run_id,
            run=session.digest,
            context=self.context,
            credentials=session.credentials,
            hidden=self.hidden,
        )
        stored = yield from self._stored(_SEED)
        if stored is not None:
            if len(stored) != KEY_BYTES:
                raise _damaged(f"expected {KEY_BYTES} bytes, got {len(stored)}")
            yield from sealing.confirm(stored)
            return stored
        seed = yield from sealing.agree(SecretRandom())
        yield from self._keep(_SEED, seed)
        return seed

    def pairs(self) -> Party[PairSecrets]:
        """Agree on a secret with each other client, or confirm the stored ones.

        Raises
        ------
        ConfigError
            A resumed run has no secrets, or they are damaged.
        SecurityError
            A pair does not agree; names it.
        """
        me, everybody, run_id = self.session.me, self.session.everybody, self.session.run_id
        context = self.context + self.hidden  # only tags under the pairs' secrets hold it
        stored = yield from self._stored(_PAIRS)
        if stored is None:
            pairs = yield from agree_pairs(me, everybody, run_id=run_id, context=context, secret=SecretRandom())
            yield from self._keep(_PAIRS, pairs.to_bytes())
            return pairs
        try:
            pairs = PairSecrets.from_bytes(me, [party for party in everybody if party != me], stored)
        except ValueError as error:
            raise _damaged(str(error)) from error
        yield from confirm_pairs(pairs, run_id=run_id, context=context)
        return pairs

    def opening(self, plan: Any, draw: DrawParts, stored: StoredRounds) -> Party[ClientOpening]:
        """Agree on threshold masks, or go on with the stored ones after learning what the others have opened.

        Parameters
        ----------
        plan : Plan
            With `numbers` and `rounds`.
        draw : callable
            Draws the parts of a round's noise.
        stored : StoredRounds

        Raises
        ------
        ConfigError
            A resumed run has no secrets, or they are damaged.
        SecurityError
            The server passed on something else than the others sent; names the culprit.
        """
        me = self.session.me
        setup = threshold_setup(self.session, plan)
        content = yield from self._stored(_THRESHOLD)
        if content is None:
            group, secrets = yield from setup.deal(me, SecretRandom())
            yield from self._keep(_GROUP, group.kept)
            yield Save(_THRESHOLD, secrets.to_bytes())
            return ClientOpening(group, me, secrets, draw)
        kept = yield from self._stored(_GROUP)
        try:
            secrets = ClientSecrets.from_bytes(setup.numbers, me, content)
            group = setup.group(kept or b"")
        except ValueError as error:
            raise _damaged(str(error)) from error
        decisions = read_decisions(stored.sets, setup.numbers.clients)
        back = yield from come_back(group, me, decisions, len(stored.replies), SecretRandom())
        return ClientOpening(back.group, me, secrets, draw, decisions=back.decisions, known=back.known)

    def _stored(self, name: str) -> Party[bytes | None]:
        """Return what the interrupted run stored; None for a new run."""
        if not self.session.resumed:
            return None
        content: bytes | None = yield Load(name)
        if content is None:
            raise ConfigError(f"--resume: the stored run has no {name}; start anew", reason=Reason.RESUME)
        return content

    def _keep(self, name: str, content: bytes) -> Party[None]:
        """Have written down what a resume needs."""
        yield Keep(self.to_keep)
        yield Save(name, content)


def public_digest(session: Session, plan: HorizontalPlan, start: bytes = b"") -> bytes:
    """Return the digest of everything public that the parties must have in common."""
    shared = json.dumps(plan.to_json(), sort_keys=True).encode()
    return hashlib.sha256(session.digest + hashlib.sha256(shared).digest() + start).digest()


def threshold_setup(session: Session, plan: Any) -> ThresholdSetup:
    """Return what all parties of a run know before they agree on threshold masks."""
    return ThresholdSetup(
        numbers=plan.numbers,
        rounds=len(plan.rounds),
        run_id=session.run_id,
        context=public_digest(session, plan),
        credentials=session.credentials,
    )


def relay_threshold(session: Session, plan: Any) -> Party[ServerOpening]:
    """Relay what the clients agree on for threshold masks; run by the server.

    Raises
    ------
    ConfigError
        A resumed run has no words, or they are damaged.
    PeerError
        A client did not sign what it sent, or has given shares for a set that this server does not have.
    """
    setup = threshold_setup(session, plan)
    if not session.resumed:
        return ServerOpening(*(yield from setup.relay()))
    content: bytes | None = yield Load("words")
    if content is None:
        raise ConfigError("--resume: the stored run has no words; start anew", reason=Reason.RESUME)
    try:
        group, words = setup.read_stored(content)
    except ValueError as error:
        raise _damaged(str(error)) from error
    sets: Mapping[int, bytes] = yield Recall("set")
    replies: Mapping[int, bytes] = yield Recall("reply")
    group = yield from relay_states(group, sets, len(replies))
    return ServerOpening(group, words, sets)


def _damaged(why: str) -> ConfigError:
    """Return the error of a resume whose secrets cannot be used."""
    return ConfigError(f"--resume: the stored secrets are damaged ({why}); start anew", reason=Reason.RESUME)


@dataclass(frozen=True, slots=True)
class Begun(Generic[P]):
    """A client that has accepted the plan.

    Attributes
    ----------
    plan : Plan
    stored : StoredRounds
        Of the interrupted run; empty unless this one resumes it.
    data_digest : str
        Keyed digest of this party's records; never sent.
    hidden : bytes
        As `ClientRecords.shared`.
    """

    session: Session
    plan: P
    stored: StoredRounds
    data_digest: str
    hidden: bytes = field(default=b"", repr=False)

    def agreement(self, start: bytes = b"") -> MaskAgreement:
        """Return the agreement with the other clients on secrets, bound to the public set-up, the plan and `start`."""
        context = public_digest(self.session, self.plan, start)
        return MaskAgreement(session=self.session, context=context, to_keep=self.to_keep, hidden=self.hidden)

    def fresh_seed(self) -> Party[bytes]:
        """Agree on a seed over the clients' links, and keep it nowhere: for a protocol without resume."""
        _, seed = yield from self.fresh_secrets()
        return seed

    def fresh_secrets(self) -> Party[tuple[PairSecrets, bytes]]:
        """Agree on a secret with each other client besides `fresh_seed`."""
        session, secret = self.session, SecretRandom()
        bound = {"run_id": session.run_id, "context": self.agreement().context}
        pairs = yield from agree_pairs(session.me, session.everybody, **bound, secret=secret)
        return pairs, (yield from agree_seed(pairs, **bound, secret=secret))

    @property
    def to_keep(self) -> dict[str, Any]:
        """What a resume compares."""
        return {"plan": self.plan.to_json(), "data": self.data_digest}

    @property
    def facts(self) -> dict[str, Any]:
        """`to_keep`, for faces of other packages."""
        return self.to_keep

    def start(self) -> Party[None]:
        """Report to the server that the set-up is done, and wait until all are ready."""
        yield from await_go()
        yield Publish("setup")


def begin_client(
    session: Session,
    own: ClientRecords,
    *,
    kind: type[P],
    check: Callable[[P], object],
    bounds: Callable[[P], MessageBounds],
    lifetime_delta: Callable[[P], float],
    ahead: bool = False,
) -> Party[Begun[P]]:
    """Introduce a client and accept the server's plan.

    Parameters
    ----------
    session : Session
    own : ClientRecords
    kind : type
        Of the plan.
    check : callable
        Compares the plan with this party's configuration; raises ValueError.
    bounds : callable
        From the plan to what each peer may send.
    lifetime_delta : callable
        From the plan to the delta at which the whole ledger is read for `--budget`.
    ahead : bool
        Whether the client's coroutine writes down the next round as soon as it has sent its uplink.
    """
    refuse_old_run(session)
    data_digest = own.digest(session.ledger.digest_key())
    yield from session.begin(data_digest)
    uplinks: Mapping[int, bytes] = yield Recall("uplink")
    replies: Mapping[int, bytes] = yield Recall("reply")
    sets: Mapping[int, bytes] = yield Recall("set")
    refuse_other_data(session, data_digest)
    if (resumed := _stored_plan(session, kind)) is not None:
        planned = resumed.all_releases()
        check_stored(
            session, planned, uplinks=uplinks, replies=replies, sets=sets, data_digest=data_digest, ahead=ahead
        )
    proposal = yield from receive_plan(own.names, len(replies))

    def read(values: Mapping[str, Any]) -> P:
        plan = kind.from_json(values)
        check(plan)
        return plan

    plan = accept_plan(session, proposal.plan, read)
    yield Allow(bounds(plan))
    yield Expect(plan.all_releases())
    refuse_closed(proposal.rounds_done, _most_finished(session, plan))
    refuse_forgetful_server(len(replies), proposal.rounds_done)
    session.plan = plan
    yield Afford(plan.all_releases(), lifetime_delta(plan))
    stored = StoredRounds(uplinks, replies, proposal.rounds_done, sets=sets)
    return Begun(session, plan, stored, data_digest, own.shared)


def _most_finished(session: Session, plan: HorizontalPlan) -> int:
    """Count the rounds that a party can have finished before this start."""
    return 1 + max(release.round for release in plan.all_releases()) if session.resumed else 0
