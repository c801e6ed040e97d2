"""Strict decoding of what comes from outside: JSON from a peer, a file or a state folder becomes typed values.

Two steps. `load_json` turns bytes into plain values. It refuses whatever could surprise later: other encodings,
repeated keys, NaN, infinities, huge integers, deep nesting. `decode` turns plain values into the declared type, field
by field::

    @dataclass(frozen=True, slots=True)
    class Plan:
        k: Annotated[int, Within(1, 10_000)]
        mode: Literal["scores", "distances"]
        names: tuple[str, ...]
        sigma: Amount
        survey: Survey | None

    plan = decode(Plan, load_json(body), "the plan")

Every failure is a ValueError that says which field, what was expected and what came. The caller knows who sent the
bytes, and blames that party.

Source: docs/protocol.md, "Frames".
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
import types
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from reprlib import Repr
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fastlloyd.errors import FastLloydError

T = TypeVar("T")
MOST_BYTES = 1 << 24
MOST_ITEMS = 1 << 22
"""Most values in one JSON text."""
MOST_LEVELS = 16
MOST_INTEGER = 2**64 - 1
"""Largest absolute value of any integer."""
MOST_CHARACTERS = 1 << 16
"""Longest text, where no length is declared."""

_EXACT_FLOAT = 2**53
# The closing mark is optional: otherwise an open text would be searched again from each later mark, in quadratic time.
_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_MOST_SHOWN_BITS = 2048  # fewer digits than the least limit that `sys.set_int_max_str_digits` takes
_BRACKETS = re.compile(r"[][{}]")


class _Short(Repr):
    """Writes values short; integers that are too long for Python to write are the same words in every Python."""

    def repr_int(self, value: int, level: int) -> str:
        """Write an integer."""
        return "a very long int" if value.bit_length() > _MOST_SHOWN_BITS else super().repr_int(value, level)


_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlevel = 2


@dataclass(frozen=True, slots=True)
class Within:
    """A range with both ends: of a number's value, or of the length of a text, list or mapping."""

    least: float
    most: float


Amount = Annotated[float, Within(0.0, sys.float_info.max)]
"""A finite number from 0."""


def load_json(content: bytes | str, *, most_bytes: int = MOST_BYTES) -> Any:
    """Read one JSON text.

    Parameters
    ----------
    content : bytes or str
        Bytes are UTF-8 without a byte order mark.
    most_bytes : int
        Longest content.

    Returns
    -------
    dict, list, str, int, float, bool or None

    Raises
    ------
    ValueError
        Not JSON, or JSON with a repeated key, NaN, an infinity, an integer beyond `MOST_INTEGER`, a number beyond
        float64, more than `MOST_ITEMS` values or more than `MOST_LEVELS` levels: whoever wrote it is at fault.
    """
    if len(content) > most_bytes:
        raise ValueError(f"expected JSON of at most {most_bytes} bytes, got {len(content)}")
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("expected JSON in UTF-8, got other bytes") from None
    _check_shape(text)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"expected JSON, got another text ({error.msg} at character {error.pos})") from None


def decode(kind: type[T], value: object, name: str) -> T:
    """Turn plain values into a declared type.

    Parameters
    ----------
    kind : type
        A dataclass. Its fields are dataclasses, `int`, `float`, `bool`, `str`, `Literal`, `X | None`, `tuple[X, ...]`,
        `tuple[X, Y]`, `Mapping[str, X]`, `Annotated[X, Within(least, most)]`, or `Any` for what is decoded later.
    value : object
        What `load_json` returned.
    name : str
        What errors call the value; if it is empty, they name its fields alone.

    Raises
    ------
    ValueError
        Names the field, what was expected and what came: whoever wrote it is at fault.

    Notes
    -----
    Types are exact: neither True nor 3.0 is an integer. An integer of at most 2^53 may stand for a float and becomes
    one. Of a dataclass each field must be there, except those with a default, and no other field.
    """
    found: T = _reader(cast(Hashable, kind))(value, name)
    return found


def show(value: object) -> str:
    """Describe a value in an error: short, on one line, without control characters."""
    text = _SHORT.repr(value)
    return text if text.isprintable() else ascii(text)


def _check_shape(text: str) -> None:
    """Refuse too many values or levels before anything is made from the text."""
    bare = _TEXTS.sub("", text)
    values = 1 + sum(map(bare.count, ",[{"))
    if values > MOST_ITEMS:
        raise ValueError(f"expected JSON of at most {MOST_ITEMS} values, got {values}")
    depth = 0
    for bracket in _BRACKETS.findall(bare):
        depth += 1 if bracket in "[{" else -1
        if depth > MOST_LEVELS:
            raise ValueError(f"expected JSON of at most {MOST_LEVELS} levels, got more")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object, and refuse one that names a key twice."""
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("expected each key once, got one twice")
    return content


def _constant(name: str) -> NoReturn:
    """Refuse NaN and infinities, which Python's JSON would read."""
    raise ValueError(f"expected finite numbers, got {name}")


def _integer(digits: str) -> int:
    """Read an integer that is not too large."""
    value = int(digits) if len(digits) <= 21 else MOST_INTEGER + 1
    if abs(value) > MOST_INTEGER:
        raise ValueError(f"expected integers of at most {MOST_INTEGER}, got {show(digits)}")
    return value


def _number(digits: str) -> float:
    """Read a finite number."""
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"expected numbers that float64 can hold, got {show(digits)}")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_number, parse_int=_integer, parse_constant=_constant
)

_Reader = Callable[[object, str], Any]


@cache
def _reader(kind: Any, within: Within | None = None) -> _Reader:
    """Make what reads one declared type; `within` is its declared range."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _reader(inside[0], next((extra for extra in inside[1:] if isinstance(extra, Within)), within))
    if origin is Literal:
        return _choice(inside)
    if origin in (Union, types.UnionType) and len(inside) == 2 and inside[1] is types.NoneType:
        return _optional(_reader(inside[0]))
    if origin is tuple and inside[-1] is Ellipsis:
        return _list(_reader(inside[0]), within or Within(0, MOST_ITEMS))
    if origin is tuple:
        return _row(tuple(_reader(part) for part in inside))
    if origin is Mapping and inside[0] is str:
        return _mapping(_reader(inside[1]), within or Within(0, MOST_ITEMS))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind)
    makers = {int: _whole, float: _real, str: _text}
    if kind in makers:
        return makers[kind](within)
    if kind is bool:
        return _truth
    if kind is Any:
        return lambda value, name: value
    raise TypeError(f"no decoder for {kind!r}")


def _refuse(name: str, expected: str, value: object) -> NoReturn:
    raise ValueError(f"{_place(name)}expected {expected}, got {show(value)}")


def _listed(names: Collection[str]) -> str:
    return f"the fields {', '.join(names)}" if names else "no field"


def _place(name: str) -> str:
    return f"{name}: " if name else ""


def _truth(value: object, name: str) -> bool:
    return value if isinstance(value, bool) else _refuse(name, "true or false", value)


def _whole(within: Within | None) -> _Reader:
    least, most = (-MOST_INTEGER, MOST_INTEGER) if within is None else (within.least, within.most)
    what = "an integer" if within is None else f"an integer from {least} to {most}"

    def read(value: object, name: str) -> int:
        if type(value) is not int or not least <= value <= most:
            _refuse(name, what, value)
        return value

    return read


def _real(within: Within | None) -> _Reader:
    most = sys.float_info.max
    least, most = (-most, most) if within is None else (within.least, within.most)
    what = "a finite number" if within is None else f"a number from {least:g} to {most:g}"

    def read(value: object, name: str) -> float:
        number = float(value) if type(value) is int and abs(value) <= _EXACT_FLOAT else value
        if type(number) is not float or not math.isfinite(number) or not least <= number <= most:
            _refuse(name, what, value)
        return number

    return read


def _text(within: Within | None) -> _Reader:
    least, most = (0, MOST_CHARACTERS) if within is None else (within.least, within.most)

    def read(value: object, name: str) -> str:
        if not isinstance(value, str) or not least <= len(value) <= most:
            _refuse(name, f"a text of {least} to {most} characters", value)
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can write
            _refuse(name, "a text in Unicode", value)
        return value

    return read


def _choice(known: tuple[object, ...]) -> _Reader:
    def read(value: object, name: str) -> object:
        if not any(type(value) is type(one) and value == one for one in known):
            _refuse(name, f"one of {', '.join(map(repr, known))}", value)
        return value

    return read


def _optional(inner: _Reader) -> _Reader:
    return lambda value, name: None if value is None else inner(value, name)


def _list(inner: _Reader, length: Within) -> _Reader:
    def read(value: object, name: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or not length.least <= len(value) <= length.most:
            _refuse(name, f"a list of {length.least} to {length.most} entries", value)
        return tuple(inner(entry, f"{name}[{i}]") for i, entry in enumerate(value))

    return read


def _row(inners: tuple[_Reader, ...]) -> _Reader:
    def read(value: object, name: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != len(inners):
            _refuse(name, f"a list of {len(inners)} entries", value)
        return tuple(inner(entry, f"{name}[{i}]") for i, (inner, entry) in enumerate(zip(inners, value, strict=True)))

    return read


def _mapping(inner: _Reader, length: Within) -> _Reader:
    def read(value: object, name: str) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not length.least <= len(value) <= length.most:
            _refuse(name, f"an object of {length.least} to {length.most} fields", value)
        key = _text(None)
        return {key(word, f"{name}: a key"): inner(entry, f"{name}[{show(word)}]") for word, entry in value.items()}

    return read


def _record(kind: type) -> _Reader:
    hints = get_type_hints(kind, include_extras=True)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    readers = {field.name: _reader(hints[field.name]) for field in fields}
    needed = {
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }

    def read(value: object, name: str) -> Any:
        if not isinstance(value, Mapping):
            _refuse(name, "an object", value)
        missing, unknown = sorted(needed - value.keys()), [key for key in value if key not in readers]
        if missing or unknown:
            lacks = f"without {show(missing)}" if missing else f"with {show(unknown)} in addition"
            raise ValueError(f"{_place(name)}expected {_listed(readers)}, got an object {lacks}")
        content = {key: readers[key](entry, f"{name}.{key}" if name else key) for key, entry in value.items()}
        try:
            return kind(**content)
        except (FastLloydError, ValueError) as error:
            raise ValueError(f"{_place(name)}{error}") from error

    return read
