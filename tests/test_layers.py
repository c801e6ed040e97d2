"""The layers of the package: each subpackage imports lower ones only, and each outside library has its place."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.parsed import parsed

ROOT = Path(__file__).parents[1] / "fastlloyd"
# From the lowest to the highest: a layer may import those before it. "protocols" is the registry alone.
LAYERS = [
    *("version", "errors", "protocols", "randomness", "wire", "kmeans", "masking"),
    *("crypto", "crypto/link", "privacy/noise", "privacy", "data", "data/public"),
    *(
        "net",
        "net/link",
        "net/mpi",
        "net/tcp",
        "party",
        "report",
        "describe",
        "gate",
        "watch",
        "lifecycle",
        "lifecycle/align",
        "run",
        "dossier",
        "protocol",
        "protocols/NAME",
    ),
    *("estimator", "supervise", "cli", "adapters", "testing", "client", "server", "__init__", "__main__"),
]
LEVEL = {name: level for level, name in enumerate(LAYERS)}
MOST_FILES = 25
CONTEXT = re.compile(r"\b(config|facts)\b")
DOORS = {"__init__.py", "__main__.py", "client.py", "server.py", "errors.py", "version.py"}
# What the modules of a protocol that describe it may see, and those of its parties may not.
FOR_ADAPTERS = {"run", "dossier", "gate", "watch", "report", "data", "data/public", "protocol"}
ADAPTERS = ("protocol", "inputs", "quality", "plan_lines", "work")
PLACES = {
    "mpi4py": {"net/mpi/transport.py"},
    "tenseal": {"protocols/vertical_he/he/seal.py"},
    "dp_accounting": {"privacy/"},
    "mpmath": {"privacy/", "protocols/vertical_dp/sketch/"},
    "matplotlib": {"report/"},
    "jinja2": {"report/page/"},
    "pyarrow": {"data/columnar.py"},
    "duckdb": {"data/connection.py"},
    "psycopg": {"data/connection.py"},
    "pymysql": {"data/mysql.py"},
    "python_calamine": {"data/spreadsheet.py"},
    "sklearn": {"estimator/", "kmeans/metrics.py"},
    "numba": {"kmeans/fused.py"},
    "nvflare": {"adapters/nvflare.py"},
    "pytest": {"testing/"},
    "tqdm": {"report/"},
    "pickle": set(),
    "random": set(),
}
FILES = sorted(ROOT.rglob("*.py"))
EXAMPLES = sorted(path for folder in ("examples", "tests/packages") for path in (ROOT.parent / folder).rglob("*.py"))
MODULES = {
    ".".join(("fastlloyd", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in FILES
}


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """Every module that a file names in an import, inside functions and for types too."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in parsed(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            modules = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            yield from modules or {node.module or ""}


def layer(module: str) -> str:
    """The layer that a module of the package is in."""
    parts = module.split(".")[1:] or ["__init__"]
    if parts[0] == "protocols":
        return "protocols" if parts[1:] in ([], ["registry"]) else "protocols/NAME"
    inner = "/".join(parts[:2])
    return inner if inner in LEVEL else parts[0]


def test_imports_lead_to_lower_layers() -> None:
    wrong = []
    for module, path in MODULES.items():
        name, own = str(path.relative_to(ROOT)), layer(module)
        assert own in LEVEL, f"{own} is no layer: give it a place in this test"
        for other in imports(path):
            outside = other.partition(".")[0]
            if outside == "fastlloyd":
                if layer(other) != own and LEVEL[layer(other)] >= LEVEL[own]:
                    wrong.append(f"{name} imports {other}, which lies above it")
            elif not any(name.startswith(place) for place in PLACES.get(outside, {""})):
                wrong.append(f"{name} imports {other}; only {PLACES[outside]} may")
    assert wrong == []


def climbs(sources: Mapping[str, str]) -> list[str]:
    """The calls by which the context of a run, `config` or `facts`, climbs, in modules given as text.

    A function cannot import what lies above it, but it can call a method of an object that it was given. The context
    climbs where no class of the caller's layer or of a lower one declares, by that name and with that parameter, the
    method that it is passed to: the caller then knows something that only a higher layer says. A call of a method that
    is declared there and written anew above, as protocols write those of their base, is no climb.
    """
    trees = {module: ast.parse(text) for module, text in sources.items() if CONTEXT.search(text)}
    declared: dict[str, set[int]] = {}
    for module, tree in trees.items():
        for made in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for method in (node for node in made.body if isinstance(node, ast.FunctionDef)):
                if any(CONTEXT.fullmatch(given.arg) for given in (*method.args.args, *method.args.kwonlyargs)):
                    declared.setdefault(method.name, set()).add(LEVEL[layer(module)])
    found = []
    for module, tree in trees.items():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            levels = declared.get(call.func.attr) if isinstance(call.func, ast.Attribute) else None
            if levels and min(levels) > LEVEL[layer(module)]:
                passed = (ast.unparse(word) for word in (*call.args, *(one.value for one in call.keywords)))
                if any(CONTEXT.fullmatch(word.rpartition(".")[2]) for word in passed):
                    found.append(f"{module}:{call.lineno} {ast.unparse(call.func)}")
    return found


def test_the_context_of_a_run_does_not_climb() -> None:
    below = "def go(party, config):\n    party.start(config)\n"
    above = "class Party:\n    def start(self, config): ...\n"
    assert climbs({"fastlloyd.lifecycle.a": below, "fastlloyd.run.b": above}) == ["fastlloyd.lifecycle.a:2 party.start"]
    assert climbs({"fastlloyd.run.a": below, "fastlloyd.lifecycle.b": above}) == []
    assert climbs({module: path.read_text("utf-8") for module, path in MODULES.items()}) == []


def test_no_file_imports_in_a_circle() -> None:
    graph = {module: set(imports(path)) & MODULES.keys() - {module} for module, path in MODULES.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"these files import each other: {' -> '.join(error.args[1])}")


def test_no_command_is_imported_by_another() -> None:
    """A command parses, calls and prints: what two of them do, or something else does too, stands below."""
    shared = {"fastlloyd.cli", "fastlloyd.cli.options"}
    doors = {"fastlloyd.__main__", "fastlloyd.client", "fastlloyd.server"}
    for module, path in MODULES.items():
        for other in imports(path):
            if layer(other) == "cli" and other.startswith("fastlloyd"):
                assert layer(module) == "cli" or module in doors, f"{module} imports {other}: move what it needs down"
                assert other in shared, f"{module} imports the command {other}: move what both need down"


def test_no_protocol_imports_another() -> None:
    for module, path in MODULES.items():
        own = module.split(".")[2:3] if layer(module) == "protocols/NAME" else []
        for other in imports(path) if own else ():
            strange = layer(other) == "protocols/NAME" and other.split(".")[2:3] != own
            assert not strange, f"{module} imports {other}: move what they share down"


def test_only_what_describes_a_protocol_sees_runs_reports_and_data() -> None:
    for module, path in MODULES.items():
        if layer(module) == "protocols/NAME" and not path.name.startswith(ADAPTERS):
            for other in imports(path):
                wrong = other.startswith("fastlloyd") and layer(other) in FOR_ADAPTERS
                assert not wrong, f"{module} imports {other}"


def exchanged(path: Path) -> list[tuple[str, str]]:
    """Effects that send or wait for a message by its class, as written in a file: effect and class."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Gather", "Receive"):
            found += [(node.func.id, name.id) for name in ast.walk(node) if isinstance(name, ast.Name)]
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Send":
            made = [name.id for name in ast.walk(node) if isinstance(name, ast.Name)]
            found += [("Send", name) for name in made]
    return found


def masked_messages() -> set[str]:
    """The classes of masked vectors: ring elements that a client sends."""
    texts = [path.read_text("utf-8") for path in (*FILES, *EXAMPLES)]
    return {name for text in texts for name in re.findall(r"class (\w+)\(RingPayload\)", text)}


def test_a_masked_vector_is_exchanged_in_one_place() -> None:
    """Record, save, send, receive, save, attest, resume: a second copy of that order is where a mask is used twice."""
    masked = masked_messages()
    assert {"MaskedUpdate", "MaskedStatistic", "MaskedCounts"} <= masked
    for path in (*FILES, *EXAMPLES):
        if path != ROOT / "lifecycle" / "rounds.py":
            wrong = {effect for effect, name in exchanged(path) if name in masked}
            assert not wrong, f"{path} exchanges masked vectors itself ({wrong}): ask lifecycle/rounds.py"
    for path in (ROOT / "lifecycle" / "masked_sums.py", *ROOT.glob("protocols/*/*.py")):
        if {"fastlloyd", "feddp", "kfed"} & set(path.parts[-2:]) or path.name == "masked_sums.py":
            assert not exchanged(path), f"{path} sends or waits for messages itself"


def test_an_exchange_of_its_own_is_found(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("def f(all):\n    x = yield Gather(all, MaskedUpdate, 0, 2)\n")
    assert ("Gather", "MaskedUpdate") in exchanged(tmp_path / "server.py")


def test_protocols_know_no_transport() -> None:
    for module, path in MODULES.items():
        if layer(module) == "protocols/NAME" and path.name != "workers.py":
            for other in imports(path):
                assert not other.startswith(("fastlloyd.net", "socket", "ssl", "time", "threading")), (path, other)


def test_the_package_has_few_top_level_modules() -> None:
    assert {path.name for path in ROOT.glob("*.py")} == DOORS
    for folder in {path.parent for path in FILES}:
        assert len(list(folder.glob("*.py"))) <= MOST_FILES, f"{folder}: more files than one look takes in"
        assert (folder / "__init__.py").read_text("utf-8").startswith('"""'), f"{folder}: say what it is for"


def test_no_global_or_seeded_randomness() -> None:
    words = ("np.random.seed", "np.random.rand", "np.random.normal", "RandomState(")
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in FILES}
    assert [(name, word) for name, text in texts.items() for word in words if word in text] == []


def test_unit_tests_stand_where_their_subpackages_do() -> None:
    unit = Path(__file__).parent / "unit"
    for path in sorted(unit.rglob("test_*.py")):
        name, folder = path.relative_to(unit), path.parent.relative_to(unit)
        assert (ROOT / folder / "__init__.py").is_file(), f"tests/unit/{name}: there is no fastlloyd/{folder}"
        tested = {MODULES[module].relative_to(ROOT).parent for module in imports(path) if module in MODULES}
        if "fastlloyd.__main__" in imports(path):
            tested.add(Path("cli"))  # the door behind which the commands are
        below = {found.relative_to(folder).parts[0] for found in tested - {folder} if found.is_relative_to(folder)}
        # What spans several folders stands above them.
        assert folder in tested or len(below) > 1, f"tests/unit/{name} tests nothing that stands in fastlloyd/{folder}"
