"""The building blocks of a dossier (paragraphs, lists and tables of plain text), and a dossier as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fastlloyd.errors import printable

# An underscore within a word is text in CommonMark; at an end of a word it could begin emphasis.
_MARKS = re.compile(r"[\\`*\[\]<>|&~]|(?<!\w)_|_(?!\w)")
# What begins a heading, a list or a numbered list at the start of a line.
_LEADS = re.compile(r"^(\s*)(?:(#|[-+](?=\s)|=)|(\d+)([.)])(?=\s|$))")


@dataclass(frozen=True, slots=True)
class Text:
    """One paragraph."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list under an optional title."""

    kind: ClassVar[str] = "items"
    items: Sequence[str]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A table; the first cell of a row names the row."""

    kind: ClassVar[str] = "table"
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


Block = Text | Items | Listing


@dataclass(frozen=True, slots=True)
class Section:
    """A section with its heading."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """A whole document.

    Attributes
    ----------
    title : str
    private : bool
        Whether differential privacy is promised.
    summary : sequence of str
        What the person who decides reads first.
    sections : sequence of Section
    made_by : str
        Program and version.
    """

    title: str
    private: bool
    summary: Sequence[str]
    sections: Sequence[Section]
    made_by: str


def to_markdown(dossier: Dossier) -> str:
    """Return the document as CommonMark with tables."""
    lines = [f"# {escape(dossier.title)}", "", *(f"- {escape(line)}" for line in dossier.summary), ""]
    for number, section in enumerate(dossier.sections, 1):
        lines += [f"## {number}. {escape(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block), ""]
    return "\n".join([*lines, "---", "", escape(dossier.made_by), ""])


def escape(text: str) -> str:
    r"""Escape a text, so that Markdown shows it unchanged: names from files and peers are only text.

    Examples
    --------
    >>> escape("n_total <b> *x* | y")
    'n_total \\<b\\> \\*x\\* \\| y'
    """
    text = _MARKS.sub(r"\\\g<0>", printable(text))
    return _LEADS.sub(lambda lead: f"{lead[1]}\\{lead[2]}" if lead[2] else f"{lead[1]}{lead[3]}\\{lead[4]}", text)


def _block(block: Block) -> Iterator[str]:
    """Yield the lines of one block."""
    if isinstance(block, Text):
        yield escape(block.text)
        return
    if block.title:
        yield f"**{escape(block.title)}**"
        yield ""
    if isinstance(block, Items):
        yield from (f"- {escape(item)}" for item in block.items)
        return
    yield _row(block.head)
    yield _row(["---"] * len(block.head), bare=True)
    yield from map(_row, block.rows)


def _row(cells: Sequence[str], *, bare: bool = False) -> str:
    return f"| {' | '.join(cells if bare else map(escape, cells))} |"
