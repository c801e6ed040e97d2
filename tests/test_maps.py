"""Each protocol's `__init__` is a map of its folder: it names every module, and none that is not there."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

PROTOCOLS = Path(__file__).parents[1] / "fastlloyd" / "protocols"
FOLDERS = sorted(path.parent for path in PROTOCOLS.glob("*/__init__.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_map_of_a_protocol_names_its_modules_and_no_other(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    named = set(re.findall(r"`([\w/*]+\.py)`", text))
    modules = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if path.name != "__init__.py"}
    assert [module for module in sorted(modules) if not any(fnmatch(module, name) for name in named)] == []
    assert [name for name in sorted(named) if not any(fnmatch(module, name) for module in modules)] == []
