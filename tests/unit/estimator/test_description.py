"""A description of a fitted model's clusters: what it says, what it spends, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.exceptions import NotFittedError

from fastlloyd.describe.quality import QualityVector
from fastlloyd.errors import BudgetError, ConfigError
from fastlloyd.estimator.estimator import FastLloyd, ParameterError
from fastlloyd.privacy.release import ADD_REMOVE, ZERO_OUT_RECORD

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::fastlloyd.estimator.caution.PrivacyWarning"),
]
N = 900
RNG = np.random.default_rng(3)
GROUP = RNG.integers(0, 2, N)
X = np.where(GROUP[:, None], [2.0, 8.0], [8.0, 2.0]) + RNG.normal(size=(N, 2))
VALUES = {
    "age": [None if at % 9 == 0 else 30.0 + 30.0 * group for at, group in enumerate(GROUP)],
    "sex": np.where(RNG.random(N) < 0.3 + 0.4 * GROUP, "f", "m"),
    "visits": GROUP.astype(np.float64) * 3.0,
}
COLUMNS: dict[str, dict[str, Any]] = {
    "age": {"lo": 0, "hi": 100},
    "sex": {"categories": ["f", "m"]},
    "visits": {"categories": ["0", "3"]},
    "x1": {"lo": -2, "hi": 12, "bins": 7},
}


def model(**changes: Any) -> FastLloyd:
    return FastLloyd(**{"n_clusters": 2, "epsilon": 5.0, "bounds": (-2, 12), "n_total": 1000, "rounds": 2, **changes})


def test_with_hardly_any_noise_it_says_what_is_true_of_the_records() -> None:
    fitted = model().fit(X)
    found = fitted.describe(X, COLUMNS, VALUES, epsilon=90.0)
    by = {(row["cluster"], row["column"], row["measure"], row["value"]): row for row in found}
    labels = fitted.predict(X)
    ages = np.array(VALUES["age"], dtype=np.float64)
    for cluster in (0, 1):
        own = labels == cluster
        assert by[cluster, "", "size", ""]["estimate"] == pytest.approx(own.sum(), abs=5)
        assert by[cluster, "age", "mean", ""]["estimate"] == pytest.approx(np.nanmean(ages[own]), abs=1)
        assert by[cluster, "x1", "mean", ""]["estimate"] == pytest.approx(X[own, 0].mean(), abs=0.1)
        for column, value, expected in (
            ("age", "missing", np.isnan(ages[own]).mean()),
            ("sex", "f", (VALUES["sex"][own] == "f").mean()),
            ("visits", "3", (VALUES["visits"][own] == 3.0).mean()),
        ):
            assert by[cluster, column, "share", value]["estimate"] == pytest.approx(expected, abs=0.02)
    assert {row["differs"] for row in found if row["column"] == "x1"} == {"made by"}
    assert found.quality == () and len(found) == len(found.rows)


def test_it_counts_with_the_fits_and_is_refused_where_they_leave_too_little(tmp_path: Path) -> None:
    for ledger in (None, tmp_path / "ledger.jsonl"):
        fitted = model(epsilon=1.0, budget=1.2, ledger=ledger).fit(X)
        found = fitted.describe(X, COLUMNS, VALUES, epsilon=0.2)
        assert found.epsilon == pytest.approx(0.2, rel=1e-6) and found.neighbours == ADD_REMOVE
        assert found.epsilon_spent == fitted.epsilon_spent_ == pytest.approx(1.027, abs=0.003)  # in mu^2
        assert fitted.epsilon_ == pytest.approx(1.0, rel=1e-6)
        runs = [release.run for release in fitted.ledger_.releases]
        assert len(set(runs)) == 2 and fitted.ledger_.releases[-1].name == "descriptions"
        with pytest.raises(BudgetError):
            fitted.describe(X, COLUMNS, VALUES, epsilon=1.0)
        assert [release.run for release in fitted.ledger_.releases] == runs
        more = fitted.describe(X, None, total=1.1)
        assert more.epsilon_spent == pytest.approx(1.1, rel=1e-3) and more.epsilon_spent <= 1.1
        assert more.rows == () and more.quality[0]["measure"] == "records"
        with pytest.raises(BudgetError):
            fitted.fit(X)
        with pytest.raises(ParameterError, match="total: expected more than the ledger holds already, got 1.05"):
            fitted.describe(X, COLUMNS, VALUES, total=1.05)


@pytest.mark.parametrize("in_file", [False, True])
def test_a_total_is_at_the_delta_of_the_budget_at_which_the_spending_is_stated(tmp_path: Path, in_file: bool) -> None:
    """A budget at a smaller delta: at the delta of the release alone, the model stated 2.47 after a total of 2."""
    fitted = model(epsilon=1.0, budget=(3.0, 1e-7), ledger=tmp_path / "ledger" if in_file else None).fit(X)
    fitted.describe(X, None, total=2.0)
    assert fitted.epsilon_spent_ <= 2.0 and fitted.epsilon_spent_ == pytest.approx(2.0, rel=1e-3)


def test_without_a_stated_number_of_records_it_protects_what_a_fit_does() -> None:
    found = model(n_total=None).fit(X).describe(X, {"x2": {"lo": -2, "hi": 12}}, epsilon=1.0)
    assert found.neighbours == ZERO_OUT_RECORD


@pytest.mark.parametrize(
    ("columns", "values", "spends", "words"),
    [
        (COLUMNS, VALUES, {}, "either epsilon"),
        (COLUMNS, VALUES, {"epsilon": 1.0, "total": 7.0}, "either epsilon"),
        (COLUMNS, VALUES, {"epsilon": 0.0}, "epsilon: expected"),
        (COLUMNS, VALUES, {"epsilon": 1.0, "quality": 1.0}, "quality"),
        (COLUMNS, {"age": VALUES["age"]}, {"epsilon": 1.0}, "expected a value of 'sex' for each record, got none"),
        (COLUMNS, {**VALUES, "sex": ["f"]}, {"epsilon": 1.0}, "expected 900 values of 'sex'"),
        (COLUMNS, {**VALUES, "sex": ["x"] * N}, {"epsilon": 1.0}, "column 'sex': expected a category"),
        (COLUMNS, {**VALUES, "age": ["old"] * N}, {"epsilon": 1.0}, "column 'age': expected a number"),
        (["age"], VALUES, {"epsilon": 1.0}, "columns: expected a TOML file, or a mapping"),
        ({"age": {"lo": 5}}, VALUES, {"epsilon": 1.0}, "column 'age': expected public bounds"),
        ({"age": {"low": 5}}, VALUES, {"epsilon": 1.0}, "column 'age': unknown key 'low'"),
    ],
)
def test_what_it_refuses_spends_nothing(columns: Any, values: Any, spends: dict[str, float], words: str) -> None:
    fitted = model().fit(X)
    with pytest.raises(ParameterError, match=words):
        fitted.describe(X, columns, values, **spends)
    assert fitted._account.releases == fitted.ledger_.releases
    assert fitted.epsilon_spent_ == fitted.epsilon_


def test_it_needs_a_fit_with_all_centres_of_whole_records() -> None:
    with pytest.raises(NotFittedError):
        model().describe(X, COLUMNS, VALUES, epsilon=1.0)
    vertical = model(protocol="vertical-plain", rounds="auto").fit_federated([X[:, :1], X[:, 1:]])
    with pytest.raises(ParameterError, match="expected owners of whole records"):
        vertical.describe(X, COLUMNS, VALUES, epsilon=1.0)
    none_left = model(min_size=1000).fit(X)
    with pytest.raises(ParameterError, match="min_size"):
        none_left.describe(X, COLUMNS, VALUES, epsilon=1.0)


def test_rows_become_a_frame_where_pandas_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    found = model().fit(X).describe(X, {"x1": {"lo": -2, "hi": 12}}, epsilon=1.0)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="to_frame needs pandas"):
        found.to_frame()


def test_a_fit_may_set_a_share_aside_for_how_good_its_clusters_are() -> None:
    fitted = model(epsilon=90.0, quality=0.05, rounds=6).fit(X)
    found = {line["measure"]: line for line in fitted.measures_}
    points, centers = fitted._scaled(X)
    raw_own, raw_next = np.sort(((points[:, None] - centers) ** 2).sum(axis=2), axis=1).T
    bound = QualityVector(2, 2).bound  # beyond which a distance counts as the bound
    truth = {
        "records": len(X),
        "silhouette": (1.0 - np.sqrt(raw_own / raw_next)).mean(),
        "nicv": np.minimum(raw_own, bound).mean(),
        "far": (raw_own > bound).mean(),
    }
    for measure, value in truth.items():
        assert found[measure]["estimate"] == pytest.approx(value, abs=5 if measure == "records" else 0.01)
        assert found[measure]["low"] < found[measure]["high"]
    assert fitted.epsilon_ <= 90.0 and fitted.ledger_.releases[-1].name == "quality"
    assert [line["measure"] for line in fitted.describe(X, None, epsilon=1.0).quality] == list(found)
    assert model(rounds=1).fit(X).measures_ == ()
