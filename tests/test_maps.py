"""A protocol's `__init__` is a map of its folder; what a party does is marked with the paper's line or section."""

from __future__ import annotations

import ast
import re
import tokenize
from fnmatch import fnmatch
from pathlib import Path

import pytest

PROTOCOLS = Path(__file__).parents[1] / "fastlloyd" / "protocols"
FOLDERS = sorted(path.parent for path in PROTOCOLS.glob("*/__init__.py"))
# What parties do: every module that yields effects, and those that hold the numbers of a step. Faces are no part of an
# algorithm.
ROLES = sorted(
    path
    for path in PROTOCOLS.glob("*/*.py")
    if not path.stem.startswith("face")
    and (path.stem in {"merge", "rounds"} or "from fastlloyd.party.effects import" in path.read_text("utf-8"))
)
# In a comment beside a statement: a docstring says where a module comes from, not what does which line.
MARK = re.compile(r"\blines? \d|\bAlg\. \d|\bEq\. \d|\bFigure \d|\bstep \(\d\)|§\d")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_map_of_a_protocol_names_its_modules_and_no_other(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    named = set(re.findall(r"`([\w/*]+\.py)`", text))
    modules = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if path.name != "__init__.py"}
    assert [module for module in sorted(modules) if not any(fnmatch(module, name) for name in named)] == []
    assert [name for name in sorted(named) if not any(fnmatch(module, name) for module in modules)] == []


def marks(path: Path) -> list[str]:
    """The comments that name a line, step or section of a paper."""
    with path.open("rb") as file:
        comments = [token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]
    return [comment for comment in comments if MARK.search(comment)]


@pytest.mark.parametrize("path", ROLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_a_party_does_is_marked_with_the_paper_s_line_or_section(path: Path) -> None:
    assert marks(path)


def test_the_roles_of_every_protocol_are_looked_at() -> None:
    assert {path.parent for path in ROLES} == set(FOLDERS)
    named = {path.stem for path in ROLES}
    assert {"client", "server", "aggregate", "owner", "holder", "computing", "merge"} <= named
    assert {"membership", "sharing", "reveal", "keys", "rounds"} <= named
