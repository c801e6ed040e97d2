"""A reference checks the parties only as far as it does not call them, nor what they call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parsed import parsed
from tests.test_layers import ROOT

REFERENCES = sorted((ROOT / "protocols").glob("*/*reference*.py"))
PLAIN = ROOT / "kmeans" / "reference.py"
# What a reference may take from the package, by name: types, settings and plans (both sides work with the same, and
# tests of plans check them), random words, and the noise, which is an input. All else it computes itself, or takes
# from another reference.
WORDS = {
    "fastlloyd.randomness": {"domains"},
    "fastlloyd.randomness.prg": {"PublicStream", "derive", "keystream"},
    "fastlloyd.randomness.secret": {"SecretRandom"},
}
INPUTS = {
    "fastlloyd.kmeans.grid": {"GridPoints"},
    "fastlloyd.privacy.noise.sampler": {"round_laplace", "round_normal"},
    "fastlloyd.protocols.vertical_dp.sketch.sketch": {"Levels", "PAPER_PHANTOMS", "SketchShape"},
}
OF_ITS_PROTOCOL = {"plan": {"Plan"}, "local_plan": {"BOX_TREE", "LocalPlan"}}


def taken(path: Path) -> Iterator[tuple[str, str]]:
    """What a file imports from the package: module and name, also inside functions."""
    for node in parsed(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "fastlloyd")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fastlloyd":
            yield from ((node.module or "", alias.name) for alias in node.names)


def refused(path: Path) -> list[str]:
    """What a reference takes though it may not."""
    own = f"fastlloyd.protocols.{path.parent.name}"
    allowed = WORDS | INPUTS | {f"{own}.{module}": names for module, names in OF_ITS_PROTOCOL.items()}
    others = {"fastlloyd.kmeans.reference", *(f"{own}.{each.stem}" for each in REFERENCES)}
    return [
        f"{module}.{name}"
        for module, name in taken(path)
        if module not in others and name not in allowed.get(module, set())
    ]


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_reference_calls_nothing_of_what_it_checks(path: Path) -> None:
    assert refused(path) == []


def test_the_plain_modules_of_references_take_random_words_only() -> None:
    assert [f"{module}.{name}" for module, name in taken(PLAIN) if name not in WORDS.get(module, set())] == []


def test_what_a_reference_may_not_take_is_found(tmp_path: Path) -> None:
    path = tmp_path / "kfed" / "reference.py"
    path.parent.mkdir()
    path.write_text(
        "import fastlloyd.kmeans.spectral\n"
        "from fastlloyd.kmeans.grid import GridPoints, quantise\n"
        "from fastlloyd.kmeans.reference import cluster\n"
        "from fastlloyd.protocols.kfed.plan import Plan, make_plan\n"
        "from fastlloyd.protocols.kfed import server\n"
        "def later():\n    from fastlloyd.kmeans.weighted import refine\n"
    )
    assert sorted(refused(path)) == [
        "fastlloyd.kmeans.grid.quantise",
        "fastlloyd.kmeans.spectral.",
        "fastlloyd.kmeans.weighted.refine",
        "fastlloyd.protocols.kfed.plan.make_plan",
        "fastlloyd.protocols.kfed.server",
    ]


def test_every_protocol_has_a_reference() -> None:
    protocols = {path.parent.name for path in (ROOT / "protocols").glob("*/client.py")} | {"vertical_he"}
    assert {path.parent.name for path in REFERENCES} == protocols
