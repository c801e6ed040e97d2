"""The account of a fit: nothing is given away that was not planned and written down."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fastlloyd.errors import InternalError
from fastlloyd.estimator.account import Spending
from fastlloyd.privacy.ledger import Ledger, Release
from fastlloyd.run.session import Session

SUMS = Release(round=0, name="sums", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=2.0)


def session() -> Session:
    """What the account reads of a party's life."""
    return cast(Session, SimpleNamespace(plan=SimpleNamespace(delta=1e-6), facts=SimpleNamespace(run_id=b"\x01")))


def account(**changes: Any) -> Spending:
    model: Any = SimpleNamespace(**{"n_total": 10, "budget": None, "ledger": None, **changes})
    return Spending(model, ())


def recorded(*releases: Release) -> list[Ledger]:
    ledger = Ledger()
    ledger.record(dataclasses.replace(release, run="01", data="ab", seen_by="client 1") for release in releases)
    return [Ledger(), ledger]


def test_what_was_planned_may_be_given_away() -> None:
    one = account()
    one.afford(session(), (SUMS,))
    one.afford(session(), (SUMS,))
    one.check(recorded(SUMS))
    assert [release.run for release in one.ledger.releases] == ["01"]
    assert one.epsilon == one.epsilon_in_all > 0


@pytest.mark.parametrize(
    "changes", [{"name": "counts"}, {"round": 1}, {"noise_scale": 1.0}, {"sensitivity": 2.0, "noise_scale": 4.0}]
)
def test_what_was_not_planned_may_not(changes: dict[str, Any]) -> None:
    one = account()
    one.afford(session(), (SUMS,))
    with pytest.raises(InternalError, match="not planned"):
        one.check(recorded(SUMS, dataclasses.replace(SUMS, **{"round": 7, **changes})))


def test_parties_that_never_ask_are_not_believed() -> None:
    with pytest.raises(InternalError, match="not planned"):
        account().check([Ledger()])


def test_all_parties_plan_the_same() -> None:
    one = account()
    one.afford(session(), (SUMS,))
    with pytest.raises(InternalError, match="different releases"):
        one.afford(session(), (dataclasses.replace(SUMS, noise_scale=1.0),))
