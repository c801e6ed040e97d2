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


class _Bare(ast.NodeTransformer):
    """Leaves out docstrings and types."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        return node


def code_lines(path: Path) -> int:
    """Count a file's lines of code as `ast` writes them: without docstrings, comments, types and empty lines."""
    text = ast.unparse(_Bare().visit(ast.parse(path.read_text("utf-8"))))
    return sum(bool(line.strip()) for line in text.splitlines())


def imported_packages(path: Path) -> set[str]:
    """Name the subpackages of fastlloyd that a file imports names from."""
    modules = [node.module or "" for node in parsed(path) if isinstance(node, ast.ImportFrom)]
    return {".".join(module.split(".")[:2]) for module in modules if module.startswith("fastlloyd.")}
