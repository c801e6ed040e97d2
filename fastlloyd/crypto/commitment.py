"""Commitments to the digest of a result, which parties sign although others who see the signature lack the result.

A signature under a plain digest lets its readers test guesses: a server that keeps its own noise can compute the result
for guessed records and check whether the signature fits. A commitment reveals nothing to it.

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
        Unknown to those who must not test guesses of the digest; they see whether two digests under one opening are
        equal.

    Returns
    -------
    bytes of length 32
        HKDF-SHA256 keyed with the opening: pseudorandom without the opening, if that is random; opening it to another
        digest needs a collision of SHA-256.
    """
    return derive(opening, domains.RESULT_COMMITMENT, digest)


def derive_opening(secret: bytes, run_id: bytes, party: PartyId) -> bytes:
    """Return the opening of a party's commitment in a run, from a secret of all that have the result; 32 bytes."""
    return derive(secret, domains.RESULT_OPENING, run_id + struct.pack("<I", party.rank))
