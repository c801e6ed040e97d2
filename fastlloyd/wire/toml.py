"""TOML of others, parsed in time linear in its length.

Python's parser takes hours for one key of very many parts (`a.a.a ... = 1`, 1 MiB), and returns integers that Python
cannot write. TOML itself requires 64 bits.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.wire.regular import read_regular_bytes

MOST_BYTES = 1 << 20
MOST_PARTS = 64
"""Most parts of one dotted key."""
_HUGE = "a whole number of more than 64 bits"
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"""(?<![\w"'\\-]){_PART}(?:\.[ \t]*+{_PART}){{{MOST_PARTS}}}""")


def parse_toml(content: bytes, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Parse a TOML text.

    Parameters
    ----------
    content : bytes
        UTF-8; a byte order mark, which some editors put first, is left out.
    most_bytes : int
        Longest content.

    Raises
    ------
    ValueError
        It is not TOML, is too long, or has a key of more than `MOST_PARTS` parts, too many brackets, or an integer of
        more than 64 bits.
    """
    if len(content) > most_bytes:
        raise ValueError(f"expected at most {most_bytes} bytes")
    text = content.decode("utf-8-sig")
    if _LONG_KEY.search(text):
        raise ValueError(f"expected keys of at most {MOST_PARTS} parts")
    try:
        values = tomllib.loads(text)
        _refuse_huge(values)
    except RecursionError as error:
        raise ValueError("too many brackets") from error
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:
        # Python converts no text of thousands of digits, and advises how to change that.
        raise ValueError(_HUGE if "integer string conversion" in str(error) else str(error)) from None
    return values


def _refuse_huge(value: Any) -> None:
    """Refuse whole numbers of more than 64 bits."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _refuse_huge(each)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(_HUGE)


def read_toml(path: Path, where: str, page: str = "docs/run-file.md") -> dict[str, Any]:
    """Read a small TOML file; errors call it `where`, and name the page that shows how to write it.

    Raises
    ------
    ConfigError
        It cannot be read, or is no TOML in UTF-8.
    """
    try:
        return parse_toml(read_regular_bytes(path, MOST_BYTES + 1))
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror}); check path and rights") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: expected UTF-8 text; save the file as UTF-8") from error
    except ValueError as error:
        raise ConfigError(f"{where}: not valid TOML: {error}; {page} shows how to write it") from error
