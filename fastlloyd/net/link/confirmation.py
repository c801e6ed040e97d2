"""What both ends of a link say first: protocol version, digest of the run, and the public values behind that digest.

Source: docs/protocol.md, "Links".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastlloyd.errors import InternalError
from fastlloyd.wire.header import PROTOCOL_VERSION, PartyId
from fastlloyd.wire.values import COMPARE, MOST_TOLD_BYTES

CONTEXT_BYTES = 32
_HEAD_BYTES = 1 + CONTEXT_BYTES
MOST_CONFIRMATION_BYTES = _HEAD_BYTES + MOST_TOLD_BYTES


def _says_nothing(told: bytes) -> str:
    """Explain nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a party says first on each of its links.

    Attributes
    ----------
    head : bytes
        Protocol version and digest, which must be equal at both ends.
    told : bytes
        The public values, for the other end of a link between a client and the server: what it reads if its digest
        is another one.
    explain : callable
        Says how what such a peer told differs from this party's values, and what to do; empty if it cannot.
    """

    head: bytes = b""
    told: bytes = b""
    explain: Callable[[bytes], str] = _says_nothing

    def difference(self, peer: PartyId, theirs: bytes, *, with_server: bool) -> str | None:
        """Say how what a peer said differs, as far as this party can know; None if it does not."""
        head, values = theirs[:_HEAD_BYTES], theirs[_HEAD_BYTES:]
        if head == self.head:
            return None
        if len(head) != _HEAD_BYTES or head[0] != PROTOCOL_VERSION:
            return (
                f"{peer} does not speak protocol version {PROTOCOL_VERSION}: install the same fastlloyd at all parties"
            )
        if with_server:
            how = self.explain(values) or f"its digest is another one; {COMPARE}"
            return f"{peer} runs with another public configuration: {how}"
        return (
            f"{peer} runs with another public configuration than the server and this party, whose configurations are "
            f"equal; {peer}'s and the server's own standard error say what differs, and nothing is to be changed here"
        )


def confirm(context: bytes, told: bytes, explain: Callable[[bytes], str] | None) -> Confirmation:
    """Return what a party says of a run.

    Parameters
    ----------
    context : bytes, length 32
        Digest of run id and public configuration.
    told, explain
        As in `Confirmation`; at most `MOST_TOLD_BYTES` are told.

    Raises
    ------
    InternalError
        One of another length.
    """
    if len(context) != CONTEXT_BYTES:
        raise InternalError(f"a link's context has {CONTEXT_BYTES} bytes, got {len(context)}")
    if len(told) > MOST_TOLD_BYTES:
        raise InternalError(f"a confirmation carries at most {MOST_TOLD_BYTES} bytes of values, got {len(told)}")
    return Confirmation(bytes([PROTOCOL_VERSION]) + context, told, explain or _says_nothing)
