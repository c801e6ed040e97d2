"""What an aggregator and its parent say to each other, inside one connection with TLS of the server's key at both ends.

The rank in a frame's header (`net/tcp/stream.py`) is that of the client whose frame it is, or for whom; 0 for the
aggregator itself. START, VERDICT, ABORT, ABORT_ACK and DONE pass as they are, RECORD carries the opened message, and::

    JOIN     nothing                       up    a client wants to come in
    ANSWER   answer u8                     down  whether it may (`net/tcp/admission.py`)
    FAULT    reason u8 | text              up    a client is gone, or its link was refused
    SUM      clients | message             up    the sum of their messages (`net/link/sums.py`)
    CAST     clients | frame               down  one frame for each of them
    ORDER    what to add up                down
    LIMIT    bytes u32                     down  the longest frame that a client may send from now on

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
}


class TreeKind(IntEnum):
    """What a frame between an aggregator and its parent carries, besides what passes between clients and server."""

    JOIN = 32
    ANSWER = 33
    FAULT = 34
    CAST = 35
    ORDER = 36
    LIMIT = 37


def encode_answer(answer: Admission) -> bytes:
    """Write whether a client may come in."""
    return bytes([TreeKind.ANSWER, answer])


def decode_answer(body: bytes) -> Admission:
    """Read whether a client may come in; ValueError for anything else."""
    if len(body) != 1:
        raise ValueError(f"an answer has 1 byte, this one has {len(body)}")
    return Admission(body[0])


def encode_limit(most_frame: int) -> bytes:
    """Write the longest frame that a client may send."""
    return bytes([TreeKind.LIMIT]) + _LIMIT.pack(most_frame)


def decode_limit(body: bytes) -> int:
    """Read the longest frame that a client may send; ValueError for another length."""
    if len(body) != _LIMIT.size:
        raise ValueError(f"a limit has {_LIMIT.size} bytes, this one has {len(body)}")
    return int(_LIMIT.unpack(body)[0])


def encode_fault(error: PeerError) -> bytes:
    """Write what a client did wrong, or that it is gone."""
    reason = error.reason if error.reason in _ERRORS else Reason.PROTOCOL
    return bytes([TreeKind.FAULT, reason]) + str(error).encode()[:_MOST_TEXT_BYTES]


def decode_fault(body: bytes, party: PartyId, aggregator: str) -> PeerError:
    """Read what a client did wrong, as an error that names it and who says so.

    Raises
    ------
    ValueError
        Empty, too long, or no reason that an aggregator can give.
    """
    if not 1 < len(body) <= 1 + _MOST_TEXT_BYTES:
        raise ValueError(f"a fault has 2 to {1 + _MOST_TEXT_BYTES} bytes, this one has {len(body)}")
    kind = _ERRORS.get(Reason(body[0]))
    if kind is None:
        raise ValueError(f"reason {body[0]} is not one that an aggregator gives")
    text = printable(body[1:].decode(errors="replace"))
    return kind(f"{text} (behind the aggregator at {aggregator})", rank=party.rank)
