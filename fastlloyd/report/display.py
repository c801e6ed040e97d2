"""Text from outside (names of features, parties and files), made fit to be shown or to stand in a table.

A terminal obeys escape sequences and a spreadsheet runs formulas, whoever wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# What a spreadsheet takes for a formula, behind the marks that `csv_cell` puts before it.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_PARTY = re.compile(r"\b(?:the server|client (\d+))\b(?!'s)")


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


def with_names(text: str, names: Mapping[int, str]) -> str:
    """Add the people's name of a party where a sentence first speaks of it.

    Parameters
    ----------
    text : str
    names : mapping from rank to name
        From the roster; empty without one.

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
        return f"{found[0]} ({names[rank]})"

    return _PARTY.sub(name, text)
