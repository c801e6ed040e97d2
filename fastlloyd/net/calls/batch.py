"""The bytes of one call: some frames, and which call of the sender's this is.

::

    version u8 | number u64 | frames: length u32, bytes      little endian

The number lets a call be made again whose answer was lost: it is taken once, and in order.

Source: docs/nvflare.md, "On the wire".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

VERSION = 1
BATCH_BYTES = 1 << 20
"""No further frame is put into a call that has so many bytes."""
MOST_FRAMES = 1 << 12
_HEAD = struct.Struct("<BQ")
_LENGTH = struct.Struct("<I")


def encode(number: int, frames: Iterable[bytes]) -> bytes:
    """Write a call."""
    parts = [_HEAD.pack(VERSION, number)]
    for frame in frames:
        parts += [_LENGTH.pack(len(frame)), frame]
    return b"".join(parts)


def decode(content: object) -> tuple[int, list[bytes]]:
    """Read a call; gives its number and its frames.

    Raises
    ------
    ValueError
        These are no bytes, of another version, cut, or of too many frames.
    """
    if not isinstance(content, bytes):
        raise ValueError(f"expected bytes, got {type(content).__name__}")
    if len(content) < _HEAD.size:
        raise ValueError(f"expected at least {_HEAD.size} bytes, got {len(content)}")
    version, number = _HEAD.unpack_from(content)
    if version != VERSION:
        raise ValueError(
            f"expected version {VERSION} of a call, got {version}: install the same fastlloyd at all sites"
        )
    frames: list[bytes] = []
    place = _HEAD.size
    while place < len(content):
        if place + _LENGTH.size > len(content) or len(frames) == MOST_FRAMES:
            raise ValueError(f"expected whole frames, at most {MOST_FRAMES}")
        (length,) = _LENGTH.unpack_from(content, place)
        place += _LENGTH.size
        if length > len(content) - place:
            raise ValueError(f"a frame of {length} bytes was announced, and {len(content) - place} came")
        frames.append(content[place : place + length])
        place += length
    return number, frames
