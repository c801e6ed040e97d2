"""Imports point downwards, and each outside library has its place."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "fastlloyd"
LAYERS = [
    {"errors", "decode", "display", "regular", "wire", "version"},
    {"config", "net"},
    {"ring", "crypto", "kmeans", "privacy", "data"},
    {"protocols"},
    {"run", "simulate", "state", "workers"},
    {"report"},
    {"inputs", "agreement", "outcome", "supervisor", "verdict", "estimator", "parameter", "shaped"},
    {"systems"},
    {"execute"},
    {"cli", "client", "server", "bench", "__main__", "__init__"},
]
# A secure link joins a transport and TLS: the one place of net/ that knows cryptography.
EXCEPTIONS = {("net/secure.py", "crypto"), ("__init__.py", "estimator"), ("config.py", "protocols")}
# The client's command line parser is shared by `fastlloyd run` and the rank program.
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
PLACES = {
    "mpi4py": {"net/mpi.py"},
    "tenseal": {"crypto/seal.py"},
    "dp_accounting": {"privacy/"},
    "mpmath": {"privacy/"},
    "matplotlib": {"report/"},
    "pyarrow": {"data/"},
    "sklearn": {"estimator.py", "kmeans/metrics.py", "bench/"},
    "tqdm": {"report/", "bench/"},
    "pickle": set(),
    "random": set(),
}
FILES = sorted(ROOT.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield node.module or ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert own in LEVEL, f"{own} has no layer: give it one in this test"
    for module in imports(path):
        parts = module.split(".")
        if parts[0] == "fastlloyd" and len(parts) > 1:
            allowed = LEVEL[parts[1]] <= LEVEL[own] or (name, parts[1]) in EXCEPTIONS
            assert allowed, f"{name} imports {module}, which lies above it"
        elif parts[0] in PLACES:
            places = PLACES[parts[0]]
            assert any(name.startswith(place) for place in places), f"{name} imports {module}; only {places} may"


def test_no_protocol_imports_another() -> None:
    folders = {path.name for path in (ROOT / "protocols").iterdir() if path.is_dir()} - {"align", "__pycache__"}
    for folder in sorted(folders):
        for path in (ROOT / "protocols" / folder).rglob("*.py"):
            for module in imports(path):
                other = f"{module}..".split(".")[2] if module.startswith("fastlloyd.protocols.") else ""
                assert other == folder or other not in folders, f"{path} imports {module}: move what they share down"


def test_no_file_imports_in_a_circle() -> None:
    names = {path: ".".join(("fastlloyd", *path.relative_to(ROOT).with_suffix("").parts)) for path in FILES}
    known = {name.removesuffix(".__init__"): path for path, name in names.items()}
    graph = {known_as: imported(path, known) - {known_as} for known_as, path in known.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"these files import each other: {' -> '.join(error.args[1])}")


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the package that a file imports, inside functions and for types too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & known.keys() or ({node.module} & known.keys())
    return found


def test_protocols_know_no_transport() -> None:
    for path in (ROOT / "protocols").rglob("*.py"):
        for module in imports(path):
            assert not module.startswith(("fastlloyd.net", "socket", "ssl", "time", "threading")), (path, module)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_global_or_seeded_randomness(path: Path) -> None:
    text = path.read_text("utf-8")
    for word in ("np.random.seed", "np.random.rand", "np.random.normal", "RandomState"):
        assert word not in text, f"{path.name} uses {word}"
