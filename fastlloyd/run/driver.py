"""Drives one party over its links: the only place where parties meet transports, clocks and deadlines.

The party says what it wants (`party/effects.py`); the driver sends and waits, the inbox holds messages that came early,
the host records and saves. Whoever is silent or lies is named.

Source: docs/protocol.md, "How a run ends".
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fastlloyd.errors import Aborted, PeerError, PeerGone, PeerTimeout, Reason, format_count, name_some
from fastlloyd.lifecycle.messages import setup_bounds
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.link.sums import Order
from fastlloyd.net.meter import Meter
from fastlloyd.party.effects import Allow, Effect, Gather, Party, Receive, Send
from fastlloyd.run.inbox import Inbox
from fastlloyd.run.machine import Host
from fastlloyd.wire.header import COMPARE_ROUND, HEADER_BYTES, SERVER, SETUP_ROUND, Header, Message, PartyId

T = TypeVar("T")
# A client waits this much longer than the server, so that the server names the silent one first.
GRACE_S = 2.0
# An aggregator waits this much less than the server, at most, so that its sum is there in time.
_NESTED = 4
_MOST_MS = (1 << 32) - 1
_OWN_TROUBLE = (Reason.INTERRUPTED, Reason.TIMEOUT, Reason.GONE, Reason.STATE, Reason.OUTPUT, Reason.INTERNAL)
"""Why a client leaves that says nothing against another party but that it does not hear of the server."""

_log = logging.getLogger(__name__)


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
    links : SecureLinks
    meter : Meter
        Counts this party's traffic.
    deadlines : Deadlines
    host : Host
        The party's own machine.
    """

    def __init__(self, me: PartyId, links: SecureLinks, meter: Meter, deadlines: Deadlines, host: Host) -> None:
        self._me = me
        self._links = links
        self._meter = meter
        self._deadlines = deadlines
        self._host = host
        self._inbox = Inbox(setup_bounds(me))
        self._gone: dict[PartyId, PeerGone | Aborted] = {}  # whoever needs one of them will say so
        self._awaited: tuple[tuple[PartyId, ...], str] = ((), "")

    def awaited(self) -> str:
        """Say for whose message this party waits; may be asked from another thread."""
        peers, kind = self._awaited
        return f"waiting for {name_some(peers)} ({kind})" if peers else "working"

    def drive(self, party: Party[T]) -> T:
        """Run a coroutine to its end and give its result; what goes wrong with an effect is raised where it stands.

        Raises
        ------
        PeerError
            A peer is silent, gone, or sent what does not belong here.
        FastLloydError
            Whatever the party raises.
        """
        go_on: Callable[[], Effect] = partial(next, party)
        try:
            while True:
                try:
                    effect = go_on()
                except StopIteration as end:
                    result: T = end.value
                    return result
                try:
                    answer = self._perform(effect)
                except BaseException as error:
                    go_on = partial(party.throw, error)
                else:
                    go_on = partial(party.send, answer)
        finally:
            del go_on  # it may hold the error, whose trace holds this frame
            try:
                party.close()
            finally:
                self._host.close()

    def _perform(self, effect: Effect) -> Any:
        """Carry out one effect."""
        self._awaited = ((), "")
        if isinstance(effect, Send):
            return self._send(effect)
        if isinstance(effect, Receive):
            return self._receive(effect)
        if isinstance(effect, Gather):
            return self._gather(effect)
        if isinstance(effect, Allow):
            bounds = self._inbox.bounds = effect.bounds
            return self._links.bound(message_bytes=bounds.largest + HEADER_BYTES, ahead_bytes=bounds.ahead_bytes)
        return self._host.perform(effect)

    def _send(self, effect: Send) -> None:
        """Encode once, send to each, once the ledger is on the disk."""
        self._host.settle()
        message = effect.message
        frame = Header(message.TYPE, effect.round, effect.step).encode() + message.body()
        payload = message.payload_bytes
        for peer in effect.to:
            if peer in self._gone:
                continue
            try:
                self._links.send(peer, frame, payload_bytes=payload, round=effect.round)
            except PeerGone as error:
                self._gone[PartyId(error.rank)] = error
                if peer == SERVER:
                    with contextlib.suppress(PeerError, Aborted):  # what it sent before it went has not been read
                        while self._links.receive(0.0) is not None:
                            pass
                    self._blame_own_delay(error)
                    raise
        self._links.flush()

    def _receive(self, effect: Receive) -> Message:
        """Wait for one message of one sender."""
        limit = effect.waits * self._limit(effect.round) + (0.0 if self._me.is_server else GRACE_S)
        end = time.monotonic() + limit
        while (message := self._take(effect.sender, effect)) is None:
            self._awaited = ((effect.sender,), effect.type.__name__)
            if effect.sender in self._gone:
                raise self._gone[effect.sender]
            if self._wait(end) is None:
                raise PeerTimeout(
                    f"{effect.sender} sent no {effect.type.__name__} within {limit:g} s; it is silent or cannot be "
                    f"reached ({_flag(effect.round)} allows more time)",
                    rank=effect.sender.rank,
                )
        return message

    def _gather(self, effect: Gather) -> dict[PartyId, Message]:
        """Wait for all that are not late, or, from the deadline on, for the smallest number that suffices."""
        limit = self._limit(effect.round)
        end = time.monotonic() + limit
        patience_s = effect.patience_s
        answers: dict[PartyId, Message] = {}
        if effect.adds:
            self._links.add_up(_order(effect, limit))
        senders = frozenset(effect.senders)
        awaited = dict.fromkeys(effect.senders)
        needed = set(senders - effect.late)
        # All at first, then only whom news came of: a look at all for each message would cost M times M a round.
        news: tuple[PartyId, ...] | None = effect.senders
        while news is not None:
            for sender in news:
                if sender in senders and sender not in answers and (message := self._take(sender, effect)) is not None:
                    answers[sender] = message
                if sender in answers or sender in self._gone:
                    awaited.pop(sender, None)
                    needed.discard(sender)
            if len(answers) >= effect.at_least:
                if not needed:
                    return answers
                if patience_s is not None:
                    end, patience_s = min(end, time.monotonic() + patience_s), None
            if len(answers) + len(awaited) < effect.at_least:
                raise next(iter(self._gone.values()))
            self._dismiss()
            self._awaited = (tuple(awaited), effect.type.__name__)
            try:
                news = self._wait(end)
            except Aborted as error:
                news = self._let_go(error, effect)
        if len(answers) >= effect.at_least:
            level = logging.WARNING if effect.patience_s is None else logging.DEBUG
            _log.log(level, "%s not waited for any longer", name_some(awaited))
            return answers
        silent = next(iter(awaited))
        allows = _flag(effect.round) if effect.round == SETUP_ROUND else f"--min-clients, {_flag(effect.round)}"
        raise PeerTimeout(
            f"{silent} sent no {effect.type.__name__} within {limit:g} s; {len(answers)} of "
            f"{format_count(len(effect.senders), 'client')} answered, expected at least {effect.at_least} "
            f"({allows})",
            rank=silent.rank,
        )

    def _let_go(self, error: Aborted, effect: Gather) -> tuple[PartyId, ...]:
        """Take a client that ends the run because of its own trouble for lost, as one that was killed.

        Whoever is needed, or says that another party broke the rules, ends the run for all.
        """
        peer = PartyId(error.by)
        own = error.rank in (SERVER.rank, error.by) and error.reason in _OWN_TROUBLE
        if not self._me.is_server or not own or not (effect.round < COMPARE_ROUND or peer in effect.late):
            raise error
        self._gone[peer] = error
        return (peer,)

    def _dismiss(self) -> None:
        """Answer clients that ended the run for themselves: it goes on without them."""
        for peer, error in self._gone.items():
            if isinstance(error, Aborted) and peer not in self._links.gone:
                _log.warning("%s; the run goes on without %s", error, peer)
                self._links.dismiss(peer)

    def _limit(self, round_: int) -> float:
        return self._deadlines.setup_s if round_ == SETUP_ROUND else self._deadlines.round_s

    def _wait(self, end: float) -> tuple[PartyId, ...] | None:
        """Take in one message, or the loss of a peer, and return whose it is; None when the deadline has passed."""
        remaining = end - time.monotonic()
        try:
            arrived = self._links.receive(max(remaining, 0.0))
        except PeerGone as error:
            self._blame_own_delay(error)
            self._gone.setdefault(PartyId(error.rank), error)
            if error.rank == SERVER.rank:
                # Nothing goes on without it; waiting for another client would blame that one.
                raise
            return (PartyId(error.rank),)
        if arrived is None:
            return () if remaining > 0 else None
        peer, frame = arrived
        try:
            header = Header.decode(frame)
        except ValueError as error:
            raise PeerError(f"{peer} sent a malformed message: {error}; check its version", rank=peer.rank) from error
        self._inbox.put(peer, header, frame[HEADER_BYTES:])
        return (peer,)

    def _blame_own_delay(self, error: PeerGone) -> None:
        """Raise what is true instead if the server went because the run had ended: only a late client is not there."""
        if error.rank == SERVER.rank and SERVER in self._links.finished:
            raise PeerGone(
                f"{self._me} was late, and the others have ended the run without it, successfully: label its records "
                "with their centroids.csv (`fastlloyd label`); --deadline gives it more time in a later run",
                rank=self._me.rank,
            ) from error

    def _take(self, sender: PartyId, effect: Receive | Gather) -> Message | None:
        """Decode the sender's next message, if it is there."""
        message = self._inbox.take(sender, effect)
        if message is not None:
            self._meter.received[sender, effect.round].payload_bytes += message.payload_bytes
        return message


def _flag(round_: int) -> str:
    """Return the flag that sets how long the messages of a round are awaited."""
    return "--setup-deadline" if round_ == SETUP_ROUND else "--deadline"


def _order(effect: Gather, limit_s: float) -> Order:
    """Return what aggregators are to add up for a gather: in time for its own deadline."""
    return Order(
        type=effect.type.TYPE,
        round=effect.round,
        ring_bits=effect.format.ring.bits,
        elements=effect.format.elements,
        wait_ms=min(int(1e3 * (limit_s - min(GRACE_S, limit_s / _NESTED))), _MOST_MS),
        late=tuple(sorted(party.rank for party in effect.late)),
    )
