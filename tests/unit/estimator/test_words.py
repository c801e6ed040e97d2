"""The words of a Python caller: no sentence of a fit names flags, files or people of a run between sites."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from fastlloyd.data.bounds import Bounds
from fastlloyd.errors import ConfigError
from fastlloyd.estimator.estimator import FastLloyd
from fastlloyd.estimator.words import ELSEWHERE, INPUTS, PARAMETERS, PHRASES, ParameterError, in_python
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.run.config import OPTIONS

PACKAGE = Path(__file__).parents[3] / "fastlloyd"
# What a fit does not enter: commands, links between machines, the state and the people of a run between sites.
NOT_OF_A_FIT = (
    *("adapters", "cli", "client", "crypto/link", "dossier", "estimator", "gate", "net", "server", "supervise"),
    *("testing", "watch", "report/page", "__main__"),
    *("data/connection", "data/database", "data/public", "data/categories", "data/vertical", "data/dataset"),
    *("run/checks", "run/config", "run/driver", "run/execute", "run/files", "run/outcome", "run/own_rank", "run/rank"),
    *("run/run_file", "run/state", "run/vertical", "run/work", "run/budget_terms", "run/promise", "run/inputs"),
    *("wire/values", "protocols/registry", "protocols/describe", "protocols/private_bounds", "lifecycle/closing"),
    *("lifecycle/sealed", "lifecycle/threshold", "errors"),
)
FOREIGN = re.compile(r"--[a-z]|approval|state director|bounds file|mpirun|run file|`fastlloyd ")
OF_BOUNDS_TYPED_OR_IN_A_FILE = ("--bounds {}:", "{}: a bounds file", "{}: the bounds file", "bounds file")


def sentences(tree: ast.AST) -> Iterator[str]:
    """The texts of a module that are no docstrings; what is filled in stands as {}."""
    left_out: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and isinstance(node.body[0], ast.Expr):
            left_out.add(node.body[0].value)
        if isinstance(node, ast.JoinedStr):
            left_out.update(inner for inner in ast.walk(node) if inner is not node)
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in left_out:
            yield node.value


@functools.cache
def of_a_fit() -> tuple[str, ...]:
    """All sentences of the modules that a fit may enter."""
    paths = sorted(PACKAGE.rglob("*.py"))
    names = {path: path.relative_to(PACKAGE).with_suffix("").as_posix() for path in paths}
    kept = [path for path in paths if not names[path].startswith(NOT_OF_A_FIT)]
    return tuple(text for path in kept for text in sentences(ast.parse(path.read_text("utf-8"))) if " " in text)


def test_every_option_of_a_run_has_a_place_in_python() -> None:
    of_the_class = set(inspect.signature(FastLloyd).parameters)
    flags = {option.replace("_", "-") for option in OPTIONS}
    same = {name.replace("_", "-") for name in of_the_class} & flags
    placed = [same, set(PARAMETERS) & flags, set(INPUTS), ELSEWHERE & flags]
    assert set().union(*placed) == flags | {"d"}
    assert sum(map(len, placed)) == len(flags | {"d"}), "an option has two places"
    assert {PARAMETERS[name].rstrip(":") for name in PARAMETERS} <= of_the_class


def test_no_sentence_of_a_fit_keeps_words_of_the_command_line() -> None:
    texts = of_a_fit()
    assert len(texts) > 1000 and any("--seed" in text or "needs new approvals" in text for text in texts)
    elsewhere = re.compile("|".join(rf"--{flag}\b" for flag in ELSEWHERE - {"missing"}))
    kept = [text for text in texts if FOREIGN.search(in_python(text)) and not elsewhere.search(text)]
    assert [text for text in kept if not text.startswith(OF_BOUNDS_TYPED_OR_IN_A_FILE)] == []


def test_every_phrase_is_one_of_the_package() -> None:
    others = [path for path in PACKAGE.rglob("*.py") if path.name != "words.py" or path.parent.name != "estimator"]
    text = "\n".join(text for path in others for text in sentences(ast.parse(path.read_text("utf-8"))))
    assert [phrase for phrase, _ in PHRASES if phrase not in text.replace("{}", "")] == []
    assert not any(FOREIGN.search(said) for _, said in PHRASES)


def test_warnings_errors_and_the_verdict_are_in_the_words_of_python(tmp_path: Path) -> None:
    records = np.random.default_rng(0).random((300, 4))
    with pytest.warns(UserWarning) as caught:
        model = FastLloyd(4, bounds=(0, 1), n_total=400).fit(records)
    said = [str(warning.message) for warning in caught] + [*model.quality_.warnings, model.quality_.sentence]
    assert model.quality_.warnings and not any(FOREIGN.search(text) for text in said)
    with pytest.raises(ParameterError, match="add it to bounds or leave it out of X"):
        FastLloyd(2, bounds=Bounds(np.zeros(1), np.ones(1), ("age",))).fit({"Age": records[:, 0]})
    with Ledger(tmp_path / "ledger.jsonl"), pytest.raises(ConfigError, match="another run holds it; wait for that run"):
        Ledger(tmp_path / "ledger.jsonl")
