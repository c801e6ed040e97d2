"""Rows of small unsigned integers, 1 to 3 bytes each, little endian, one row after the other.

Source: docs/secfc.md, "The arithmetic, byte by byte".
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.void]
"""Integers one row after the other; its dtype is a `row_type`."""

_LOW_BITS = 16


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
