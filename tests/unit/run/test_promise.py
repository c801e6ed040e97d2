"""The lines of a plan are values: what is asked for by name is not cut out of a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from fastlloyd.report.outlook import PlanLine
from fastlloyd.run import promise
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import find_protocol

CONFIG = RunConfig(protocol="kfed", data="x.csv", bounds="-1,1", n_total=200, k=3)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            [PlanLine("expected", "noise: little"), PlanLine("", "  no: name")],
            {"expected": "noise: little"},
        ),
        (["expected: a sentence of a package that knows no PlanLine"], {}),
    ],
)
def test_only_named_lines_are_asked_for_by_name(
    lines: list[Any], words: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(find_protocol("kfed")), "plan_lines", lambda self, config, clients, d: lines)
    assert promise.plan_words(CONFIG, 2, 2) == words
