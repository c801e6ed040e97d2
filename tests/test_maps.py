"""The `__init__` of a protocol and of each large folder is a map; what a party does is marked with the paper's line."""

from __future__ import annotations

import ast
import re
import tokenize
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.test_layers import ADAPTERS

PACKAGE = Path(__file__).parents[1] / "fastlloyd"
PROTOCOLS = sorted(path.parent for path in PACKAGE.glob("protocols/*/__init__.py"))
LARGE = 8
"""A folder of so many modules has a map; a protocol's has one in any case, and it covers the folders within."""
# What parties do: every module that yields effects, and those that hold the numbers of a step. What describes a
# protocol is no part of an algorithm.
ROLES = sorted(
    path
    for path in PACKAGE.glob("protocols/*/*.py")
    if not path.name.startswith(ADAPTERS)
    and (path.stem == "rounds" or "from fastlloyd.party.effects import" in path.read_text("utf-8"))
)
# In a comment beside a statement: a docstring says where a module comes from, not what does which line.
MARK = re.compile(r"\blines? \d|\bAlg\. \d|\bEq\. \d|\bFigure \d|\bstep \(\d\)|§\d")


def modules_of(folder: Path) -> set[str]:
    """Name the modules of a folder and of those in it, as a map has them."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*.py") if path.name != "__init__.py"}


def own_modules(folder: Path) -> set[str]:
    """Name the modules that a map must have: of a protocol those in its folders as well."""
    return {name for name in modules_of(folder) if "/" not in name or folder in PROTOCOLS}


FOLDERS = sorted(
    path.parent
    for path in PACKAGE.rglob("__init__.py")
    if path.parent in PROTOCOLS
    or (len(own_modules(path.parent)) >= LARGE and not set(path.parent.parents) & set(PROTOCOLS))
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_the_map_of_a_folder_names_its_modules_and_no_other(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    named = set(re.findall(r"`([\w/*]+\.py)`", text))
    assert [module for module in sorted(own_modules(folder)) if not any(fnmatch(module, name) for name in named)] == []
    there = modules_of(folder)
    assert [name for name in sorted(named) if not any(fnmatch(module, name) for module in there)] == []


def marks(path: Path) -> list[str]:
    """The comments that name a line, step or section of a paper."""
    with path.open("rb") as file:
        comments = [token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]
    return [comment for comment in comments if MARK.search(comment)]


@pytest.mark.parametrize("path", ROLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_a_party_does_is_marked_with_the_paper_s_line_or_section(path: Path) -> None:
    assert marks(path)


def test_the_roles_of_every_protocol_are_looked_at() -> None:
    assert {path.parent for path in ROLES} == set(PROTOCOLS)
    named = {path.stem for path in ROLES}
    assert {"client", "server", "owner", "holder", "computing"} <= named
    assert {"membership", "sharing", "reveal", "keys", "rounds"} <= named
