"""Habits that spend privacy outside of a fit's account: what is noticed, and what is not called one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

from fastlloyd.data.bounds import Bounds
from fastlloyd.estimator.caution import PrivacyWarning, cautions
from fastlloyd.estimator.estimator import FastLloyd

# Whether noise leaves a doubt is not what these tests are about; those that are catch the warning.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RAW = np.random.default_rng(8).gamma(2.0, 3.0, (60, 2))


def said(values: np.ndarray, lo: float, hi: float, **options: Any) -> list[str]:
    bounds = Bounds(np.full(values.shape[1], lo), np.full(values.shape[1], hi))
    return list(cautions([values[:20], values[20:]], bounds, ledger=False, **options))


@pytest.mark.parametrize("scaler", [StandardScaler(), RobustScaler()])
def test_a_scaler_that_was_fitted_on_the_records(scaler: Any) -> None:
    scaled = scaler.fit_transform(RAW)
    (sentence,) = said(scaled, -9.0, 9.0)
    assert "a scaler leaves them that was fitted on these records" in sentence
    # With a column that does not vary, too.
    assert said(scaler.fit_transform(np.column_stack([RAW, np.ones(60)])), -9.0, 9.0)
    # Fitted on other records, or scaled by public numbers: nothing to say.
    assert not said(scaler.fit(RAW[:40]).transform(RAW), -9.0, 9.0)
    assert not said((RAW - 6.0) / 4.0, -9.0, 9.0)


def test_bounds_that_were_read_off_the_records() -> None:
    (sentence,) = said(MinMaxScaler().fit_transform(RAW), 0.0, 1.0)
    assert "smallest and largest values of these records to the last digits" in sentence
    lo, hi = RAW.min(axis=0), RAW.max(axis=0)
    assert list(cautions([RAW], Bounds(lo, hi), ledger=False))
    assert not list(cautions([RAW], Bounds(lo, hi + 1e-3), ledger=False))


def test_scales_that_reach_their_ends_by_nature() -> None:
    rng = np.random.default_rng(3)
    pixels = np.concatenate([rng.integers(0, 256, (58, 3)), np.zeros((1, 3)), np.full((1, 3), 255)]).astype(float)
    assert not said(pixels, 0.0, 255.0)
    assert not said((pixels > 99).astype(float), 0.0, 1.0)


@pytest.mark.parametrize("ledger", [False, True])
def test_a_search_spends_in_each_fold(ledger: bool, tmp_path: Any) -> None:
    path = str(tmp_path / "ledger.jsonl") if ledger else None
    model = FastLloyd(n_clusters=2, epsilon=50.0, bounds=(0.0, 40.0), n_total=70, ledger=path)
    search = GridSearchCV(model, {"n_clusters": [2]}, cv=2, refit=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(RAW)
    spoken = [str(one.message) for one in caught if issubclass(one.category, PrivacyWarning)]
    assert len(spoken) == 2 and all("each fit spends its epsilon" in one for one in spoken)
    assert all(("stands in the ledger file" if ledger else "set ledger=") in one for one in spoken)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FastLloyd(n_clusters=2, epsilon=50.0, bounds=(0.0, 40.0), n_total=70).fit(RAW)
        make_pipeline(StandardScaler(), FastLloyd(n_clusters=2, epsilon=50.0, bounds=(-5.0, 5.0))).fit(RAW)
    spoken = [str(one.message) for one in caught if issubclass(one.category, PrivacyWarning)]
    assert len(spoken) == 1 and "a scaler" in spoken[0]


def test_a_stated_size_that_is_the_number_of_records() -> None:
    bounds = Bounds(np.full(2, -9.0), np.full(2, 90.0))
    (sentence,) = cautions([RAW[:20], RAW[20:]], bounds, ledger=False, stated=60)
    assert "n_total is exactly the number of these records" in sentence and "60" not in sentence
    assert not list(cautions([RAW], bounds, ledger=False, stated=61))
    assert not list(cautions([RAW], bounds, ledger=False, stated=None))


def test_a_counted_size_is_warned_of_and_changes_no_claim() -> None:
    options: dict[str, Any] = {"epsilon": 50.0, "bounds": (-9.0, 90.0)}
    for n_total, warned in ((60, True), (61, False), (None, False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = FastLloyd(2, n_total=n_total, **options).fit(RAW)
        spoken = [one for one in caught if issubclass(one.category, PrivacyWarning)]
        assert len(spoken) == warned and all(one.filename == __file__ for one in spoken)
        # Were the claim to follow the number of records, it would say whether that is N.
        assert fitted.neighbours_ == ("zero-out of one record" if n_total is None else "add-remove record")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        with pytest.raises(PrivacyWarning):
            fitted.set_params(n_total=60).fit(RAW)
    assert len(fitted._account.releases) == len(fitted.ledger_.releases)  # an error comes before anything is spent
    vertical = FastLloyd(2, protocol="vertical-plain", n_total=60, **options)
    assert vertical.fit_federated([RAW[:, :1], RAW[:, 1:]]).labels_.shape == (60,)  # warnings are errors here


# -- values outside of the bounds --


@pytest.mark.parametrize("shift", [50.0, -50.0])
def test_a_column_outside_of_its_bounds_is_said_before_anything_is_spent_and_is_not_good(shift: float) -> None:
    values = np.tile(RAW, (40, 1)) + np.array([0.0, shift])
    model = FastLloyd(2, epsilon=20.0, bounds=([0.0, 0.0], [40.0, 40.0]), n_total=3000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with pytest.raises(UserWarning, match="more than half of the values of x2 would be clipped"):
            model.fit(values)
    assert not model._account.releases
    with pytest.warns(UserWarning, match="would be clipped") as caught:
        fitted = model.fit(values)
    assert caught[0].filename == __file__ and "2,400" not in str(caught[0].message)
    assert fitted.quality_.verdict != "good"
    assert any("bound in feature x2:" in each for each in fitted.quality_.warnings)


def test_a_twentieth_of_the_values_outside_is_not_said() -> None:
    values = np.column_stack([RAW[:, 0], np.where(np.arange(60) % 20, 5.0, 60.0)])
    FastLloyd(2, epsilon=50.0, bounds=(0.0, 40.0), n_total=70).fit(values)  # warnings are errors here
    for outside, words in ((10, "more than 5 % of the values of x2"), (2, "more than 5 %"), (1, "more than half")):
        values[::outside, 1] = 50.0
        with pytest.raises(UserWarning, match=words):
            FastLloyd(2, epsilon=50.0, bounds=(0.0, 40.0), n_total=70).fit(values)
