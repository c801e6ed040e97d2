"""The first byte of every frame between two parties, the plain control frames, and the first message of a link.

::

    kind u8 | body
    HANDSHAKE    TLS bytes of the handshake, and alerts
    RECORD       TLS bytes of exactly one message
    CERTIFICATE  DER certificate (demonstration without a roster only)
    START        code u8 | reason u8 | digest 8 bytes                      client to server
    VERDICT      run id 16 bytes | notice | digest 8 bytes                 server to clients
    ABORT        notice: rank u16 | reason u8 | code u8 | lost u8 | by u16    little endian
    ABORT_ACK    nothing
    DONE         nothing
    SUM          clients, then the message with their sum                  aggregator to server (`sums.py`)

Control frames carry public facts only and are not authenticated: an attacker who can write to the network can
end a run with them, and do nothing else.

The first message on a link confirms it: protocol version, digest of the run, and the public values behind that digest.

Source: docs/protocol.md, "Frames" and "Links".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from fastlloyd.errors import EXIT_BUDGET, EXIT_BUG, EXIT_INPUT, EXIT_OK, EXIT_PEER, InternalError, Reason
from fastlloyd.wire.header import PROTOCOL_VERSION, SERVER, PartyId
from fastlloyd.wire.values import COMPARE, MOST_VALUES_BYTES

RUN_ID_BYTES = 16
DIGEST_BYTES = 8
NO_DIGEST = bytes(DIGEST_BYTES)

_START = struct.Struct(f"<BB{DIGEST_BYTES}s")
_NOTICE = struct.Struct("<HBBBH")
_VERDICT = struct.Struct(f"<{RUN_ID_BYTES}s{_NOTICE.size}s{DIGEST_BYTES}s")
_ALL_WELL = bytes(_NOTICE.size)
# The user's mistakes first, because they explain the rest; a bug before the reports of its victims.
_SEVERITY = {EXIT_INPUT: 0, EXIT_BUDGET: 1, EXIT_BUG: 2, EXIT_PEER: 3}
CONTEXT_BYTES = 32
_HEAD_BYTES = 1 + CONTEXT_BYTES
MOST_CONFIRMATION_BYTES = _HEAD_BYTES + MOST_VALUES_BYTES


class FrameKind(IntEnum):
    """Kinds of frames."""

    HANDSHAKE = 1
    RECORD = 2
    CERTIFICATE = 3
    START = 4
    VERDICT = 5
    ABORT = 6
    ABORT_ACK = 7
    DONE = 8
    SUM = 9


@dataclass(frozen=True, slots=True)
class Notice:
    """Notice that the run ends, and which party is at fault.

    Attributes
    ----------
    rank : int
        The party at fault.
    reason : Reason
    code : int
        The exit code of its fault.
    lost : bool
        Whether some party cannot take part in an orderly end.
    by : int
        The party that reports it, as the receiver knows it: only the server's own notices count as the server's.
    """

    rank: int
    reason: Reason
    code: int
    lost: bool = False
    by: int = SERVER.rank

    @property
    def severity(self) -> int:
        """Order among several faults: the lowest wins (exit code 2 before 4 before 70 before 3)."""
        return _SEVERITY[self.code]

    def encode(self) -> bytes:
        """Encode to 7 bytes."""
        return _NOTICE.pack(self.rank, self.reason, self.code, self.lost, self.by)

    @classmethod
    def decode(cls, body: bytes, count: int) -> Self:
        """Read a notice about one of `count` parties.

        Raises
        ------
        ValueError
            Wrong length, party, reason or code.
        """
        _check_size("a notice", body, _NOTICE.size)
        rank, reason, code, lost, by = _NOTICE.unpack(body)
        if max(rank, by) >= count or code not in _SEVERITY or lost > 1:
            raise ValueError(f"rank {rank}, exit code {code} or lost {lost} is not possible in this run")
        return cls(rank, Reason(reason), code, bool(lost), by)


@dataclass(frozen=True, slots=True)
class Start:
    """A client's state before the run: ready (code 0), or why not.

    Attributes
    ----------
    code : int
    reason : Reason or None
        None exactly if the code is 0.
    digest : bytes, length 8
        Digest of the sentence of a configuration error; zeros otherwise.
    """

    code: int = EXIT_OK
    reason: Reason | None = None
    digest: bytes = NO_DIGEST

    def encode(self) -> bytes:
        """Encode to 10 bytes."""
        return _START.pack(self.code, self.reason or 0, self.digest)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a start.

        Raises
        ------
        ValueError
            Wrong length, reason or code.
        """
        _check_size("a start", body, _START.size)
        code, reason, digest = _START.unpack(body)
        if code == EXIT_OK and reason == 0:
            return cls()
        if code not in _SEVERITY:
            raise ValueError(f"exit code {code} with reason {reason} is not possible")
        return cls(code, Reason(reason), digest)


@dataclass(frozen=True, slots=True)
class StartDecision:
    """The server's decision about the start.

    Attributes
    ----------
    run_id : bytes, length 16
        Fresh and random, chosen by the server.
    notice : Notice or None
        None if the run starts.
    digest : bytes, length 8
        As in the `Start` of the party at fault.
    """

    run_id: bytes
    notice: Notice | None = None
    digest: bytes = NO_DIGEST

    def encode(self) -> bytes:
        """Encode to 31 bytes."""
        notice = _ALL_WELL if self.notice is None else self.notice.encode()
        return _VERDICT.pack(self.run_id, notice, self.digest)

    @classmethod
    def decode(cls, body: bytes, count: int) -> Self:
        """Read a verdict for a run of `count` parties.

        Raises
        ------
        ValueError
            Wrong length, or an impossible notice.
        """
        _check_size("a verdict", body, _VERDICT.size)
        run_id, notice, digest = _VERDICT.unpack(body)
        return cls(run_id, None if notice == _ALL_WELL else Notice.decode(notice, count), digest)


def _check_size(what: str, body: bytes, size: int) -> None:
    """Refuse a body of the wrong length."""
    if len(body) != size:
        raise ValueError(f"{what} has {size} bytes, this one has {len(body)}")


def _no_explanation(values: bytes) -> str:
    """Explain nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The first message of a party on each of its links.

    Attributes
    ----------
    head : bytes
        Protocol version and digest, which must be equal at both ends.
    values : bytes
        The public values; on a link between a client and the server, the other end reads them if its digest differs.
    explain : callable
        Returns how a peer's values differ from this party's, and what to do; empty if unknown.
    """

    head: bytes = b""
    values: bytes = b""
    explain: Callable[[bytes], str] = _no_explanation

    def difference(self, peer: PartyId, theirs: bytes, *, with_server: bool) -> str | None:
        """Explain how a peer's first message differs; return None if it does not."""
        head = theirs[:_HEAD_BYTES]
        if head == self.head:
            return None
        if len(head) != _HEAD_BYTES or head[0] != PROTOCOL_VERSION:
            return (
                f"{peer} does not speak protocol version {PROTOCOL_VERSION}: install the same fastlloyd at all parties"
            )
        if with_server:
            return f"{peer} runs with another public configuration: {self._how(theirs)}"
        return (
            f"{peer} runs with another public configuration than the server and this party, whose configurations are "
            f"equal; {peer}'s and the server's own standard error say what differs, and nothing is to be changed here"
        )

    def outvoted(self, first_messages: Sequence[bytes]) -> str | None:
        """Explain how this server differs from all clients heard, two or more, that do not differ; None if not so."""
        heads = {theirs[:_HEAD_BYTES] for theirs in first_messages}
        if len(first_messages) < 2 or len(heads) > 1 or self.head in heads:
            return None
        (head,) = heads
        if len(head) != _HEAD_BYTES or head[0] != PROTOCOL_VERSION:
            return (
                f"the clients do not speak protocol version {PROTOCOL_VERSION}, which this server does: install the "
                "same fastlloyd at all parties"
            )
        return (
            f"this server runs with another public configuration than its clients, which agree with each other: "
            f"{self._how(first_messages[0])}"
        )

    def _how(self, theirs: bytes) -> str:
        """Say what differs."""
        return self.explain(theirs[_HEAD_BYTES:]) or f"its digest is another one; {COMPARE}"


def confirm(context: bytes, values: bytes, explain: Callable[[bytes], str] | None) -> Confirmation:
    """Return a party's first message about a run.

    Parameters
    ----------
    context : bytes, length 32
        Digest of run id and public configuration.
    values, explain
        As in `Confirmation`; at most `MOST_VALUES_BYTES`.

    Raises
    ------
    InternalError
        A length is wrong.
    """
    if len(context) != CONTEXT_BYTES:
        raise InternalError(f"a link's context has {CONTEXT_BYTES} bytes, got {len(context)}")
    if len(values) > MOST_VALUES_BYTES:
        raise InternalError(f"a confirmation carries at most {MOST_VALUES_BYTES} bytes of values, got {len(values)}")
    return Confirmation(bytes([PROTOCOL_VERSION]) + context, values, explain or _no_explanation)
