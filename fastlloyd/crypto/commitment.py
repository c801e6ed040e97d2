"""Commitments to a digest: what a party signs of a result that those who pass the signature on do not have.

A signature under a plain digest lets its readers test guesses: whoever can compute the result for guessed records, as a
server can that keeps its own noise, sees whether the signature fits. Under a commitment it tells them nothing.

Source: docs/protocol.md, "Signed record"; docs/security.md, "What the end of a run reveals".
"""

from __future__ import annotations

import struct

from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES, derive
from fastlloyd.wire.header import PartyId

OPENING_BYTES = KEY_BYTES


def commit(digest: bytes, opening: bytes) -> bytes:
    """Return a commitment to a digest.

    Parameters
    ----------
    digest : bytes of length 32
    opening : bytes of length 32
        Unknown to those who must not test guesses of the digest; of two digests under one opening they see whether
        these are equal.

    Returns
    -------
    bytes of length 32
        HKDF-SHA256 keyed with the opening: pseudorandom to those who do not know a random opening; and nobody opens it
        to another digest without a collision of SHA-256.
    """
    return derive(opening, domains.RESULT_COMMITMENT, digest)


def derive_opening(secret: bytes, run_id: bytes, party: PartyId) -> bytes:
    """Return the opening of one party's commitment in one run, from a secret of all that have the result; 32 bytes."""
    return derive(secret, domains.RESULT_OPENING, run_id + struct.pack("<I", party.rank))
