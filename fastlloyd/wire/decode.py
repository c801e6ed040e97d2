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
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from reprlib import Repr
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fastlloyd.errors import ConfigError, FastLloydError

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
    """A range: of a number's value, or of the length of a text, list or mapping.

    Attributes
    ----------
    least, most : float
        Ends that belong to it.
    above, below : float
        Ends that do not.
    """

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def __contains__(self, value: float) -> bool:
        """Whether a number is in it; NaN and infinities are in no range."""
        return self.least <= value <= self.most and self.above < value < self.below

    @property
    def ends(self) -> tuple[float, float]:
        """Least and largest number in it, as far as float64 can say; infinite where it has no end."""
        least = self.least if math.isinf(self.above) else max(self.least, math.nextafter(self.above, math.inf))
        most = self.most if math.isinf(self.below) else min(self.most, math.nextafter(self.below, -math.inf))
        return least, most

    def check(self, name: str, value: float, noun: str = "a whole number") -> None:
        """Refuse a number that is not in it.

        Raises
        ------
        ConfigError
            Calls the number `name`, such as its flag.
        """
        if value not in self:
            raise ConfigError(f"{name}: expected {self.of(noun)}, got {show(value)}")

    def of(self, noun: str) -> str:
        """Say what is in it: the noun, and the ends that there are."""
        ends = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        known = {
            word: str(end) if isinstance(end, int) else f"{end:.12g}"
            for word, end in ends.items()
            if not math.isinf(end)
        }
        if known.keys() == {"at least", "at most"}:
            return f"{noun} from {known['at least']} to {known['at most']}"
        return f"{noun}, {' and '.join(map(' '.join, known.items()))}" if known else noun


ANY = Within()
Amount = Annotated[float, Within(0)]
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
        `tuple[X, Y]`, `Mapping[str, X]`, `Annotated[X, Within(..)]`, or `Any` for what is decoded later.
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
    try:
        found: T = reader(cast(Hashable, kind))(value)
    except Misfit as error:
        place = "".join([name, *reversed(error.place)])
        place = place if name else place.removeprefix(".")
        raise ValueError(f"{place}: {error}" if place else str(error)) from error.__cause__
    return found


def plain(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as plain values, of which `decode` makes it again.

    Notes
    -----
    As `dataclasses.asdict`, which copies each number and text: that took a twentieth of a small run. Lists and mappings
    are new, all else that is no dataclass is the same object.
    """
    kind: Any = type(record)
    return {name: _plain(getattr(record, name)) for name in _field_names(kind)}


def show(value: object) -> str:
    """Describe a value in an error: short, on one line, without control characters."""
    text = _SHORT.repr(value)
    return text if text.isprintable() else ascii(text)


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in (str, int, float, bool, types.NoneType):
        return value
    if kind in (tuple, list):
        return kind(map(_plain, value))
    if kind is dict:
        return {_plain(key): _plain(one) for key, one in value.items()}
    return plain(value) if dataclasses.is_dataclass(value) else value


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


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

_Reader = Callable[[object], Any]


class Misfit(ValueError):
    """A value does not fit: the sentence says what was expected and what came."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.place: list[str] = []
        """Where the value stands, from the inside out."""


@cache
def reader(kind: Any, within: Within | None = None) -> _Reader:
    """Make what reads one declared type.

    Parameters
    ----------
    kind : type
        As for `decode`.
    within : Within, optional
        The declared range of a number, or of the length of a text, list or mapping.

    Returns
    -------
    callable
        Takes a plain value and returns it in its type; raises `Misfit`.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return reader(inside[0], next((extra for extra in inside[1:] if isinstance(extra, Within)), within))
    if origin is Literal:
        return choice(inside)
    if origin in (Union, types.UnionType) and len(inside) == 2 and inside[1] is types.NoneType:
        return _optional(reader(inside[0]))
    if origin is tuple and inside[-1] is Ellipsis:
        return _list(reader(inside[0]), within or Within(0, MOST_ITEMS))
    if origin is tuple:
        return _row(tuple(reader(part) for part in inside))
    if origin is Mapping and inside[0] is str:
        return _mapping(reader(inside[1]), within or Within(0, MOST_ITEMS))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind)
    if kind is int:
        return _whole(within or Within(-MOST_INTEGER, MOST_INTEGER), "a whole number" if within is None else None)
    if kind is float:
        return _real(within or ANY)
    if kind is str:
        return _text(within or Within(0, MOST_CHARACTERS))
    if kind is bool:
        return _truth
    if kind is Any:
        return lambda value: value
    raise TypeError(f"no decoder for {kind!r}")


def choice(known: tuple[object, ...]) -> _Reader:
    """Make what reads one of some values, each with its type."""
    what = one_of(map(repr, known))

    def read(value: object) -> object:
        if not any(type(value) is type(one) and value == one for one in known):
            _refuse(what, value)
        return value

    return read


def _refuse(expected: str, value: object) -> NoReturn:
    raise Misfit(f"expected {expected}, got {show(value)}")


def one_of(words: Iterable[str]) -> str:
    """Join what is expected: 'a', 'a or b', 'a, b or c'."""
    *before, last = words
    return f"{', '.join(before)} or {last}" if before else last


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        _refuse("true or false", value)
    return value


def _whole(within: Within, what: str | None) -> _Reader:
    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            _refuse(what or within.of("a whole number"), value)
        return value

    least, most = within.ends
    return read


def _real(within: Within) -> _Reader:
    def read(value: object) -> float:
        number = float(value) if type(value) is int and abs(value) <= _EXACT_FLOAT else value
        if type(number) is not float or not least <= number <= most:
            _refuse(within.of("a number"), value)
        return number

    least, most = max(within.ends[0], -sys.float_info.max), min(within.ends[1], sys.float_info.max)
    return read


def _text(within: Within) -> _Reader:
    least, most = within.ends

    def read(value: object) -> str:
        if not isinstance(value, str) or not least <= len(value) <= most:
            _refuse(f"text of {least} to {most} characters", value)
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can write
            _refuse("text in Unicode", value)
        return value

    return read


def _optional(inner: _Reader) -> _Reader:
    return lambda value: None if value is None else inner(value)


def _list(inner: _Reader, length: Within) -> _Reader:
    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or not length.least <= len(value) <= length.most:
            _refuse(f"a list of {length.least} to {length.most} entries", value)
        return _each((inner,) * len(value), value)

    return read


def _row(inners: tuple[_Reader, ...]) -> _Reader:
    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != len(inners):
            _refuse(f"a list of {len(inners)} entries", value)
        return _each(inners, value)

    return read


def _each(inners: tuple[_Reader, ...], values: Sequence[object]) -> tuple[Any, ...]:
    found: list[Any] = []
    try:
        for inner, value in zip(inners, values, strict=True):
            found.append(inner(value))
    except Misfit as error:
        error.place.append(f"[{len(found)}]")
        raise
    return tuple(found)


def _mapping(inner: _Reader, length: Within) -> _Reader:
    key = reader(str)

    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not length.least <= len(value) <= length.most:
            _refuse(f"an object of {length.least} to {length.most} fields", value)
        found: dict[str, Any] = {}
        for word, entry in value.items():
            place = ": a key"
            try:
                key(word)
                place = f"[{show(word)}]"
                found[word] = inner(entry)
            except Misfit as error:
                error.place.append(place)
                raise
        return found

    return read


def _record(kind: type) -> _Reader:
    hints = get_type_hints(kind, include_extras=True)
    declared = [field for field in dataclasses.fields(kind) if field.init]
    readers = {field.name: reader(hints[field.name]) for field in declared}
    optional = {field.name for field in declared if field.default is not field.default_factory}
    needed = readers.keys() - optional

    def read(value: object) -> Any:
        if not isinstance(value, Mapping):
            _refuse("an object", value)
        missing, unknown = sorted(needed - value.keys()), [key for key in value if key not in readers]
        if missing or unknown:
            lacks = f"without {show(missing)}" if missing else f"with {show(unknown)} in addition"
            fields = f"the fields {', '.join(readers)}" if readers else "no field"
            raise Misfit(f"expected {fields}, got an object {lacks}")
        content, key = {}, ""
        try:
            for key, entry in value.items():
                content[key] = readers[key](entry)
        except Misfit as error:
            error.place.append(f".{key}")
            raise
        try:
            return kind(**content)
        except (FastLloydError, ValueError) as error:
            raise Misfit(str(error)) from error

    return read
