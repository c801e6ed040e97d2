"""Text from outside (names of features, parties and files), made fit to be shown or to stand in a table.

A terminal obeys escape sequences and a spreadsheet runs formulas, whoever wrote them.
"""

from __future__ import annotations

import re

# What a spreadsheet takes for a formula, behind the marks that `csv_cell` puts before it.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def printable(text: str, *, lines: bool = False) -> str:
    r"""Write what does not print as escapes: control characters, marks that turn the direction, lone surrogates.

    Parameters
    ----------
    text : str
    lines : bool
        Keep the ends of lines.

    Examples
    --------
    >>> printable("dose\x1b[2J")
    'dose\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or (lines and each == "\n") else each.encode("unicode_escape").decode()
        for each in text
    )


def csv_cell(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would run as a formula; `csv_text` takes it away again.

    Examples
    --------
    >>> csv_cell("=1+1"), csv_cell("age")
    ("'=1+1", 'age')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def csv_text(cell: str) -> str:
    """Undo `csv_cell`; a cell that it never writes is given back as it is."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
