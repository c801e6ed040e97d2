"""What the plans of all protocols share: plain values there and back, comparison, limits of public numbers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.party.planned import PlainPlan
from fastlloyd.privacy.limits import check_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Small(PlainPlan):
    k: int
    names: tuple[str, ...]


PLAN = Small(k=3, names=("a", "b"))


def test_a_plan_survives_json() -> None:
    assert Small.from_json(json.loads(json.dumps(PLAN.to_json()))) == PLAN


@pytest.mark.parametrize("values", [{"k": 3}, {"k": 3, "names": [], "more": 1}, [3, ["a"]], None])
def test_other_fields_are_refused(values: object) -> None:
    with pytest.raises(ValueError, match=r"^plan: expected (the fields k, names|an object), got"):
        Small.from_json(values)  # type: ignore[arg-type]


def test_the_first_field_that_differs_is_named() -> None:
    PLAN.compare(PLAN.values())
    PLAN.compare({"k": 3})
    with pytest.raises(ValueError, match=r"^the plan has names = \('a', 'b'\), expected \('a',\)$"):
        PLAN.compare({"k": 3, "names": ("a",)})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_total": 2}, "--n-total: expected at least 3 records, got 2"),
        ({"epsilon": 0.0}, "--epsilon: expected a number in"),
        ({"epsilon": math.nan}, "--epsilon"),
        ({"epsilon": 101.0}, "got 101"),
        ({"delta": 1.0}, "--delta: expected 'auto' or a number in"),
        ({"delta": 1e-12}, "got 1e-12"),
    ],
)
def test_public_numbers_have_limits(changes: dict[str, float], sentence: str) -> None:
    fine = {"n_total": 3, "epsilon": 100.0, "delta": None}
    check_numbers(**fine)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=sentence):
        check_numbers(**{**fine, **changes})  # type: ignore[arg-type]
