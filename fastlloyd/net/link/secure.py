"""Authenticated encrypted links from one party to all others, over any transport.

Arriving frames drive everything: whatever a party waits for, each frame goes to the link it belongs to. So the
handshakes of all pairs proceed at once, in no particular order.

A link is up after one confirmation in each direction, because a TLS client learns only by reading that it was accepted.
It carries the protocol version and a digest of run id and public configuration; between a client and the server also
the public values, so that a refusal can name the one that differs.

Agreed start and agreed abort (`net/link/control.py`) travel beside the links in plain control frames. These set the
state of the links, and work before a link is up.

Source: docs/protocol.md, "Frames" and "Links".
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Self

from fastlloyd.crypto.link.identity import Identity
from fastlloyd.crypto.link.tls import MAX_MESSAGE_BYTES, TlsLink, sealed_bytes
from fastlloyd.errors import (
    EXIT_PEER,
    Aborted,
    ConfigError,
    InternalError,
    PeerError,
    PeerGone,
    PeerTimeout,
    Reason,
    SecurityError,
)
from fastlloyd.net.link.frame import (
    MOST_CONFIRMATION_BYTES,
    Confirmation,
    FrameKind,
    Notice,
    Start,
    StartDecision,
    confirm,
)
from fastlloyd.net.link.sums import OpenedLink, Order, expand, take_ranks
from fastlloyd.net.meter import Meter
from fastlloyd.net.transport import MAX_FRAME_BYTES, Transport
from fastlloyd.wire.header import FINAL_ROUND, SERVER, SETUP_ROUND, Header, PartyId

_MAX_CERTIFICATE_BYTES = 1 << 13
_RECORD = bytes([FrameKind.RECORD])
# Enough for handshakes and certificates, even if the messages are short.
_LEAST_FRAME_BYTES = 1 << 16
_MESSAGE_COST = 512
_SERVER_FIRST_S = 3.0
"""How long a client waits for the server to name the client that differs: the server knows both values."""
_OTHERS_FIRST_S = 0.4
"""How long the server waits for a second client before it names the first: less than that one waits for a verdict."""


class SecureLinks:
    """All links of one party.

    Parameters
    ----------
    transport : Transport
    identity : Identity
        This party's key and certificate.
    certificates : mapping from PartyId to DER bytes, or None
        The roster's certificates. None is the demonstration: certificates are exchanged in clear, so an
        attacker who can change traffic at that moment can impersonate parties.
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
    notices : list of (PartyId, Notice)
        The last abort notice of each peer, in order, each with its sender.
    verdict : Notice or None
        Why the run ends, once that is agreed.
    gone : set of PartyId
        Peers whose connection ended.
    acknowledged : set of PartyId
        Peers that acknowledged an abort.
    finished : set of PartyId
        Peers that have written all their files.
    starts : dict from PartyId to Start
        At the server: the clients' reports before the run.
    start_verdict : StartDecision or None
        At a client: the server's answer.

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
        self.me = transport.me
        self.peers = transport.peers
        self.notices: list[tuple[PartyId, Notice]] = []
        self.verdict: Notice | None = None
        self.gone: set[PartyId] = set()
        self.acknowledged: set[PartyId] = set()
        self.finished: set[PartyId] = set()
        self.starts: dict[PartyId, Start] = {}
        self.start_verdict: StartDecision | None = None
        self._transport = transport
        self._meter = meter
        self._ending = False
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
        self._ignored_bytes: defaultdict[PartyId, int] = defaultdict(int)
        self._ahead_bytes: float = math.inf
        self._confirmation = Confirmation()
        self._expected: tuple[PartyId, ...] = ()
        # A separate set: a scan of all peers for each frame would be quadratic at the server.
        self._pending: dict[PartyId, None] = {}
        self._unjudged: set[PartyId] = set()
        self._confirmed: set[PartyId] = set()
        self._received: dict[PartyId, bytes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(lost=kind is not None)

    def __repr__(self) -> str:
        return f"SecureLinks({self.me}, {len(self._received)} of {len(self.peers)} links up)"

    @property
    def pending(self) -> tuple[PartyId, ...]:
        """Peers whose links are not up yet."""
        return tuple(self._pending)

    @property
    def absent(self) -> frozenset[PartyId]:
        """Peers that have not joined yet."""
        return self._transport.absent

    @property
    def refused(self) -> str:
        """Why a client that no key named was not let in."""
        return self._transport.refused

    def begin_ending(self) -> None:
        """From now on handle only abort notices and their acknowledgements, and raise nothing."""
        self._ending = True

    def dismiss(self, peer: PartyId) -> None:
        """At the server: answer a client that ended the run with its own notice, and go on without it."""
        for _, notice in [each for each in self.notices if each[0] == peer]:
            self.post(peer, FrameKind.ABORT, notice.encode(), FINAL_ROUND)
        self.notices = [each for each in self.notices if each[0] != peer]
        self.gone.add(peer)

    def post(self, peer: PartyId, kind: FrameKind, body: bytes, round: int) -> None:
        """Send a plain control frame; a peer that is gone is noted, not raised."""
        frame = bytes([kind]) + body
        try:
            self._put(peer, frame)
        except PeerGone:
            return
        self._meter.sent[peer, round].add(0, 0, len(frame))

    def step(self, timeout_s: float) -> bool:
        """Wait for one frame and handle it; return False if none came.

        Raises
        ------
        Aborted
            Another party ended the run; it was acknowledged.
        PeerGone, SecurityError, PeerError
            As they happen.
        """
        try:
            arrival = self._transport.receive(timeout_s)
            if arrival is None:
                return False
            self._take(*arrival)
        except PeerError as error:
            if isinstance(error, PeerGone):
                self.gone.add(PartyId(error.rank))
            # Once the run ends for another reason, invalid frames do not matter.
            if not self._ending:
                raise
        return True

    def bound(self, *, message_bytes: int, ahead_bytes: int) -> None:
        """Limit the size of a peer's messages, and of its messages that wait for `receive`."""
        frame_bytes = len(_RECORD) + sealed_bytes(message_bytes)
        self._transport.most_frame = min(max(frame_bytes, _LEAST_FRAME_BYTES), MAX_FRAME_BYTES)
        self._ahead_bytes = ahead_bytes

    def connect(
        self,
        context: bytes,
        *,
        deadline_s: float,
        peers: Iterable[PartyId] | None = None,
        values: bytes = b"",
        explain: Callable[[bytes], str] | None = None,
    ) -> None:
        """Bring up the links to `peers` (default: all linked peers).

        Parameters
        ----------
        context : bytes, length 32
            Digest of run id and public configuration, which must be equal at both ends.
        values, explain
            As in `Confirmation`; at most `MOST_VALUES_BYTES`.

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
        self._confirmation = confirm(context, values, explain)
        end = time.monotonic() + deadline_s
        self._expected = tuple(sorted(self._linked if peers is None else peers))
        self._pending = {peer: None for peer in self._expected if peer not in self._received}
        if not self.authenticated:
            for peer in self._expected:
                self.post(peer, FrameKind.CERTIFICATE, self._identity.certificate_der, SETUP_ROUND)
        for peer in self._expected:
            self._advance(peer)
        while self._pending:
            remaining_s = end - time.monotonic()
            if remaining_s <= 0 or not self.step(remaining_s):
                missing = next(iter(self._pending))
                raise PeerTimeout(
                    f"{missing} did not finish the handshake within {deadline_s:g} s: check that it runs and "
                    "can be reached, or allow more time for the set-up (--setup-deadline)",
                    rank=missing.rank,
                )
            self._compare()
        self._compare()

    def send(self, peer: PartyId, message: bytes | bytearray | memoryview, *, payload_bytes: int, round: int) -> None:
        """Encrypt a message and hand it to the transport; never wait.

        Sees: the peer alone.

        Raises
        ------
        PeerGone
            The peer's connection is known to have ended.
        """
        if peer not in self._received:
            raise InternalError(f"the link to {peer} is not up")
        frame = _RECORD + self._links[peer].seal(message)
        self._put(peer, frame)
        self._meter.sent[peer, round].add(1, payload_bytes, len(frame))

    def flush(self) -> None:
        """Send frames that are held back because several peers might get the same."""
        self._transport.flush()

    def add_up(self, order: Order) -> None:
        """Let aggregators, if any, add up the messages that this party waits for next."""
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
            # Other frames must not prolong the wait.
            if not self._inbox and (not arrived or remaining_s <= 0):
                return None
        peer, message = self._inbox.popleft()
        self._inbox_bytes[peer] -= len(message) + _MESSAGE_COST
        return peer, message

    def close(self, *, lost: bool = False) -> None:
        """Close the transport and forget all keys; `lost` as in `Transport.close`.

        No close_notify is sent: parties finish one after the other, and every message states its length and is expected
        by name, so truncation is always noticed.
        """
        self._links.clear()
        self._received.clear()
        self._transport.close(lost=lost)

    def _put(self, peer: PartyId, frame: bytes) -> None:
        """Hand a frame to the transport."""
        try:
            self._transport.send(peer, frame)
        except PeerGone:
            self.gone.add(peer)
            raise

    def _take(self, peer: PartyId, frame: bytes) -> None:
        """Dispatch a frame to its link or to the control state."""
        kind = frame[0] if frame else 0
        if kind in (FrameKind.RECORD, FrameKind.HANDSHAKE):
            if not self._ending:
                self._on_tls(peer, frame, is_record=kind == FrameKind.RECORD)
            return
        if kind == FrameKind.SUM and self._transport.opens(peer):
            if not self._ending:
                self._on_sum(peer, frame)
            return
        late = kind in (FrameKind.ABORT, FrameKind.ABORT_ACK, FrameKind.DONE)
        self._meter.received[peer, FINAL_ROUND if late else SETUP_ROUND].add(0, 0, len(frame))
        try:
            self._on_control(peer, kind, frame[1:])
        except ValueError as error:
            raise PeerError(f"{peer} sent a frame that does not belong here: {error}", rank=peer.rank) from error

    def _on_control(self, peer: PartyId, kind: int, body: bytes) -> None:
        """Handle a control frame; raise ValueError if it is not expected here."""
        count = len(self.peers) + 1
        if kind == FrameKind.CERTIFICATE:
            self._on_certificate(peer, body)
        elif kind == FrameKind.START and self.me == SERVER and peer not in self.starts:
            self.starts[peer] = Start.decode(body)
        elif kind == FrameKind.VERDICT and peer == SERVER and self.start_verdict is None:
            self.start_verdict = StartDecision.decode(body, count)
            self.verdict = self.start_verdict.notice
        elif kind == FrameKind.ABORT:
            self._on_abort(peer, Notice.decode(body, count))
        elif kind == FrameKind.ABORT_ACK:
            self.acknowledged.add(peer)
        elif kind == FrameKind.DONE and SERVER in (peer, self.me):
            self.finished.add(peer)
        else:
            raise ValueError(f"kind {kind} is not expected from it now")

    def _on_abort(self, peer: PartyId, notice: Notice) -> None:
        """Note why another party ends the run, acknowledge, and raise."""
        # The server's configuration is the reference: a party that differs from it is at fault.
        if notice.reason is Reason.CONFIG_MISMATCH and self.me == SERVER and notice.rank == SERVER.rank:
            notice = replace(notice, rank=peer.rank)
        if peer != SERVER:
            notice = replace(notice, by=peer.rank)
        # A party knows only its own mistakes and bugs; about another it can only report a failed peer.
        if notice.by != notice.rank:
            notice = replace(notice, code=EXIT_PEER)
        # Only the last of each peer: a peer may send any number.
        self.notices = [each for each in self.notices if each[0] != peer]
        self.notices.append((peer, notice))
        if peer == SERVER:
            self.verdict = notice
        self.post(peer, FrameKind.ABORT_ACK, b"", FINAL_ROUND)
        if not self._ending:
            raise Aborted(rank=notice.rank, reason=notice.reason, code=notice.code, by=notice.by)

    def _on_tls(self, peer: PartyId, frame: bytes, *, is_record: bool) -> None:
        """Feed a link, answer its handshake, and collect its messages."""
        if peer not in self._linked:
            self._ignore(peer, len(frame), is_record=is_record)
            return
        link = self._link(peer)
        try:
            link.feed(memoryview(frame)[1:])
            messages = link.open()
        except SecurityError:
            # The alert informs the peer of the refusal and its reason.
            self._answer(peer, link)
            raise
        if not is_record:
            self._meter.received[peer, SETUP_ROUND].add(0, 0, len(frame))
            self._answer(peer, link)
            self._advance(peer)
        # One frame is one message, so a truncated record shows at once instead of as a timeout.
        if len(messages) != (1 if is_record else 0) or link.partial:
            raise SecurityError(
                f"{peer} sent a record that was truncated, joined or came before its handshake: check the network "
                "between the two",
                rank=peer.rank,
            )
        for message in messages:
            self._deliver(peer, message, len(frame))

    def _deliver(self, peer: PartyId, message: bytes, link_bytes: int) -> None:
        """Queue a message for `receive`; the first one of each link is its confirmation."""
        if peer not in self._received:
            self._received[peer] = message
            self._pending.pop(peer, None)
            self._unjudged.add(peer)
            self._links[peer].max_message = self._max_message
            self._meter.received[peer, SETUP_ROUND].add(0, 0, link_bytes)
            return
        self._meter.received[peer, _round(message)].add(1, 0, link_bytes)
        waiting = self._inbox_bytes[peer] + len(message) + _MESSAGE_COST
        if waiting > self._ahead_bytes:
            raise PeerError(
                f"{peer} sent more than {self._ahead_bytes} bytes ahead of time, expected it to wait", rank=peer.rank
            )
        self._inbox_bytes[peer] = waiting
        self._inbox.append((peer, message))

    def _on_sum(self, peer: PartyId, frame: bytes) -> None:
        """Handle a sum as messages of its clients; the transport has checked who they are."""
        ranks, message = take_ranks(frame[1:])
        order = self._order
        if order is not None and message[:1] == order.header[:1] and _round(message) < order.round:
            return  # its round is closed: treat it like a late message of a client
        if order is None or not order.fits(message):
            raise PeerError(
                f"the aggregator of {peer} sent a sum that this server has not ordered: install the same fastlloyd on "
                "both",
                rank=SERVER.rank,
            )
        for rank, each in expand(order, ranks, message):
            self._deliver(PartyId(rank), each, len(frame) if rank == ranks[0] else 0)

    def _on_certificate(self, peer: PartyId, der: bytes) -> None:
        """Pin the certificate that came in clear (demonstration only)."""
        if peer not in self._linked:
            self._ignore(peer, len(der), is_record=False)
            return
        if self.authenticated:
            raise SecurityError(
                f"{peer} runs without a roster, this party with one: give all parties the same --roster", rank=peer.rank
            )
        if peer in self._certificates or not 0 < len(der) <= _MAX_CERTIFICATE_BYTES:
            raise ValueError("expected one certificate, before the handshake")
        self._certificates[peer] = der
        self._advance(peer)

    def _ignore(self, peer: PartyId, frame_bytes: int, *, is_record: bool) -> None:
        """Ignore a frame of a peer without a link while it can be the start of a handshake."""
        self._ignored_bytes[peer] += frame_bytes
        if is_record or self._ignored_bytes[peer] > _LEAST_FRAME_BYTES:
            raise PeerError(
                f"{peer} sends over a link that this run does not have (or the server does, if it relays): expected "
                "clients to send to the server alone",
                rank=peer.rank,
            )

    @property
    def key_exchange(self) -> list[str] | None:
        """Name the groups that this party's links were agreed in; None: not known of each of them."""
        groups = {link.group for link in self._links.values() if link.established}
        return None if None in groups else sorted(filter(None, groups))

    def _link(self, peer: PartyId) -> TlsLink | OpenedLink:
        """Return the link to a peer; create it at first use."""
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
        """Begin the handshake, or send the confirmation, as soon as possible."""
        if peer not in self._expected or peer not in self._certificates or peer in self._confirmed:
            return
        link = self._link(peer)
        if not link.started:
            link.start()
            self._answer(peer, link)
        if link.established:
            self._confirmed.add(peer)
            values = self._confirmation.values if SERVER in (self.me, peer) else b""
            frame = _RECORD + link.seal(self._confirmation.head + values)
            self._put(peer, frame)
            self._meter.sent[peer, SETUP_ROUND].add(0, 0, len(frame))

    def _answer(self, peer: PartyId, link: TlsLink | OpenedLink) -> None:
        """Send the waiting handshake bytes."""
        waiting = link.outgoing()
        if waiting:
            self.post(peer, FrameKind.HANDSHAKE, waiting, SETUP_ROUND)

    def _compare(self) -> None:
        """Compare the received confirmations with this party's own, the server's first; keep no values."""
        # Without the server's confirmation, two clients that differ could only accuse each other.
        if SERVER in self._expected and SERVER not in self._received:
            return
        judged = sorted(self._unjudged.intersection(self._expected))
        self._unjudged.difference_update(judged)
        for peer in judged:
            with_server = SERVER in (self.me, peer)
            difference = self._confirmation.difference(peer, self._received[peer], with_server=with_server)
            if difference is None:
                self._received[peer] = self._confirmation.head
                continue
            if not with_server:
                self._leave_to_server()
            if self.me == SERVER and (outvoted := self._hear_others()):
                raise PeerError(outvoted, rank=SERVER.rank, reason=Reason.CONFIG_MISMATCH)
            raise PeerError(difference, rank=peer.rank, reason=Reason.CONFIG_MISMATCH)

    def _hear_others(self) -> str | None:
        """Wait a moment for other clients; explain how this server differs from them if all differ, in the same way."""
        end = time.monotonic() + _OTHERS_FIRST_S
        while True:
            heard = [self._received[peer] for peer in self._expected if peer in self._received]
            differ = self._confirmation.outvoted(heard)
            remaining_s = end - time.monotonic()
            if remaining_s <= 0 or not self._pending or (len(heard) > 1 and differ is None):
                return differ
            try:
                self.step(remaining_s)
            except PeerGone:
                continue  # for the same reason
            except Aborted as error:
                if error.reason is not Reason.CONFIG_MISMATCH:
                    raise

    def _leave_to_server(self) -> None:
        """Wait for the server to end the run because of another client's difference; it may stay silent."""
        end = time.monotonic() + _SERVER_FIRST_S
        with contextlib.suppress(PeerError):  # of a client that leaves for the same reason
            while (remaining_s := end - time.monotonic()) > 0 and self.step(remaining_s):
                pass


def _round(message: bytes) -> int:
    """Return the round of a message; `SETUP_ROUND` for invalid bytes."""
    try:
        return Header.decode(message).round
    except ValueError:
        return SETUP_ROUND
