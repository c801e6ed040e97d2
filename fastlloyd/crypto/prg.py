"""Key derivation and the one stream cipher that all expansions use.

Everything that the parties must compute alike comes from here, not from numpy's generators, whose
streams may change between versions. Each use has a purpose of its own.

Source: RFC 5869 (HKDF), RFC 8439 (ChaCha20).
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

KEY_BYTES = 32

PURPOSE_SEED = b"fastlloyd common seed"
PURPOSE_CONFIRM = b"fastlloyd confirm"
PURPOSE_MASK = b"fastlloyd mask"
PURPOSE_PAIR = b"fastlloyd pair secret"
PURPOSE_PAIR_CONFIRM = b"fastlloyd pair confirm"
PURPOSE_PAIR_MASK = b"fastlloyd pair mask"
PURPOSE_CENTERS = b"fastlloyd centre digest"


def derive(secret: bytes, purpose: bytes, context: bytes = b"", salt: bytes | None = None) -> bytes:
    """Derive a 32-byte key for one purpose and context by HKDF-SHA256."""
    info = struct.pack("<I", len(purpose)) + purpose + context
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(secret)


def keystream(key: bytes, nonce: bytes, length: int) -> bytes:
    """Give `length` bytes of the ChaCha20 key stream from block 0.

    Parameters
    ----------
    key : bytes of length 32
    nonce : bytes of length 12
        Never reused with the same key for another purpose.
    length : int
    """
    return Cipher(ChaCha20(key, bytes(4) + nonce), mode=None).encryptor().update(bytes(length))


class PublicStream:
    """Reproducible public randomness from the run's public seed, alike on every machine.

    Parameters
    ----------
    seed : int
        The public `--seed`.
    purpose : str
        Keeps the streams of different uses apart.
    """

    def __init__(self, seed: int, purpose: str) -> None:
        key = hashlib.sha256(b"fastlloyd public\0" + purpose.encode() + b"\0" + str(int(seed)).encode()).digest()
        self._encryptor = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

    def uint32(self, count: int) -> NDArray[np.uint64]:
        """Draw 32-bit numbers, held in uint64."""
        return np.frombuffer(self._encryptor.update(bytes(4 * count)), dtype="<u4").astype(np.uint64)

    def integers(self, low: int, high: int, count: int) -> NDArray[np.int64]:
        """Draw integers in [low, high], with a bias below 2^-32 * (high - low)."""
        spread = np.uint64(high - low + 1)
        return ((self.uint32(count) * spread) >> np.uint64(32)).astype(np.int64) + low
