from __future__ import annotations

import dataclasses
import json
import math

import pytest

from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocols.vertical_he.choose import options
from fastlloyd.protocols.vertical_he.plan import FLOODING, Plan, change_epsilon, check_plan, make_plan
from fastlloyd.protocols.vertical_he.scales import MAX_ERROR, NOISE_TAIL, record_error
from fastlloyd.protocols.vertical_he.settings import HELP, settings_from
from tests.protocols.vertical_he.support import names, parameters


@pytest.mark.parametrize(("scheme", "widths"), [("linear", (1, 1)), ("linear", (3, 1)), ("pairwise", (2, 2))])
def test_the_noise_spends_the_budget_and_no_more(scheme: str, widths: tuple[int, int]) -> None:
    plan = make_plan(parameters(10_000, 5, rounds=10, scheme=scheme), names(*widths))
    epsilon = spent(plan.all_releases(), plan.delta)
    assert 0.999 <= epsilon <= 1.0
    # Any change of values: at most what twice the sensitivity gives, and more than one neighbour.
    assert 1.2 < change_epsilon(plan) < 2.6
    assert plan.scales.error <= MAX_ERROR


def test_plans_travel_and_are_checked() -> None:
    public = parameters(10_000, 5, rounds=10)
    plan = make_plan(public, names(1, 1))
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    assert check_plan(again, public, names(1, 1)) <= 1.0
    for change in (
        {"count_scale": plan.count_scale * 0.99},
        {"k": 6},
        {"holder": 0, "computing": 1},
        {"scales": dataclasses.replace(plan.scales, weight_bits=plan.scales.weight_bits - 1)},
    ):
        with pytest.raises(ValueError, match="expected"):
            check_plan(dataclasses.replace(plan, **change), public, names(1, 1))
    with pytest.raises(ValueError, match="fields"):
        Plan.from_json({"k": 1})


@pytest.mark.parametrize(("widths", "k"), [((1, 1), 15), ((2, 2), 3)])
def test_without_privacy_the_noise_still_floods(widths: tuple[int, int], k: int) -> None:
    plan = make_plan(parameters(5000, k, rounds=10, noise="flooding"), names(*widths))
    assert not plan.private
    assert plan.count_scale == plan.sum_scale == FLOODING * plan.scales.flood * plan.unit
    assert spent(plan.all_releases(), plan.delta) == math.inf


@pytest.mark.parametrize("n", [100, 10_000, 1_000_000])
@pytest.mark.parametrize("k", [1, 2, 8, 30])
def test_the_prime_has_room_for_sums_and_noise(n: int, k: int) -> None:
    for noise in ("dp", "flooding"):
        plan = make_plan(parameters(n, k, rounds=10, noise=noise, scheme="linear"), names(2, 1))
        scales = plan.scales
        largest = n * (1 + scales.error) + scales.flood + NOISE_TAIL * max(plan.count_scale, plan.sum_scale) / plan.unit
        assert largest * plan.unit < 2.0 ** (scales.prime_bits[0] - 1.5)
        assert scales.error == record_error(k, plan.degree, scales.data_bits, scales.weight_bits) <= MAX_ERROR


def test_who_plays_which_part_follows_the_columns() -> None:
    plan = make_plan(parameters(1000, 5), names(1, 4))
    assert (plan.scheme, plan.computing, plan.holder) == ("linear", 1, 0)
    assert plan.columns(0) == (0,) and plan.columns(1) == (1, 2, 3, 4)
    assert make_plan(parameters(1000, 3), names(2, 2)).scheme == "pairwise"
    aided = make_plan(parameters(1000, 2, parties=4), names(1, 2, 1))
    assert (aided.mode, aided.computing, aided.holder, aided.owners) == ("server-aided", 0, 1, (1, 2, 3))
    assert aided.columns(0) == () and aided.columns(2) == (1, 2)
    best, *others = options(parameters(10_000, 5), (1, 1))
    assert all(best.total_seconds(2) <= other.total_seconds(2) for other in others)
    assert "rank 0 computes" in best.line(10)


def test_what_does_not_fit_is_refused_with_the_mend() -> None:
    with pytest.raises(ConfigError, match="leave scheme and computing at 'auto'"):
        make_plan(parameters(1000, 3, scheme="linear"), names(2, 2))
    with pytest.raises(ConfigError, match="start with -n 3"):
        parameters(1000, 3, mode="server-aided")
    with pytest.raises(ConfigError, match="has no column"):
        make_plan(parameters(1000, 3), names(2, 0))
    with pytest.raises(RangeError, match="lower"):
        make_plan(parameters(10**9, 8, scheme="pairwise"), names(2, 2))
    with pytest.raises(RangeError, match="lower --k"):
        make_plan(parameters(10**10, 200, scheme="linear"), names(1, 1))


def test_settings_are_checked() -> None:
    assert settings_from({"computing": "auto", "tolerance": 1}).tolerance == 1.0
    assert set(HELP) == {field.name for field in dataclasses.fields(settings_from({}))}
    for wrong in ({"mode": "three-party"}, {"degree": "62"}, {"degree": 3}, {"windows": 1}, {"noise": True}):
        with pytest.raises(ConfigError, match="vertical-he"):
            settings_from(wrong)


def test_rounds_are_fewer_where_noise_would_drown_them() -> None:
    assert make_plan(parameters(10**5, 5, rounds=None), names(1, 1)).rounds == 10
    assert make_plan(parameters(5000, 15, rounds=None), names(1, 1)).rounds == 4
    assert make_plan(parameters(5000, 15, rounds=None, noise="flooding"), names(1, 1)).rounds == 10
    assert make_plan(parameters(5000, 15, rounds=7), names(1, 1)).rounds == 7
