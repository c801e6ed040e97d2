"""What a client publishes at set-up: for every round the words of its shares, its table of pair keys, and digests.

A word is a share less the pad that dealer and holder know; with the holder's pad it becomes the share again. The table
hides the dealer's pair keys under its secret of kind PAIRS. A check tells a secret from a wrong one. Without pads or
secrets all of it is uniform, so anybody may see it.

Source: docs/protocol.md, "Threshold masks: numbers, parts, secrets".
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Self

from fastlloyd.masking.threshold import shamir
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.shamir import ELEMENT_BYTES
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import NONCE_BYTES, derive, keystream
from fastlloyd.wire.header import PartyId

OWN, PAIRS, BOX = 0, 1, 2
"""Kinds of secrets: the own mask, the key of the table, the key of the sealed excess."""
KINDS = (OWN, PAIRS, BOX)


def check_of(dealer: PartyId, round_: int, kind: int, secret: int) -> bytes:
    """Return the digest of a secret by which the server tells it from a wrong one, 32 bytes."""
    place = struct.pack("<IIB", dealer.rank, round_, kind)
    return hashlib.sha256(domains.THRESHOLD_CHECK + place + shamir.to_bytes(secret)).digest()


def hide_table(keys: bytes, secret: int) -> bytes:
    """Encrypt or decrypt pair keys, 32 bytes for each client by rank, under a secret of kind PAIRS."""
    stream = keystream(derive(shamir.to_bytes(secret), domains.THRESHOLD_TABLE), bytes(NONCE_BYTES), len(keys))
    hidden = int.from_bytes(keys, "little") ^ int.from_bytes(stream, "little")
    return hidden.to_bytes(len(keys), "little")


@dataclass(frozen=True, slots=True)
class Words:
    """The words, tables and checks of one dealer, for all rounds.

    Parameters
    ----------
    dealer : PartyId
    clients, rounds : int
        M and R.
    content : bytes
        Round by round: for each kind the words of the other clients by rank, then the hidden pair keys with them, then
        a check for each kind; 32 bytes each.
    """

    dealer: PartyId
    clients: int
    rounds: int
    content: bytes

    def word(self, round_: int, kind: int, holder: PartyId) -> int:
        """Return the word of one holder, an integer below p; 0 for the dealer's own share, which has no pad."""
        return 0 if holder == self.dealer else int.from_bytes(self._piece(round_, kind, holder), "little")

    def row(self, round_: int, kind: int) -> list[int]:
        """Return the words of all holders by rank, as `word` does."""
        first = kind * (self.clients - 1)
        found = [int.from_bytes(self._at(round_, first + place), "little") for place in range(self.clients - 1)]
        found.insert(self.dealer.rank - 1, 0)
        return found

    def table(self, round_: int) -> bytes:
        """Return the hidden pair keys of a round by rank, 32 M bytes; zeros at the dealer's place."""
        others = (PartyId(rank) for rank in range(1, self.clients + 1))
        return b"".join(
            bytes(ELEMENT_BYTES) if other == self.dealer else self._piece(round_, len(KINDS), other) for other in others
        )

    def check(self, round_: int, kind: int) -> bytes:
        """Return the check of a round's secret of one kind, 32 bytes."""
        return self._at(round_, (len(KINDS) + 1) * (self.clients - 1) + kind)

    def to_bytes(self) -> bytes:
        """Return what travels, (128 (M - 1) + 96) R bytes."""
        return self.content

    @classmethod
    def from_bytes(cls, numbers: Numbers, rounds: int, dealer: PartyId, content: bytes) -> Self:
        """Decode what came from a dealer.

        Raises
        ------
        ValueError
            The length is another one, or a word is not below p: the dealer is at fault.
        """
        expected = cls.size(numbers, rounds)
        if len(content) != expected:
            raise ValueError(f"expected {expected} bytes of words, got {len(content)}")
        words = cls(dealer, numbers.clients, rounds, content)
        for round_ in range(rounds):
            for place in range(len(KINDS) * (numbers.clients - 1)):
                shamir.from_bytes(words._at(round_, place))
        return words

    @staticmethod
    def size(numbers: Numbers, rounds: int) -> int:
        """Return the bytes of one dealer's words, tables and checks."""
        return _pieces(numbers.clients) * ELEMENT_BYTES * rounds

    def digest(self) -> bytes:
        """Return what the dealer signs, 32 bytes."""
        return hashlib.sha256(domains.THRESHOLD_WORDS + struct.pack("<I", self.dealer.rank) + self.content).digest()

    def _piece(self, round_: int, row: int, other: PartyId) -> bytes:
        """Return the 32 bytes in one row for another client."""
        return self._at(round_, row * (self.clients - 1) + other.rank - 1 - (other > self.dealer))

    def _at(self, round_: int, place: int) -> bytes:
        """Return the 32 bytes at a place of a round."""
        start = (_pieces(self.clients) * round_ + place) * ELEMENT_BYTES
        return self.content[start : start + ELEMENT_BYTES]


def _pieces(clients: int) -> int:
    """Count the pieces of 32 bytes of one round: words, table, checks."""
    return (len(KINDS) + 1) * (clients - 1) + len(KINDS)
