"""What the server orders an aggregator to add up, and how the aggregator does it: no I/O, no clock.

An aggregator stands between some clients and the server. It passes on what they send, one by one, except the vectors of
a round: of these the server needs the sum only, so it orders one, and the aggregator adds up those that fit the order.
What does not fit, or comes after the sum, is passed on unchanged, and the server judges it.

A client's TLS ends at the aggregator, which has the server's key. So the server's end of such a link is an
`OpenedLink`: the same calls as `TlsLink`, with the messages in clear, inside one TLS connection from the aggregator
(`net/tcp/stream.py`).

Source: docs/protocol.md, "Aggregators".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import RangeError, SecurityError
from fastlloyd.masking.fixed import Ring
from fastlloyd.net.transport import MAX_FRAME_BYTES
from fastlloyd.wire.header import COMPARE_ROUND, HEADER_BYTES, Header, PartyId

_ORDER = struct.Struct("<BBIII")
_COUNT = struct.Struct("<H")
_RANK_BYTES = 2
# Messages that a client may send before the order: the update of the next round.
_HELD = 1


def ranks_bytes(count: int) -> int:
    """Return the length of an encoded list of `count` clients."""
    return _COUNT.size + _RANK_BYTES * count


def encode_ranks(ranks: Sequence[int]) -> bytes:
    """Encode a list of clients: count u16, then each rank u16."""
    return _COUNT.pack(len(ranks)) + np.asarray(ranks, dtype="<u2").tobytes()


def take_ranks(body: bytes, *, least: int = 1) -> tuple[list[int], bytes]:
    """Decode a list of clients from the front of a body; return it and the rest.

    Raises
    ------
    ValueError
        It is truncated, too short, not in ascending order, or names the server.
    """
    if len(body) < _COUNT.size:
        raise ValueError("expected a list of clients")
    (count,) = _COUNT.unpack_from(body)
    end = ranks_bytes(count)
    if count < least or len(body) < end:
        raise ValueError(f"expected a list of {max(count, least)} clients in {len(body)} bytes")
    ranks = np.frombuffer(body[_COUNT.size : end], dtype="<u2").tolist()
    if any(b <= a for a, b in zip([0, *ranks], ranks, strict=False)):
        raise ValueError("expected each client once, in the order of ranks")
    return ranks, body[end:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The server's order to add up the messages of a round.

    Attributes
    ----------
    type, round : int
        Of the messages' header.
    ring_bits, elements : int
        Of the vector in their body.
    wait_ms : int
        After this time an aggregator passes up its sum.
    late : tuple of int
        Clients that are not awaited.
    """

    type: int
    round: int
    ring_bits: int
    elements: int
    wait_ms: int
    late: tuple[int, ...] = ()

    @property
    def vector_bytes(self) -> int:
        """Size of a vector."""
        return self.elements * self.ring_bits // 8

    def fits(self, message: bytes) -> bool:
        """Whether a message fits the order."""
        return message[:HEADER_BYTES] == self.header and len(message) == HEADER_BYTES + self.vector_bytes

    @property
    def header(self) -> bytes:
        """The header of these messages and of their sum."""
        return Header(self.type, self.round).encode()

    def encode(self) -> bytes:
        """Encode type u8, ring bits u8, round u32, elements u32, wait u32, and the list of late clients."""
        fixed = _ORDER.pack(self.type, self.ring_bits, self.round, self.elements, self.wait_ms)
        return fixed + encode_ranks(self.late)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Decode an order.

        Raises
        ------
        ValueError
            Wrong length, ring, round or list.
        """
        if len(body) < _ORDER.size:
            raise ValueError(f"an order has at least {_ORDER.size} bytes, this one has {len(body)}")
        kind, bits, round_, elements, wait_ms = _ORDER.unpack_from(body)
        late, rest = take_ranks(body[_ORDER.size :], least=0)
        try:
            Ring(bits)
        except RangeError as error:
            raise ValueError(str(error)) from error
        if rest or round_ >= COMPARE_ROUND or not 0 < elements * bits // 8 < MAX_FRAME_BYTES:
            raise ValueError(f"{elements} elements of round {round_} followed by {len(rest)} bytes are not an order")
        return cls(type=kind, round=round_, ring_bits=bits, elements=elements, wait_ms=wait_ms, late=tuple(late))


@dataclass(frozen=True, slots=True)
class Passed:
    """A client's message that is passed up unchanged."""

    rank: int
    message: bytes


@dataclass(frozen=True, slots=True)
class Added:
    """A sum that is passed up: its clients, and the message in their place."""

    ranks: tuple[int, ...]
    message: bytes


Up = Passed | Added


class Adder:
    """The sum of one round at an aggregator, computed as the vectors arrive.

    Attributes
    ----------
    deadline_s : float or None
        When `close` must be called; None while no sum is open.
    sums, added : int
        Number of sums that were passed up, and of the vectors in them.
    """

    def __init__(self) -> None:
        self.deadline_s: float | None = None
        self.sums = 0
        self.added = 0
        self._members: set[int] = set()
        self._held: dict[int, list[bytes]] = {}
        self._order: Order | None = None
        self._total: NDArray[np.unsignedinteger] | None = None
        self._in: set[int] = set()
        self._missing: set[int] = set()

    def join(self, rank: int) -> None:
        """Add a client."""
        self._members.add(rank)

    def lose(self, rank: int) -> list[Up]:
        """Stop waiting for a client that is gone; its earlier messages still count."""
        self._members.discard(rank)
        self._missing.discard(rank)
        passed: list[Up] = [Passed(rank, message) for message in self._held.pop(rank, ())]
        # A server that learns of the loss first may leave out a vector that is already in the sum.
        return passed + (self.close() if rank in self._in else self._closed())

    def order(self, order: Order, now_s: float) -> list[Up]:
        """Begin the sum of a round; the server has closed the round of a sum that is still open."""
        self._order = order
        self._total, self._in = None, set()
        self._missing = self._members - set(order.late)
        self.deadline_s = now_s + order.wait_ms / 1e3 if self._missing else None
        held, self._held = self._held, {}
        return [up for rank, messages in held.items() for message in messages for up in self.take(rank, message)]

    def take(self, rank: int, message: bytes) -> list[Up]:
        """Take one message of a client; return what is to be passed up now."""
        try:
            round_ = Header.decode(message).round
        except ValueError:
            return [Passed(rank, message)]
        order = self._order
        if round_ < COMPARE_ROUND and (order is None or round_ > order.round):
            waiting = self._held.setdefault(rank, [])
            waiting.append(message)
            # An honest client sends one at most: the server must see more.
            return [] if len(waiting) <= _HELD else [Passed(rank, each) for each in self._held.pop(rank)]
        if order is None or self.deadline_s is None or rank in self._in or not order.fits(message):
            return [Passed(rank, message)]
        vector = np.frombuffer(message, dtype=Ring(order.ring_bits).dtype, offset=HEADER_BYTES)
        if self._total is None:
            self._total = vector.copy()
        else:
            self._total += vector
        self._in.add(rank)
        self._missing.discard(rank)
        return self._closed()

    def close(self) -> list[Up]:
        """Pass up the sum so far: the deadline has passed."""
        order, total = self._order, self._total
        self.deadline_s, self._total = None, None
        if order is None or total is None:
            return []
        self.sums += 1
        self.added += len(self._in)
        return [Added(tuple(sorted(self._in)), order.header + total.tobytes())]

    def _closed(self) -> list[Up]:
        """Pass up the sum if no client is missing."""
        return self.close() if self.deadline_s is not None and not self._missing else []


def expand(order: Order, ranks: Iterable[int], message: bytes) -> list[tuple[int, bytes]]:
    """Return a sum as messages of its clients: the first has the sum, the others have zeros.

    So the server adds up messages of clients, with or without an aggregator.
    """
    first, *others = ranks
    zeros = order.header + bytes(order.vector_bytes)
    return [(first, message), *((rank, zeros) for rank in others)]


class OpenedLink:
    """The server's end of the link to a client behind an aggregator.

    Parameters
    ----------
    peer : PartyId
    max_message : int
        A longer message is refused.
    """

    __slots__ = ("_fed", "max_message", "peer")

    started = True
    established = True
    partial = False
    group = None

    def __init__(self, peer: PartyId, *, max_message: int) -> None:
        self.peer = peer
        self.max_message = max_message
        self._fed: list[bytes] = []

    def start(self) -> None:
        """Do nothing: the aggregator has done the handshake."""

    def outgoing(self) -> bytes:
        """Return no bytes: there is no handshake."""
        return b""

    def seal(self, message: bytes | bytearray | memoryview) -> bytes:
        """Return the message.

        Raises
        ------
        RangeError
            It is longer than `max_message`.
        """
        if len(message) > self.max_message:
            raise RangeError(
                f"a message has at most {self.max_message} bytes, this one has {len(message)}: lower k or d"
            )
        return bytes(message)

    def feed(self, data: bytes | memoryview) -> None:
        """Take one message.

        Raises
        ------
        SecurityError
            It is longer than `max_message`.
        """
        if len(data) > self.max_message:
            raise SecurityError(
                f"{self.peer} sent a message of {len(data)} bytes: at most {self.max_message} are allowed",
                rank=self.peer.rank,
            )
        self._fed.append(bytes(data))

    def open(self) -> list[bytes]:
        """Return the messages so far."""
        fed, self._fed = self._fed, []
        return fed
