"""A round, once for all protocols: a message up from each client, one reply down, with ledger, state and resume.

::

    client                                        server
      Record    the round's releases                Record    the round's releases
      Save      uplink-t, then Send    ------->     Gather    adds up what is masked
      Receive, then Save reply-t       <-------     Save      reply-t, then Send
      Attest    the reply                           Attest    the reply

On resume, saved bytes are sent again unchanged, never computed or drawn again: so a mask covers one vector, and no
release is made twice. All clients receive the same reply and compare it at the end (`Attest`).

A protocol states both messages (`MessageFormat`), its vector, and the server's answer to the sum. Masks and noise are
added only here.

Source: FastLloyd, §5.3.4, Figure 1; docs/protocol.md, "Rounds" and "Resume".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastlloyd.lifecycle.threshold.client import ClientOpening, ThresholdMasks
from fastlloyd.lifecycle.threshold.server import ServerOpening
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.masking.mask import NO_HISTORY, Masks, continue_history
from fastlloyd.party.effects import Attest, Gather, Party, Publish, Receive, Record, Save, Send
from fastlloyd.party.message import RingFormat, RingPayload, recall
from fastlloyd.privacy.release import Release
from fastlloyd.wire.header import SERVER, Message, PartyId, clients

M = TypeVar("M", bound=Message)
U = TypeVar("U", bound=Message)
V = TypeVar("V", bound=RingPayload)
Draw = Callable[[int], NDArray[np.int64]]
"""From a round's number to fresh noise in grid units, int64, of the length of the round's vector."""


@dataclass(frozen=True, slots=True)
class MessageFormat(Generic[M]):
    """A message's class, and the public format that its body is checked against."""

    type: type[M]
    format: Any = None


@dataclass(frozen=True, slots=True)
class StoredRounds:
    """What a party saved of an interrupted run, and what its peers say that they have of it.

    Attributes
    ----------
    uplinks, replies : mapping from round to bytes
        Sent or accepted by a client; the server has no uplinks.
    server_done : int
        At a client: rounds that the server has closed.
    clients_done : mapping from client to int
        At the server: how many replies each has accepted.
    sets : mapping from round to bytes
        With threshold masks: the set that a client gave shares for, or the server stated.
    """

    uplinks: Mapping[int, bytes] = field(default_factory=dict)
    replies: Mapping[int, bytes] = field(default_factory=dict)
    server_done: int = 0
    clients_done: Mapping[PartyId, int] = field(default_factory=dict)
    sets: Mapping[int, bytes] = field(default_factory=dict)


class Ahead:
    """What a party prepares before its round: noise, or its share of it, and ledger entries.

    A party draws noise while the others compute, and writes the next round's releases to the ledger while it waits.
    Noise drawn ahead belongs to one round and is used once.

    Parameters
    ----------
    rounds : int
        Number of all rounds.
    releases : callable
        From a round's number to its releases.
    draw : callable or None
        The server's noise, or a client's share of it; None if this party adds none.
    known : callable
        Whether the length of a round's vector is known before its turn: noise is drawn ahead only then.
    record_ahead : bool
        Whether the next round's releases are recorded while this party waits.
    """

    def __init__(
        self,
        rounds: int,
        releases: Callable[[int], tuple[Release, ...]],
        draw: Draw | None = None,
        *,
        known: Callable[[int], bool] = lambda t: True,
        record_ahead: bool = True,
    ) -> None:
        self._rounds = rounds
        self._entries = releases
        self._draw = draw
        self._known = known
        self._record_ahead = record_ahead
        self._noise: dict[int, NDArray[np.int64]] = {}
        self._releases: dict[int, tuple[Release, ...]] = {}
        self._recorded: set[int] = set()

    def stock(self, rounds: Iterable[int]) -> None:
        """Prepare noise and ledger entries of these rounds."""
        for t in rounds:
            if self._draw is not None:
                self._noise[t] = self._draw(t)
            self._releases[t] = self._entries(t)

    def record(self, t: int) -> Party[None]:
        """Write round t's releases to the ledger, once."""
        if t not in self._recorded:
            self._recorded.add(t)
            releases = self._releases.pop(t, ()) or self._entries(t)
            if releases:
                yield Record(releases)

    def draw(self, t: int) -> None:
        """Draw the noise of round t, if round t exists and its length is known."""
        if t < self._rounds and self._draw is not None and t not in self._noise and self._known(t):
            self._noise[t] = self._draw(t)

    def prepare(self, t: int) -> Party[None]:
        """Draw the noise of round t and write its releases to the ledger, if round t exists."""
        self.draw(t)
        if t < self._rounds and self._record_ahead:
            yield from self.record(t)

    def add_noise(self, vector: RingArray, ring: Ring, t: int) -> RingArray:
        """Add round t's noise to ring elements, if this party adds any, and discard the noise."""
        if self._draw is None:
            return vector
        ready = self._noise.pop(t, None)
        return vector + ring.reduce(self._draw(t) if ready is None else ready)  # Figure 1: v + r + gamma


class ClientRounds:
    """A client's half of every round.

    Parameters
    ----------
    me : PartyId
    ahead : Ahead
    stored : StoredRounds, optional
        On resume: stored uplinks are sent again byte for byte, stored replies are not asked for again.
    masks : Masks, optional
        Of any shape; each round's vector has its own.
    """

    def __init__(
        self, me: PartyId, ahead: Ahead, stored: StoredRounds | None = None, masks: Masks | None = None
    ) -> None:
        self._me = me
        self._ahead = ahead
        self._stored = stored or StoredRounds()
        self._masks = masks
        self._opening = masks.opening if isinstance(masks, ThresholdMasks) else None
        self._history = NO_HISTORY

    def masks_of(self, shape: RingFormat) -> Masks:
        """Return the masks for vectors of this shape.

        Raises
        ------
        TypeError
            These rounds have no masks: a bug in the protocol.
        """
        if self._masks is None:
            raise TypeError("rounds without masks were asked to mask a vector")
        self._masks = self._masks.shaped(shape.ring, shape.elements)
        return self._masks

    @property
    def history(self) -> bytes:
        """Digest of all replies so far, from which the next round's masks are derived."""
        return self._history

    def masked(
        self,
        t: int,
        up: MessageFormat[V],
        vector: Callable[[], NDArray[np.int64]],
        down: MessageFormat[M],
        *,
        meanwhile: Callable[[], None] | None = None,
    ) -> Party[M]:
        """Send round t's vector under its mask, with this client's share of the noise if it has one; return the reply.

        Parameters
        ----------
        t : int
        up : MessageFormat
            Format of the masked vector, a `RingFormat`.
        vector : callable
            Returns the vector, int64, shape (format.elements,), on the grid; called only if it was not sent before.
        down : MessageFormat
            Format of the reply.
        meanwhile : callable, optional
            Work that does not depend on the reply, done while the server computes.

        Notes
        -----
        Privacy: the round's releases are in the ledger before the vector is computed.
        """

        def uplink() -> V:
            shape: RingFormat = up.format
            encoded = shape.ring.encode(vector())  # Figure 1: v_i, on the grid of 2^-q already
            masked = encoded + self.masks_of(shape).mask(t, self._me, self._history)  # Figure 1: v_i + r_i
            # Differs from the paper, with pairwise and threshold masks only: gamma comes from the clients.
            if opening is not None:
                return up.type(opening.cover(t, self._history, masked, shape).tobytes())
            return up.type(self._ahead.add_noise(masked, shape.ring, t).tobytes())

        opening = self._opening
        if opening is None:
            return self.plain(t, up, uplink, down, meanwhile=meanwhile)
        sent = MessageFormat(up.type, opening.covered(up.format))
        return self._round(t, lambda: self._send(t, sent, uplink, opening), down, meanwhile, up.format)

    def plain(
        self,
        t: int,
        up: MessageFormat[U],
        uplink: Callable[[], U],
        down: MessageFormat[M],
        *,
        meanwhile: Callable[[], None] | None = None,
    ) -> Party[M]:
        """Send round t's message without a mask; return the reply. Parameters as for `masked`."""
        return self._round(t, lambda: self._send(t, up, uplink), down, meanwhile)

    def _send(
        self, t: int, up: MessageFormat[U], uplink: Callable[[], U], opening: ClientOpening | None = None
    ) -> Party[None]:
        yield from self._ahead.record(t)
        if t < self._stored.server_done or (opening is not None and not opening.may_send(t)):
            return
        if t in self._stored.uplinks:
            message = recall(up.type, self._stored.uplinks[t], up.format, f"uplink-{t}")
        else:
            message = uplink()
            yield Save(f"uplink-{t}", message.body())
        yield Send((SERVER,), message, t)
        # Only after the send: resume refuses a ledger with releases that the saved uplinks do not explain.
        yield from self._ahead.prepare(t + 1)

    def heard(self, t: int, down: MessageFormat[M]) -> Party[M]:
        """Send nothing in round t; return the server's broadcast."""

        def send() -> Party[None]:
            yield from self._ahead.record(t)
            # Not the releases: no saved uplink of this round explains them to a resume.
            self._ahead.draw(t + 1)

        return self._round(t, send, down, None)

    def _round(
        self,
        t: int,
        send: Callable[[], Party[None]],
        down: MessageFormat[M],
        meanwhile: Callable[[], None] | None,
        opened: RingFormat | None = None,
    ) -> Party[M]:
        """Play round t; `opened` is the shape of a vector that threshold masks cover."""
        opening = self._opening if opened is not None else None
        if opening is not None:
            opening.check_history(t, self._history)
        reply: M
        if t in self._stored.replies:
            reply = recall(down.type, self._stored.replies[t], down.format, f"reply-{t}")
        else:
            yield from send()
            if meanwhile is not None:
                meanwhile()
            if opening is not None and opened is not None and t >= self._stored.server_done:
                yield from opening.open(t, self._history, opened)
            reply = yield Receive(SERVER, down.type, t, down.format)  # Figure 1: Enc(v + gamma)
            if opening is not None:
                opening.check_reply(t, reply)
            yield Save(f"reply-{t}", reply.body())
        yield Attest(SERVER, reply, t)
        if opening is not None:
            yield from opening.forget(t)
        self._history = continue_history(self._history, reply.body())
        return reply


class ServerRounds:
    """The server's half of every round: it gathers, answers, and sends the same bytes to all.

    Parameters
    ----------
    count : int
        Number of clients.
    rounds : int
        Number of all rounds.
    ahead : Ahead
    at_least : int
        A round with fewer clients fails.
    stored : StoredRounds, optional
        On resume: replies of closed rounds, sent again unchanged.
    opening : ServerOpening, optional
        With threshold masks: what opens the sums of masked vectors.

    Attributes
    ----------
    late : frozenset of PartyId
        The clients that missed the last round.
    """

    def __init__(
        self,
        count: int,
        rounds: int,
        ahead: Ahead,
        *,
        at_least: int,
        stored: StoredRounds | None = None,
        opening: ServerOpening | None = None,
    ) -> None:
        self._everybody = clients(count)
        self._rounds = rounds
        self._ahead = ahead
        self._at_least = at_least
        self._stored = stored or StoredRounds()
        self._opening = opening
        self._opened_again = -1  # the round whose set an earlier session has stated
        self._history = NO_HISTORY
        self.late: frozenset[PartyId] = frozenset()

    def masked(
        self,
        t: int,
        up: MessageFormat[V],
        down: MessageFormat[M],
        answer: Callable[[RingArray, tuple[PartyId, ...]], M],
        *,
        stock: Callable[[], Iterable[int]] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Party[M]:
        """Add the clients' masked vectors up, with this server's noise if it adds any; send and return the answer.

        Parameters
        ----------
        t : int
        up : MessageFormat
            Format of a masked vector, a `RingFormat`. Aggregators may have added some of them up.
        down : MessageFormat
            Format of the reply.
        answer : callable
            From the noisy sum, ring elements, and the clients in it to the reply; not called for a stored round.
        stock : callable, optional
            Returns the rounds whose noise is prepared before the first round that is not stored.
        values : mapping, optional
            Public values to report as progress.

        Notes
        -----
        Sees: vectors uniform on the ring, and their sum. Privacy: the releases are in the ledger before that.
        """
        shape: RingFormat = up.format

        def close() -> Party[tuple[M, tuple[PartyId, ...]]]:
            total, among = yield from self._add_up(t, up)
            # Figure 1, "Add noise value": gamma, on the grid of 2^-q
            return answer(self._ahead.add_noise(total, shape.ring, t), among), among

        return self._round(t, down, close, stock=stock, values=values)

    def _add_up(self, t: int, up: MessageFormat[V]) -> Party[tuple[RingArray, tuple[PartyId, ...]]]:
        """Return the sum of the masked vectors of round t, opened where masks are threshold masks, and who is in it."""
        shape: RingFormat = up.format
        opening, sent = self._opening, shape
        if opening is not None:
            sent = opening.covered(shape)
            stated = opening.stated(t, self._history, shape)
            if stated is not None:
                self._opened_again = t
                total = shape.ring.from_bytes(stated.total, sent.elements)
                return (yield from opening.open(t, self._history, shape, total, stated.included)), stated.included
            opening.prepare(t, self._history)  # while the clients compute
        uplinks = yield from self._gather(t, MessageFormat(up.type, sent), adds=True)  # Figure 1: Enc_i(v_i)
        among = self._among(uplinks)
        total = np.zeros(sent.elements, dtype=shape.ring.dtype)
        for party in among:  # Figure 1, "Compute sum"
            total += uplinks[party].elements(sent)
        if opening is not None:
            total = yield from opening.open(t, self._history, shape, total, among)
        return total, among

    def plain(
        self,
        t: int,
        up: MessageFormat[U],
        down: MessageFormat[M],
        answer: Callable[[Mapping[PartyId, U], tuple[PartyId, ...]], M],
        *,
        values: Mapping[str, Any] | None = None,
    ) -> Party[M]:
        """Gather messages that are not masked; send and return the answer. Parameters as for `masked`."""

        def close() -> Party[tuple[M, tuple[PartyId, ...]]]:
            uplinks = yield from self._gather(t, up)
            among = self._among(uplinks)
            return answer(uplinks, among), among

        return self._round(t, down, close, values=values)

    def spoken(
        self, t: int, down: MessageFormat[M], answer: Callable[[], M], *, values: Mapping[str, Any] | None = None
    ) -> Party[M]:
        """Send and return the answer of round t without asking the clients."""

        def close() -> Party[tuple[M, tuple[PartyId, ...]]]:
            yield from ()
            return answer(), self._everybody

        return self._round(t, down, close, values=values)

    def _gather(self, t: int, up: MessageFormat[U], *, adds: bool = False) -> Party[Mapping[PartyId, U]]:
        uplinks: Mapping[PartyId, U] = yield Gather(
            self._everybody, up.type, t, self._at_least, up.format, self.late, adds=adds
        )
        return uplinks

    def _among(self, uplinks: Mapping[PartyId, Any]) -> tuple[PartyId, ...]:
        return tuple(party for party in self._everybody if party in uplinks)

    def _round(
        self,
        t: int,
        down: MessageFormat[M],
        close: Callable[[], Party[tuple[M, tuple[PartyId, ...]]]],
        *,
        stock: Callable[[], Iterable[int]] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Party[M]:
        """Play round t: `close` gathers what it needs, and returns the reply and who is in it."""
        if t in self._stored.replies:
            reply = recall(down.type, self._stored.replies[t], down.format, f"reply-{t}")
            done = self._stored.clients_done
            yield Attest(SERVER, reply, t)
            yield Send(tuple(party for party in self._everybody if done.get(party, 0) <= t), reply, t)
            self._continue(reply)
            return reply
        if stock is not None and t == len(self._stored.replies):
            self._ahead.stock(stock())
        yield from self._ahead.record(t)
        reply, among = yield from close()
        yield Save(f"reply-{t}", reply.body())
        yield Send(self._everybody, reply, t)  # Figure 1: Enc(v + gamma)
        yield Attest(SERVER, reply, t)
        # Whoever was lost in an earlier session is back in this one.
        self.late = frozenset() if t == self._opened_again else frozenset(self._everybody) - frozenset(among)
        yield Publish("round", {"round": t, "rounds": self._rounds, "clients": len(among), **(values or {})})
        yield from self._ahead.prepare(t + 1)  # while the clients compute
        self._continue(reply)
        return reply

    def _continue(self, reply: Message) -> None:
        if self._opening is not None:
            self._history = continue_history(self._history, reply.body())
