"""Key derivation and the one stream cipher that all expansions use.

Randomness that must be the same at all parties comes from here, not from numpy's generators, whose streams may change
between versions. Each use has its own purpose.

Source: RFC 5869 (HKDF), RFC 2104 (HMAC), RFC 8439 (ChaCha20).
"""

from __future__ import annotations

import hashlib
import math
import struct

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from fastlloyd.randomness import domains

KEY_BYTES = 32
NONCE_BYTES = 12
BLOCK_BYTES = 64
"""Of ChaCha20's key stream."""
_COUNTER_BYTES = 4
_HASHED_BYTES = 64
"""Of SHA-256's blocks."""
_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))


def derive(secret: bytes, purpose: bytes, context: bytes = b"", salt: bytes = b"") -> bytes:
    """Derive a 32-byte key for one purpose and context by HKDF-SHA256."""
    return Derivation(secret, salt).derive(purpose, context)


class Derivation:
    """`derive` of one secret for many purposes: the first step of HKDF, which is the same for all, is done once.

    Threshold masks derive very many keys. HMAC of short strings is faster by `hashlib` than by `hmac` or the package
    cryptography, which set up a context for each.

    Parameters
    ----------
    secret : bytes
    salt : bytes, optional
    """

    __slots__ = ("_key",)

    def __init__(self, secret: bytes, salt: bytes = b"") -> None:
        self._key = _Hmac((_Hmac(salt) if salt else _NO_SALT).digest(secret))

    def derive(self, purpose: bytes, context: bytes = b"") -> bytes:
        """Return the 32-byte key for one purpose and context."""
        return self._key.digest(struct.pack("<I", len(purpose)) + purpose + context + b"\1")


class _Hmac:
    """HMAC-SHA256 under one key."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = (hashlib.sha256(key).digest() if len(key) > _HASHED_BYTES else key).ljust(_HASHED_BYTES, b"\0")
        self._inner, self._outer = block.translate(_INNER), block.translate(_OUTER)

    def digest(self, content: bytes) -> bytes:
        """Return the 32-byte tag."""
        return hashlib.sha256(self._outer + hashlib.sha256(self._inner + content).digest()).digest()


_NO_SALT = _Hmac(b"")


class KeyStream:
    """ChaCha20 under one key, from any nonce and block.

    One context serves all nonces: making one costs many times as much as a short stream.

    Parameters
    ----------
    key : bytes of length 32
    """

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(ChaCha20(key, bytes(_COUNTER_BYTES + NONCE_BYTES)), mode=None).encryptor()

    def read(self, nonce: bytes, length: int, *, block: int = 0) -> bytes:
        """Return `length` bytes of the key stream.

        Parameters
        ----------
        nonce : bytes of length 12
            Never reused with the same key for another purpose.
        length : int
        block : int
            Where to begin, in blocks of 64 bytes.

        Raises
        ------
        ValueError
            The end lies beyond the cipher's 32-bit counter of blocks.
        """
        if block + -(-length // BLOCK_BYTES) > 1 << 32:
            raise ValueError(f"expected at most 2^32 blocks of key stream, got block {block} and {length} bytes")
        self._cipher.reset_nonce(block.to_bytes(_COUNTER_BYTES, "little") + nonce)
        return self._cipher.update(bytes(length))


def keystream(key: bytes, nonce: bytes, length: int) -> bytes:
    """Return the first `length` bytes of a key stream; for a key that is used once."""
    return KeyStream(key).read(nonce, length)


class PublicStream:
    """Reproducible public randomness from the run's public seed, the same on every machine.

    Parameters
    ----------
    seed : int
        The public `--seed`.
    purpose : str
        Separates the streams of different uses.
    """

    def __init__(self, seed: int, purpose: str) -> None:
        key = hashlib.sha256(domains.PUBLIC + purpose.encode() + b"\0" + str(int(seed)).encode()).digest()
        self._encryptor = Cipher(ChaCha20(key, bytes(_COUNTER_BYTES + NONCE_BYTES)), mode=None).encryptor()
        self._drawn = 0

    def skip(self, count: int) -> None:
        """Leave out 32-bit numbers: the next are those that would follow them.

        Beyond 2^32 blocks the counter goes on in the bytes of the nonce, which is 0, as in the first ChaCha20.
        """
        self._drawn += count
        blocks, rest = divmod(4 * self._drawn, BLOCK_BYTES)
        self._encryptor.reset_nonce(blocks.to_bytes(_COUNTER_BYTES + NONCE_BYTES, "little"))
        self._encryptor.update(bytes(rest))

    def uint32(self, count: int) -> NDArray[np.uint64]:
        """Draw 32-bit numbers, held in uint64."""
        self._drawn += count
        return np.frombuffer(self._encryptor.update(bytes(4 * count)), dtype="<u4").astype(np.uint64)

    def integers(self, low: int, high: int, count: int) -> NDArray[np.int64]:
        """Draw integers in [low, high], with a bias below 2^-32 * (high - low)."""
        spread = np.uint64(high - low + 1)
        return ((self.uint32(count) * spread) >> np.uint64(32)).astype(np.int64) + low

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Draw numbers between 0 and 1, neither of them included."""
        return (self.uint32(count).astype(np.float64) + 0.5) * 2.0**-32

    def normal(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Draw standard normal numbers (Box and Muller, 1958)."""
        length, angle = np.split(self.uniform(2 * math.prod(shape)), 2)
        return (np.sqrt(-2.0 * np.log(length)) * np.cos(2.0 * math.pi * angle)).reshape(shape)
