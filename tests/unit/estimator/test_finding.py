"""Bounds that a fit finds first: within its epsilon, in its ledger, and never twice for one fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastlloyd import FastLloyd
from fastlloyd.errors import BudgetError
from fastlloyd.estimator.words import ParameterError
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.ledger import Ledger

# Whether noise leaves a doubt is not what these tests are about; those that are catch the warning.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def blobs(columns: int = 2) -> np.ndarray:
    rng = np.random.default_rng(3)
    return np.concatenate([rng.normal(2, 0.5, (900, columns)), rng.normal(8, 0.5, (900, columns))])


def test_both_releases_are_in_the_epsilon_and_the_ledger_of_the_fit(tmp_path: Path) -> None:
    model = FastLloyd(2, epsilon=5.0, bounds="private", n_total=2000, ledger=tmp_path / "ledger.jsonl", budget=5.0)
    model.fit(blobs())
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        found, *rounds = ledger.releases
    assert found.name == "counts in bins" and found.run not in {one.run for one in rounds} and rounds
    assert 4.999 < model.epsilon_ == spent([found, *rounds], model.delta_) == model.epsilon_spent_ <= 5.0
    assert model.neighbours_ == "add-remove record" and model.plan_.protocol == "fastlloyd-plus"
    assert found.noise_multiplier**-2 == pytest.approx(
        0.1 * sum(one.noise_multiplier**-2 for one in [found, *rounds]), 1e-4
    )
    # Half of the larger values lie in the bin from 8 to 16.
    assert model.bounds_.hi.tolist() == [16.0, 16.0] and model.bounds_.names == ("x1", "x2")
    np.testing.assert_allclose(np.sort(model.cluster_centers_, axis=0), [[2, 2], [8, 8]], atol=0.2)
    with pytest.raises(BudgetError):
        model.fit(blobs())  # refused before it finds bounds again
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        assert ledger.releases == (found, *rounds)


def test_several_owners_and_a_counted_number_of_records() -> None:
    parts = [blobs()[::3], blobs()[1::3], blobs()[2::3]]
    model = FastLloyd(2, epsilon=4.0, bounds="private:0.3", random_state=None).fit_federated(parts)
    assert model.neighbours_ == "zero-out of one record" and 3.999 < model.epsilon_ <= 4.0
    assert model.describe(blobs(), None, epsilon=1.0).epsilon_spent > 4.0
    assert [len(one) for one in model.labels_] == [600] * 3


def test_a_feature_without_bounds_ends_the_fit_and_the_others_are_not_lost(tmp_path: Path) -> None:
    rows = np.c_[blobs(1), np.zeros(1800)]
    model = FastLloyd(2, epsilon=5.0, bounds="private:0.5", n_total=2000, ledger=tmp_path / "ledger.jsonl")
    with pytest.raises(
        ParameterError, match=r"stands out of the noise in x2: .* bounds=\{'x1': \(0.0, 16.0\)\} with eps"
    ):
        model.fit(rows)
    assert not hasattr(model, "bounds_")
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        assert [one.name for one in ledger.releases] == ["counts in bins"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"protocol": "sulloyd"}, "bounds private: expected a protocol of Gaussian noise"),
        ({"bounds": "private:2"}, "bounds: expected a share from 0.001 to 0.999"),
        ({"bounds": "nobody"}, r"bounds: expected \(lo, hi\)"),
        ({"epsilon": 0.01}, "bounds private, the first run, with 0.1 of 1/sigma.2: epsilon 0.00.*would hide where"),
        ({"settings": {"nothing": 1}}, "nothing"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_released(change: dict[str, object], words: str) -> None:
    model = FastLloyd(2, **{"bounds": "private", "n_total": 2000, **change})
    with pytest.raises(ParameterError, match=words):
        model.fit(blobs())
    assert not model._account.releases


def test_owners_of_columns_state_theirs() -> None:
    with pytest.raises(ParameterError, match="hold columns of the same records, got 'private'"):
        FastLloyd(2, bounds="private", protocol="vertical-dp").fit_federated([blobs(), blobs()])
