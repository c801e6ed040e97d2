"""What the signatures of a run with threshold masks are about: this group, this run, this round, this set.

Source: docs/protocol.md, "Threshold masks: statements".
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from fastlloyd.crypto.link.identity import Credentials
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.parts import Parts
from fastlloyd.masking.threshold.words import Words
from fastlloyd.party.message import RingFormat
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.wire.header import SERVER, PartyId, clients, encode_included

KEPT_BYTES = 2 * KEY_BYTES
"""Of a group, in the state folder."""


@dataclass(frozen=True, slots=True)
class Covered:
    """Ring elements of a vector, and of its box if there is one."""

    ring: Ring
    elements: int


@dataclass(frozen=True)
class Group:
    """The clients of one run, with the keys that they made for it.

    Attributes
    ----------
    numbers : Numbers
    run_id : bytes
    context : bytes of length 32
        Digest of run id, roster and public parameters: what the links were confirmed with.
    keys : bytes of length 32
        SHA-256 of all clients' keys of this run, in the order of ranks.
    credentials : Credentials
        What this party signs with, and the others' certificates.
    returned : bytes
        Digest of the random bytes with which all clients came back to an interrupted run; empty before that. Votes are
        about it: a client that was set back may have voted before.
    """

    numbers: Numbers
    run_id: bytes
    context: bytes
    keys: bytes
    credentials: Credentials = field(repr=False)
    returned: bytes = b""

    @property
    def kept(self) -> bytes:
        """What a resumed run needs of it: context and digest of the keys, 64 bytes."""
        return self.context + self.keys

    @cached_property
    def digest(self) -> bytes:
        """Digest of all that must be equal: parties with another set-up never certify the same set."""
        content = domains.THRESHOLD_GROUP + self.context + self.numbers.to_bytes() + self.keys
        return hashlib.sha256(content).digest()

    @cached_property
    def parts(self) -> Parts:
        """The parts of noise of variance 1: a release's own variance is applied where its noise is drawn."""
        return Parts(self.numbers, Fraction(1), laplace=True)

    @property
    def everybody(self) -> tuple[PartyId, ...]:
        """All clients, in the order of ranks."""
        return clients(self.numbers.clients)

    def covered(self, shape: RingFormat) -> RingFormat:
        """Return the shape of what is sent for a vector of this shape: a box of the same length goes with it.

        Without a box if nobody may be lost: then nothing is ever taken off.
        """
        return Covered(shape.ring, (2 if self.numbers.lost else 1) * shape.elements)

    def about_round(self, round_: int, history: bytes) -> bytes:
        """Return the statement that all vectors of a round are there."""
        return self.run_id + self.digest + struct.pack("<I", round_) + wide(history)

    def about_set(self, round_: int, history: bytes, included: tuple[PartyId, ...]) -> bytes:
        """Return the statement that these clients are the set of a round."""
        return self.about_round(round_, history) + encode_included(included, self.numbers.clients)

    def about_words(self, words: Words) -> bytes:
        """Return the statement of a dealer on all its words."""
        return self.run_id + self.digest + words.digest()

    def _server_statement(self, round_: int, history: bytes, included: tuple[PartyId, ...]) -> tuple[bytes, bytes]:
        if included == self.everybody:
            return self.about_round(round_, history), domains.THRESHOLD_ALL
        return self.about_set(round_, history, included), domains.THRESHOLD_SET

    def state_set(self, round_: int, history: bytes, included: tuple[PartyId, ...]) -> bytes:
        """Return the server's signature on the set of a round, 64 bytes; run by the server."""
        return self.credentials.sign(*self._server_statement(round_, history, included))

    def is_stated(self, round_: int, history: bytes, included: tuple[PartyId, ...], signature: bytes) -> bool:
        """Whether the server has signed this set."""
        statement, label = self._server_statement(round_, history, included)
        return self.credentials.signed(SERVER, statement, signature, label)

    def vote(self, round_: int, history: bytes, included: tuple[PartyId, ...]) -> bytes:
        """Return this client's vote for a set, 64 bytes."""
        return self.credentials.sign(self._about_vote(round_, history, included), domains.THRESHOLD_VOTE)

    def has_voted(
        self, party: PartyId, round_: int, history: bytes, included: tuple[PartyId, ...], signature: bytes
    ) -> bool:
        """Whether a client has voted for this set."""
        statement = self._about_vote(round_, history, included)
        return self.credentials.signed(party, statement, signature, domains.THRESHOLD_VOTE)

    def _about_vote(self, round_: int, history: bytes, included: tuple[PartyId, ...]) -> bytes:
        return self.about_set(round_, history, included) + wide(self.returned)

    def opens_at_once(self, included: tuple[PartyId, ...]) -> bool:
        """Whether this set is opened without votes: that of everybody, in a run that was not interrupted.

        A client that was set back does not know what it has answered at once, and if no other had answered yet, none
        can say so. What T clients have voted for, another one knows.
        """
        return included == self.everybody and not self.returned


def wide(history: bytes) -> bytes:
    """Return a history in 32 bytes: that of a run before its first reply is zeros."""
    return history.ljust(KEY_BYTES, b"\0")


def digest_keys(keys: Sequence[bytes]) -> bytes:
    """Return the digest of all clients' keys of a run."""
    return hashlib.sha256(b"".join(keys)).digest()
