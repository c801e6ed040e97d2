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
    model = FastLloyd(n_clusters=2, epsilon=50.0, bounds=(0.0, 40.0), n_total=60, ledger=path)
    search = GridSearchCV(model, {"n_clusters": [2]}, cv=2, refit=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(RAW)
    spoken = [str(one.message) for one in caught if issubclass(one.category, PrivacyWarning)]
    assert len(spoken) == 2 and all("each fit spends its epsilon" in one for one in spoken)
    assert all(("stands in the ledger file" if ledger else "set ledger=") in one for one in spoken)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(RAW)
        make_pipeline(StandardScaler(), FastLloyd(n_clusters=2, epsilon=50.0, bounds=(-5.0, 5.0))).fit(RAW)
    spoken = [str(one.message) for one in caught if issubclass(one.category, PrivacyWarning)]
    assert len(spoken) == 1 and "a scaler" in spoken[0]
