"""A budget that models share: it counts fits of all of them, in copies, threads, searches and other processes."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import fastlloyd
from fastlloyd.errors import BudgetError
from fastlloyd.estimator.account import Budget
from fastlloyd.estimator.estimator import FastLloyd, ParameterError

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::fastlloyd.estimator.caution.PrivacyWarning"),
]

X = np.random.default_rng(0).random((60, 2))


def model(**changes: Any) -> FastLloyd:
    return FastLloyd(**{"n_clusters": 2, "epsilon": 1.0, "bounds": (0, 1), "n_total": 100, "rounds": 1, **changes})


def test_models_that_are_no_copies_share_it() -> None:
    budget = fastlloyd.Budget(1.3, 1e-4)
    assert budget.remaining() == 1.3 and budget.spent() == 0.0
    one = model(budget=budget).fit(X)
    assert one.budget_.epsilon == 1.3 and one.budget_.delta == 1e-4
    assert budget.spent() == one.epsilon_spent_ and 0.0 < budget.remaining() < 1.3
    before = budget.releases
    with pytest.raises(BudgetError):
        model(n_clusters=3, budget=budget).fit(X)
    assert budget.releases == before == one.ledger_.releases
    assert model(budget=budget, epsilon=0.2).fit(X).epsilon_spent_ == budget.spent() <= 1.3


def test_every_copy_is_the_same_budget() -> None:
    budget = Budget(1.3)
    assert copy.copy(budget) is copy.deepcopy(budget) is clone(model(budget=budget)).budget is budget
    pickle.loads(pickle.dumps(model(budget=budget))).fit(X)
    assert budget.spent() > 0.9
    with pytest.raises(BudgetError):
        GridSearchCV(model(budget=budget), {"n_clusters": [2, 3]}, cv=2, error_score="raise").fit(X)
    assert budget.spent() <= 1.3


def test_a_block_counts_the_fits_that_have_no_budget() -> None:
    outside, inside = model(), model()
    with Budget(1.3) as budget:
        inside.fit(X)
        assert len(budget.releases) == len(inside.ledger_.releases) > 0
        with pytest.raises(BudgetError):
            clone(inside).fit(X)
        failed: list[BaseException] = []

        def fit() -> None:
            try:
                model().fit(X)
            except BudgetError as error:
                failed.append(error)

        thread = threading.Thread(target=fit)
        thread.start()
        thread.join()
        assert len(failed) == 1
        with pytest.raises(ParameterError, match="budget: expected None in a `with` block of Budget"):
            model(budget=3.0).fit(X)
        inside.set_params(epsilon=0.1)
        with Budget(9.0) as inner:
            model(budget=inner).fit(X)
    assert 0.9 < budget.spent() <= 1.3
    outside.fit(X)
    inside.fit(X)
    assert len(inside.ledger_.releases) < len(budget.releases) + len(inner.releases)  # the block's fit is not its own


def test_blocks_of_two_threads_count_each_its_own_fits() -> None:
    first, second = Budget(9.0), Budget(9.0)
    opened, done = threading.Event(), threading.Event()

    def open_second() -> None:
        with second:
            opened.set()
            done.wait(60)

    with ThreadPoolExecutor() as threads, first:
        other = threads.submit(open_second)
        opened.wait(60)
        try:
            model().fit(X)
            neither = threads.submit(model().fit, X).exception()
        finally:
            done.set()
        other.result()
        counted = len(first.releases)
        threads.submit(model().fit, X).result()
    assert isinstance(neither, ParameterError) and "got blocks of several threads" in str(neither)
    assert len(first.releases) == 2 * counted > 0 == len(second.releases)


def test_a_public_copy_takes_no_budget_along() -> None:
    with Budget(9.0):
        fitted = model().fit(X)
        assert pickle.loads(pickle.dumps(fitted))._block is not None
        handed_over = pickle.loads(pickle.dumps(fitted.public()))
    assert handed_over.budget is handed_over._block is None


def test_what_a_block_sends_to_another_process_counts_there_or_is_refused(tmp_path: Path) -> None:
    program = (
        "import pickle, sys\nfrom sklearn.base import clone\n"
        "clone(pickle.load(open(sys.argv[1], 'rb'))).fit([[0, 1]] * 9)"
    )
    for budget, words in ((Budget(9.0), "budget: expected a ledger file"), (Budget(9.0, ledger=tmp_path / "l"), "")):
        with budget:
            (tmp_path / "model").write_bytes(pickle.dumps(model()))
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program, tmp_path / "model"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (words in done.stderr) if words else done.returncode == 0, done.stderr
        assert (budget.spent() > 0.5) == (not words)


def test_a_file_keeps_it_for_all_processes(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    model(budget=Budget(1.3, ledger=path)).fit(X)
    again = Budget(1.3, ledger=str(path))
    assert 0.0 < again.remaining() < 0.6
    with pytest.raises(BudgetError):
        model(budget=again).fit(X)
    model(budget=again, ledger=str(path), epsilon=0.1).fit(X)
    with pytest.raises(ParameterError, match="ledger: expected None beside Budget"):
        model(budget=again, ledger=tmp_path / "other").fit(X)
    with pytest.raises(ParameterError, match="budget: expected the one that"):
        model(budget=Budget(3.0, ledger=path)).fit(X)


def test_without_a_limit_it_counts() -> None:
    budget = Budget(None)
    for _ in range(2):
        model(budget=budget).fit(X)
    assert budget.remaining() == math.inf and budget.spent() > 0.0


@pytest.mark.parametrize("values", [("2",), (-1,), (1, 0.7), (np.nan,), (1, "x"), ([1.0],), (True,)])
def test_a_wrong_value_is_refused(values: tuple[Any, ...]) -> None:
    with pytest.raises(ParameterError, match="budget: expected None, an epsilon from 0 to 10"):
        Budget(*values)


def test_it_says_what_it_is(tmp_path: Path) -> None:
    assert repr(Budget(2)) == "Budget(2.0)"
    assert repr(Budget(2, 1e-6, ledger="l")) == "Budget(2.0, 1e-06, ledger='l')"
    with pytest.raises(ParameterError, match="ledger: expected None or a path, got 3"):
        Budget(2, ledger=3)  # type: ignore[arg-type]
