"""Colour on a terminal: headings, the verdict, warnings and errors, recognised by how their lines begin.

Text gets its colour where it is written to a terminal, and nowhere before: what ranks print comes through pipes.
"""

from __future__ import annotations

import os
import re
from typing import TextIO

_BOLD, _RED, _GREEN, _YELLOW = "1", "1;31", "1;32", "1;33"
_STYLES = {"heading": _BOLD, "label": _BOLD, "good": _GREEN, "doubt": _YELLOW, "bad": _RED}
_PLACES = re.compile(
    r"(?P<heading>^[\w-]+: k = \d.*$)"
    r"|(?P<bad>^fastlloyd:(?= )|^ {10}NOT PRIVATE:|(?<=^verdict   )(?:poor|noise)(?=:)|^FAIL(?= ))"
    r"|(?P<doubt>^ {10}WARNING:|(?<=^verdict   )fair(?=:)|^warn(?= ))"
    r"|(?P<good>(?<=^verdict   )(?:good|exact)(?=:)|^ok(?= )|^done$)"
    r"|(?P<label>^[a-z]{4,8}(?= {2,6}\S))",
    re.MULTILINE,
)


def paint(text: str, stream: TextIO) -> str:
    """Return a text as a stream should get it: in colour on a terminal, unless `NO_COLOR` is set.

    Parameters
    ----------
    text : str
        Whole lines.
    stream : text stream
        Where it will be written.

    Source: https://no-color.org; a terminal of the type `dumb` has no colour.
    """
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return _PLACES.sub(lambda found: f"\033[{_STYLES[str(found.lastgroup)]}m{found[0]}\033[0m", text)
