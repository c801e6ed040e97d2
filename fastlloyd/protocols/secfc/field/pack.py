"""Field elements as bytes, and from random bytes.

On the wire they are rows of unsigned integers of 1 to 3 bytes each, little endian, one row after the other. Random
elements are exactly uniform by rejection: for each prime in turn, words of 4 bytes (little endian) are cut to the
prime's bits, and those not below the prime are skipped. The same stream gives the same elements on every machine.

Source: docs/secfc.md, "The arithmetic, byte by byte".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.field.residue import Elements
from fastlloyd.randomness.prg import KeyStream

Rows = NDArray[np.void]
"""Integers one row after the other; its dtype is a `row_type`."""

_LOW_BITS = 16
_WORD_BYTES = 4


@lru_cache(maxsize=64)
def row_type(widths: tuple[int, ...]) -> np.dtype[np.void]:
    """Return the dtype of one row of integers of these widths, each 1, 2 or 3 bytes."""
    fields = []
    for column, width in enumerate(widths):
        fields.append((_low(column), "u1" if width == 1 else "<u2"))
        if width > 2:
            fields.append((_high(column), "u1"))
    return np.dtype(fields)


def pack(rows: Rows, column: int, values: NDArray[np.uint32]) -> None:
    """Write one column of integers, which fit its width."""
    rows[_low(column)] = values
    if _high(column) in (rows.dtype.names or ()):
        rows[_high(column)] = values >> np.uint32(_LOW_BITS)


def unpack(rows: Rows, column: int) -> NDArray[np.uint32]:
    """Read one column of integers."""
    values: NDArray[np.uint32] = rows[_low(column)].astype(np.uint32)
    if _high(column) in (rows.dtype.names or ()):
        values |= rows[_high(column)].astype(np.uint32) << np.uint32(_LOW_BITS)
    return values


def _low(column: int) -> str:
    """Name the lower two bytes of a column, or its only byte."""
    return f"low {column}"


def _high(column: int) -> str:
    """Name the third byte of a column."""
    return f"high {column}"


class Expansion:
    """The key stream of one key and nonce, read piece by piece.

    Parameters
    ----------
    stream : KeyStream
    nonce : bytes of length 12
    expected : int
        Bytes to expand at first; more follow on demand.
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
    """Return a number of bytes that almost surely suffices for `count` elements."""
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
