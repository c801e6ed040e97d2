"""The estimator's parameters: accepted forms, and one sentence for each that is wrong."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("sklearn")

from fastlloyd.data.bounds import Bounds
from fastlloyd.errors import FastLloydError
from fastlloyd.estimator.estimator import FastLloyd
from fastlloyd.estimator.parameter import read_parameters
from fastlloyd.estimator.words import ParameterError

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

LO, HI = np.array([0.0, -5000.0]), np.array([120.0, 5000.0])


def people(n: int = 1000) -> NDArray[np.float64]:
    return np.random.default_rng(0).uniform(LO, HI, (n, 2))


def model(**changes: Any) -> FastLloyd:
    return FastLloyd(**{"n_clusters": 3, "bounds": (LO, HI), **changes})


@pytest.mark.parametrize(
    "bounds",
    [(LO, HI), [LO.tolist(), HI.tolist()], np.stack([LO, HI]), Bounds(LO, HI), Bounds(LO, HI, ("age", "income"))],
)
def test_bounds_may_be_given_in_several_forms(bounds: Any) -> None:
    fitted = model(bounds=bounds).fit(people())
    assert (fitted.bounds_.lo == LO).all()
    assert (fitted.bounds_.hi == HI).all()


def test_one_pair_of_bounds_holds_for_all_features() -> None:
    assert model(bounds=(-5000, 5000)).fit(people()).bounds_.lo.tolist() == [-5000.0, -5000.0]
    assert model(bounds=(-5000, HI + 5000)).fit(people()).bounds_.hi.tolist() == [5120.0, 10000.0]


def test_settings_reach_the_protocol() -> None:
    plan = model(protocol="fastlloyd", settings={"alpha": 0.4, "radius": "constant"}, rounds=2).fit(people()).plan_
    half = model(protocol="fastlloyd", rounds=2).fit(people()).plan_.rounds[1].radius
    assert len(plan.rounds) == 2
    assert plan.rounds[0].radius == plan.rounds[1].radius
    assert plan.rounds[1].radius == pytest.approx(half / 2, abs=1)


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"bounds": None}, "never taken from X"),
        ({"bounds": 3}, "bounds: expected"),
        ({"bounds": (0, 1, 2)}, "bounds: expected"),
        ({"bounds": ("a", "b")}, "bounds: expected"),
        ({"bounds": ([0, 0, 0], 1)}, "bounds: expected"),
        ({"bounds": (1, 0)}, "LO < HI"),
        ({"bounds": (0, np.inf)}, "finite"),
        ({"bounds": Bounds(np.zeros(3), np.ones(3))}, "the bounds hold 3 features but the data have 2"),
        ({"n_clusters": 0}, "n_clusters: expected"),
        ({"n_clusters": 2.5}, "n_clusters: expected"),
        ({"n_clusters": "auto"}, "n_clusters: expected"),
        ({"n_clusters": "auto:99999"}, "n_clusters: expected"),
        ({"n_clusters": "2..8"}, "n_clusters: expected a whole number or 'auto:KMAX'"),
        ({"n_clusters": "auto:101"}, "at most n_total=100"),
        ({"n_clusters": True}, "n_clusters: expected"),
        ({"n_clusters": 101}, "at most n_total=100"),
        ({"epsilon": 0}, "epsilon: expected"),
        ({"epsilon": "1"}, "epsilon: expected"),
        ({"epsilon": np.nan}, "epsilon: expected"),
        ({"delta": 0}, "delta: expected"),
        ({"delta": "small"}, "delta: expected"),
        ({"n_total": 99}, "n_total: expected"),
        ({"n_total": 1e6}, "n_total: expected"),
        ({"n_total": 10**9}, "ring_bits = 64"),
        ({"protocol": "k-means"}, "protocol: expected one of 'fastlloyd'"),
        ({"protocol": ["lloyd"]}, "protocol: expected one of 'fastlloyd'"),
        ({"rounds": 0}, "rounds: expected"),
        ({"random_state": np.random.default_rng(0)}, "random_state: expected"),
        ({"random_state": -1}, "random_state: expected"),
        ({"ring_bits": 33}, "ring_bits: expected 32 or 64"),
        ({"quality": 0.6}, "quality: expected"),
        ({"quality": 0.0001}, "quality: expected 0, or a share of the budget from 0.001 to 0.5, got 0.0001"),
        ({"quality": 0.05, "protocol": "sulloyd"}, "quality: sulloyd has no round for the quality of its clusters"),
        ({"settings": ["alpha"]}, "settings: expected"),
        ({"settings": {"reach": -1}}, "settings: fastlloyd-plus.reach: expected"),
        ({"settings": {"rho": 0.2}}, "no setting 'rho'"),
        ({"budget": -1}, "budget: expected"),
        ({"ledger": 7}, "ledger: expected"),
        ({"ledger": "no such folder/ledger.jsonl"}, "cannot open the ledger"),
    ],
)
def test_wrong_parameters_are_value_errors_of_ours(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(words)) as caught:
        model(**changes).fit(people(100))
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, FastLloydError)
    assert "--" not in str(caught.value)


def test_numbers_of_numpy_are_numbers() -> None:
    own = {"n_clusters": 2, "epsilon": 2.0, "accept_large_delta": True, "rounds": 3, "random_state": 5, "n_total": 900}
    from_numpy = {name: np.asarray(value)[()] for name, value in own.items()}
    assert type(from_numpy["n_clusters"]) is np.int64 and type(from_numpy["accept_large_delta"]) is np.bool_
    assert read_parameters(model(**from_numpy)) == read_parameters(model(**own))
    assert model(**from_numpy, protocol="lloyd").fit(people(800)).plan_.seed == 5


@pytest.mark.parametrize(
    "name", ["n_clusters", "epsilon", "delta", "accept_large_delta", "rounds", "ring_bits", "quality"]
)
def test_none_is_no_parameter_where_there_is_no_default(name: str) -> None:
    with pytest.raises(ParameterError, match=f"{name}: expected .*, got None"):
        model(**{name: None}).fit(people(100))


def test_feddp_too_is_asked_for_a_round_or_more() -> None:
    with pytest.raises(ParameterError, match="rounds: expected 'auto' or a whole number from 1 to 1000, got 0"):
        model(protocol="feddp", rounds=0).fit_federated([people(100), people(100)])


def test_too_few_records_are_refused() -> None:
    with pytest.raises(ParameterError, match="n_samples=2"):
        model(n_clusters=1).fit(people(2))
