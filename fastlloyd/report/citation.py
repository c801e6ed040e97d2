"""What people say of the study behind a run, and how to cite a run: the software, and the paper of its protocol.

Source: `papers.bib`, and CITATION.cff at the top of the repository, which names the same papers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from fastlloyd.protocols.registry import ROWS, Row
from fastlloyd.version import __version__

STUDY = {"title": 100, "authors": 100, "institution": 200, "purpose": 500}
"""What the parties may say of their study, all of it public: the most characters of each, of authors of each name."""

SHOWN_RUN = 16
"""Digits of a run's id that stand in a citation."""
_FIELD = re.compile(r"^  (\w+) += \{(.*)\},?$", re.MULTILINE)
_NO_BRACES = str.maketrans("", "", "{}")
_ESCAPES = str.maketrans(
    {mark: f"\\{mark}" for mark in "{}%&#_$"} | {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\^{}"}
)


def study_words(said: Mapping[str, Any]) -> str:
    """Return what is said of a study in a line; empty if nothing is.

    Parameters
    ----------
    said : mapping
        With some of the names of `STUDY`; others are ignored.

    Examples
    --------
    >>> study_words({"title": "Who comes back?", "authors": ["A. Meyer", "B. Roy"], "purpose": "plan beds"})
    'Who comes back?; by A. Meyer, B. Roy; purpose: plan beds'
    """
    parts = {"title": "{}", "authors": "by {}", "institution": "at {}", "purpose": "purpose: {}"}
    listed = {name: ", ".join(said[name]) if name == "authors" else said[name] for name in STUDY if name in said}
    return "; ".join(parts[name].format(text) for name, text in listed.items())


def papers() -> dict[str, str]:
    """Return the entries of `papers.bib`, by their keys."""
    text = resources.files("fastlloyd.report").joinpath("papers.bib").read_text("utf-8")
    entries = [f"@{part.strip()}" for part in text.split("\n@") for part in [part.removeprefix("@")]]
    return {entry.partition("{")[2].partition(",")[0]: entry for entry in entries}


def reference(row: Row) -> str | None:
    """Return a protocol's paper as one line of text; None without one.

    Examples
    --------
    >>> reference(ROWS[0])[:60]
    'A. Diaa, T. Humphries, F. Kerschbaum. FastLloyd: Federated, '
    """
    entry = papers().get(row.paper)
    if entry is None:
        return None
    found = {name: text.translate(_NO_BRACES) for name, text in _FIELD.findall(entry)}
    names = (name.partition(", ") for name in found["author"].split(" and "))
    authors = ", ".join(f"{' '.join(f'{part[0]}.' for part in own.split())} {family}" for family, _, own in names)
    where = found.get("booktitle") or found.get("journal")
    number = found.get("note") or f"doi:{found['doi']}"
    return ". ".join([authors, found["title"], *([where] if where else []), f"{found['year']}, {number}"]) + "."


def cite_run(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return how to cite a run: as one line of text, and as BibTeX.

    Parameters
    ----------
    document : mapping
        A valid report.json.

    Examples
    --------
    >>> made = {"run": "ab" * 16, "created": "2026-11-27T12:00:00Z", "protocol": "lloyd", "version": "0.1.0"}
    >>> cite_run({**made, "title": "Who comes back?", "authors": ["A. Meyer", "B. Roy"]})[0]
    'A. Meyer, B. Roy. Who comes back? Run abababababababab of lloyd, fastlloyd 0.1.0, 2026-11-27.'
    """
    run, day = document["run"][:SHOWN_RUN], document["created"][:10]
    title = document.get("title") or "Federated clustering"
    made = f"Run {run} of {document['protocol']}, fastlloyd {document['version']}"
    authors, institution = document.get("authors", []), document.get("institution")
    parts = [", ".join(authors), title, institution or "", made]
    text = " ".join(part if part.endswith((".", "?", "!")) else f"{part}." for part in parts if part)
    # Outer braces keep BibTeX from taking names apart: it would read "North clinic" as a first and a last name.
    values = {
        "author": " and ".join(f"{{{_in_bibtex(name)}}}" for name in authors),
        "title": f"{{{_in_bibtex(title)}}}",
        "howpublished": _in_bibtex(institution or ""),
        "year": day[:4],
        "note": f"{_in_bibtex(made)}, {day}",
    }
    fields = ",\n".join(f"  {name:<12} = {{{value}}}" for name, value in values.items() if value)
    return f"{text[:-1]}, {day}.", f"@misc{{run-{run},\n{fields}\n}}\n"


def _in_bibtex(text: str) -> str:
    """Return a text in which BibTeX and LaTeX read no command, nor the end of the field."""
    return text.translate(_ESCAPES)


def bibtex(row: Row | None = None, version: str = __version__) -> str:
    """Return the entries of the software and of a protocol's paper, or of all papers.

    Parameters
    ----------
    row : Row, optional
        Of the protocol; one without a paper, such as another package's, has the software alone. None: all papers.
    version : str
        Of the software that made the run.

    Examples
    --------
    >>> print(bibtex(ROWS[0], "0.1.0").splitlines()[0])
    @software{fastlloyd-software,
    """
    software = (
        "@software{fastlloyd-software,\n  author    = {{The fastlloyd developers}},\n  title     = {fastlloyd: private "
        f"federated k-means}},\n  version   = {{{version}}}\n}}"
    )
    known = papers()
    keys = dict.fromkeys(each.paper for each in (ROWS if row is None else (row,)) if each.paper in known)
    return "\n\n".join([software, *(known[key] for key in keys)]) + "\n"
