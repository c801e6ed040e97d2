"""Authenticated encrypted links from one party to all others, over any transport.

Everything is driven by arriving frames: whatever a party waits for, each frame that comes in is given to
the link it belongs to. So the handshakes of all pairs proceed at once, in no particular order.

A link is up after one confirmed message in each direction, which carries the protocol version and a
digest of run id and public configuration: a TLS client learns only by reading that it was accepted. Between a client
and the server it carries the public values too, so that whoever refuses can say which one differs.

Agreed start and agreed abort (`net/link/control.py`) travel beside the links in plain frames.

Source: docs/protocol.md, "Links".
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping

from fastlloyd.crypto.link.identity import Identity
from fastlloyd.crypto.link.tls import MAX_MESSAGE_BYTES, TlsLink, sealed_bytes
from fastlloyd.errors import (
    ConfigError,
    InternalError,
    PeerError,
    PeerTimeout,
    Reason,
    SecurityError,
)
from fastlloyd.net.link.channel import Channel
from fastlloyd.net.link.frame import MOST_CONFIRMATION_BYTES, Confirmation, FrameKind, confirm
from fastlloyd.net.link.sums import OpenedLink, Order, expand, take_ranks
from fastlloyd.net.meter import Meter
from fastlloyd.net.transport import MAX_FRAME_BYTES, Transport
from fastlloyd.wire.header import SERVER, SETUP_ROUND, Header, PartyId

_MAX_CERTIFICATE_BYTES = 1 << 13
_RECORD = bytes([FrameKind.RECORD])
# Room for handshakes and certificates, however short the messages are.
_LEAST_FRAME_BYTES = 1 << 16
_MESSAGE_COST = 512
_SERVER_FIRST_S = 3.0
"""How long a client leaves it to the server to say which other client differs: the server knows both values."""


class SecureLinks(Channel):
    """All links of one party.

    Parameters
    ----------
    transport : Transport
    identity : Identity
        This party's key and certificate.
    certificates : mapping from PartyId to DER bytes, or None
        The roster's certificates. None is the demonstration: certificates are exchanged in clear, so an
        attacker who can change traffic at that moment can stand between two parties.
    meter : Meter
    max_message : int
        Longer messages are refused.
    linked : iterable of PartyId, optional
        Peers with a link to this party; all by default. The start of a handshake from any other peer is dropped: its
        configuration may differ. More than that ends the run.

    Attributes
    ----------
    authenticated : bool
        Whether the certificates come from a roster.
    Others as in `Channel`.

    Raises
    ------
    ConfigError
        The roster lacks a peer.
    """

    def __init__(
        self,
        transport: Transport,
        identity: Identity,
        certificates: Mapping[PartyId, bytes] | None,
        meter: Meter,
        *,
        max_message: int = MAX_MESSAGE_BYTES,
        linked: Iterable[PartyId] | None = None,
    ) -> None:
        super().__init__(transport, meter)
        self.authenticated = certificates is not None
        self._identity = identity
        self._max_message = max_message
        self._linked = frozenset(self.peers if linked is None else linked)
        self._certificates = dict(certificates or {})
        missing = [str(peer) for peer in self.peers if peer not in self._certificates]
        if self.authenticated and missing:
            raise ConfigError(f"the roster lacks {', '.join(missing)}: add with `fastlloyd roster add`")
        self._links: dict[PartyId, TlsLink | OpenedLink] = {}
        self._order: Order | None = None
        self._inbox: deque[tuple[PartyId, bytes]] = deque()
        self._inbox_bytes: defaultdict[PartyId, int] = defaultdict(int)
        self._passed_bytes: defaultdict[PartyId, int] = defaultdict(int)
        self._ahead_bytes: float = math.inf
        self._confirmation = Confirmation()
        self._wanted: tuple[PartyId, ...] = ()
        # Kept beside `_wanted` and `_heard`: a look at all peers for each frame would cost M times M at the server.
        self._pending: dict[PartyId, None] = {}
        self._unjudged: set[PartyId] = set()
        self._told: set[PartyId] = set()
        self._heard: dict[PartyId, bytes] = {}

    def __repr__(self) -> str:
        return f"SecureLinks({self.me}, {len(self._heard)} of {len(self.peers)} links up)"

    @property
    def pending(self) -> tuple[PartyId, ...]:
        """Peers to which the links are still to come up."""
        return tuple(self._pending)

    def bound(self, *, message_bytes: int, ahead_bytes: int) -> None:
        """Refuse longer messages of a peer before they are read, and more of its messages than fit before `receive`."""
        frame_bytes = len(_RECORD) + sealed_bytes(message_bytes)
        self._transport.most_frame = min(max(frame_bytes, _LEAST_FRAME_BYTES), MAX_FRAME_BYTES)
        self._ahead_bytes = ahead_bytes

    def connect(
        self,
        context: bytes,
        *,
        deadline_s: float,
        peers: Iterable[PartyId] | None = None,
        told: bytes = b"",
        explain: Callable[[bytes], str] | None = None,
    ) -> None:
        """Bring the links to `peers` (default: all that there are to be) up.

        Parameters
        ----------
        context : bytes, length 32
            Digest of run id and public configuration, which must be equal at both ends.
        told, explain
            As in `Confirmation`; at most `MOST_TOLD_BYTES` are told.

        Raises
        ------
        SecurityError
            A certificate or record was refused, here or by the peer.
        PeerError
            A peer runs with another public configuration or protocol version (reason CONFIG_MISMATCH).
        PeerTimeout
            Names the first silent peer.
        PeerGone, Aborted
            As they happen.
        """
        self._confirmation = confirm(context, told, explain)
        end = time.monotonic() + deadline_s
        self._wanted = tuple(sorted(self._linked if peers is None else peers))
        self._pending = {peer: None for peer in self._wanted if peer not in self._heard}
        if not self.authenticated:
            for peer in self._wanted:
                self.post(peer, FrameKind.CERTIFICATE, self._identity.certificate_der, SETUP_ROUND)
        for peer in self._wanted:
            self._advance(peer)
        while self._pending:
            remaining_s = end - time.monotonic()
            if remaining_s <= 0 or not self.step(remaining_s):
                missing = next(iter(self._pending))
                raise PeerTimeout(
                    f"{missing} did not finish the handshake within {deadline_s:g} s: check that it runs and "
                    "can be reached, or allow more time for the set-up",
                    rank=missing.rank,
                )
            self._compare()
        self._compare()

    def send(self, peer: PartyId, message: bytes | bytearray | memoryview, *, payload_bytes: int, round: int) -> None:
        """Encrypt a message and hand it to the transport; never waits.

        Sees: the peer alone.

        Raises
        ------
        PeerGone
            The peer's connection is known to have ended.
        """
        if peer not in self._heard:
            raise InternalError(f"the link to {peer} is not up")
        frame = _RECORD + self._links[peer].seal(message)
        self._put(peer, frame)
        self._meter.sent[peer, round].add(1, payload_bytes, len(frame))

    def flush(self) -> None:
        """Send what is kept back because it might be for several peers alike."""
        self._transport.flush()

    def add_up(self, order: Order) -> None:
        """Let aggregators, if there are any, add up the messages that this party is going to wait for."""
        self._order = order
        self._transport.order(order.encode())

    def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
        """Return the next message of any peer, or None when `timeout_s` seconds pass without one.

        Raises
        ------
        Aborted
            Another party ended the run; it was acknowledged.
        PeerGone, SecurityError, PeerError
            As they happen.
        """
        end = time.monotonic() + timeout_s
        while not self._inbox:
            remaining_s = end - time.monotonic()
            arrived = self.step(max(remaining_s, 0.0))
            # Frames that are no message must not prolong the wait.
            if not self._inbox and (not arrived or remaining_s <= 0):
                return None
        peer, message = self._inbox.popleft()
        self._inbox_bytes[peer] -= len(message) + _MESSAGE_COST
        return peer, message

    def close(self, *, lost: bool = False) -> None:
        """Close the transport and forget all keys; `lost` as in `Transport.close`.

        No close_notify is sent: parties finish one after the other, and every message says how long it is
        and is expected by name, so nothing can be cut off unseen.
        """
        self._links.clear()
        self._heard.clear()
        self._transport.close(lost=lost)

    def _on_tls(self, peer: PartyId, frame: bytes, *, is_record: bool) -> None:
        """Feed a link, answer its handshake, and collect its messages."""
        if peer not in self._linked:
            self._pass_over(peer, len(frame), is_record=is_record)
            return
        link = self._link(peer)
        try:
            link.feed(memoryview(frame)[1:])
            messages = link.open()
        except SecurityError:
            # The alert tells the peer that, and why, it was refused.
            self._answer(peer, link)
            raise
        if not is_record:
            self._meter.received[peer, SETUP_ROUND].add(0, 0, len(frame))
            self._answer(peer, link)
            self._advance(peer)
        # One frame is one message, so a record that was cut shows at once instead of as a timeout.
        if len(messages) != (1 if is_record else 0) or link.partial:
            raise SecurityError(
                f"{peer} sent a record that was cut, joined or came before its handshake: check the network "
                "between the two",
                rank=peer.rank,
            )
        for message in messages:
            self._deliver(peer, message, len(frame))

    def _deliver(self, peer: PartyId, message: bytes, link_bytes: int) -> None:
        """Keep a message for `receive`; the first one of each link is its confirmation."""
        if peer not in self._heard:
            self._heard[peer] = message
            self._pending.pop(peer, None)
            self._unjudged.add(peer)
            self._links[peer].max_message = self._max_message
            self._meter.received[peer, SETUP_ROUND].add(0, 0, link_bytes)
            return
        try:
            round_ = Header.decode(message).round
        except ValueError:
            round_ = SETUP_ROUND
        self._meter.received[peer, round_].add(1, 0, link_bytes)
        waiting = self._inbox_bytes[peer] + len(message) + _MESSAGE_COST
        if waiting > self._ahead_bytes:
            raise PeerError(
                f"{peer} sent more than {self._ahead_bytes} bytes ahead of time, expected it to wait",
                rank=peer.rank,
            )
        self._inbox_bytes[peer] = waiting
        self._inbox.append((peer, message))

    def _on_sum(self, peer: PartyId, frame: bytes) -> None:
        """Take a sum for the messages of its clients; the transport has checked who they are."""
        ranks, message = take_ranks(frame[1:])
        order = self._order
        if order is not None and message[:1] == order.header[:1] and _round(message) < order.round:
            return  # of a round that is closed, as a late message of a client
        if order is None or not order.fits(message):
            raise PeerError(
                f"the aggregator of {peer} sent a sum that this server has not ordered: install the same fastlloyd at "
                "both",
                rank=SERVER.rank,
            )
        for rank, each in expand(order, ranks, message):
            self._deliver(PartyId(rank), each, len(frame) if rank == ranks[0] else 0)

    def _on_certificate(self, peer: PartyId, der: bytes) -> None:
        """Pin the certificate that came in clear (demonstration only)."""
        if peer not in self._linked:
            self._pass_over(peer, len(der), is_record=False)
            return
        if self.authenticated:
            raise SecurityError(
                f"{peer} runs without a roster, this party with one: give all parties the same --roster",
                rank=peer.rank,
            )
        if peer in self._certificates or not 0 < len(der) <= _MAX_CERTIFICATE_BYTES:
            raise ValueError("expected one certificate, before the handshake")
        self._certificates[peer] = der
        self._advance(peer)

    def _pass_over(self, peer: PartyId, frame_bytes: int, *, is_record: bool) -> None:
        """Drop what a peer without a link sends, as long as it can be the beginning of a handshake."""
        self._passed_bytes[peer] += frame_bytes
        if is_record or self._passed_bytes[peer] > _LEAST_FRAME_BYTES:
            raise PeerError(
                f"{peer} sends over a link that this run does not have (or the server does, if it relays): expected "
                "clients to send to the server alone",
                rank=peer.rank,
            )

    def _link(self, peer: PartyId) -> TlsLink | OpenedLink:
        """Return the link to a peer; make it when it is first needed."""
        if peer not in self._links and self._transport.opens(peer):
            self._links[peer] = OpenedLink(peer, max_message=MOST_CONFIRMATION_BYTES)
        if peer not in self._links:
            if peer not in self._certificates:
                raise SecurityError(
                    f"{peer} began a handshake before it sent its certificate: it runs with a roster and this "
                    "party without one; give all parties the same --roster",
                    rank=peer.rank,
                )
            self._links[peer] = TlsLink(
                self._identity,
                self._certificates[peer],
                server_side=self.me < peer,
                peer=peer,
                max_message=MOST_CONFIRMATION_BYTES,  # until the confirmation is there
            )
        return self._links[peer]

    def _advance(self, peer: PartyId) -> None:
        """Begin the handshake, or send the confirmation, as soon as that is possible."""
        if peer not in self._wanted or peer not in self._certificates or peer in self._told:
            return
        link = self._link(peer)
        if not link.started:
            link.start()
            self._answer(peer, link)
        if link.established:
            self._told.add(peer)
            values = self._confirmation.told if SERVER in (self.me, peer) else b""
            frame = _RECORD + link.seal(self._confirmation.head + values)
            self._put(peer, frame)
            self._meter.sent[peer, SETUP_ROUND].add(0, 0, len(frame))

    def _answer(self, peer: PartyId, link: TlsLink | OpenedLink) -> None:
        """Send the handshake bytes that wait."""
        waiting = link.outgoing()
        if waiting:
            self.post(peer, FrameKind.HANDSHAKE, waiting, SETUP_ROUND)

    def _compare(self) -> None:
        """Compare the received confirmations with this party's own, the server's first; keep no values."""
        # Judged without the server's, two clients that differ could only accuse each other.
        if SERVER in self._wanted and SERVER not in self._heard:
            return
        judged = sorted(self._unjudged.intersection(self._wanted))
        self._unjudged.difference_update(judged)
        for peer in judged:
            with_server = SERVER in (self.me, peer)
            difference = self._confirmation.difference(peer, self._heard[peer], with_server=with_server)
            if difference is None:
                self._heard[peer] = self._confirmation.head
                continue
            if not with_server:
                self._leave_to_server()
            raise PeerError(difference, rank=peer.rank, reason=Reason.CONFIG_MISMATCH)

    def _leave_to_server(self) -> None:
        """Wait for the server to end the run for what another client differs in; it may stay silent."""
        end = time.monotonic() + _SERVER_FIRST_S
        with contextlib.suppress(PeerError):  # of a client that leaves for that very reason
            while (remaining_s := end - time.monotonic()) > 0 and self.step(remaining_s):
                pass


def _round(message: bytes) -> int:
    """Return the round of a message, none before the first for what is no message."""
    try:
        return Header.decode(message).round
    except ValueError:
        return SETUP_ROUND
