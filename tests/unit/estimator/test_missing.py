"""Missing values, by a stated rule, and what the owner alone hears of clipped and missing ones."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from fastlloyd.estimator.estimator import FastLloyd
from fastlloyd.estimator.words import ParameterError

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:more than .* of the values"),
]

X = np.repeat([[20.0, 900.0], [70.0, 100.0]], 60, axis=0)
GAPS = X.copy()
GAPS[[3, 70], [0, 1]] = np.nan


def model(**changes: Any) -> FastLloyd:
    values = {"n_clusters": 2, "epsilon": 50.0, "bounds": ([0, 0], [100, 1000]), "n_total": 300, "rounds": 2}
    return FastLloyd(**{**values, **changes})


def test_rows_that_lack_a_value_count_for_nothing_and_have_no_label() -> None:
    fitted = model(missing="drop").fit(GAPS)
    assert np.flatnonzero(fitted.labels_ == -1).tolist() == [3, 70]
    assert sorted(np.bincount(fitted.labels_[fitted.labels_ >= 0])) == [59, 59]
    assert (fitted.predict(GAPS) == fitted.labels_).all()
    assert np.isnan(fitted.transform(GAPS)).any(axis=1).sum() == 2
    assert fitted.score(GAPS) == pytest.approx(fitted.score(np.delete(X, [3, 70], axis=0)))
    assert fitted.score(GAPS[[3]]) == 0.0 and fitted.predict(GAPS[[3]]).tolist() == [-1]
    parts = model(missing="drop").fit_federated([GAPS[:60], GAPS[60:]]).labels_
    assert [len(own) for own in parts] == [60, 60] and parts[0][3] == -1 == parts[1][10]
    with pytest.raises(ParameterError, match="expected complete rows, got rows that missing='drop' leaves out"):
        fitted.describe(GAPS, {"x1": {"lo": 0, "hi": 100}}, epsilon=1.0)
    # n is then the number of rows that count.
    assert model(missing="drop", n_total=None).fit(GAPS).plan_.n_total == 118


def test_the_middle_of_the_bounds_takes_the_place_of_a_value() -> None:
    fitted = model(missing="midpoint", protocol="lloyd", random_state=1).fit(GAPS)
    filled = np.where(np.isnan(GAPS), [50.0, 500.0], GAPS)
    assert (fitted.predict(GAPS) == fitted.labels_).all() and (fitted.labels_ >= 0).all()
    assert fitted.score(GAPS) == pytest.approx(fitted.score(filled))
    same = model(protocol="lloyd", random_state=1).fit(filled)
    assert np.array_equal(fitted.cluster_centers_, same.cluster_centers_)
    columns = model(protocol="vertical-plain", missing="midpoint", rounds="auto").fit_federated(
        [GAPS[:, :1], GAPS[:, 1:]]
    )
    assert (columns.labels_ >= 0).all() and columns.missing_ == {"x1": 1, "x2": 1}


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
def test_codes_are_missing_values(kind: type) -> None:
    coded = np.where(np.isnan(GAPS), [99.9, -99.9], GAPS).astype(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        fitted = model(missing="drop", na=[99.9, -99.9], rounds="auto").fit(coded)
    assert fitted.missing_ == {"x1": 1, "x2": 1}
    with pytest.raises(ParameterError, match="got NaN in row 3 of column 0"):
        model(na=(99.9,)).fit(coded)


def test_every_form_has_missing_values(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n" + "".join(f"{a:g},{b:g}\n" for a, b in GAPS).replace("nan", "NA"))
    fields = np.array([tuple(row) for row in GAPS], dtype=[("a", "f8"), ("b", "f8")])
    masked = np.ma.array(X, mask=np.isnan(GAPS))
    lists = {"a": [None if np.isnan(value) else value for value in GAPS[:, 0]], "b": GAPS[:, 1]}
    for form in (tmp_path / "x.csv", fields, masked, lists):
        fitted = model(missing="drop").fit(form)
        assert sum(fitted.missing_.values()) == 2 and (fitted.labels_ == -1).sum() == 2
        with pytest.raises(ParameterError, match="missing"):
            model().fit(form)
    assert (model().fit(fields[10:60]).feature_names_in_ == ["a", "b"]).all()


def test_the_owner_alone_hears_how_many_values_were_clipped() -> None:
    fitted = model(bounds=([0, 0], [60, 1000]), missing="drop").fit(GAPS)
    assert fitted.clipped_ == {"x1": 60} and fitted.missing_ == {"x1": 1, "x2": 1}
    assert not {"clipped_", "missing_", "_counted"} & {*dir(fitted)}
    assert "Intake" not in repr(vars(fitted))
    copied = pickle.loads(pickle.dumps(fitted.public()))
    for name in ("clipped_", "missing_"):
        assert not hasattr(copied, name) and not hasattr(model(), name)


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"missing": "mean"}, "missing: expected one of 'refuse', 'drop', 'midpoint', got 'mean'"),
        ({"missing": "midpoint", "bounds": "private"}, "gives no middle beforehand"),
        ({"na": "NA"}, "na: expected a list of numbers"),
        ({"na": -999}, "na: expected a list of numbers"),
        ({"na": ["x"]}, "na: expected a list of numbers"),
        ({"missing": "drop", "na": [20, 70]}, "every row lacks a value, so 'drop' leaves none"),
        ({"protocol": "vertical-plain", "missing": "drop", "rounds": "auto"}, "columns of the same rows, got 'drop'"),
        ({}, r"give missing='drop' \(the row\) or missing='midpoint' \(of the bounds\)"),
    ],
)
def test_wrong_rules_are_refused(changes: dict[str, Any], words: str) -> None:
    fresh = model(**changes)
    with pytest.raises(ParameterError, match=words):
        if "protocol" in changes:
            fresh.fit_federated([GAPS[:, :1], GAPS[:, 1:]])
        else:
            fresh.fit(GAPS)


# -- errors that show no record --


@pytest.mark.parametrize(
    "wrong,words",
    [
        (X[:, 0], r"Expected 2D array, got 1D array instead\. Reshape your data"),
        (np.float64(20.0), r"Expected 2D array, got scalar array instead\. Reshape your data"),
        (X + 1j, "Complex data not supported"),
        (np.array([["70", "Miller"]], dtype=object), "expected numbers, got others in the column 1"),
        (np.array(["Miller"]), "could not convert string"),
    ],
)
def test_no_error_shows_values_of_records(wrong: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        model().fit(wrong)
    assert not any(value in str(caught.value) for value in ("20.", "900", "Miller"))
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize("wrong", [(row for row in X), {1.0, 2.0}, None, 3.0, object()])
def test_what_holds_no_table_is_named(wrong: Any) -> None:
    with pytest.raises(ParameterError, match=f"X: expected an array, .* got {type(wrong).__name__}"):
        model().fit(wrong)


def test_frames_of_other_kinds() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b"])
    sparse = frame.astype(pandas.SparseDtype("float"))
    assert [*model().fit(sparse).feature_names_in_] == ["a", "b"]
    with pytest.raises(ParameterError, match="expected columns with different names, got several called 'a'"):
        model().fit(pandas.DataFrame(X, columns=["a", "a"]))
    polars = pytest.importorskip("polars")
    with pytest.raises(ParameterError, match="give what its collect"):
        model().fit(polars.LazyFrame({"a": [1.0]}))
