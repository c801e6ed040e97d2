"""docs/releasing.md, "Tried on the real thing": each test that the table names is there."""

from __future__ import annotations

import ast
import re

from tests.documents.test_commands import ROOT


def test_every_test_that_the_table_names_is_there() -> None:
    text = (ROOT / "docs/releasing.md").read_text("utf-8").partition("## Tried on the real thing")[2]
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    names: set[str] = set()
    found = 0
    for word in re.findall(r"`((?:tests/|test_)[^`]*)`", rows):
        if word.startswith("tests/"):
            names = {
                node.name
                for node in ast.parse((ROOT / word).read_text("utf-8")).body
                if isinstance(node, ast.FunctionDef)
            }
        else:
            assert word in names, word
            found += 1
    assert found >= 15
