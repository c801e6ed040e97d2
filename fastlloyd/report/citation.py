"""What people say of the study behind a run, and how to cite a run: the software, and the paper of its protocol.

Source: `papers.bib`, and CITATION.cff at the top of the repository, which names the same papers.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from fastlloyd.protocols.registry import ROWS, Row
from fastlloyd.version import __version__

STUDY = {"title": 100, "authors": 100, "institution": 200, "purpose": 500}
"""What the parties may say of their study, all of it public: the most characters of each, of authors of each name."""


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
