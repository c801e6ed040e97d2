"""docs/claims.md: each claim has a proof, and each test, heading and file that it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = (DOCS / "claims.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
CLAIMS = [row for row in ROWS if row[0] != "claim"]
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
LINKS = sorted(set(re.findall(r"\]\(([\w./-]*\.md)?(?:#([\w-]+))?\)", PAGE)))


@cache
def functions(file: str) -> frozenset[str]:
    """The names of a file's functions."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@cache
def anchors(path: Path) -> frozenset[str]:
    """What a link into a page may end in: its headings as their places are named, and what it names so itself."""
    text = path.read_text(encoding="utf-8")
    heads = [re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()) for line in text.splitlines() if line.startswith("#")]
    return frozenset({head.replace(" ", "-") for head in heads} | set(re.findall(r'<a id="([^"]+)"', text)))


def test_every_claim_says_for_whom_and_what_proves_it() -> None:
    assert len(CLAIMS) > 40
    for row in CLAIMS:
        assert len(row) == 3 and all(row), row
        assert re.match(r"(tests?|proofs?|papers?|assumption|a warning|\[)", row[2]), row
        named = re.findall(r"`tests/[\w/]+\.py::\w+`|\]\([^)]+\)|papers?: |assumption: ", row[2])
        assert named, row


@pytest.mark.parametrize(("file", "name"), TESTS, ids=[name for _, name in TESTS])
def test_every_test_that_is_named_is_there(file: str, name: str) -> None:
    assert name in functions(file)


def test_nothing_else_stands_there_like_a_test() -> None:
    assert len(re.findall(r"tests/\w", PAGE)) == len(re.findall(r"`tests/[\w/]+\.py::\w+`", PAGE))


@pytest.mark.parametrize(("page", "anchor"), LINKS)
def test_every_page_and_place_that_is_named_is_there(page: str, anchor: str) -> None:
    path = (DOCS / page).resolve() if page else DOCS / "claims.md"
    assert path.is_file()
    assert not anchor or anchor in anchors(path)


def test_code_that_is_named_is_there() -> None:
    for name in re.findall(r"`(fastlloyd/[\w/]+\.py)`", PAGE):
        assert (ROOT / name).is_file(), name


def test_the_page_is_found_from_dossier_readme_and_index() -> None:
    for place in ("fastlloyd/dossier/content.py", "README.md", "docs/README.md", "docs/data-protection.md"):
        assert "claims.md" in (ROOT / place).read_text(encoding="utf-8"), place
