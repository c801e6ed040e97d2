"""The scikit-learn estimator: conventions, units, privacy accounts, and the parties behind it."""

from __future__ import annotations

import pickle
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("sklearn")

from scipy import stats
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from fastlloyd.data.bounds import Bounds, scale, unscale
from fastlloyd.errors import BudgetError
from fastlloyd.estimator import fitting
from fastlloyd.estimator.caution import PrivacyWarning
from fastlloyd.estimator.estimator import FastLloyd, ParameterError
from fastlloyd.protocol import masked
from fastlloyd.protocols.fastlloyd import protocol as module
from fastlloyd.protocols.fastlloyd.settings import MECHANISMS
from fastlloyd.run.simulation import InMemory, run_together
from fastlloyd.wire.header import clients

# Whether noise leaves a doubt is not what these tests are about; those that are catch the warning.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PROTOCOLS = tuple(MECHANISMS)
LO, HI = np.array([0.0, -5000.0]), np.array([120.0, 5000.0])
CENTERS = np.array([[20.0, -3000.0], [60.0, 3000.0], [100.0, -2000.0]])


def people(n: int = 3000, seed: int = 0) -> NDArray[np.float64]:
    """Three well separated blobs in unequal units."""
    rng = np.random.default_rng(seed)
    records: NDArray[np.float64] = CENTERS[rng.integers(0, 3, n)] + rng.normal(0, 1, (n, 2)) * [3.0, 250.0]
    return records


def model(**changes: Any) -> FastLloyd:
    # From this start the noise-free algorithm finds all three blobs.
    values: dict[str, Any] = {"n_clusters": 3, "epsilon": 5.0, "bounds": (LO, HI), "random_state": 1, **changes}
    return FastLloyd(**values)


def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the noise away."""
    monkeypatch.setattr(module, "draw_noise", lambda plan, t, secret: np.zeros(plan.elements(t), dtype=np.int64))


# -- units --


def test_default_parameters_are_kept_untouched() -> None:
    bounds = (LO, HI)
    estimator = FastLloyd(4, bounds=bounds)
    assert estimator.get_params()["bounds"] is bounds
    assert {name for name in vars(estimator) if not name.startswith("_")} == set(estimator.get_params())
    assert clone(estimator).get_params().keys() == estimator.get_params().keys()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_centers_are_in_original_units_and_near_scikit_learns(protocol: str) -> None:
    X, bounds = people(), Bounds(LO, HI)
    central = KMeans(3, init=scale(CENTERS, bounds), n_init=1, tol=0).fit(scale(X, bounds)).cluster_centers_
    fitted = model(protocol=protocol, epsilon=50.0).fit(X)
    ours = fitted.cluster_centers_[np.argsort(fitted.cluster_centers_[:, 0])]
    plan = fitted.plan_
    # No sum and no count is off by more than 7 standard deviations (Gaussian) or 20 scales (Laplace): false
    # alarms below 1e-7 over all 9 values. A count that is off moves a centre in [-1, 1] by that share.
    deviations = 7.0 if plan.mechanism == "gaussian" else 20.0
    noise = (plan.rounds[-1].sum_scale + plan.rounds[-1].count_scale) / (1 << plan.fraction_bits)
    tolerance = deviations * noise / fitted.noisy_counts_.min() + 1e-5
    assert (np.abs(ours - unscale(central, bounds)) < tolerance * (HI - LO) / 2).all()
    assert tolerance < 0.02


def test_the_number_of_clusters_can_be_chosen() -> None:
    X = people()
    fitted = model(n_clusters="auto:8").fit_federated(np.array_split(X, 2))
    assert fitted.cluster_centers_.shape == (3, 2) and fitted.noisy_counts_.shape == (3,)
    assert fitted.plan_.choose_k and fitted.plan_.k == 8 and fitted.epsilon_ <= 5.0
    assert set(np.concatenate(fitted.labels_)) == {0, 1, 2}
    assert fitted.transform(X).shape == (len(X), len(fitted.get_feature_names_out())) == (len(X), 3)


def test_labels_predictions_distances_and_score_agree() -> None:
    X = people()
    fitted = model().fit(X)
    points = scale(X, Bounds(LO, HI))
    centers = (fitted.cluster_centers_ - (LO + HI) / 2) / ((HI - LO) / 2)
    distances = np.linalg.norm(points[:, None] - centers, axis=2)
    assert fitted.transform(X) == pytest.approx(distances, abs=1e-12)
    assert (fitted.predict(X) == distances.argmin(axis=1)).all()
    assert (fitted.labels_ == fitted.predict(X)).all()
    assert fitted.score(X) == pytest.approx(-(distances.min(axis=1) ** 2).sum())
    assert fitted.labels_.dtype == np.int64


def test_label_depends_on_scaled_distances() -> None:
    fitted = model(bounds=([0, 0], [1, 1000]), n_clusters=2, n_total=10).fit(np.full((3, 2), [[0.5, 500.0]]))
    fitted.cluster_centers_ = np.array([[0.1, 500.0], [0.5, 550.0]])
    assert fitted.predict([[0.5, 500.0]]).tolist() == [1]  # unscaled, the first centre is nearer


def test_values_outside_the_bounds_count_as_the_bound() -> None:
    X = people(500)
    far, edge = [[1e9, -1e9]], [[HI[0], LO[1]]]
    fitted = model().fit(np.concatenate([X, far]))
    assert np.isfinite(fitted.cluster_centers_).all()
    assert fitted.transform(far) == pytest.approx(fitted.transform(edge))
    assert fitted.predict(far) == fitted.predict(edge)


def test_single_precision_and_integers_are_taken() -> None:
    for dtype in (np.float32, np.int32):
        X = people().astype(dtype)
        assert model().fit(X).predict(X).shape == (3000,)


# -- privacy --


@pytest.mark.parametrize("protocol", ["fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd"])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_one_fit_spends_at_most_what_was_stated(protocol: str, epsilon: float) -> None:
    fitted = model(protocol=protocol, epsilon=epsilon).fit(people())
    assert 0.995 * epsilon <= fitted.epsilon_ <= epsilon
    assert fitted.epsilon_spent_ == fitted.epsilon_
    assert fitted.ledger_.epsilon(fitted.delta_, fitted.neighbours_) == fitted.epsilon_spent_
    assert (fitted.delta_ == 0) == (protocol == "sulloyd")
    assert len(fitted.ledger_.releases) == 2 * fitted.n_iter_ - (protocol == "fastlloyd-plus")  # a histogram is one


def test_fastlloyd_plus_begins_with_a_histogram_and_takes_its_settings() -> None:
    fitted = model(protocol="fastlloyd-plus").fit(people())
    assert fitted.n_iter_ == 10
    assert fitted.ledger_.releases[0].name == "histogram"
    surveyed = model(protocol="fastlloyd-plus", settings={"start": "survey"}).fit(people())
    assert surveyed.ledger_.releases[0].name == "sums and squares"
    # Counts of the last round add up to about n: noise of a standard deviation below 10, so no false alarm.
    assert 2700 < fitted.noisy_counts_.sum() < 3300
    plain = model(protocol="fastlloyd-plus", settings={"survey": 0.0, "grid": 0.0, "max_rounds": 4}).fit(people())
    assert plain.n_iter_ == 4
    assert plain.ledger_.releases[0].name == "relative sums"


@pytest.mark.parametrize("parts", [[], [1, 200, 1700]])
def test_lloyd_gives_the_centers_it_has_always_given(parts: list[int]) -> None:
    fitted = model(protocol="lloyd").fit_federated(np.split(people(), parts))
    assert fitted.cluster_centers_.tolist() == [
        [19.974154276064674, -2992.893702770717],
        [100.01081223455851, -2003.9041433215484],
        [60.01953431709328, 3000.89375098147],
    ]
    assert fitted.noisy_counts_.tolist() == [962, 1043, 995]
    assert fitted.n_iter_ == 7


def test_lloyd_claims_no_privacy() -> None:
    fitted = model(protocol="lloyd").fit(people())
    assert fitted.epsilon_ == fitted.epsilon_spent_ == np.inf


def test_ledger_holds_what_every_client_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[InMemory] = []

    def watched(*inputs: Any, **options: Any) -> InMemory:
        ended.append(run_together(*inputs, **options))
        return ended[-1]

    monkeypatch.setattr(fitting, "run_together", watched)
    fitted = model().fit_federated(np.array_split(people(), 3))
    written = [(r.run, r.round, r.name, r.mechanism, r.noise_multiplier) for r in fitted.ledger_.releases]
    for party in clients(3):
        recorded = ended[0].ledgers[party].releases
        assert [(r.run, r.round, r.name, r.mechanism, r.noise_multiplier) for r in recorded] == written


def test_fits_of_one_object_and_of_its_clones_add_up() -> None:
    X = people()
    fitted = model().fit(X).fit(X)
    assert len(fitted.ledger_.releases) == 2 * (2 * fitted.n_iter_ - 1)
    assert fitted.epsilon_ <= 5.0 < fitted.epsilon_spent_ < 10.0
    copied = clone(fitted).fit(X)
    assert copied.epsilon_spent_ > fitted.epsilon_spent_
    assert len(copied.ledger_.releases) == 3 * (2 * fitted.n_iter_ - 1)
    other = model().fit(X)
    assert other.epsilon_spent_ == other.epsilon_


def test_budget_refuses_a_fit_and_keeps_the_last_result() -> None:
    X = people()
    fitted = model(budget=7.0).fit(X)
    centers = fitted.cluster_centers_
    with pytest.raises(BudgetError, match="the limit is 7") as caught:
        fitted.fit(X)
    assert caught.value.asked <= 5.0
    assert fitted.cluster_centers_ is centers
    assert len(fitted.ledger_.releases) == 2 * fitted.n_iter_ - 1
    assert fitted.set_params(budget=20.0).fit(X).epsilon_spent_ > 5.0


def test_ledger_file_spans_clones(tmp_path: Path) -> None:
    X, path = people(), tmp_path / "ledger.jsonl"
    first = model(ledger=path, budget=7.0).fit(X)
    before = path.read_bytes()
    with pytest.raises(BudgetError):
        clone(first).fit(X)
    assert path.read_bytes() == before
    second = clone(first).set_params(budget=None, ledger=str(path)).fit(X)
    assert second.epsilon_spent_ > 5.0
    assert len(path.read_text().splitlines()) == 2 * (2 * first.n_iter_ - 1)
    # Without the file the object goes on counting what it knows of.
    assert len(second.set_params(ledger=None).fit(X).ledger_.releases) == 3 * (2 * first.n_iter_ - 1)


def test_ledger_file_holds_the_releases_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    lines: list[int] = []

    def watched(plan: Any, t: int, secret: object) -> NDArray[np.int64]:
        lines.append(len(path.read_text().splitlines()))
        return np.zeros(plan.elements(t), dtype=np.int64)

    monkeypatch.setattr(module, "draw_noise", watched)
    fitted = model(ledger=path).fit(people())
    assert lines == [2 * fitted.n_iter_ - 1] * fitted.n_iter_


def test_noise_has_no_seed() -> None:
    X = people()
    first, second = model(random_state=3).fit(X), model(random_state=3).fit(X)
    assert first.plan_ == second.plan_
    assert (first.noisy_counts_ != second.noisy_counts_).any()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # a start may be a poor one
def test_random_state_decides_the_start_only() -> None:
    X = people()
    assert model(random_state=3).fit(X).plan_.seed == 3
    seeds = {model(random_state=None, rounds=2).fit(X).plan_.seed for _ in range(3)}
    assert len(seeds) == 3


def test_public_size_may_be_stated() -> None:
    X = people(1000)
    assert model().fit(X).plan_.n_total == 1000
    fitted = model(n_total=2000).fit(X)
    assert fitted.plan_.n_total == 2000
    assert fitted.delta_ == pytest.approx(1 / (100 * 2000))


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "lloyd"])
@pytest.mark.filterwarnings("ignore::fastlloyd.estimator.caution.PrivacyWarning")  # N is the number of records
def test_without_a_stated_size_the_promise_is_for_counting_a_record_or_not(protocol: str) -> None:
    X = people(1000)
    stated, counted = (model(protocol=protocol, rounds=2, n_total=n).fit(X) for n in (1000, None))
    assert stated.plan_ == counted.plan_
    assert (stated.neighbours_, counted.neighbours_) == ("add-remove record", "zero-out of one record")
    for fitted in (stated, counted):
        assert {release.neighbours for release in fitted.ledger_.releases} == {fitted.neighbours_}
        assert fitted.epsilon_spent_ == fitted.epsilon_
        # A change of values is two steps, each of (epsilon, delta): twice epsilon needs a delta that is larger.
        assert 2 * fitted.epsilon_ * (1 - 1e-9) <= fitted.epsilon_for_a_change_ <= 2.5 * fitted.epsilon_
    # The stated size promises what the counted one does, and not the other way round.
    assert stated.ledger_.epsilon(stated.delta_, counted.neighbours_) == stated.epsilon_
    assert counted.ledger_.epsilon(counted.delta_, stated.neighbours_) == np.inf


def test_a_budget_counts_fits_without_a_stated_size_as_infinite_for_others(tmp_path: Path) -> None:
    X = people(1000)
    path = tmp_path / "ledger.jsonl"
    model(n_total=1001, ledger=path, budget=20.0).fit(X)
    both = model(ledger=path, budget=20.0).fit(X)
    assert both.epsilon_ < both.epsilon_spent_ < 20.0
    with pytest.raises(BudgetError, match="inf"):
        model(n_total=1001, ledger=path, budget=20.0).fit(X)


def test_a_large_delta_is_refused_or_warned_of() -> None:
    X = people(1000)
    with pytest.raises(
        ParameterError, match=r"delta: expected at most 1 / N = 0.001.*add accept_large_delta"
    ) as caught:
        model(delta=0.002).fit(X)
    assert "--" not in str(caught.value)
    with pytest.warns(UserWarning, match="N times delta is 2, above 0.01"):
        assert model(delta=0.002, accept_large_delta=True).fit(X).delta_ == 0.002
    with pytest.warns(UserWarning, match="N times delta is 0.14"):
        assert model(delta="paper").fit(X).delta_ == pytest.approx(1 / (1000 * np.log(1000)))
    assert model(protocol="sulloyd", delta=0.4).fit(X).delta_ == 0.0


def test_released_center_that_may_be_empty_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    silence(monkeypatch)
    X = np.full((500, 2), CENTERS[0])
    with pytest.warns(ConvergenceWarning, match="cannot be told from empty") as caught:
        fitted = model(protocol="fastlloyd").fit(X)
    assert caught[0].filename == __file__
    assert sorted(fitted.noisy_counts_) == [0.0, 0.0, 500.0]
    empty = ", ".join(map(str, np.flatnonzero(fitted.noisy_counts_ == 0)))
    assert f"clusters {empty} cannot" in str(caught[0].message)
    assert fitted.quality_.verdict == "noise" and fitted.quality_.empty == tuple(
        np.flatnonzero(fitted.noisy_counts_ == 0)
    )


def test_fit_is_whole_where_warnings_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    silence(monkeypatch)
    fitted = model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):  # the fit has been paid for
            fitted.fit(np.full((500, 2), CENTERS[0]))
    assert len(fitted.labels_) == 500
    assert fitted.epsilon_spent_ > 0


def test_fitted_estimator_pickles_without_secrets_or_records(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets: list[bytes] = []
    draw, masks = module.draw_noise, masked.MaskGenerator

    def watched_noise(plan: Any, t: int, secret: Any) -> NDArray[np.int64]:
        noise = draw(plan, t, secret)
        secrets.append(noise.tobytes())
        return noise

    def watched_masks(seed: bytes, *rest: Any) -> Any:
        secrets.append(seed)
        return masks(seed, *rest)

    monkeypatch.setattr(module, "draw_noise", watched_noise)
    monkeypatch.setattr(masked, "MaskGenerator", watched_masks)
    X = people()
    fitted = model().fit(X)
    stored = pickle.dumps(fitted)
    assert len(secrets) == fitted.n_iter_ + 1
    assert not any(secret in stored for secret in secrets)
    assert not any(record.tobytes() in stored for record in X)
    again = pickle.loads(stored)
    assert (again.predict(X) == fitted.labels_).all()
    assert again.epsilon_spent_ == fitted.epsilon_spent_
    assert again.fit(X).epsilon_spent_ > fitted.epsilon_spent_


def test_inertia_is_left_out() -> None:
    assert not hasattr(model().fit(people()), "inertia_")


# -- several owners --


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_federated_equals_pooled_for_the_same_noise(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fixed(plan: Any, t: int, secret: object) -> NDArray[np.int64]:
        return np.random.default_rng(t).integers(-4000, 4000, plan.elements(t))

    monkeypatch.setattr(module, "draw_noise", fixed)
    X = people()
    parts = np.split(X, [1, 200, 1700])
    pooled = model(protocol=protocol).fit(X)
    federated = model(protocol=protocol).fit_federated(parts)
    assert (federated.cluster_centers_ == pooled.cluster_centers_).all()
    assert (federated.noisy_counts_ == pooled.noisy_counts_).all()
    assert [len(labels) for labels in federated.labels_] == [1, 199, 1500, 1300]
    assert (np.concatenate(federated.labels_) == pooled.labels_).all()
    assert federated.plan_.clients == 4


def test_noise_is_added_once_however_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
    options: dict[str, Any] = {"protocol": "fastlloyd", "n_clusters": 300, "bounds": (-1, 1), "rounds": 1}
    with monkeypatch.context() as quiet:
        silence(quiet)
        exact = model(**options).fit(X).noisy_counts_
    for fitted in (model(**options).fit(X), model(**options).fit_federated(np.array_split(X, 5))):
        deviation = fitted.plan_.rounds[0].count_scale / (1 << fitted.plan_.fraction_bits)
        total = (((fitted.noisy_counts_ - exact) / deviation) ** 2).sum()
        # False alarms: 4 tails of 1e-7 each, over both fits.
        assert stats.chi2.ppf(1e-7, 300) < total < stats.chi2.isf(1e-7, 300)


def test_traffic_counts_all_parties() -> None:
    X = people()
    surveyed = {"start": "survey", "wide": 1.0}
    traffic = model(n_clusters=2, settings=surveyed).fit_federated(np.array_split(X, 2)).traffic_
    assert traffic["payload_bytes_per_round"] == 96  # FastLloyd, Table 3, with the 32-bit ring
    assert traffic["setup_bytes"] > 4 * (8 + 32)  # keys and seed for the masks, and what whole runs begin with
    three, four = (
        model(n_clusters=2, ring_bits=64, rounds=rounds, settings=surveyed).fit_federated(np.array_split(X, 2)).traffic_
        for rounds in (3, 4)
    )
    assert three["payload_bytes"] == 3 * 192
    assert four["messages"] - three["messages"] == 4
    # One more round in the plan is separate text, before round 0.
    rounds = [fitted["link_bytes"] - fitted["setup_bytes"] for fitted in (three, four)]
    assert rounds[1] - rounds[0] == 192 + 4 * 8 + 2 * 1


@pytest.mark.parametrize(
    "parts,words",
    [
        (people(10), "expected a list of arrays, one per client, got one ndarray"),
        ([], "got an empty list"),
        ([people(10), people(10)[:, :1]], "client 2: X has 1 features"),
        ([people(10), people(10)[:0]], "client 2: Found array with 0 sample"),
        ([people(10), people(10) * np.nan], "client 2: X: expected a number everywhere, got NaN"),
    ],
)
def test_parts_that_do_not_fit_are_named(parts: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        model().fit_federated(parts)


# -- inputs --


@pytest.mark.parametrize("method", ["predict", "transform", "score"])
def test_methods_need_a_fit(method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(model(), method)(people(10))


def test_works_in_a_pipeline_and_in_cross_validation() -> None:
    X = people()
    pipeline = make_pipeline(model()).fit(X)
    assert pipeline.transform(X).shape == (3000, 3)
    assert list(pipeline[-1].get_feature_names_out()) == ["fastlloyd0", "fastlloyd1", "fastlloyd2"]
    with pytest.warns(PrivacyWarning, match="each fit spends its epsilon"):
        scores = cross_val_score(model(), X, cv=2)
    assert scores.shape == (2,)
    assert (scores < 0).all()


def test_fits_in_threads_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    silence(monkeypatch)
    X = people()
    expected = model().fit(X).cluster_centers_
    fitted = [model() for _ in range(4)]
    threads = [threading.Thread(target=one.fit, args=(X,)) for one in fitted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert all((one.cluster_centers_ == expected).all() for one in fitted)


def test_column_names_are_kept_and_bounds_found_by_name() -> None:
    pandas = pytest.importorskip("pandas")
    X = people()
    frame = pandas.DataFrame(X, columns=["age", "income"])
    bounds = Bounds(LO[::-1], HI[::-1], ("income", "age"))
    fitted = model(bounds=bounds).fit(frame)
    assert fitted.feature_names_in_.tolist() == ["age", "income"]
    assert fitted.bounds_.lo.tolist() == LO.tolist()
    assert (fitted.predict(frame) == fitted.labels_).all()
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["income", "age"]])
    with pytest.raises(ParameterError, match="name no feature 'wage'"):
        model(bounds=bounds).fit(frame.rename(columns={"income": "wage"}))
    with pytest.raises(ParameterError, match="client 2: The feature names"):
        model().fit_federated([frame, frame.rename(columns={"income": "wage"})])


def test_clusters_below_the_least_size_are_left_out_and_their_records_go_to_the_nearest() -> None:
    X = people(1000)

    def fit(**more: Any) -> Any:
        return FastLloyd(5, bounds=Bounds(LO, HI, ("a", "b")), n_total=1200, protocol="lloyd", **more).fit(X)

    whole = fit()
    least = int(whole.noisy_counts_.min()) + 1
    kept, some = np.flatnonzero(whole.noisy_counts_ >= least), fit(min_size=least)
    assert len(kept) < 5 and some.cluster_centers_.tobytes() == whole.cluster_centers_[kept].tobytes()
    assert set(some.labels_) <= set(range(len(kept))) and (some.labels_ == some.predict(X)).all()
    assert some.transform(X).shape == (len(X), len(kept)) == (len(X), len(some.get_feature_names_out()))


def test_where_no_cluster_is_large_enough_there_is_no_centre_and_each_label_is_none() -> None:
    X = people(300)
    with pytest.warns(UserWarning, match="no cluster reaches"):
        fitted = FastLloyd(3, bounds=Bounds(LO, HI, ("a", "b")), n_total=400, min_size=400, epsilon=20).fit(X)
    assert fitted.cluster_centers_ is None and fitted.noisy_counts_ is None and (fitted.labels_ == -1).all()
    with pytest.raises(ParameterError, match="no cluster of the size min_size=400 or more"):
        fitted.predict(X)
