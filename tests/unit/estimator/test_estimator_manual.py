"""How the estimator is packaged and documented: the examples run, and a missing scikit-learn is said."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn")

import fastlloyd
from fastlloyd.errors import ConfigError
from fastlloyd.estimator import estimator as module
from fastlloyd.estimator.estimator import FastLloyd
from tests.unit.estimator import typed_program


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_program_whose_types_are_checked_runs() -> None:
    assert typed_program.main() > 80.0


def test_package_gives_the_estimator() -> None:
    assert fastlloyd.FastLloyd is FastLloyd


def test_missing_scikit_learn_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fastlloyd.estimator.estimator")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(ConfigError, match=re.escape("pip install 'fastlloyd[ml]'")):
        importlib.import_module("fastlloyd.estimator.estimator")


def test_examples_run() -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_examples_of_the_manual_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[3] / "docs" / "estimator.md"
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"estimator.md, block {number}", "exec"), names)
