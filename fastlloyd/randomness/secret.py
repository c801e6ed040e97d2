"""Secret randomness: noise, masks and keys come only from the operating system.

Public randomness (initial centroids, splits, generators) is another type, `numpy.random.Generator` or
the cipher stream of the public seed; no function takes either in place of the other.
"""

from __future__ import annotations

import os
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import NDArray

_Bytes = bytes
_KEY_BYTES = 32
_NONCE = b"\x00" * 16
# ChaCha20 counts blocks of 64 bytes; 2^24 blocks are far from the wrap of any counter it may have.
_BYTES_PER_KEY = 1 << 30


class SecretRandom:
    """A stream of secret random bits: ChaCha20 under fresh 32-byte keys of the operating system.

    It takes no seed, and cannot be copied or stored. A forked process gets its own key at its first draw.

    Sees
    ----
    Nobody but the caller.
    """

    __slots__ = ("_left", "_process", "_stream")

    def __init__(self) -> None:
        self._rekey()

    def __repr__(self) -> str:
        return "SecretRandom()"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("SecretRandom cannot be copied or stored: two copies would repeat each other's bits")

    def bytes(self, count: int) -> _Bytes:
        """Draw bytes.

        Parameters
        ----------
        count : int
            Not negative.
        """
        if count < 0:
            raise ValueError(f"expected a number of bytes, got {count}")
        if self._process != os.getpid():
            self._rekey()
        if count <= self._left:
            self._left -= count
            return self._stream.update(_Bytes(count))
        parts = []
        while count:
            if self._left == 0:
                self._rekey()
            size = min(count, self._left)
            parts.append(self._stream.update(_Bytes(size)))
            self._left -= size
            count -= size
        return b"".join(parts)

    def uint64(self, count: int) -> NDArray[np.uint64]:
        """Draw integers, uniform on 0..2^64 - 1.

        Returns
        -------
        uint64 array, shape (count,)
        """
        return np.frombuffer(self.bytes(8 * count), dtype="<u8").astype(np.uint64, copy=False)

    def further(self) -> int:
        """Draw 64 bits more, for a decision that the bits before have not made."""
        return int(self.uint64(1)[0])

    def _rekey(self) -> None:
        """Start a new stream under a fresh key."""
        self._stream = _stream(os.urandom(_KEY_BYTES))
        self._left = _BYTES_PER_KEY
        self._process = os.getpid()


class KeyedRandom(SecretRandom):
    """A stream of secret random bits that is the same each time it is made, from keys that are used for nothing else.

    Parameters
    ----------
    key, further_key : bytes of length 32
        Of the stream, and of the bits that few decisions need. Samplers decide by float64 with a bound on its error,
        and draw on where that does not decide. How often depends on the machine's mathematical library; from another
        stream these bits move none of those that follow.

    Notes
    -----
    Sees: nobody but the caller. Noise from it may be drawn again for the same vector only, and under the same mask.
    """

    __slots__ = ("_further", "_further_key")

    def __init__(self, key: _Bytes, further_key: _Bytes) -> None:
        self._stream = _stream(key)
        self._further_key = further_key
        self._further: CipherContext | None = None  # made when it is needed, which is rarely

    def __repr__(self) -> str:
        return "KeyedRandom()"

    def bytes(self, count: int) -> _Bytes:
        """Draw bytes."""
        return self._stream.update(_Bytes(count))

    def further(self) -> int:
        """Draw 64 bits from the second stream."""
        if self._further is None:
            self._further = _stream(self._further_key)
        return int.from_bytes(self._further.update(_Bytes(8)), "little")


def _stream(key: _Bytes) -> CipherContext:
    """Return the stream of a key, from its beginning."""
    return Cipher(algorithms.ChaCha20(key, _NONCE), mode=None).encryptor()
