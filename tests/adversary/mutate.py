"""Changes to the bytes of a message, each by name: the header, the length, JSON fields, ring elements, the order.

An act gets the liar's `Moment` and gives the frames that go out in place of the honest one. What it draws comes from
the lie's own seed, so that a case can be told again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_HEADER = struct.Struct("<BBHI")
HEADER_BYTES = _HEADER.size
PAST, FINAL = 0xFFFF_FFFF, 0xFFFF_FFFE
# Written as JSON: numbers that are none, of the wrong type, out of every range; text that a screen obeys; depth.
LEAVES: tuple[str, ...] = (
    *("NaN", "Infinity", "-Infinity", "-1", "0", "1", "2", "3.0", "0.5", "1e308", "-0.0", str(2**31), str(2**63)),
    *(str(2**53), str(10**30)),
    *(str(2**64), "1" + "0" * 400, "1e999", "true", "false", "null", '""', '"x"', '"\\u001b[2J\\u001b[31mX"'),
    *('"=1+1"', '"\\ud800"', "[]", "{}", "[[]]", "[null]", '{"a":1}', "[" * 500 + "]" * 500, '"' + "y" * 70000 + '"'),
)
EDGES = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


@dataclass
class Moment:
    """The moment of a lie.

    Attributes
    ----------
    frame : bytes
        The honest frame: a header and a body.
    head : int
        The header's length.
    value : Any
        What the lie says besides.
    draw : Random
    earlier : list of bytes
        Frames that this party has sent to the same receiver before.
    heard : dict from (sender, type, round) to bytes
        Bodies that came from others.
    raw : callable
        Hands a frame to the transport below the encryption.
    """

    frame: bytes
    head: int
    value: Any
    draw: random.Random
    earlier: list[bytes]
    raw: Callable[[bytes], None]
    heard: dict[tuple[int, int, int], bytes]
    held: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return self.frame[self.head :]

    def with_body(self, body: bytes) -> list[bytes]:
        return [self.frame[: self.head] + body]

    def with_header(self, **changes: int) -> list[bytes]:
        kind, version, step, round_ = _HEADER.unpack_from(self.frame)
        parts = {"kind": kind, "version": version, "step": step, "round": round_} | changes
        return [_HEADER.pack(*parts.values()) + self.body]

    @property
    def round(self) -> int:
        return _HEADER.unpack_from(self.frame)[3]


Act = Callable[[Moment], list[bytes]]


def is_document(body: bytes) -> bool:
    """Whether a body is a JSON document."""
    return body[:1] == b"{" and body[-1:] == b"}"


# -- the header ---------------------------------------------------------------------------------------------------


def _version(m: Moment) -> list[bytes]:
    return m.with_header(version=m.draw.choice([0, m.frame[1] + 1, 255]))


def _type(m: Moment) -> list[bytes]:
    return m.with_header(kind=m.draw.choice([n for n in (0, 8, 9, 10, 11, 12, 13, 32, 33, 255) if n != m.frame[0]]))


def _attempt(m: Moment) -> list[bytes]:
    return m.with_header(step=m.draw.choice([1, 7, 0xFFFF]))


def _round_next(m: Moment) -> list[bytes]:
    return m.with_header(round=0 if m.round in (PAST, FINAL) else m.round + 1)


def _round_past(m: Moment) -> list[bytes]:
    return m.with_header(round=FINAL if m.round == PAST else PAST)


def _round_final(m: Moment) -> list[bytes]:
    return m.with_header(round=PAST if m.round == FINAL else FINAL)


def _round_far(m: Moment) -> list[bytes]:
    return m.with_header(round=m.draw.choice([2**31, 1000, 10**9]))


# -- the length ---------------------------------------------------------------------------------------------------


def _resized(change: Callable[[bytes, random.Random], bytes]) -> Act:
    return lambda m: m.with_body(change(m.body, m.draw))


# -- the bytes ----------------------------------------------------------------------------------------------------


def _flip(body: bytes, draw: random.Random) -> bytes:
    changed = bytearray(body)
    if changed:
        changed[draw.randrange(len(changed))] ^= draw.randrange(1, 256)
    return bytes(changed)


def _edge(body: bytes, draw: random.Random) -> bytes:
    """Write an edge number where an integer of 1, 2, 4 or 8 bytes may stand."""
    size = draw.choice([size for size in (1, 2, 4, 8) if size <= max(1, len(body))])
    if not body:
        return body
    place = draw.randrange(len(body) - size + 1)
    number = draw.choice(EDGES) % (1 << 8 * size)
    return body[:place] + number.to_bytes(size, "little") + body[place + size :]


def _front(body: bytes, draw: random.Random) -> bytes:
    """Write an edge number at the very front, where counts, lengths and bitmaps stand."""
    size = min(len(body), draw.choice([1, 2, 4, 8]))
    number = draw.choice(EDGES) % (1 << 8 * size)
    return number.to_bytes(size, "little") + body[size:]


def _inner(body: bytes, draw: random.Random) -> bytes:
    """Write an edge number into the first bytes of one of the byte strings that a body lists, lengths before each."""
    starts, place = [], 0
    while place + 4 <= len(body):
        starts.append(place + 4)
        place += 4 + int.from_bytes(body[place : place + 4], "little")
    if place != len(body) or not starts:
        return _edge(body, draw)
    start = draw.choice(starts)
    end = min(len(body), start + 160)
    if end <= start:
        return _edge(body, draw)
    return body[:start] + _edge(body[start:end], draw) + body[end:]


def _splice(body: bytes, draw: random.Random) -> bytes:
    """Move a piece from one place to another."""
    if len(body) < 4:
        return _flip(body, draw)
    size = draw.randrange(1, max(2, len(body) // 2))
    source, target = draw.randrange(len(body) - size + 1), draw.randrange(len(body) - size + 1)
    return body[:target] + body[source : source + size] + body[target + size :]


# -- documents ----------------------------------------------------------------------------------------------------


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List where all values of a document stand, the inner ones too."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, each in inner for path in [(*here, key), *paths(each, (*here, key))]]


class Raw:
    """A piece of JSON, as text."""

    def __init__(self, text: str) -> None:
        self.text = text


def write(value: Any) -> str:
    """Write JSON, `Raw` pieces as they are."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{write(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    return json.dumps(value)


def put(document: Any, path: tuple[Any, ...], value: Any) -> None:
    """Set the value at a path."""
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


def _document(change: Callable[[Any, random.Random, Any], str | None]) -> Act:
    """An act on JSON; on other bodies it flips a byte."""

    def act(m: Moment) -> list[bytes]:
        if not is_document(m.body):
            return m.with_body(_flip(m.body, m.draw))
        document = json.loads(m.body)
        text = change(document, m.draw, m.value)
        return m.with_body((write(document) if text is None else text).encode("utf-8", "surrogatepass"))

    return act


def _leaf(document: Any, draw: random.Random, value: Any) -> None:
    """Put something else where a value stands: `value` is (path, JSON text), both drawn if None."""
    path, text = value or (None, None)
    places = paths(document)
    if places or path:
        put(document, tuple(path) if path else draw.choice(places), Raw(text or draw.choice(LEAVES)))
    else:
        document["x"] = Raw(text or draw.choice(LEAVES))


def _drop(document: Any, draw: random.Random, _: Any) -> None:
    places = paths(document)
    if not places:
        document["x"] = 1
        return
    path = draw.choice(places)
    for key in path[:-1]:
        document = document[key]
    del document[path[-1]]


def _extra(document: Any, draw: random.Random, _: Any) -> None:
    inner = [path for path in paths(document) if isinstance(_at(document, path), dict)]
    target = _at(document, draw.choice([(), *inner]))
    target[draw.choice(["", "x", "k", "plan", "__class__", "y" * 5000])] = 1


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _replace(document: Any, _: random.Random, value: Any) -> str:
    """Another document: `value` is the JSON text."""
    return str(value)


def _odd(document: Any, draw: random.Random, _: Any) -> str:
    """Text that is no such document."""
    text = write(document)
    return draw.choice(
        [
            *(text[:-1], text + "}", "[" + text + "]", "null", "1", '""', "", text * 2, "\ufeff" + text),
            *(text.replace("{", '{"x":1,"x":2,', 1), "[" * 100000, text.replace(":", " : ", 1) + "\0", text[1:]),
            *("{" + '"a":{' * 3000 + "}" * 3000 + "}", text.replace('"', "'"), text[:-1] + ',"x":' + "9" * 5000 + "}"),
        ]
    )


# -- order and time -----------------------------------------------------------------------------------------------


def _twice(m: Moment) -> list[bytes]:
    return [m.frame, m.frame]


def _early(m: Moment) -> list[bytes]:
    """The next round's message first, then this one."""
    return [*_round_next(m), m.frame]


def _swap(m: Moment) -> list[bytes]:
    """Behind the next message to the same receiver."""
    m.held.append(m.frame)
    return []


def _late(m: Moment) -> list[bytes]:
    time.sleep(float(m.value or 1.0))
    return [m.frame]


def _silent(m: Moment) -> list[bytes]:
    return []


def _replay(m: Moment) -> list[bytes]:
    """An earlier message to the same receiver, or nothing known: this one twice."""
    return [m.draw.choice(m.earlier) if m.earlier else m.frame, m.frame]


def _instead(m: Moment) -> list[bytes]:
    """An earlier message's body under this header."""
    return m.with_body(m.draw.choice(m.earlier)[m.head :] if m.earlier else b"")


def _recorded(m: Moment) -> list[bytes]:
    """The body that another run had here: `value` is hexadecimal."""
    return m.with_body(bytes.fromhex(m.value))


def _many(m: Moment) -> list[bytes]:
    """More messages ahead of time than anybody keeps."""
    return [m.frame, *m.with_header(round=1000) * int(m.value or 5000)]


def _swollen(m: Moment) -> list[bytes]:
    """A body of so many MiB."""
    return m.with_body(m.body + bytes(int(m.value or 1) << 20))


def _exit(m: Moment) -> list[bytes]:
    os._exit(int(m.value or 0))


def _die(m: Moment) -> list[bytes]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


# -- with what others said -----------------------------------------------------------------------------------------


def _without(m: Moment) -> list[bytes]:
    """The round's reply without client `value`: its bit cleared, its masked update subtracted."""
    from fastlloyd.lifecycle.masked_sums import MaskedUpdate

    update = np.frombuffer(m.heard[m.value, MaskedUpdate.TYPE, m.round], dtype="<u4")
    included = m.body[0] & ~(1 << (m.value - 1))
    rest = np.frombuffer(m.body[1:], dtype="<u4") - update
    return m.with_body(bytes([included]) + rest.astype("<u4").tobytes())


# -- below the encryption -----------------------------------------------------------------------------------------


def _inject(m: Moment) -> list[bytes]:
    """A frame of its own before the message: `value` is hexadecimal."""
    m.raw(bytes.fromhex(m.value))
    return [m.frame]


def _garbage_record(m: Moment) -> list[bytes]:
    m.raw(b"\x02" + m.draw.randbytes(m.draw.choice([0, 1, 5, 40, 3000])))
    return []


def _put(m: Moment) -> list[bytes]:
    """Write bytes at a place: `value` is (place, hexadecimal)."""
    place, number = m.value
    return m.with_body(m.body[:place] + bytes.fromhex(number) + m.body[place + len(number) // 2 :])


def _fixed(body_hex: Any) -> bytes:
    return bytes.fromhex(body_hex)


ACTS: dict[str, Act] = {
    "version": _version,
    "type": _type,
    "attempt": _attempt,
    "round next": _round_next,
    "round past": _round_past,
    "round final": _round_final,
    "round far": _round_far,
    "empty": lambda m: [b""],
    "stub": lambda m: [m.frame[:3]],
    "bare": lambda m: m.with_body(b""),
    "cut": _resized(lambda body, _: body[:-1]),
    "half": _resized(lambda body, _: body[: len(body) // 2]),
    "longer": _resized(lambda body, draw: body + draw.randbytes(1)),
    "doubled": _resized(lambda body, _: body * 2),
    "swollen": _swollen,
    "flip": _resized(_flip),
    "edge": _resized(_edge),
    "front": _resized(_front),
    "inner": _resized(_inner),
    "splice": _resized(_splice),
    "random": _resized(lambda body, draw: draw.randbytes(len(body))),
    "ones": _resized(lambda body, _: b"\xff" * len(body)),
    "zeros": _resized(lambda body, _: bytes(len(body))),
    "body": lambda m: m.with_body(_fixed(m.value)),
    "frame": lambda m: [_fixed(m.value)],
    "put": _put,
    "leaf": _document(_leaf),
    "drop": _document(_drop),
    "extra": _document(_extra),
    "replace": _document(_replace),
    "odd": _document(_odd),
    "twice": _twice,
    "early": _early,
    "swap": _swap,
    "late": _late,
    "silent": _silent,
    "replay": _replay,
    "instead": _instead,
    "recorded": _recorded,
    "many": _many,
    "exit": _exit,
    "die": _die,
    "without": _without,
    "inject": _inject,
    "garbage record": _garbage_record,
}
