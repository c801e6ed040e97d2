"""Reads texts out of a serialised `tf.train.Example`, strictly and without TensorFlow.

::

    Example   1: Features          Feature     1: BytesList (2: floats, 3: integers)
    Features  1: entry, repeated   BytesList   1: bytes, repeated
    entry     1: name, 2: Feature

Source: tensorflow/core/example/example.proto and feature.proto; the encoding of protocol buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_VARINT, _LENGTH = 0, 2
_FIXED = {1: 8, 5: 4}
_MOST_VARINT = 10


def read_example(data: bytes, names: Sequence[str]) -> dict[str, str]:
    """Return the texts of some features.

    Raises
    ------
    ValueError
        It is no such message, a feature is missing, or is not exactly one text in UTF-8.
    """
    found: dict[str, str] = {}
    for features in _parts(data, 1):
        for entry in _parts(features, 1):
            name = b"".join(_parts(entry, 1)).decode()
            if name not in names:
                continue
            values = [value for part in _parts(entry, 2) for held in _parts(part, 1) for value in _parts(held, 1)]
            if len(values) != 1 or name in found:
                raise ValueError(f"expected one text as {name}, got {len(values) if name not in found else 'two'}")
            found[name] = values[0].decode()
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"no {', '.join(missing)}")
    return found


def _parts(data: bytes, wanted: int) -> Iterator[bytes]:
    """Walk through a message and give the contents of one field, which holds bytes."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _, place = _varint(data, place)
        elif kind == _LENGTH:
            length, place = _varint(data, place)
            if number == wanted:
                if place + length > len(data):
                    raise ValueError("it breaks off")
                yield data[place : place + length]
            place += length
        elif kind in _FIXED:
            place += _FIXED[kind]
        else:
            raise ValueError(f"a field of unknown kind {kind}")
        if number == 0 or place > len(data):
            raise ValueError("it breaks off")
        if number == wanted and kind != _LENGTH:
            raise ValueError(f"field {number} is of another kind")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Read a number; it, and where it ends."""
    value = 0
    for i, byte in enumerate(data[place : place + _MOST_VARINT]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, place + i + 1
    raise ValueError("it breaks off")
