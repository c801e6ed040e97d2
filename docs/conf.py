"""The site: every Markdown page of the repository where it lies, and the public names' docstrings.

`make docs` builds it. The source folder is the repository's root, so that a link between two files works here as it
does in an editor. Nothing is fetched, neither by the build nor by the pages.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpydoc.docscrape import NumpyDocString

from fastlloyd.version import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "fastlloyd"
author = "The fastlloyd developers"
release = version = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "numpydoc"]

OWN_SECTIONS = ("Sees", "Privacy", "Source")

root_doc = "docs/README"
include_patterns = [
    *(
        "*.md",
        "docs/*.md",
        "docs/api/*.rst",
        "docs/*.ipynb",
        "papers/README.md",
        "papers/benchmarks/results/*.md",
        "launch/*.md",
        "docker/*.md",
    ),
    *("examples/**/README.md", "scripts/netem/README.md", "fastlloyd/data/public/embedded/ATTRIBUTION.md"),
]
exclude_patterns = [".*", "build", "dist", "fastlloyd-run*", "tests", "**/__pycache__"]
nitpicky = True
# Types of the standard library, numpy and scikit-learn lie on other sites, and nothing is fetched from there.
nitpick_ignore_regex = [("py:.*", r".*")]

myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]  # the README gives its picture a width
nb_execution_mode = "off"  # a test runs the notebook and compares its output

highlight_language = "none"  # a block without a language shows output
smartquotes = False  # two dashes begin a flag
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc's sections have the types, with shapes and units
autodoc_mock_imports = ["pytest"]  # the contract tests of `fastlloyd.testing` are shown, not run
numpydoc_show_class_members = False

html_theme = "furo"
html_title = f"fastlloyd {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("_static") / "scorer.js")  # the guide first
html_copy_source = False
html_show_copyright = html_show_sphinx = False
templates_path = ["_templates"]
html_additional_pages = {"index": "to-the-site.html"}


def show_contents(app: Sphinx, document: str, source: list[str]) -> None:
    """Uncover the tables of contents that comments hide from other viewers."""
    source[0] = source[0].replace("<!-- site\n", "").replace("\nsite -->", "")


def merge_sections(*event: Any) -> None:
    """Put our own sections under Notes: numpydoc leaves out those that it does not know."""
    lines: list[str] = event[-1]
    heads = [at for at, line in enumerate(lines[1:]) if lines[at] and line == "-" * len(lines[at])]
    sections = {lines[at]: lines[at + 2 : end] for at, end in pairwise([*heads, len(lines)])}
    own = [line for name in OWN_SECTIONS if name in sections for line in (f"**{name}.**", *sections.pop(name), "")]
    if own:
        sections["Notes"] = [*sections.get("Notes", []), "", *own]
        lines[heads[0] :] = [line for name, body in sections.items() for line in (name, "-" * len(name), *body, "")]


# What a screen reader or a keyboard misses in the pages of theme and builder, and what stands there instead.
FOR_ALL_READERS = (
    ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="All pages">'),
    ('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer'),
    ("<pre>", '<pre tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ('<th class="head"><p></p></th>', "<td></td>"),
)


def help_all_readers(app: Sphinx, problem: Exception | None) -> None:
    """Let a keyboard scroll code and tables, and give headings and regions what a screen reader says of them."""
    if problem is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            text = page = path.read_text("utf-8")
            for found, better in FOR_ALL_READERS:
                page = page.replace(found, better)
            if page != text:
                path.write_text(page, "utf-8")


def setup(app: Sphinx) -> None:
    """Connect the hooks above."""
    NumpyDocString.sections.update(dict.fromkeys(OWN_SECTIONS, ()))
    app.connect("source-read", show_contents)
    app.connect("build-finished", help_all_readers)
    app.connect("autodoc-process-docstring", merge_sections, priority=400)  # before numpydoc, which has 500
