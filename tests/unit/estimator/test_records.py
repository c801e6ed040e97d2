"""What X may be: arrays, mappings, files and frames; what cannot be a feature is refused by its column."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from fastlloyd.data.bounds import Bounds
from fastlloyd.estimator.estimator import FastLloyd
from fastlloyd.estimator.words import ParameterError

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

AGES, COSTS = np.repeat([20.0, 70.0], 100), np.repeat([900.0, 100.0], 100)
X = np.column_stack([AGES, COSTS])
BY_NAME = {"cost": (0, 1000), "age": (0, 100)}


def model(**changes: Any) -> FastLloyd:
    return FastLloyd(**{"n_clusters": 2, "epsilon": 50.0, "bounds": BY_NAME, "n_total": 300, **changes})


def file(folder: Path, header: str = "id,age,cost,sex") -> Path:
    rows = [f"{i},{age:g},{cost:g},f" for i, (age, cost) in enumerate(X)]
    (folder / "ward.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder / "ward.csv"


def test_a_mapping_and_a_file_are_records_with_names(tmp_path: Path) -> None:
    path = file(tmp_path)
    for form in ({"age": AGES, "cost": list(COSTS)}, path, str(path)):
        fitted = model().fit(form)
        columns = [*fitted.feature_names_in_]
        assert sorted(columns) == ["age", "cost"] and fitted.n_features_in_ == 2
        in_order = X[:, [["age", "cost"].index(name) for name in columns]]
        assert sorted(np.bincount(fitted.labels_)) == [100, 100]
        # Another order of the columns is no other table: names decide.
        for other in ({"cost": COSTS, "age": AGES}, {"age": AGES, "cost": COSTS}, path):
            assert (fitted.predict(other) == fitted.labels_).all()
        assert fitted.score(path) == pytest.approx(fitted.score({"age": AGES, "cost": COSTS}))
        assert np.isfinite(in_order).all()


def test_a_file_has_the_columns_that_the_bounds_name_or_all_of_numbers(tmp_path: Path) -> None:
    path = file(tmp_path)
    assert [*model(bounds={"cost": (0, 1000)}).fit(path).feature_names_in_] == ["cost"]
    named = Bounds(np.array([0.0]), np.array([100.0]), ("age",))
    assert [*model(bounds=named).fit(path).feature_names_in_] == ["age"]
    with pytest.warns(UserWarning, match="not used, because they hold no numbers: .*sex.*give a DataFrame"):
        assert [*model(bounds=(0, 1000)).fit(path).feature_names_in_] == ["age", "cost"]
    fitted = model(n_total=500).fit_federated([path, {"cost": COSTS, "age": AGES}])
    assert [len(labels) for labels in fitted.labels_] == [200, 200]


def test_columns_that_the_model_does_not_know_are_refused(tmp_path: Path) -> None:
    fitted = model().fit({"age": AGES, "cost": COSTS})
    with pytest.raises(ParameterError, match="X: expected the columns 'age', 'cost', got 'age', 'weight'"):
        fitted.predict({"age": AGES, "weight": COSTS})
    with pytest.raises(ParameterError, match="cost"):
        fitted.predict(file(tmp_path, "id,age,price,sex"))
    assert (model(bounds=(0, 1000)).fit(X).predict({"x2": COSTS, "x1": AGES}) >= 0).all()


@pytest.mark.parametrize(
    "wrong,words",
    [
        ({}, "at least one"),
        ({"age": AGES, "cost": COSTS[1:]}, "200 in 'age' and 199 in another"),
        ({"age": AGES, "cost": X}, "one value for each record in the column 'cost'"),
        ({"age": AGES, "cost": ["m", "f"] * 100}, "got others in the column 'cost'"),
        ({"age": AGES, "cost": np.full(200, np.datetime64("2020-01-01"))}, "dates or durations in the column 'cost'"),
        ({"age": AGES, "cost": [datetime.date(2020, 1, 1)] * 200}, "dates or durations in the column 'cost'"),
        (np.full((200, 2), np.datetime64("2020-01-01")), "got dates or durations; give a number of a stated unit"),
        ({"age": AGES, "cost": [None, *COSTS[1:]]}, "NaN in row 0 of column 'cost', and in 1 of 200 rows"),
        ({"age": AGES, "cost": [np.inf, *COSTS[1:]]}, "infinity in row 0 of column 'cost'"),
        ("no such folder/x.csv", "x.csv"),
    ],
)
def test_what_is_no_number_is_refused_by_its_column(wrong: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words) as caught:
        model().fit(wrong)
    assert "--" not in str(caught.value) and "mpute" not in str(caught.value)


def test_frames_are_refused_by_the_column_too() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": AGES, "cost": COSTS})
    for values, words in (
        (pandas.Timestamp("2020-01-01"), "dates"),
        (pandas.Timestamp("2020-01-01", tz="UTC"), "dates"),
        (pandas.Timedelta("1D"), "dates"),
        ("m", "got others in the column 'z'"),
    ):
        with pytest.raises(ParameterError, match=words):
            model(bounds=(0, 1000)).fit(frame.assign(z=values))
    assert [*model().fit(frame.convert_dtypes()).feature_names_in_] == ["age", "cost"]


def test_tables_of_arrow_are_refused_by_the_column_too() -> None:
    arrow = pytest.importorskip("pyarrow")
    words = arrow.array(["m", "f"] * 100)
    days = arrow.array([1, 2] * 100)
    for values, said in (
        (words, "got others in the column 'z'"),
        (words.dictionary_encode(), "got others in the column 'z'"),
        (days.cast(arrow.int32()).cast(arrow.date32()), "got dates or durations in the column 'z'"),
        (days.cast(arrow.timestamp("s")), "got dates or durations in the column 'z'"),
        (days.cast(arrow.duration("s")), "got dates or durations in the column 'z'"),
    ):
        columns = {"age": AGES, "cost": COSTS, "z": values}
        for table in (arrow.table(columns), arrow.RecordBatch.from_pydict(columns)):
            with pytest.raises(ParameterError, match=said):
                model(bounds=(0, 1000)).fit(table)
    with pytest.raises(ParameterError, match="several called 'age'"):
        model(bounds=(0, 1000)).fit(arrow.Table.from_arrays([arrow.array(AGES)] * 2, ["age", "age"]))
    numbers = arrow.table({"age": arrow.array(AGES).dictionary_encode(), "cost": COSTS})
    assert [*model().fit(numbers).feature_names_in_] == ["age", "cost"]


def test_weights_are_refused_with_the_reason_and_leave_the_model() -> None:
    fitted = model(bounds=(0, 1000)).fit(X)
    spent = fitted.epsilon_spent_
    for call in (fitted.fit, fitted.fit_predict, fitted.fit_transform):
        with pytest.raises(TypeError, match="sample_weight: expected none, since epsilon counts each record once"):
            call(X, sample_weight=np.ones(200))
    with pytest.raises(TypeError, match="expected X alone, got groups"):
        fitted.fit(X, groups=1)
    assert fitted.epsilon_spent_ == spent and len(fitted.ledger_.releases) > 0


def test_a_random_state_of_numpy_is_a_source_of_starts() -> None:
    def seeds() -> list[int]:
        state = np.random.RandomState(7)
        return [model(bounds=(0, 1000), random_state=state, protocol="lloyd").fit(X).plan_.seed for _ in range(2)]

    first = seeds()
    assert first == seeds() and first[0] != first[1] and min(first) >= 0


def test_max_iter_is_the_number_of_rounds() -> None:
    assert model(bounds=(0, 1000), max_iter=3).fit(X).n_iter_ == 3
    with pytest.raises(ParameterError, match="max_iter: .*give one of them"):
        model(bounds=(0, 1000), max_iter=3, rounds=4).fit(X)
    with pytest.raises(ParameterError, match="max_iter: expected"):
        model(bounds=(0, 1000), max_iter=0).fit(X)
