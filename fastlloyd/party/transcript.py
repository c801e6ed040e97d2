"""Digests of every broadcast, compared at the end to detect a speaker that sends different parties different bytes.

A speaker (the server, or the key holder of vertical-he) sends plans, replies and results to several parties, which
must all receive the same bytes. Each party keeps one chain of digests for each speaker::

    chain_0 = SHA-256(label | context | rank of the speaker)
    chain_i = SHA-256(chain_(i-1) | type u8 | round u32 | length u64 | body)

Source: docs/protocol.md, "Closing exchange".
"""

from __future__ import annotations

import hashlib
import struct

from fastlloyd.randomness import domains
from fastlloyd.wire.header import Message, PartyId

DIGEST_BYTES = 32
_STEP = struct.Struct("<BIQ")


class Transcript:
    """The chains of one party, one for each speaker.

    Parameters
    ----------
    context : bytes
        Run id, roster and everything public, as the links were confirmed with it.
    """

    def __init__(self, context: bytes = b"") -> None:
        self._context = context
        self._chains: dict[PartyId, bytes] = {}

    def add(self, speaker: PartyId, message: Message, round_: int) -> None:
        """Add one broadcast of the speaker."""
        body = message.body()
        before = self._chains.get(speaker) or self._start(speaker)
        step = before + _STEP.pack(message.TYPE, round_, len(body)) + body
        self._chains[speaker] = hashlib.sha256(step).digest()

    def _start(self, speaker: PartyId) -> bytes:
        return hashlib.sha256(domains.TRANSCRIPT + self._context + struct.pack("<I", speaker.rank)).digest()

    @property
    def chains(self) -> dict[PartyId, bytes]:
        """The 32-byte chain of each speaker, in the order of ranks."""
        return dict(sorted(self._chains.items()))

    def digest(self) -> bytes:
        """Return the 32-byte digest of context and chains, which the parties agree on and sign."""
        joined = b"".join(struct.pack("<I", speaker.rank) + chain for speaker, chain in self.chains.items())
        return hashlib.sha256(domains.TRANSCRIPT + self._context + joined).digest()
