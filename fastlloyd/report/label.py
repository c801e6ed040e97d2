"""Short labels for names of columns: distinct where the names are, at most so wide, and no letter cut in two.

A label keeps what tells a name from the others: common beginnings and ends are shortened first. It has no marks of
direction (`printable` writes them as escapes), and whoever shows it isolates it from the text around it.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence

from fastlloyd.errors import printable

WIDTH = 20
"""Columns of a label in a figure; a wide character takes two."""
TABLE_WIDTH = 48
"""Columns of a label in a table, where it wraps."""
_CUT = "\u2026"
_BACK = 8
_ESCAPE = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")

Units = tuple[str, ...]


def short_labels(names: Sequence[str], width: int = WIDTH) -> list[str]:
    """Return a label for each name.

    Parameters
    ----------
    names : sequence of str
        Distinct.
    width : int
        Largest width in columns, at least 8.

    Returns
    -------
    list of str
        Distinct where the names are as they print. A name that fits is its own label.

    Examples
    --------
    >>> short_labels(["systolic_pressure_first_visit", "diastolic_pressure_first_visit", "age"], 16)
    ['systolic_…_visit', 'diastolic…_visit', 'age']
    >>> short_labels([f"question_{i}_score_at_the_first_visit" for i in (1, 2)], 16)
    ['question_1…', 'question_2…']
    """
    shown = [_units(printable(name)) for name in names]
    labels = [_cut(units, width) for units in shown]
    whole = ["".join(units) == label for units, label in zip(shown, labels, strict=True)]
    for shorten in (_between, _apart):
        for group in _same(labels, whole):
            made = shorten([shown[place] for place in group], width)
            for place, label in zip(group, made, strict=True):
                labels[place] = label
    used = set(labels)
    for group in _same(labels, whole):
        for place in group:
            number = f"#{place + 1}"
            while (label := _cut(shown[place], width - len(number) - 1) + f" {number}") in used:
                number += "'"
            labels[place] = label
            used.add(label)
    return labels


def in_full(names: Sequence[str], labels: Sequence[str]) -> list[tuple[str, str]]:
    """Return label and name of each name that its label shortens."""
    return [(label, name) for label, name in zip(labels, names, strict=True) if label != printable(name)]


def width_of(text: str) -> int:
    """Return the width of a text in columns: two for a wide character, none for a mark on another."""
    return sum(map(_width, _units(text)))


def graphemes(text: str) -> list[str]:
    """Split a text into what readers take for one letter: marks, joined emoji, flags and syllables stay whole.

    Source: Unicode Standard Annex 29, rules GB6 to GB13, with categories in place of its tables.
    """
    starts, before = [0], text[:1]
    flags = int(_is_flag(before))
    for at, each in enumerate(text[1:], start=1):
        flag = _is_flag(each)
        if not (_extends(each) or _continues(before, each) or (flag and flags % 2)):
            starts.append(at)
        flags, before = flags + 1 if flag else 0, each
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True) if end]


def _is_flag(each: str) -> bool:
    """Whether a character is half of a flag."""
    return "\U0001f1e6" <= each <= "\U0001f1ff"


def _extends(each: str) -> bool:
    """Whether a character belongs to the one before it."""
    return (
        unicodedata.category(each) in ("Mn", "Me", "Mc")
        or each in "\u200c\u200d"
        or "\U0001f3fb" <= each <= "\U0001f3ff"
        or "\U000e0020" <= each <= "\U000e007f"
    )


def _continues(before: str, each: str) -> bool:
    """Whether a character goes on with what one before it began: after a joiner, a virama, or within a syllable."""
    if before == "\u200d":
        return unicodedata.category(each) == "So"
    if unicodedata.combining(before) == 9:
        return unicodedata.category(each) == "Lo"
    # A syllable of Hangul: leading consonants, vowels, trailing consonants.
    vowel, trailing = "\u1160" <= each <= "\u11a7", "\u11a8" <= each <= "\u11ff"
    leading, whole = "\u1100" <= before <= "\u115f", "\uac00" <= before <= "\ud7a3"
    inner = "\u1160" <= before <= "\u11ff"
    return (leading and ("\u1100" <= each <= "\u11a7" or "\uac00" <= each <= "\ud7a3")) or (
        (whole or inner) and (vowel or trailing)
    )


def _units(text: str) -> Units:
    """Split a text that prints into graphemes and escapes."""
    found, end = list[str](), 0
    for escape in _ESCAPE.finditer(text):
        found += [*graphemes(text[end : escape.start()]), escape[0]]
        end = escape.end()
    return (*found, *graphemes(text[end:]))


def _width(unit: str) -> int:
    if len(unit) > 1 and unit.startswith("\\"):
        return len(unit)
    wide = (2 if unicodedata.east_asian_width(each) in "WF" else not unicodedata.combining(each) for each in unit)
    return min(sum(wide), 2)


def _fitting(units: Sequence[str], width: int) -> int:
    """Return how many units fit from the start."""
    used = 0
    for place, unit in enumerate(units):
        used += _width(unit)
        if used > width:
            return place
    return len(units)


def _cut(units: Sequence[str], width: int) -> str:
    """Return the text of units, its middle cut out if it is too wide."""
    if _fitting(units, width) == len(units):
        return "".join(units)
    tail = _fitting(units[::-1], (width - 1) * 2 // 5)
    head = _fitting(units, (width - 1) - sum(map(_width, units[len(units) - tail :])))
    return "".join((*units[:head], _CUT, *units[len(units) - tail :]))


def _same(labels: Sequence[str], whole: Sequence[bool]) -> Iterator[list[int]]:
    """Yield the places of labels that are the same, without names that are their own label."""
    places: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(label, []).append(place)
    for group in list(places.values()):
        if len(group) > 1:
            yield [place for place in group if not whole[place]]


def _between(group: Sequence[Units], width: int) -> list[str]:
    """Shorten what names begin and end with in common."""
    if len(group) < 2:
        return [_cut(units, width - 1) + _CUT for units in group]
    least, most = min(group), max(group)
    start = _word_start(least, _common(least, most))
    ends = [units[start:][::-1] for units in group]
    least, most = min(ends), max(ends)
    end = _word_start(least, _common(least, most))
    return [_around(units, start, len(units) - end, width) for units in group]


def _apart(group: Sequence[Units], width: int) -> list[str]:
    """Show each name from where it differs from every other."""
    order = sorted(range(len(group)), key=group.__getitem__)
    shared = [0, *(_common(group[one], group[next_]) for one, next_ in itertools.pairwise(order)), 0]
    from_ = {place: max(shared[rank], shared[rank + 1]) for rank, place in enumerate(order)}
    return [_around(units, _word_start(units, from_[place]), len(units), width) for place, units in enumerate(group)]


def _around(units: Units, start: int, end: int, width: int) -> str:
    """Return what stands between two places, with as much before it as there is room for."""
    after = _CUT if end < len(units) else ""
    core = _cut(units[start:end], width - 1 - len(after))
    room = width - 1 - len(after) - width_of(core)
    head = units[: min(_fitting(units, room), start)]
    return "".join((*head, "" if len(head) == start else _CUT, core, after))


def _common(one: Units, other: Units) -> int:
    """Return how many units two names begin with in common."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _word_start(units: Units, at: int) -> int:
    """Return where the word or number begins in which a place lies, if it begins near."""
    back = at
    while back > max(0, at - _BACK) and units[back - 1].isalnum():
        back -= 1
    if back == 0 or not units[back - 1].isalnum():
        return back
    while at > 0 and units[at - 1].isdigit():
        at -= 1
    return at
