"""What the plans of all protocols share: plain values there and back, comparison, limits of public numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.party.plain_plan import PlainPlan, check_delta, check_epsilon, same_named
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.limits import check_clients, check_clusters, check_numbers, check_rounds
from fastlloyd.privacy.release import Release


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
        ({"n_total": 2}, "--n-total: expected a whole number, at least 3, got 2"),
        ({"epsilon": 0.0}, "--epsilon: expected a number, above 0 and at most 100, got 0"),
        ({"epsilon": math.nan}, "--epsilon"),
        ({"epsilon": 101.0}, "got 101"),
        ({"delta": 1.0}, "--delta: expected 'auto' or a number, above 1.8189.*e-12 and below 1, got 1"),
        ({"delta": 1e-12}, "got 1e-12"),
    ],
)
def test_public_numbers_have_limits(changes: dict[str, float], sentence: str) -> None:
    fine = {"n_total": 3, "epsilon": 100.0, "delta": None}
    check_numbers(**fine)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=sentence):
        check_numbers(**{**fine, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (lambda: check_clients(0), "expected at least one client, got none"),
        (lambda: check_clients(3, 0), "--min-clients: expected a number of clients from 1 to 3, got 0"),
        (lambda: check_clients(3, 4), "--min-clients: expected a number of clients from 1 to 3, got 4"),
        (lambda: check_clusters(0, 10), "--k: expected a whole number from 1 to 10000, got 0"),
        (lambda: check_clusters(10_001, 10**6), "--k: expected a whole number from 1 to 10000, got 10001"),
        (lambda: check_clusters(11, 10), "--k: expected at most the public N = 10 clusters, got 11"),
        (lambda: check_rounds(0), "--rounds: expected 'auto' or a number from 1 to 1000, got 0"),
        (
            lambda: check_rounds(1001, least=0, what=" of steps"),
            "--rounds: expected 'auto' or a number of steps from 0 to 1000, got 1001",
        ),
    ],
)
def test_numbers_of_clients_clusters_and_rounds_have_limits(check: Callable[[], None], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check()
    check_clients(3, 3)
    check_clusters(10, 10)
    check_rounds(0, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(PlainPlan):
    k: int
    start: str
    delta: float


PUBLIC = SimpleNamespace(k=3, delta=None, rounds=None, seed=7)
NOISY = (Release(round=0, name="counts", mechanism="gaussian", norm="l2", sensitivity=1.0, noise_scale=5.0),)


def test_fields_of_the_same_name_are_taken_over_but_those_that_a_formula_settles() -> None:
    settings = SimpleNamespace(start="random", k_of_another=1)
    assert same_named(Plan, PUBLIC) == {"k": 3}
    assert same_named(Plan, PUBLIC, settings) == {"k": 3, "start": "random"}
    assert same_named(Plan, PUBLIC, settings, but=("start",)) == {"k": 3, "delta": None}


@pytest.mark.parametrize("delta,allowed", [(1e-5, 1e-5), (1e-9, 1e-5), (0.0, 0.0)])
def test_a_delta_up_to_the_allowed_one_passes(delta: float, allowed: float) -> None:
    check_delta(delta, allowed)


@pytest.mark.parametrize("delta,allowed", [(1.1e-5, 1e-5), (0.0, 1e-5), (-1e-5, 1e-5), (math.nan, 1e-5), (-1.0, 0.0)])
def test_another_delta_is_refused(delta: float, allowed: float) -> None:
    with pytest.raises(ValueError, match="the plan has delta .*, expected at most"):
        check_delta(delta, allowed)


def test_epsilon_is_what_the_releases_spend_and_at_most_the_limit() -> None:
    epsilon = spent(NOISY, 1e-6)
    assert check_epsilon(lambda: NOISY, 1e-6, most=epsilon) == epsilon
    assert check_epsilon(lambda: NOISY, 1e-6, most=0.5 * epsilon, private=False) == epsilon
    for most in (0.999 * epsilon, math.nan):
        with pytest.raises(ValueError, match=f"spends epsilon {epsilon:.6g}, expected at most"):
            check_epsilon(lambda: NOISY, 1e-6, most=most)


@pytest.mark.parametrize("scale", [-1.0, math.nan, math.inf])
def test_releases_that_cannot_be_are_the_fault_of_the_plan(scale: float) -> None:
    def planned() -> list[Release]:
        return [Release(round=0, name="x", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=scale)]

    with pytest.raises(ValueError, match="the plan's releases are impossible: release 'x' cannot be accounted for"):
        check_epsilon(planned, 1e-6, most=1.0)
