"""Plain values under names that people know: their one text, and how two sets of them differ.

The links of a run are confirmed with a digest of such values (`run.inputs.public_values`). Beside that digest a client
and the server tell each other the values: where the digests differ, both can say which value does.

Source: docs/protocol.md, "Links" and "Approval".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from fastlloyd.errors import printable
from fastlloyd.wire.decode import load_json, show

MOST_VALUES_BYTES = 1 << 20
"""Longest text of values that a party tells another."""
BUILD = ("protocol", "results_version")
"""Names of the values that tell whether two builds compute the same."""
APPROVED = "{}: approved {}, this run has {}"
COMPARE = "compare flags, run file and roster with its"
"""What people do about values that differ."""
_THERE = "{} is {} there and {} here"
_MOST_DIFFERENCES = 12
_SHOWN_CHARACTERS = 100
_BEFORE_DIFFERENCE = 40
_ABSENT = object()


def canonical(values: Any) -> bytes:
    """Return the one text of plain values: UTF-8 JSON with sorted keys, without spaces and without NaN."""
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
    """Say how the values that a peer told differ from one's own; it may have written anything.

    Parameters
    ----------
    theirs, own : bytes
        As `canonical` writes them; of those that are too long the ones in `BUILD` alone, or nothing.

    Returns
    -------
    str
        One line for the end of a sentence, without control characters: what differs, and what to do.
    """
    if not theirs or not own:
        return f"its values are too many to be told; {COMPARE}"
    try:
        values, mine = load_json(theirs, most_bytes=MOST_VALUES_BYTES), json.loads(own)
        if not isinstance(values, dict):
            raise ValueError(f"expected an object, got {show(values)}")
        if other := _other_build(values, mine):
            return other
        if set(BUILD) in (values.keys(), mine.keys()):
            return f"its values are too many to be told; {COMPARE}"
        found = differences(values, mine, _THERE)
    except ValueError as error:
        return f"the values that it told cannot be read ({printable(str(error))}); {COMPARE}"
    same = "all values that people set are alike, so the programs differ"
    return f"{list_differences(found or [same])}; {COMPARE}"


def _other_build(theirs: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Say that two builds come to different results of the same protocol; nothing if they do not."""
    protocol, number = BUILD
    there, here = theirs.get(number), own.get(number)
    if theirs.get(protocol) != own.get(protocol) or type(there) is not int or there == here:
        return ""
    return (
        f"its build of fastlloyd has version {show(there)} of the results of {own[protocol]}, this one has version "
        f"{here}, and they come to different results; install the same build at all parties"
    )


def list_differences(found: list[str]) -> str:
    """Join what `differences` found, the first of very many."""
    more = f"; and {len(found) - _MOST_DIFFERENCES} more" if len(found) > _MOST_DIFFERENCES else ""
    return "; ".join(found[:_MOST_DIFFERENCES]) + more


def differences(before: Mapping[str, Any], now: Mapping[str, Any], words: str = APPROVED) -> list[str]:
    """Name each value that differs, with both values.

    Parameters
    ----------
    before, now : mapping
        As `public_values` returns them.
    words : str
        With places for the name, the value before and the value now.

    Returns
    -------
    list of str
        Empty if nothing differs.

    Examples
    --------
    >>> differences({"epsilon": 1.0, "k": 3}, {"epsilon": 2.0, "k": 3})
    ['epsilon: approved 1, this run has 2']
    """
    old, new = dict(flatten(before)), dict(flatten(now))
    changed = [name for name in (*new, *(n for n in old if n not in new)) if not _same(old, new, name)]
    # Where the digest of the roster differs a party does, a settled value follows from what was set, and a table that
    # is empty on one side is named by its entries on the other.
    hidden = {"roster", *(f"settled.{name}" for name in changed)}
    hidden |= {name for name in changed if any(other.startswith(f"{name}.") for other in changed)}
    return [
        words.format(_cut(printable(name)), *_cut_alike(*(show_value(each.get(name, _ABSENT)) for each in (old, new))))
        for name in [name for name in changed if name not in hidden] or changed
    ]


def show_value(value: Any) -> str:
    """Write a plain value as people do: 1 for 1.0, whole, without control characters."""
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
    """Cut a text for an error."""
    before, rest = "." * min(begin, 2), text[begin:]
    return before + (rest if len(rest) <= _SHOWN_CHARACTERS else f"{rest[: _SHOWN_CHARACTERS - 2]}..")


def _cut_alike(before: str, now: str) -> tuple[str, str]:
    """Cut two texts to where they differ."""
    first = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), 0)
    begin = max(0, first - _BEFORE_DIFFERENCE) if first >= _SHOWN_CHARACTERS - _BEFORE_DIFFERENCE else 0
    return _cut(before, begin), _cut(now, begin)


def _same(before: Mapping[str, Any], now: Mapping[str, Any], name: str) -> bool:
    """Whether a value is there in both, of the same type and equal."""
    return name in before and name in now and canonical(before[name]) == canonical(now[name])
