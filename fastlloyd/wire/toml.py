"""Parsing of untrusted TOML in time linear in its length.

Python's parser takes hours for one key of very many parts (`a.a.a ... = 1`, 1 MiB), and returns integers that Python
cannot write. TOML itself requires 64 bits.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

MOST_BYTES = 1 << 20
MOST_PARTS = 64
"""Most parts of one dotted key."""
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"""(?<![\w"'\\-]){_PART}(?:\.[ \t]*+{_PART}){{{MOST_PARTS}}}""")


def parse_toml(content: bytes) -> dict[str, Any]:
    """Parse a TOML text.

    Raises
    ------
    ValueError
        It is not TOML, is longer than `MOST_BYTES`, or has a key of more than `MOST_PARTS` parts, too many brackets, or
        an integer of more than 64 bits.
    """
    if len(content) > MOST_BYTES:
        raise ValueError(f"expected at most {MOST_BYTES} bytes")
    text = content.decode("utf-8")
    if _LONG_KEY.search(text):
        raise ValueError(f"expected keys of at most {MOST_PARTS} parts")
    try:
        values = tomllib.loads(text)
        _refuse_huge(values)
    except RecursionError as error:
        raise ValueError("too many brackets") from error
    return values


def _refuse_huge(value: Any) -> None:
    """Refuse whole numbers of more than 64 bits."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _refuse_huge(each)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a whole number of more than 64 bits")
