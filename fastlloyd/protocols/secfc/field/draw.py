"""Field elements from streams of random bytes, exactly uniform by rejection.

For each prime in turn, words of 4 bytes (little endian) are cut to the prime's bits, and those not below the prime
are skipped. The same stream gives the same elements on every machine.

Source: docs/secfc.md, "The arithmetic, byte by byte".
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fastlloyd.protocols.secfc.field.residue import Elements
from fastlloyd.randomness.prg import KeyStream

_WORD_BYTES = 4


class Expansion:
    """The key stream of one key and nonce, read piece by piece.

    Parameters
    ----------
    stream : KeyStream
    nonce : bytes of length 12
    expected : int
        Bytes to make at first; more are made when they are asked for.
    """

    __slots__ = ("_at", "_data", "_nonce", "_stream")

    def __init__(self, stream: KeyStream, nonce: bytes, *, expected: int) -> None:
        self._stream, self._nonce, self._at = stream, nonce, 0
        self._data = memoryview(stream.read(nonce, expected))

    def read(self, count: int) -> memoryview:
        """Return the next bytes."""
        end = self._at + count
        if end > len(self._data):
            self._data = memoryview(self._stream.read(self._nonce, 2 * end))
        piece = self._data[self._at : end]
        self._at = end
        return piece


def expected_bytes(primes: tuple[int, ...], count: int) -> int:
    """Return the bytes that `count` elements all but surely take."""
    skipped = sum(1 - p / (1 << p.bit_length()) for p in primes)
    return _WORD_BYTES * int((len(primes) + 2 * skipped) * count + 64)


def draw(primes: tuple[int, ...], shape: tuple[int, ...], *, read: Callable[[int], bytes | memoryview]) -> Elements:
    """Fill an array of shape (primes, *shape) from a stream of bytes: residues in 0..p - 1, not centred."""
    count = math.prod(shape)
    elements = np.empty((len(primes), count))
    for i, p in enumerate(primes):
        mask, filled = np.uint32((1 << p.bit_length()) - 1), 0
        while filled < count:
            words = np.frombuffer(read(_WORD_BYTES * (count - filled)), dtype="<u4") & mask
            if int(words.max()) >= p:
                words = words[words < p]
            elements[i, filled : filled + words.size] = words
            filled += words.size
    return elements.reshape(len(primes), *shape)
