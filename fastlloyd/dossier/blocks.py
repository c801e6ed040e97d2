"""What a dossier is made of, before it becomes HTML or Markdown: paragraphs, lists and tables of plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Text:
    """One paragraph."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list; `title` stands before it, empty for none."""

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
        Whether differential privacy is promised at all.
    summary : sequence of str
        What a person who must decide reads first.
    sections : sequence of Section
    made_by : str
        Program and version.
    """

    title: str
    private: bool
    summary: Sequence[str]
    sections: Sequence[Section]
    made_by: str
