"""All parties of a protocol in one thread: for the estimator, simulations and tests.

The same coroutines as under mpirun, and the same bytes: every message is encoded and decoded. No
encryption, no clock, no waiting: a wait that cannot be served is a bug of the protocol.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from fastlloyd.errors import InternalError, PeerError
from fastlloyd.net.meter import Meter
from fastlloyd.party.effects import Attest, Effect, Gather, Party, Publish, Receive, Record, Save, Send
from fastlloyd.party.transcript import Transcript
from fastlloyd.privacy.ledger import Release
from fastlloyd.wire.header import HEADER_BYTES, Header, PartyId, round_order

Tap = Callable[[PartyId, PartyId, Header, bytes], bytes | None]


class Simulation:
    """Runs parties to their end.

    Parameters
    ----------
    parties : mapping from PartyId to coroutine
    tap : callable, optional
        Sees every message (sender, receiver, header, body) and may return another body, or None to drop it.

    Attributes
    ----------
    releases : dict from PartyId to the releases that this party recorded
    meters : dict from PartyId to Meter
    published : list of (PartyId, Publish)
    saved : dict from (PartyId, name) to bytes
    transcripts : dict from PartyId to Transcript
    """

    def __init__(self, parties: Mapping[PartyId, Party[Any]], tap: Tap | None = None) -> None:
        self._parties = dict(parties)
        self._tap = tap
        self._inbox: dict[tuple[PartyId, PartyId], deque[tuple[Header, bytes]]] = defaultdict(deque)
        self._waiting: dict[PartyId, Effect] = {}
        self._dropped: set[tuple[PartyId, PartyId, int]] = set()
        self.releases: dict[PartyId, list[Release]] = defaultdict(list)
        self.meters: dict[PartyId, Meter] = {party: Meter() for party in parties}
        self.published: list[tuple[PartyId, Publish]] = []
        self.saved: dict[tuple[PartyId, str], bytes] = {}
        self.transcripts: dict[PartyId, Transcript] = {party: Transcript() for party in parties}

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
        answers: dict[PartyId, Any] = dict.fromkeys(self._parties)
        ready = deque(sorted(self._parties))
        while ready:
            party = ready.popleft()
            self._step(party, answers.pop(party, None), results)
            for other in sorted(self._waiting):
                answer = self._serve(other)
                if answer is not None:
                    del self._waiting[other]
                    answers[other] = answer
                    ready.append(other)
            if not ready and self._waiting:
                self._close_gathers(ready, answers)
        if self._waiting:
            stuck = ", ".join(f"{party} waits for {effect}" for party, effect in sorted(self._waiting.items()))
            raise InternalError(f"nothing is under way: {stuck}")
        return results

    def traffic(self, rounds: int) -> dict[str, float]:
        """Add up what all parties sent, under the names that reports use."""
        meters = list(self.meters.values())
        totals = [meter.total_sent() for meter in meters]
        payload = sum(total.payload_bytes for total in totals)
        return {
            "payload_bytes": payload,
            "link_bytes": sum(total.link_bytes for total in totals),
            "messages": sum(total.messages for total in totals),
            "payload_bytes_per_round": payload / rounds,
            "setup_bytes": sum(meter.setup_sent().link_bytes for meter in meters),
        }

    def _step(self, party: PartyId, answer: Any, results: dict[PartyId, Any]) -> None:
        """Advance one party until it waits or ends."""
        coroutine = self._parties[party]
        while True:
            try:
                effect = coroutine.send(answer)
            except StopIteration as end:
                results[party] = end.value
                return
            answer = None
            if isinstance(effect, Send):
                self._send(party, effect)
            elif isinstance(effect, Record):
                self.releases[party] += [r for r in effect.releases if r not in self.releases[party]]
            elif isinstance(effect, Attest):
                self.transcripts[party].add(effect.speaker, effect.message, effect.round)
            elif isinstance(effect, Save):
                self.saved[party, effect.name] = effect.content
            elif isinstance(effect, Publish):
                self.published.append((party, effect))
            else:
                self._waiting[party] = effect
                return

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
            if passed is None:
                self._dropped.add((sender, receiver, effect.round))
                continue
            self.meters[receiver].received[sender, effect.round].add(1, payload, size)
            self._inbox[receiver, sender].append((header, passed))

    def _serve(self, party: PartyId) -> Any:
        """Answer a waiting party if all it waits for is there."""
        effect = self._waiting[party]
        if isinstance(effect, Receive):
            return self._take(party, effect.sender, effect)
        if isinstance(effect, Gather):
            present = {s: m for s in effect.senders if (m := self._peek(party, s, effect)) is not None}
            wanted = [s for s in effect.senders if s not in effect.late]
            if all(s in present for s in wanted) and len(present) >= effect.at_least:
                return {s: self._take(party, s, effect) for s in present}
        return None

    def _close_gathers(self, ready: deque[PartyId], answers: dict[PartyId, Any]) -> None:
        """Let the deadline pass: a gather goes on without the missing senders."""
        for party, effect in list(self._waiting.items()):
            if not isinstance(effect, Gather):
                continue
            present = {s: m for s in effect.senders if (m := self._take(party, s, effect)) is not None}
            if len(present) < effect.at_least:
                missing = next(s for s in effect.senders if s not in present)
                raise PeerError(f"{missing} sent nothing in round {effect.round}", rank=missing.rank)
            del self._waiting[party]
            answers[party] = present
            ready.append(party)

    def _peek(self, party: PartyId, sender: PartyId, effect: Receive | Gather) -> Any:
        """Give whether a fitting message waits, dropping those of closed rounds."""
        queue = self._inbox[party, sender]
        while queue and round_order(queue[0][0].round) < round_order(effect.round):
            queue.popleft()
        return queue[0] if queue else None

    def _take(self, party: PartyId, sender: PartyId, effect: Receive | Gather) -> Any:
        """Decode the next fitting message."""
        if self._peek(party, sender, effect) is None:
            return None
        header, body = self._inbox[party, sender].popleft()
        if header.type != effect.type.TYPE or header.round != effect.round:
            raise PeerError(
                f"{sender} sent message type {header.type} of round {header.round}, expected "
                f"{effect.type.__name__} of round {effect.round}",
                rank=sender.rank,
            )
        try:
            return effect.type.read(body, effect.format)
        except ValueError as error:
            raise PeerError(f"{sender} sent a malformed {effect.type.__name__}: {error}", rank=sender.rank) from error
