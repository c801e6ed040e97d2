"""All parties of a protocol in one thread: for the estimator, simulations and tests.

The same coroutines as under mpirun, for their rounds or for their whole runs, and the same bytes: every message is
encoded and decoded. No encryption, no clock, no waiting: a wait that cannot be served is a bug of the protocol.

A whole run has the same checks of what is public, the same messages and the same ledgers as under mpirun; only links,
state directories and output folders are left out: no process, no socket, no file.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.errors import FastLloydError, InternalError, PeerError
from fastlloyd.net.meter import Meter
from fastlloyd.party.effects import (
    Allow,
    Attest,
    Effect,
    Gather,
    Heard,
    Party,
    Publish,
    Recall,
    Receive,
    Record,
    Save,
    Send,
)
from fastlloyd.party.transcript import Transcript
from fastlloyd.privacy.ledger import Ledger, Release
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inbox import Inbox
from fastlloyd.run.inputs import PublicInputs
from fastlloyd.run.machine import Host
from fastlloyd.run.outcome import Outcome
from fastlloyd.run.session import Session, find_protocol
from fastlloyd.wire.header import HEADER_BYTES, SERVER, Header, PartyId, clients

Tap = Callable[[PartyId, PartyId, Header, bytes], bytes | None]
Step = Callable[[], Effect]

RUN_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class InMemory:
    """How a run in one thread ended.

    Attributes
    ----------
    outcomes : dict from PartyId to Outcome
    ledgers : dict from PartyId to Ledger
    meters : dict from PartyId to Meter
        Of frames; there are no links that add to them.
    transcripts : dict from PartyId to Transcript
        Of what went to several parties, as each compared it with the others.
    """

    outcomes: dict[PartyId, Outcome]
    ledgers: dict[PartyId, Ledger] = field(repr=False)
    meters: dict[PartyId, Meter] = field(repr=False)
    transcripts: dict[PartyId, Transcript] = field(repr=False)


def run_together(
    config: RunConfig,
    n_clients: int,
    *,
    inputs: PublicInputs | None = None,
    owned: Mapping[PartyId, Any] | None = None,
    afford: Callable[[Session, tuple[Release, ...], float], None] | None = None,
    tap: Tap | None = None,
) -> InMemory:
    """Run all parties, from the first message to the last.

    Parameters
    ----------
    config : RunConfig
        The same for all parties.
    n_clients : int
    inputs : PublicInputs, optional
        What is public and the same for all, in the place of what the protocol gathers; `config` is then as it gave it.
    owned : mapping from PartyId to object, optional
        What the parties have, in the place of what the protocol loads.
    afford : callable, optional
        Gets a party's session, the releases that it has planned, before it makes any, and the delta of a budget that is
        set with this run; raises what refuses the run.
    tap : callable, optional
        As in `Simulation`.

    Raises
    ------
    FastLloydError
        Whatever a party raises.
    """
    protocol = find_protocol(config.protocol)
    if inputs is None:
        config, inputs = protocol.gather(config, n_clients)
    run_id = os.urandom(RUN_ID_BYTES)
    digest = hashlib.sha256(run_id + inputs.digest(config, b"")).digest()
    everybody = (SERVER, *clients(n_clients))
    sessions = {}
    for me in everybody:
        own = protocol.load(config, inputs, me) if owned is None else owned.get(me)
        identity = make_identity(str(me), me.rank)
        sessions[me] = Session(
            me=me,
            everybody=everybody[1:],
            config=config,
            inputs=inputs,
            own=own,
            identity=identity,
            run_id=run_id,
            digest=digest,
        )
    hosts = {
        me: Host(session, afford=None if afford is None else partial(afford, session))
        for me, session in sessions.items()
    }
    parties = {me: protocol.serve(one) if me.is_server else protocol.take_part(one) for me, one in sessions.items()}
    meters = {me: session.meter for me, session in sessions.items()}
    outcomes = Simulation(parties, tap, hosts=hosts, meters=meters).run()
    return InMemory(
        outcomes,
        {me: session.ledger for me, session in sessions.items()},
        meters,
        {me: host.transcript for me, host in hosts.items()},
    )


class Simulation:
    """Runs parties to their end.

    Parameters
    ----------
    parties : mapping from PartyId to coroutine
    tap : callable, optional
        Sees every message (sender, receiver, header, body) and may return another body, or None to drop it.
    hosts : mapping from PartyId to Host, optional
        The parties' own machines, for whole runs; without, what parties ask of them is noted and kept in memory.
    meters : mapping from PartyId to Meter, optional
        Those that the parties read themselves.

    Attributes
    ----------
    releases : dict from PartyId to the releases that this party recorded
    meters : dict from PartyId to Meter
    published : list of (PartyId, Publish)
    saved : dict from (PartyId, name) to bytes
    transcripts : dict from PartyId to Transcript
    """

    def __init__(
        self,
        parties: Mapping[PartyId, Party[Any]],
        tap: Tap | None = None,
        *,
        hosts: Mapping[PartyId, Host] | None = None,
        meters: Mapping[PartyId, Meter] | None = None,
    ) -> None:
        self._parties = dict(parties)
        self._tap = tap
        self._hosts = dict(hosts or {})
        self._inboxes = {party: Inbox() for party in parties}
        self._waiting: dict[PartyId, Receive | Gather] = {}
        self._reached: set[PartyId] = set()
        self._absent: dict[PartyId, set[PartyId]] = {}
        self.releases: dict[PartyId, list[Release]] = defaultdict(list)
        self._noted: dict[PartyId, set[Release]] = defaultdict(set)
        self.meters: dict[PartyId, Meter] = {party: (meters or {}).get(party) or Meter() for party in parties}
        self.published: list[tuple[PartyId, Publish]] = []
        self.saved: dict[tuple[PartyId, str], bytes] = {}
        self.transcripts: dict[PartyId, Transcript] = {
            party: self._hosts[party].transcript if party in self._hosts else Transcript() for party in parties
        }

    def run(self) -> dict[PartyId, Any]:
        """Drive all parties and give their results.

        Raises
        ------
        InternalError
            All parties wait and nothing is under way.
        FastLloydError
            Whatever a party raises.
        """
        results: dict[PartyId, Any] = {}
        steps: dict[PartyId, Step] = {party: partial(next, one) for party, one in self._parties.items()}
        ready = deque(sorted(self._parties))
        try:
            while ready:
                party = ready.popleft()
                self._go_on(party, steps.pop(party), results)
                # Nobody else can go on now who could not before: a look at all would cost M times M a round.
                reached = sorted(self._reached & self._waiting.keys())
                self._reached.clear()
                for other in reached:
                    step = self._serve(other)
                    if step is not None:
                        del self._waiting[other]
                        steps[other] = step
                        ready.append(other)
                if not ready and self._waiting:
                    self._close_gathers(ready, steps)
        finally:
            step = None
            steps.clear()
            for one in self._parties.values():
                one.close()
            for host in self._hosts.values():
                host.close()
        if self._waiting:
            stuck = ", ".join(f"{party} waits for {effect}" for party, effect in sorted(self._waiting.items()))
            raise InternalError(f"nothing is under way: {stuck}")
        return results

    def _go_on(self, party: PartyId, step: Step, results: dict[PartyId, Any]) -> None:
        """Advance one party until it waits or ends."""
        coroutine = self._parties[party]
        try:
            while True:
                try:
                    effect = step()
                except StopIteration as end:
                    results[party] = end.value
                    return
                if isinstance(effect, Receive | Gather):
                    self._wait(party, effect)
                    return
                try:
                    answer = self._perform(party, effect)
                except FastLloydError as error:
                    step = partial(coroutine.throw, error)
                else:
                    step = partial(coroutine.send, answer)
        finally:
            del step  # it may hold the error, whose trace holds this frame

    def _perform(self, party: PartyId, effect: Effect) -> Any:
        """Note what a party asks of its machine, and have it done where there is one."""
        if isinstance(effect, Send):
            self._send(party, effect)
            return None
        if isinstance(effect, Record):
            self.releases[party] += [release for release in effect.releases if release not in self._noted[party]]
            self._noted[party].update(effect.releases)
        elif isinstance(effect, Save):
            self.saved[party, effect.name] = effect.content
        elif isinstance(effect, Publish):
            self.published.append((party, effect))
        elif isinstance(effect, Allow):
            self._inboxes[party].bounds = effect.bounds
            return None
        if party in self._hosts:
            return self._hosts[party].perform(effect)
        if isinstance(effect, Attest):
            self.transcripts[party].add(effect.speaker, effect.message, effect.round)
        elif isinstance(effect, Heard):
            return self.transcripts[party]
        return {} if isinstance(effect, Recall) else None

    def _send(self, sender: PartyId, effect: Send) -> None:
        """Encode a message once per receiver and put it into the inboxes."""
        header = Header(effect.message.TYPE, effect.round, effect.step)
        body = effect.message.body()
        for receiver in effect.to:
            passed: bytes | None = body
            if self._tap is not None:
                passed = self._tap(sender, receiver, header, body)
            size = HEADER_BYTES + len(body)
            payload = effect.message.payload_bytes
            self.meters[sender].sent[receiver, effect.round].add(1, payload, size)
            if passed is not None:
                self.meters[receiver].received[sender, effect.round].add(1, payload, size)
                self._inboxes[receiver].put(sender, header, passed)
                self._reach(receiver, sender)

    def _wait(self, party: PartyId, effect: Receive | Gather) -> None:
        """Let a party wait; note whom it cannot do without."""
        self._waiting[party] = effect
        self._reached.add(party)
        if isinstance(effect, Gather):
            needed = set(effect.senders) - effect.late
            self._absent[party] = needed - set(self._present(party, effect))

    def _reach(self, receiver: PartyId, sender: PartyId) -> None:
        """Note that a message came to a party."""
        self._reached.add(receiver)
        effect = self._waiting.get(receiver)
        if isinstance(effect, Gather) and self._inboxes[receiver].holds(sender, effect):
            self._absent[receiver].discard(sender)

    def _serve(self, party: PartyId) -> Step | None:
        """Return a waiting party's next step, if all it waits for is there."""
        effect = self._waiting[party]
        if isinstance(effect, Receive):
            there = self._inboxes[party].holds(effect.sender, effect)
            return self._answer(party, (effect.sender,)) if there else None
        if self._absent[party]:
            return None
        present = self._present(party, effect)
        return None if len(present) < effect.at_least else self._answer(party, present)

    def _present(self, party: PartyId, effect: Gather) -> list[PartyId]:
        """List the senders of a gather whose message is there."""
        inbox = self._inboxes[party]
        return [sender for sender in effect.senders if inbox.holds(sender, effect)]

    def _close_gathers(self, ready: deque[PartyId], steps: dict[PartyId, Step]) -> None:
        """Let the deadline pass: a gather goes on without the missing senders."""
        for party, effect in list(self._waiting.items()):
            if not isinstance(effect, Gather):
                continue
            present = self._present(party, effect)
            if len(present) < effect.at_least:
                missing = next(sender for sender in effect.senders if sender not in present)
                late = PeerError(f"{missing} sent nothing in round {effect.round}", rank=missing.rank)
                steps[party] = partial(self._parties[party].throw, late)
            else:
                steps[party] = self._answer(party, present)
            del self._waiting[party]
            ready.append(party)

    def _answer(self, party: PartyId, senders: Sequence[PartyId]) -> Step:
        """Decode what the senders sent; a message that does not belong here is raised where the party waits."""
        effect, coroutine = self._waiting[party], self._parties[party]
        try:
            messages = {sender: self._inboxes[party].take(sender, effect) for sender in senders}
        except PeerError as error:
            return partial(coroutine.throw, error)
        return partial(coroutine.send, messages if isinstance(effect, Gather) else messages[effect.sender])
