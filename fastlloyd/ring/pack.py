"""Small unsigned integers in 1 to 3 bytes each, little endian.

Source: docs/protocol.md, "Arithmetic".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_DTYPES: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("<u2")}


def pack(values: NDArray[np.uint32], width: int) -> bytes:
    """Write integers below 2^(8 width), width 1, 2 or 3."""
    if width in _DTYPES:
        return values.astype(_DTYPES[width]).tobytes()
    padded = np.zeros(-(-values.size // 4) * 4, dtype=np.uint32)
    padded[: values.size] = values
    a, b, c, d = padded.reshape(-1, 4).T
    words = np.empty((a.size, 3), dtype="<u4")
    words[:, 0] = a | b << np.uint32(24)
    words[:, 1] = b >> np.uint32(8) | c << np.uint32(16)
    words[:, 2] = c >> np.uint32(16) | d << np.uint32(8)
    return words.tobytes()[: 3 * values.size]


def unpack(data: bytes | memoryview, width: int, count: int) -> NDArray[np.uint32]:
    """Read `count` integers of 1, 2 or 3 bytes from exactly width * count bytes."""
    if width in _DTYPES:
        return np.frombuffer(data, dtype=_DTYPES[width], count=count).astype(np.uint32)
    groups, rest = divmod(count, 4)
    if rest:
        data = bytes(data) + bytes(12 - 3 * rest)
        groups += 1
    x, y, z = np.frombuffer(data, dtype="<u4", count=3 * groups).reshape(-1, 3).T
    mask = np.uint32(0xFFFFFF)
    values = np.empty((groups, 4), dtype=np.uint32)
    values[:, 0] = x & mask
    values[:, 1] = (x >> np.uint32(24) | y << np.uint32(8)) & mask
    values[:, 2] = (y >> np.uint32(16) | z << np.uint32(16)) & mask
    values[:, 3] = z >> np.uint32(8)
    return values.reshape(-1)[:count]
