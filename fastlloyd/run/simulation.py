"""All parties of a protocol in one thread: for the estimator, simulations and tests.

The same coroutines as under mpirun, for their rounds or for their whole runs, and the same bytes: every message is
encoded and decoded. No encryption, no clock, no waiting: a wait that cannot be served is a bug of the protocol.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

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
from fastlloyd.privacy.ledger import Release
from fastlloyd.run.inbox import Inbox
from fastlloyd.run.machine import Host
from fastlloyd.wire.header import HEADER_BYTES, Header, PartyId

Tap = Callable[[PartyId, PartyId, Header, bytes], bytes | None]
Step = Callable[[], Effect]


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
        header = Header(effect.message.TYPE, effect.round, effect.attempt)
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
        if isinstance(effect, Gather) and self._inboxes[receiver].holds(sender, effect.round):
            self._absent[receiver].discard(sender)

    def _serve(self, party: PartyId) -> Step | None:
        """Return a waiting party's next step, if all it waits for is there."""
        effect = self._waiting[party]
        if isinstance(effect, Receive):
            there = self._inboxes[party].holds(effect.sender, effect.round)
            return self._answer(party, (effect.sender,)) if there else None
        if self._absent[party]:
            return None
        present = self._present(party, effect)
        return None if len(present) < effect.at_least else self._answer(party, present)

    def _present(self, party: PartyId, effect: Gather) -> list[PartyId]:
        """List the senders of a gather whose message is there."""
        inbox = self._inboxes[party]
        return [sender for sender in effect.senders if inbox.holds(sender, effect.round)]

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
