"""What tests look for in the package's files, each parsed once for all tests of this process."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def parsed(path: Path) -> tuple[ast.AST, ...]:
    """Return a file's imports, annotated assignments, bytes and calls of `PublicStream`.

    Not the rest: millions of nodes that stay make every later collection of garbage slow.
    """
    return tuple(node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if _is_looked_for(node))


def _is_looked_for(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bytes)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "PublicStream"
    return isinstance(node, ast.Import | ast.ImportFrom | ast.AnnAssign)
