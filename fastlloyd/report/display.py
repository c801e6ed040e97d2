"""Text for spreadsheets and terminals: names from files and peers made safe, names of parties, colour.

A spreadsheet runs formulas, no matter who wrote them.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping
from typing import TextIO

# What a spreadsheet takes for a formula, some in full width too, behind the marks that `csv_cell` puts before it.
_FORMULA = re.compile(r"'*+[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_ESCAPE = re.compile(r"\\(?:\\|x([0-9a-f]{2})|u([0-9a-f]{4})|U(00(?:0[0-9a-f]|10)[0-9a-f]{4}))")
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
_PARTY = re.compile(r"\b(?:the server|client (\d+))\b(?!'s)")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
# What stands before the text of a line: spaces, or a label and spaces.
_LABEL = re.compile(r" *\S+(?: \S+)? {2,}| +")


def csv_cell(text: str) -> str:
    r"""Write text so that a spreadsheet runs no formula, and a terminal obeys nothing; `csv_text` is the inverse.

    A formula gets an apostrophe in front. What does not print (control characters, marks that turn the direction)
    becomes an escape; then, and where text looks like an escape, each backslash is doubled.

    Examples
    --------
    >>> csv_cell("=1+1"), csv_cell("age")
    ("'=1+1", 'age')
    >>> csv_cell("dose\x1b[2J"), csv_cell("a\\b"), csv_cell("a\\x1b")
    ('dose\\x1b[2J', 'a\\b', 'a\\\\x1b')
    """
    if not all(map(_shows, text)) or _ESCAPE.search(text):
        text = "".join(each if _shows(each) else _escaped(each) for each in text.replace("\\", "\\\\"))
    return f"'{text}" if _FORMULA.match(text) else text


def _shows(character: str) -> bool:
    """Whether a character prints, or is a space of a language or of a spreadsheet."""
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    r"""Write one character as \x1b, \u202e or \U000e0001."""
    code = ord(character)
    return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def csv_text(cell: str) -> str:
    """Undo `csv_cell`; a cell that it never writes is returned unchanged."""
    text = cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
    return _ESCAPE.sub(lambda found: chr(int(found[found.lastindex], 16)) if found.lastindex else "\\", text)


def with_names(text: str, names: Mapping[int, str]) -> str:
    """Add the name of a party from the roster where a text first mentions it without.

    Parameters
    ----------
    text : str
    names : mapping from rank to name
        Empty without a roster.

    Examples
    --------
    >>> with_names("client 3 ended the run and says that client 2 is gone", {2: "St Mary", 3: "Clinic North"})
    'client 3 (Clinic North) ended the run and says that client 2 (St Mary) is gone'
    """
    met = set()

    def name(found: re.Match[str]) -> str:
        rank = int(found[1] or 0)
        if rank in met or rank not in names:
            return found[0]
        met.add(rank)
        if text.startswith(f" ({names[rank]})", found.end()):
            return found[0]
        return f"{found[0]} ({names[rank]})"

    return _PARTY.sub(name, text)


def paint(text: str, stream: TextIO) -> str:
    """Return a text for a stream: in colour on a terminal, unless `NO_COLOR` is set.

    Headings, the verdict, warnings and errors are recognised by the start of their lines. Text is coloured only when it
    is written to a terminal, because the output of ranks comes through pipes.

    Parameters
    ----------
    text : str
        Whole lines.
    stream : text stream
        The stream that will receive it.

    Source: https://no-color.org; a terminal of the type `dumb` has no colour.
    """
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return _PLACES.sub(lambda found: f"\033[{_STYLES[str(found.lastgroup)]}m{found[0]}\033[0m", text)


def narrowed(text: str, width: int) -> str:
    """Return a text for a narrow terminal, which would break lines within words and lose labels among them.

    Lines of tables, of JSON and of a progress bar stay as they are.

    Parameters
    ----------
    text : str
    width : int
        Columns of the terminal.

    Examples
    --------
    >>> print(narrowed("columns   2 used: age, weight of the patient", 30))
    columns   2 used: age, weight
              of the patient
    """
    return "".join(_narrowed(line, width) for line in text.splitlines(keepends=True))


def _narrowed(line: str, width: int) -> str:
    """Break one line between words, below the text beside its label."""
    plain = _STYLE.sub("", line).rstrip("\n")
    if len(plain) <= width or "\r" in line or line.startswith("{"):
        return line
    label = _LABEL.match(plain)
    start = label.end() if label is not None and label.end() <= width // 2 else 0
    if "  " in plain[start:].strip():
        return line
    broken, used = list[str](), 0
    for at, word in enumerate(line.rstrip("\n").split(" ")):
        length = len(_STYLE.sub("", word))
        if at and word and used > start and used + 1 + length > width:
            broken += ("\n", " " * start, word)
            used = start + length
        else:
            broken += (" " if at else "", word)
            used += bool(at) + length
    return "".join(broken) + ("\n" if line.endswith("\n") else "")
