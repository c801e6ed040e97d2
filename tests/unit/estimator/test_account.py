"""The account of a fit: nothing is given away that was not planned and written down."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fastlloyd.errors import BudgetError, InternalError
from fastlloyd.estimator.account import Spending
from fastlloyd.estimator.parameter import ParameterError
from fastlloyd.privacy.ledger import Ledger, Release
from fastlloyd.run.session import Session

SUMS = Release(round=0, name="sums", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=2.0)


def session() -> Session:
    """What the account reads of a party's life."""
    return cast(Session, SimpleNamespace(plan=SimpleNamespace(delta=1e-6), facts=SimpleNamespace(run_id=b"\x01")))


def account(**changes: Any) -> Spending:
    model: Any = SimpleNamespace(**{"n_total": 10, "budget": None, "ledger": None, **changes})
    return Spending(model, ())


def fits(most: int, **changes: Any) -> int:
    """Count the fits of one object, or of several that share a file, each at another delta, that pass a budget."""
    earlier: tuple[Release, ...] = ()
    limit = None
    for done in range(most):
        model: Any = SimpleNamespace(**{"n_total": 10, "budget": 3.0, "ledger": None, **changes})
        delta = 1e-6 if done == 0 else 0.4
        one = Spending(model, earlier, limit)
        life = SimpleNamespace(plan=SimpleNamespace(delta=delta), facts=SimpleNamespace(run_id=bytes([done])))
        try:
            one.afford(cast(Session, life), (SUMS,), delta)
        except BudgetError:
            return done
        earlier, limit = one.ledger.releases, one.limit
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
