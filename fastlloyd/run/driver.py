"""Drives one party over its links: the only place where parties meet transports, clocks and deadlines.

The party says what it wants (`party.effects`); the driver sends, waits, records and saves. It holds
messages that came early, drops those of rounds that are over, and names whoever is silent or lies.
Releases are written to the ledger at once, and a thread waits for the disk while the party goes on; no message
leaves before they are on it.

Source: docs/protocol.md, "How a run ends".
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from fastlloyd.errors import InternalError, PeerError, PeerGone, PeerTimeout
from fastlloyd.life.sizes import MESSAGE_COST, Bounds, setup_bounds
from fastlloyd.net.meter import Meter
from fastlloyd.party.effects import Attest, Effect, Gather, Party, Publish, Receive, Record, Save, Send
from fastlloyd.party.transcript import Transcript
from fastlloyd.privacy.ledger import Ledger, Release
from fastlloyd.wire.header import FINAL_ROUND, HEADER_BYTES, SERVER, SETUP_ROUND, Header, Message, PartyId, round_order

T = TypeVar("T")
# A client waits this much longer than the server, so that the server names the silent one first.
GRACE_S = 2.0
# How long a wait for the disk goes on if a signal has swallowed its end.
_LOST_RING_S = 0.05

_log = logging.getLogger(__name__)


class Links(Protocol):
    """What the driver needs of `net.link.secure.SecureLinks`."""

    def send(self, peer: PartyId, message: bytes, *, payload_bytes: int, round: int) -> None:
        """Send one message."""
        ...

    def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
        """Give the next message of any peer."""
        ...

    def bound(self, *, message_bytes: int, ahead_bytes: int) -> None:
        """Refuse longer messages, and more of one peer before it is asked for."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds that a party waits, before round 0 and per round."""

    setup_s: float
    round_s: float


class Driver:
    """Runs one party's coroutines, one after the other, over the same links.

    Parameters
    ----------
    me : PartyId
    links : Links
    meter : Meter
        Counts this party's traffic.
    deadlines : Deadlines
    ledger : Ledger
    run_id : bytes
    data_digest : str
        Keyed digest of this party's records for its own ledger; never sent.
    save : callable, optional
        Keeps (name, content) durably; None where there is no state directory.
    publish : callable, optional
        Gets (event, facts) with the seconds since the last event.
    transcript : Transcript, optional
        Takes in what several parties are told alike.
    """

    def __init__(
        self,
        me: PartyId,
        links: Links,
        meter: Meter,
        deadlines: Deadlines,
        *,
        ledger: Ledger,
        run_id: bytes,
        data_digest: str = "",
        save: Callable[[str, bytes], None] | None = None,
        publish: Callable[[str, dict[str, Any]], None] | None = None,
        transcript: Transcript | None = None,
    ) -> None:
        self._me = me
        self._links = links
        self._meter = meter
        self._deadlines = deadlines
        self._ledger = ledger
        self._run_id = run_id
        self._data_digest = data_digest
        self._save = save
        self._publish = publish
        self._bounds = setup_bounds(me)
        self._expected: dict[tuple[str, int, str], tuple[Release, Release]] = {}
        self.transcript = Transcript() if transcript is None else transcript
        self._inbox: dict[PartyId, deque[tuple[Header, bytes]]] = defaultdict(deque)
        self._inbox_bytes: dict[PartyId, int] = defaultdict(int)
        self._gone: dict[PartyId, PeerGone] = {}
        self._disk = _Disk(ledger.settle)
        self._last_event = time.perf_counter()

    def drive(self, party: Party[T]) -> T:
        """Run a coroutine to its end and give its result.

        Raises
        ------
        PeerError
            A peer is silent, gone, or sent what does not belong here.
        FastLloydError
            Whatever the party raises.
        """
        answer: Any = None
        try:
            while True:
                try:
                    effect: Effect = party.send(answer)
                except StopIteration as end:
                    result: T = end.value
                    return result
                answer = self._perform(effect)
        finally:
            self._disk.close()

    def allow(self, bounds: Bounds) -> None:
        """Set what each peer may send from now on; a party's set-up calls it before it tells a peer to go on."""
        self._bounds = bounds
        self._links.bound(message_bytes=bounds.largest + HEADER_BYTES, ahead_bytes=bounds.ahead_bytes)

    def expect(self, releases: Iterable[Release]) -> None:
        """Make the ledger's entries of what the party is going to record: what is left for a round is to write them."""
        self._expected = {release.key: (release, self._entry(release)) for release in releases}
        self._ledger.prepare(entry for _, entry in self._expected.values())

    def restart_clock(self) -> float:
        """Give the seconds since the last event and start anew."""
        now = time.perf_counter()
        seconds, self._last_event = now - self._last_event, now
        return seconds

    def _perform(self, effect: Effect) -> Any:
        """Carry out one effect."""
        if isinstance(effect, Send):
            return self._send(effect)
        if isinstance(effect, Receive):
            return self._receive(effect)
        if isinstance(effect, Gather):
            return self._gather(effect)
        if isinstance(effect, Record):
            return self._record(effect.releases)
        if isinstance(effect, Attest):
            return self.transcript.add(effect.speaker, effect.message, effect.round)
        if isinstance(effect, Save):
            self._settle()  # a resumed run sends what is saved: it must be in the ledger by then
            return None if self._save is None else self._save(effect.name, effect.content)
        if isinstance(effect, Publish):
            facts = dict(effect.facts, seconds=self.restart_clock())
            return None if self._publish is None else self._publish(effect.event, facts)
        raise InternalError(f"a party yielded {type(effect).__name__}, which is no effect")

    def _record(self, releases: tuple[Release, ...]) -> None:
        """Add run and data to the releases and write them down; `_settle` waits for the disk."""
        self._settle()
        entries = []
        for release in releases:
            planned, entry = self._expected.pop(release.key, (None, None))
            entries.append(entry if entry is not None and planned == release else self._entry(release))
        self._ledger.begin(entries)
        if not self._ledger.settled:
            self._disk.start()

    def _entry(self, release: Release) -> Release:
        """Return a release as one of this run, of this party's data."""
        return dataclasses.replace(release, run=self._run_id.hex(), data=self._data_digest)

    def _settle(self) -> None:
        """Wait until all that was recorded is on the disk."""
        self._disk.wait()
        if not self._ledger.settled:  # a signal came before the thread was told
            self._ledger.settle()

    def _send(self, effect: Send) -> None:
        """Encode once, send to each, once the ledger is on the disk."""
        self._settle()
        message = effect.message
        frame = Header(message.TYPE, effect.round, effect.attempt).encode() + message.body()
        payload = message.payload_bytes
        for peer in effect.to:
            if peer in self._gone:
                continue
            try:
                self._links.send(peer, frame, payload_bytes=payload, round=effect.round)
            except PeerGone as error:
                self._lose(error)
                if peer == SERVER:
                    raise

    def _receive(self, effect: Receive) -> Message:
        """Wait for one message of one sender."""
        limit = self._limit(effect.round) + (0.0 if self._me.is_server else GRACE_S)
        end = time.monotonic() + limit
        while (message := self._take(effect.sender, effect)) is None:
            if effect.sender in self._gone:
                raise self._gone[effect.sender]
            if not self._wait(end):
                raise PeerTimeout(
                    f"{effect.sender} sent no {effect.type.__name__} within {limit:g} s; it is silent or cannot be "
                    "reached (--deadline allows more time)",
                    rank=effect.sender.rank,
                )
        return message

    def _gather(self, effect: Gather) -> dict[PartyId, Message]:
        """Wait for all that are not late, or until the deadline for at least so many."""
        limit = self._limit(effect.round)
        end = time.monotonic() + limit
        answers: dict[PartyId, Message] = {}
        while True:
            for sender in effect.senders:
                if sender not in answers and (message := self._take(sender, effect)) is not None:
                    answers[sender] = message
            awaited = [s for s in effect.senders if s not in answers and s not in self._gone]
            if len(answers) >= effect.at_least and all(sender in effect.late for sender in awaited):
                return answers
            if len(answers) + len(awaited) < effect.at_least:
                raise next(iter(self._gone.values()))
            if not self._wait(end):
                break
        if len(answers) >= effect.at_least:
            _log.warning("%s not waited for any longer", ", ".join(str(sender) for sender in awaited))
            return answers
        silent = awaited[0]
        raise PeerTimeout(
            f"{silent} sent no {effect.type.__name__} within {limit:g} s; {len(answers)} of {len(effect.senders)} "
            f"clients answered, at least {effect.at_least} are needed (--min-clients, --deadline)",
            rank=silent.rank,
        )

    def _limit(self, round_: int) -> float:
        return self._deadlines.setup_s if round_ == SETUP_ROUND else self._deadlines.round_s

    def _wait(self, end: float) -> bool:
        """Take in one message; False when the deadline has passed."""
        remaining = end - time.monotonic()
        try:
            arrived = self._links.receive(max(remaining, 0.0))
        except PeerGone as error:
            self._lose(error)
            if error.rank == SERVER.rank:
                # Nothing goes on without it; waiting for another client would blame that one.
                raise
            return True
        if arrived is None:
            return remaining > 0
        peer, frame = arrived
        try:
            header = Header.decode(frame)
        except ValueError as error:
            raise PeerError(f"{peer} sent a malformed message: {error}", rank=peer.rank) from error
        self._keep(peer, header, frame[HEADER_BYTES:])
        return True

    def _keep(self, peer: PartyId, header: Header, body: bytes) -> None:
        """Put a message into the peer's queue, if the peer may send it."""
        if refusal := self._bounds.refusal(header.type, len(body)):
            raise PeerError(f"{peer} sent {refusal}", rank=peer.rank)
        waiting = self._inbox_bytes[peer] + len(body) + MESSAGE_COST
        if waiting > self._bounds.ahead_bytes:
            raise PeerError(
                f"{peer} sent more than {self._bounds.ahead_bytes} bytes ahead of time, expected it to wait",
                rank=peer.rank,
            )
        self._inbox_bytes[peer] = waiting
        self._inbox[peer].append((header, body))

    def _next(self, sender: PartyId) -> tuple[Header, bytes]:
        """Take the first message out of a queue."""
        header, body = self._inbox[sender].popleft()
        self._inbox_bytes[sender] -= len(body) + MESSAGE_COST
        return header, body

    def _take(self, sender: PartyId, effect: Receive | Gather) -> Message | None:
        """Decode the sender's next message, if it is the one asked for."""
        queue = self._inbox[sender]
        while queue and round_order(queue[0][0].round) < round_order(effect.round):
            header, _ = self._next(sender)
            _log.info("dropped a late message of type %d, round %d, from %s", header.type, header.round, sender)
        if not queue:
            return None
        header, body = self._next(sender)
        if header.type != effect.type.TYPE or header.round != effect.round:
            raise PeerError(
                f"{sender} sent message type {header.type} of {_name(header.round)}, expected "
                f"{effect.type.__name__} of {_name(effect.round)}",
                rank=sender.rank,
            )
        try:
            message: Message = effect.type.read(body, effect.format)
        except ValueError as error:
            raise PeerError(f"{sender} sent a malformed {effect.type.__name__}: {error}", rank=sender.rank) from error
        self._meter.received[sender, header.round].payload_bytes += message.payload_bytes
        return message

    def _lose(self, error: PeerGone) -> None:
        """Remember that a peer is gone; whoever needs it will say so."""
        self._gone[PartyId(error.rank)] = error


class _Disk:
    """Waits for the disk in a thread of its own, which begins with the first `start` and ends with `close`.

    A signal's exception can strike the waiting thread at any place, also after a queue gave its item away. So what is
    done is counted, the queue only wakes, and waiting can be done again.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._orders: SimpleQueue[bool] = SimpleQueue()
        self._rings: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ordered = 0
        self._done = 0
        self._error: BaseException | None = None

    def start(self) -> None:
        """Let the thread do its work once; `wait` before the next time."""
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="ledger", daemon=True)
            thread.start()
            self._thread = thread
        self._orders.put(True)
        self._ordered += 1

    def wait(self) -> None:
        """Wait until the work is done, and raise what it raised."""
        while self._done < self._ordered:
            with contextlib.suppress(Empty):
                self._rings.get(timeout=_LOST_RING_S)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def close(self) -> None:
        """Wait and end the thread."""
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._orders.put(False)
                self._thread.join()
                self._thread = None

    def _serve(self) -> None:
        while self._orders.get():
            try:
                self._work()
            except BaseException as caught:
                self._error = caught
            self._done += 1
            self._rings.put(None)


def _name(round_: int) -> str:
    names = {SETUP_ROUND: "the set-up", FINAL_ROUND: "the final exchange"}
    return names.get(round_, f"round {round_}")
