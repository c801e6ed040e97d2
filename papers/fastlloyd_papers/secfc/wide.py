"""Signed integers wider than 64 bits, many at a time: limbs of 30 bits in int64 arrays.

Enough for exact comparisons such as a w < b v of sums of records, without floating point and without one
Python integer for each.

Source: docs/protocol.md, "Arithmetic".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import RangeError

LIMB_BITS = 30
MAX_FACTOR = (1 << 2 * LIMB_BITS) - 1
"""Largest factor of `Wide.times`."""

_MASK = np.int64((1 << LIMB_BITS) - 1)
_SHIFT = np.int64(LIMB_BITS)


@dataclass(frozen=True, slots=True, eq=False)
class Wide:
    """An array of integers, each the sum of limb_i 2^(30 i).

    Attributes
    ----------
    limbs : int64 array, shape (limbs, *S)
        All but the last are in 0..2^30 - 1, the last is signed and below 2^30 in size.
    """

    limbs: NDArray[np.int64]

    @classmethod
    def of(cls, integers: NDArray[np.int64] | np.int64) -> Self:
        """Take int64 integers of shape S."""
        return cls(_carry([np.asarray(integers, dtype=np.int64)]))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of integers."""
        return self.limbs.shape[1:]

    def __getitem__(self, key: Any) -> Self:
        """Index the integers as numpy would."""
        return type(self)(self.limbs[(slice(None), *(key if isinstance(key, tuple) else (key,)))])

    def times(self, factors: NDArray[np.int64] | int) -> Self:
        """Multiply by integers in 0..2^60 - 1, which broadcast.

        Raises
        ------
        RangeError
            A factor lies outside.
        """
        array = np.asarray(factors, dtype=np.int64)
        if array.size and (int(array.min()) < 0 or int(array.max()) > MAX_FACTOR):
            raise RangeError(f"expected factors in 0..{MAX_FACTOR}; use fewer records or fraction bits")
        low, high = array & _MASK, array >> _SHIFT
        shape = np.broadcast_shapes(self.shape, array.shape)
        columns = [np.zeros(shape, dtype=np.int64) for _ in range(len(self.limbs) + 1)]
        for i, limb in enumerate(self.limbs):
            columns[i] += limb * low
            if high.any():
                columns[i + 1] += limb * high
        return type(self)(_carry(columns))

    def plus(self, other: Self | NDArray[np.int64]) -> Self:
        """Add integers, wide or int64, which broadcast."""
        addend = other if isinstance(other, Wide) else Wide.of(other)
        left, right = _align(self.limbs, addend.limbs)
        return type(self)(_carry([a + b for a, b in zip(left, right, strict=True)]))

    def less(self, other: Self) -> NDArray[np.bool_]:
        """Return where these are less than the others; shapes broadcast."""
        left, right = _align(self.limbs, other.limbs)
        result = left[0] < right[0]
        for a, b in zip(left[1:], right[1:], strict=True):
            result = (a < b) | ((a == b) & result)
        return np.asarray(result)

    def replace(self, where: NDArray[np.bool_], other: Self) -> Self:
        """Return the other integers where the mask is set, these elsewhere."""
        left, right = _align(self.limbs, other.limbs)
        return type(self)(np.stack([np.where(where, b, a) for a, b in zip(left, right, strict=True)]))

    def integers(self) -> NDArray[Any]:
        """Return the integers as Python integers, in an object array."""
        total = np.zeros(self.shape, dtype=object)
        for limb in self.limbs[::-1]:
            total = total * (1 << LIMB_BITS) + limb.astype(object)
        return np.asarray(total, dtype=object)


def _carry(columns: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Turn columns of any int64 values into limbs; add limbs until the last is small."""
    limbs: list[NDArray[np.int64]] = []
    carry = np.zeros_like(columns[0])
    for column in columns[:-1]:
        value = column + carry
        limbs.append(value & _MASK)
        carry = value >> _SHIFT
    last = columns[-1] + carry
    while last.size and max(-int(last.min()), int(last.max())) > int(_MASK):
        limbs.append(last & _MASK)
        last = last >> _SHIFT
    return np.stack([*limbs, last])


def _align(left: NDArray[np.int64], right: NDArray[np.int64]) -> tuple[list[Any], list[Any]]:
    """Return both the same number of limbs, by extending the sign."""
    count = max(len(left), len(right))
    return _extend(left, count), _extend(right, count)


def _extend(limbs: NDArray[np.int64], count: int) -> list[Any]:
    """Return a list of `count` limbs of the same integers."""
    result = list(limbs)
    while len(result) < count:
        last = result.pop()
        result += [last & _MASK, last >> _SHIFT]
    return result
