"""How to cite a run: the software, and the paper that its protocol comes from, as BibTeX.

Source: `papers.bib`, and CITATION.cff at the top of the repository, which names the same papers.
"""

from __future__ import annotations

from importlib import resources

from fastlloyd.protocols.registry import ROWS, Row
from fastlloyd.version import __version__


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
