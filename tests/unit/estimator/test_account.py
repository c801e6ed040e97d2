"""The account of a fit: nothing is given away that was not planned and written down."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from fastlloyd.errors import BudgetError, ConfigError, InternalError
from fastlloyd.estimator.account import SharedAccount, Spending
from fastlloyd.estimator.estimator import FastLloyd
from fastlloyd.estimator.words import ParameterError
from fastlloyd.privacy.ledger import Ledger, Release
from fastlloyd.run.session import Session

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SUMS = Release(round=0, name="sums", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=2.0)


def session() -> Session:
    """What the account reads of a session."""
    return cast(Session, SimpleNamespace(plan=SimpleNamespace(delta=1e-6), run_id=b"\x01"))


def account(**changes: Any) -> Spending:
    return Spending(model(**{"budget": None, **changes}))


def model(**changes: Any) -> Any:
    """What the account reads of an estimator."""
    return SimpleNamespace(
        **{"n_total": 10, "budget": 3.0, "ledger": None, "_account": SharedAccount(), "_block": None, **changes}
    )


def fits(most: int, **changes: Any) -> int:
    """Count the fits of one object, or of several that share a file, each at another delta, that pass a budget."""
    shared = SharedAccount()
    for done in range(most):
        delta = 1e-6 if done == 0 else 0.4
        one = Spending(model(_account=shared, **changes))
        session = SimpleNamespace(plan=SimpleNamespace(delta=delta), run_id=bytes([done]))
        try:
            one.afford(cast(Session, session), (SUMS,), delta)
        except BudgetError:
            return done
        limit = one.limit
        assert limit is not None and one.epsilon_in_all == one.ledger.epsilon(limit.delta) <= 3.0
    return most


@pytest.mark.parametrize("budget", [3.0, (3.0, 1e-6)])
@pytest.mark.parametrize("in_file", [True, False])
def test_a_budget_is_read_at_one_delta_in_all_fits(tmp_path: Path, budget: object, in_file: bool) -> None:
    # One fit is 0.5-GDP: epsilon 2.4 at delta 1e-6, two are 3.5; at delta 0.4 any number of these would cost nothing.
    assert fits(5, budget=budget, ledger=tmp_path / "ledger.jsonl" if in_file else None) == 1


def test_a_ledger_file_keeps_its_budget(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    account(ledger=path, budget=7.0).afford(session(), (SUMS,), 1e-6)
    assert json.loads((tmp_path / "ledger.jsonl.budget").read_text()) == {"state": 2, "epsilon": 7.0, "delta": 1e-6}
    for other in (8.0, (7.0, 1e-5)):
        with pytest.raises(ParameterError, match="budget holds, 7 at delta 1e-06, got"):
            account(ledger=path, budget=other).afford(session(), (SUMS,), 0.4)


def recorded(*releases: Release) -> list[Ledger]:
    ledger = Ledger()
    ledger.record(dataclasses.replace(release, run="01", data="ab", seen_by="client 1") for release in releases)
    return [Ledger(), ledger]


def test_what_was_planned_may_be_given_away() -> None:
    one = account()
    one.afford(session(), (SUMS,), 1e-6)
    one.afford(session(), (SUMS,), 1e-6)
    one.check(recorded(SUMS))
    assert [release.run for release in one.ledger.releases] == ["01"]
    assert one.epsilon == one.epsilon_in_all > 0


@pytest.mark.parametrize(
    "changes", [{"name": "counts"}, {"round": 1}, {"noise_scale": 1.0}, {"sensitivity": 2.0, "noise_scale": 4.0}]
)
def test_what_was_not_planned_may_not(changes: dict[str, Any]) -> None:
    one = account()
    one.afford(session(), (SUMS,), 1e-6)
    with pytest.raises(InternalError, match="not planned"):
        one.check(recorded(SUMS, dataclasses.replace(SUMS, **{"round": 7, **changes})))


def test_parties_that_never_ask_are_not_believed() -> None:
    with pytest.raises(InternalError, match="not planned"):
        account().check([Ledger()])


def test_all_parties_plan_the_same() -> None:
    one = account()
    one.afford(session(), (SUMS,), 1e-6)
    with pytest.raises(InternalError, match="different releases"):
        one.afford(session(), (dataclasses.replace(SUMS, noise_scale=1.0),), 1e-6)


# -- fits that count together --


def estimator(**changes: Any) -> FastLloyd:
    """An estimator of which one fit costs epsilon 1, and two cost more than 1.2."""
    return FastLloyd(**{"n_clusters": 2, "bounds": (0, 1), "n_total": 400, "rounds": 1, "budget": 1.2, **changes})


X = np.random.default_rng(0).random((300, 2))


def passed(fits: Iterable[Callable[[], object]]) -> int:
    """Count fits that a budget lets pass; all others it refuses."""
    done = 0
    for fit in fits:
        try:
            fit()
        except BudgetError:
            continue
        done += 1
    return done


@pytest.mark.parametrize("in_file", [True, False])
def test_threads_cannot_pass_a_budget_together(tmp_path: Path, in_file: bool) -> None:
    ledger = tmp_path / "ledger.jsonl" if in_file else None
    shared = estimator(ledger=ledger)
    models = [shared] * 3 + [clone(shared) for _ in range(3)]
    meet, done = threading.Barrier(len(models)), []

    def fit(one: FastLloyd) -> None:
        meet.wait(timeout=60)
        done.append(passed([lambda: one.fit(X)]))

    threads = [threading.Thread(target=fit, args=(one,)) for one in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
    assert sorted(done) == [0] * 5 + [1]


@pytest.mark.parametrize("fitted", [False, True])
def test_copies_cannot_pass_a_budget_together(fitted: bool) -> None:
    first = estimator()
    if fitted:
        first.fit(X)
    searched = clone(first).set_params(n_clusters=3)
    again = pickle.loads(pickle.dumps(first))
    copies = [clone(clone(first)), searched, copy.copy(first), copy.deepcopy(first), again, clone(again)]
    assert passed([lambda one=one: one.fit(X) for one in [*copies, first]]) == (0 if fitted else 1)
    # A new object is not a copy.
    assert passed([lambda: estimator().fit(X)]) == 1


@pytest.mark.filterwarnings("ignore::fastlloyd.estimator.caution.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_a_search_cannot_pass_a_budget() -> None:
    search = GridSearchCV(estimator(), {"n_clusters": [2, 3]}, cv=3)
    with pytest.raises(BudgetError, match="the limit is 1.2"):
        search.fit(X)


_WORKER = """
import os, pickle, sys
from fastlloyd.errors import BudgetError
from fastlloyd.estimator.words import ParameterError
models, X = pickle.load(open(sys.argv[1], "rb"))
for model in models:
    try:
        print("passed", round(model.fit(X).epsilon_spent_, 3))
    except (BudgetError, ParameterError) as error:
        print(type(error).__name__, error)
"""


def elsewhere(folder: Path, *models: FastLloyd) -> list[str]:
    """Fit pickled models in another process; give what each ends with."""
    path = folder / "model.pickle"
    path.write_bytes(pickle.dumps((models, X)))
    command = [sys.executable, "-c", _WORKER, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return done.stdout.splitlines()


@pytest.mark.process
def test_another_process_needs_a_file_for_a_budget(tmp_path: Path) -> None:
    shared = estimator(ledger=tmp_path / "ledger.jsonl")
    new, fitted, free, first = elsewhere(tmp_path, estimator(), estimator().fit(X), estimator(budget=None), shared)
    assert "expected a ledger file, got ledger=None" in new
    assert "expected a ledger file, got ledger=None" in fitted
    assert free.startswith("passed 1.0") and first.startswith("passed 1.0")
    assert passed([lambda: shared.fit(X)]) == 0, "this process must see what the other one has spent"


def test_a_fit_waits_for_the_ledger_file_of_others(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    held = Ledger(path)
    timer = threading.Timer(0.3, held.close)
    timer.start()
    assert len(estimator(ledger=path).fit(X).ledger_.releases) == len(path.read_text().splitlines())
    timer.join()
    with Ledger(path), pytest.raises(ConfigError, match="another run holds it"):
        Ledger(path, patience_s=0.05)
