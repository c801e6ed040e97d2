"""Plain named values: their canonical text, and the differences between two sets of them.

The links of a run are confirmed with a digest of such values (`run.inputs.public_values`). A client and the server also
send each other the values, so that both can name the value that differs.

Source: docs/protocol.md, "Links" and "Approval".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from fastlloyd.errors import printable
from fastlloyd.wire.decode import load_json, show

MOST_VALUES_BYTES = 1 << 20
"""Longest text of values that a party sends to another."""
BUILD = ("protocol", "results_version")
"""Names of the values that identify what a build computes."""
APPROVED = "{}: approved {}, this run has {}"
COMPARE = "compare flags, run file and roster with its"
"""The advice if values differ."""
_THERE = "{} is {} there and {} here"
_MOST_DIFFERENCES = 12
_SHOWN_CHARACTERS = 100
_BEFORE_DIFFERENCE = 40
_ABSENT = object()


def canonical(values: Any) -> bytes:
    """Return the canonical text of plain values: UTF-8 JSON with sorted keys, without spaces and without NaN."""
    return json.dumps(
        values, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False, default=list
    ).encode()


def digest(values: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of the canonical text, 32 bytes."""
    return hashlib.sha256(canonical(values)).digest()


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value with its name; names of nested values are joined by dots."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def explain(theirs: bytes, own: bytes) -> str:
    """Explain how a peer's values, which are hostile, differ from this party's.

    Parameters
    ----------
    theirs, own : bytes
        From `canonical`; if too long, only the ones in `BUILD`, or nothing.

    Returns
    -------
    str
        The end of a sentence, in one line without control characters: what differs, and what to do.
    """
    if not theirs or not own:
        return f"its values are too many to be sent; {COMPARE}"
    try:
        values, mine = load_json(theirs, most_bytes=MOST_VALUES_BYTES), json.loads(own)
        if not isinstance(values, dict):
            raise ValueError(f"expected an object, got {show(values)}")
        if other := _other_build(values, mine):
            return other
        if set(BUILD) in (values.keys(), mine.keys()):
            return f"its values are too many to be sent; {COMPARE}"
        found = differences(values, mine, _THERE)
    except ValueError as error:
        return f"the values that it sent cannot be read ({printable(str(error))}); {COMPARE}"
    same = "all configured values are the same, so the programs differ"
    return f"{list_differences(found or [same])}; {COMPARE}"


def _other_build(theirs: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Explain that two builds compute different results of the same protocol; empty if not."""
    protocol, number = BUILD
    there, here = theirs.get(number), own.get(number)
    if theirs.get(protocol) != own.get(protocol) or type(there) is not int or there == here:
        return ""
    return (
        f"its build of fastlloyd has version {show(there)} of the results of {own[protocol]}, this one has version "
        f"{here}, and they compute different results; install the same build at all parties"
    )


def list_differences(found: list[str]) -> str:
    """Join `differences`."""
    return "; ".join(found)


def differences(before: Mapping[str, Any], now: Mapping[str, Any], words: str = APPROVED) -> list[str]:
    """List the first values that differ, with both values, and how many more there are.

    Parameters
    ----------
    before, now : mapping
        As `public_values` returns them; one of them may be hostile.
    words : str
        Template with places for the name, the value before and the value now.

    Returns
    -------
    list of str
        Empty if nothing differs.

    Examples
    --------
    >>> differences({"epsilon": 1.0, "k": 3}, {"epsilon": 2.0, "k": 3})
    ['epsilon: approved 1, this run has 2']
    """
    changed = {place: pair for place, *pair in _compare(before, now)}
    # If the digest of the roster differs, so does a party; settled values follow from configured ones.
    hidden = {("roster",), *(("settled", *place) for place in changed)}
    shown = [place for place in changed if place not in hidden] or list(changed)
    shown.sort(key=lambda place: changed[place][1] is _ABSENT)
    more = [f"and {len(shown) - _MOST_DIFFERENCES} more"] if len(shown) > _MOST_DIFFERENCES else []
    names = (_cut(printable(".".join(place)[: 2 * _SHOWN_CHARACTERS])) for place in shown)
    sides = (_cut_both(*map(show_value, changed[place])) for place in shown)
    return [
        words.format(name, *pair) for name, pair in islice(zip(names, sides, strict=True), _MOST_DIFFERENCES)
    ] + more


def _compare(before: Any, now: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield each value that differs with the names that lead to it; a table beside another value by its entries."""
    tables = [side for side in (before, now) if isinstance(side, Mapping) and side]
    if not tables:
        if before is _ABSENT or now is _ABSENT or canonical(before) != canonical(now):
            yield place, before, now
        return
    old, new = (side if isinstance(side, Mapping) else {} for side in (before, now))
    for name in (*new, *(name for name in old if name not in new)):
        yield from _compare(old.get(name, _ABSENT), new.get(name, _ABSENT), (*place, name))


def show_value(value: Any) -> str:
    """Format a plain value for people: 1 for 1.0, complete, without control characters."""
    if value is _ABSENT:
        return "nothing"
    if value is None:
        return "not set"
    if value in ([], {}):
        return "none"
    if isinstance(value, str):
        text = value
    elif isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        text = str(int(value))
    elif isinstance(value, list) and not any(isinstance(entry, list | dict) for entry in value):
        text = ", ".join(map(show_value, value))
    else:
        text = json.dumps(value, ensure_ascii=False)
    return printable(text)


def _cut(text: str, begin: int = 0) -> str:
    """Shorten a text for an error."""
    before, rest = "." * min(begin, 2), text[begin:]
    return before + (rest if len(rest) <= _SHOWN_CHARACTERS else f"{rest[: _SHOWN_CHARACTERS - 2]}..")


def _cut_both(before: str, now: str) -> tuple[str, str]:
    """Shorten two texts around their first difference."""
    first = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), 0)
    begin = max(0, first - _BEFORE_DIFFERENCE) if first >= _SHOWN_CHARACTERS - _BEFORE_DIFFERENCE else 0
    return _cut(before, begin), _cut(now, begin)
