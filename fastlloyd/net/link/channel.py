"""Frames with a kind, over any transport, and the state that control frames set.

`SecureLinks` adds encryption; `control` agrees on start and end.

Source: docs/protocol.md, "Frames".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Self

from fastlloyd.errors import EXIT_PEER, Aborted, PeerError, PeerGone, Reason
from fastlloyd.net.link.frame import FrameKind, Notice, Start, StartDecision
from fastlloyd.net.meter import Meter
from fastlloyd.net.transport import Transport
from fastlloyd.wire.header import FINAL_ROUND, SERVER, SETUP_ROUND, PartyId


class Channel(ABC):
    """One party's frames to and from all others.

    Parameters
    ----------
    transport : Transport
    meter : Meter

    Attributes
    ----------
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
    """

    def __init__(self, transport: Transport, meter: Meter) -> None:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(lost=kind is not None)

    @property
    def absent(self) -> frozenset[PartyId]:
        """Peers that have not joined yet."""
        return self._transport.absent

    def begin_ending(self) -> None:
        """From now on handle only abort notices and their acknowledgements, and raise nothing."""
        self._ending = True

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

    @abstractmethod
    def close(self, *, lost: bool = False) -> None:
        """Close the transport; `lost` as in `Transport.close`."""

    @abstractmethod
    def _on_tls(self, peer: PartyId, frame: bytes, *, is_record: bool) -> None:
        """Handle a frame of TLS bytes."""

    @abstractmethod
    def _on_sum(self, peer: PartyId, frame: bytes) -> None:
        """Handle the sum that an aggregator passes up for `peer` and others."""

    @abstractmethod
    def _on_certificate(self, peer: PartyId, der: bytes) -> None:
        """Handle a certificate in clear; raise ValueError if none is expected."""
