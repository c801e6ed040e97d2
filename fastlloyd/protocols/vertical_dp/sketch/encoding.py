"""Sketches on the wire: each level takes as many bits as the levels from floor to top need, and no more.

Levels are written as level - alpha_min, highest bit first, row after row, clusters in order; bits that are left over
at the end are 0. The length depends on public parameters only. With the defaults a level takes 16 bits or fewer, where
the paper's code ships 64.

Source: Vertical DP, §4.4 "Communication cost".
"""

from __future__ import annotations

import numpy as np

from fastlloyd.errors import RangeError
from fastlloyd.protocols.vertical_dp.sketch.sketch import Levels, SketchShape


def level_bits(shape: SketchShape) -> int:
    """Return the bits that one level takes."""
    return max(1, (shape.top - shape.floor).bit_length())


def sketch_bytes(shape: SketchShape) -> int:
    """Return the bytes that one party's sketch takes."""
    return -(-shape.rows * shape.clusters * level_bits(shape) // 8)


def pack_sketch(levels: Levels, shape: SketchShape) -> bytes:
    """Write a sketch.

    Parameters
    ----------
    levels : int64 array, shape (M, k')
    shape : SketchShape

    Raises
    ------
    RangeError
        The array's shape or a level does not fit.
    """
    _check(levels, shape)
    places = np.arange(level_bits(shape) - 1, -1, -1, dtype=np.int64)
    bits = (levels.reshape(-1, 1) - shape.floor) >> places & 1
    return np.packbits(bits.astype(np.uint8)).tobytes()


def unpack_sketch(content: bytes, shape: SketchShape) -> Levels:
    """Read what `pack_sketch` wrote.

    Returns
    -------
    int64 array, shape (M, k')

    Raises
    ------
    RangeError
        The length, the bits left over at the end or a level does not fit.
    """
    if len(content) != sketch_bytes(shape):
        raise RangeError(f"expected a sketch of {sketch_bytes(shape)} bytes, got {len(content)}; check gamma and rows")
    width = level_bits(shape)
    used = shape.rows * shape.clusters * width
    bits = np.unpackbits(np.frombuffer(content, dtype=np.uint8))
    if bits[used:].any():
        raise RangeError("expected zeros after the last level of a sketch, got other bits; check the sender's version")
    places = np.arange(width - 1, -1, -1, dtype=np.int64)
    values = (bits[:used].reshape(-1, width).astype(np.int64) << places).sum(axis=1)
    levels: Levels = values.reshape(shape.rows, shape.clusters) + shape.floor
    _check(levels, shape)
    return levels


def _check(levels: Levels, shape: SketchShape) -> None:
    """Check the array's shape and the range of levels."""
    if levels.shape != (shape.rows, shape.clusters):
        raise RangeError(f"expected a sketch of shape {(shape.rows, shape.clusters)}, got {levels.shape}")
    low, high = int(levels.min()), int(levels.max())
    if not shape.floor <= low <= high <= shape.top:
        raise RangeError(f"expected levels from {shape.floor} to {shape.top} in a sketch, got {low} to {high}")
