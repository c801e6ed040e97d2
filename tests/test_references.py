"""A reference checks the parties only as far as it does not call them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_layers import ROOT, imports

REFERENCES = sorted((ROOT / "protocols").glob("*/*reference*.py"))
# The plan and its numbers: both sides work with the same, and tests of plans check them.
SHARED = {"plan", "local_plan", "plus_plan", "budget"}
# Its post-processing is checked by a program that imports nothing of the package (tests/vectors/make_plus.py).
EXCEPTIONS = {"plus_reference": {"rounds"}}


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_reference_calls_nothing_of_what_it_checks(path: Path) -> None:
    own = f"fastlloyd.protocols.{path.parent.name}."
    allowed = SHARED | EXCEPTIONS.get(path.stem, set()) | {reference.stem for reference in REFERENCES}
    called = {name.removeprefix(own) for name in imports(path) if name.startswith(own)}
    assert called - allowed == set()


def test_every_protocol_has_a_reference() -> None:
    protocols = {path.parent.name for path in (ROOT / "protocols").glob("*/client.py")} | {"vertical_he"}
    assert {path.parent.name for path in REFERENCES} == protocols
