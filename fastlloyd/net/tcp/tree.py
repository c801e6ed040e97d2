"""The frames between an aggregator and its parent, inside one TLS connection with the server's key at both ends.

The rank in a frame's header (`net/tcp/stream.py`) is that of the client that sent it or that receives it; 0 for the
aggregator itself. START, VERDICT, ABORT, ABORT_ACK and DONE pass unchanged, RECORD carries the opened message, and::

    JOIN     nothing                       up    a client asks to join
    ANSWER   answer u8                     down  whether it may (`net/tcp/admission.py`)
    FAULT    reason u8 | text              up    a client is gone, its link was refused, or its version
    SUM      clients | message             up    the sum of their messages (`net/link/sums.py`)
    CAST     clients | frame               down  one frame for each of them
    ORDER    what to add up                down
    LIMIT    bytes u32                     down  longest frame that a client may send from now on

Source: docs/protocol.md, "Aggregators".
"""

from __future__ import annotations

import struct
from enum import IntEnum

from fastlloyd.errors import PeerError, PeerGone, PeerTimeout, Reason, SecurityError, printable
from fastlloyd.net.link.frame import FrameKind
from fastlloyd.net.tcp.admission import Admission
from fastlloyd.wire.header import PartyId

_LIMIT = struct.Struct("<I")
_MOST_TEXT_BYTES = 1 << 11
UPWARD = (FrameKind.RECORD, FrameKind.START, FrameKind.ABORT, FrameKind.ABORT_ACK, FrameKind.DONE)
"""Kinds of a client's frames that an aggregator passes up."""
DOWNWARD = (FrameKind.RECORD, FrameKind.VERDICT, FrameKind.ABORT, FrameKind.ABORT_ACK, FrameKind.DONE)
"""Kinds of frames for a client that it passes down."""
MOST_CONTROL_BYTES = 64
"""Above the length of every frame of these kinds but RECORD."""
_ERRORS: dict[Reason, type[PeerError]] = {
    Reason.GONE: PeerGone,
    Reason.TIMEOUT: PeerTimeout,
    Reason.SECURITY: SecurityError,
    Reason.PROTOCOL: PeerError,
    Reason.OTHER_VERSION: PeerError,
}


class TreeKind(IntEnum):
    """Kinds of frames between an aggregator and its parent, besides those between clients and server."""

    JOIN = 32
    ANSWER = 33
    FAULT = 34
    CAST = 35
    ORDER = 36
    LIMIT = 37


def encode_answer(answer: Admission) -> bytes:
    """Encode whether a client may join."""
    return bytes([TreeKind.ANSWER, answer])


def decode_answer(body: bytes) -> Admission:
    """Decode whether a client may join; raise ValueError for anything else."""
    if len(body) != 1:
        raise ValueError(f"an answer has 1 byte, this one has {len(body)}")
    return Admission(body[0])


def encode_limit(most_frame: int) -> bytes:
    """Encode the longest frame that a client may send."""
    return bytes([TreeKind.LIMIT]) + _LIMIT.pack(most_frame)


def decode_limit(body: bytes) -> int:
    """Decode the longest frame that a client may send; raise ValueError for another length."""
    if len(body) != _LIMIT.size:
        raise ValueError(f"a limit has {_LIMIT.size} bytes, this one has {len(body)}")
    return int(_LIMIT.unpack(body)[0])


def encode_fault(error: PeerError) -> bytes:
    """Encode a client's fault, or its loss."""
    reason = error.reason if error.reason in _ERRORS else Reason.PROTOCOL
    return bytes([TreeKind.FAULT, reason]) + str(error).encode()[:_MOST_TEXT_BYTES]


def decode_fault(body: bytes, party: PartyId, aggregator: str) -> PeerError:
    """Decode a client's fault, as an error that names the client and the aggregator.

    Raises
    ------
    ValueError
        Empty, too long, or not a reason that an aggregator can report.
    """
    if not 1 < len(body) <= 1 + _MOST_TEXT_BYTES:
        raise ValueError(f"a fault has 2 to {1 + _MOST_TEXT_BYTES} bytes, this one has {len(body)}")
    reason = Reason(body[0])
    kind = _ERRORS.get(reason)
    if kind is None:
        raise ValueError(f"reason {body[0]} is not one that an aggregator reports")
    text = printable(body[1:].decode(errors="replace"))
    return kind(f"{text} (behind the aggregator at {aggregator})", rank=party.rank, reason=reason)
