"""A ledger over runs that protect different units: what one says about the other."""

from __future__ import annotations

import math

import pytest

from fastlloyd.errors import BudgetError
from fastlloyd.privacy.ledger import Ledger, covers
from fastlloyd.privacy.release import ADD_REMOVE, ADD_REMOVE_USER, Release


def release(run: str, neighbours: str) -> Release:
    return Release(
        run=run, round=0, name="sums", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=10.0,
        neighbours=neighbours,
    )  # fmt: skip


def test_a_users_protection_covers_each_record_and_not_the_other_way_round() -> None:
    assert covers(ADD_REMOVE_USER, ADD_REMOVE) and covers(ADD_REMOVE, ADD_REMOVE)
    assert not covers(ADD_REMOVE, ADD_REMOVE_USER)
    assert not covers("zero-out of one user's row", ADD_REMOVE)


def test_a_record_level_release_leaves_no_finite_epsilon_per_user() -> None:
    ledger = Ledger(None)
    ledger.record([release("0a", ADD_REMOVE)])
    assert ledger.epsilon(1e-6) < 1.0
    assert ledger.epsilon(1e-6, ADD_REMOVE_USER) == math.inf
    with pytest.raises(BudgetError, match="smaller unit"):
        ledger.check_budget([release("0b", ADD_REMOVE_USER)], 1e-6, 100.0)
    ledger.check_budget([release("0b", ADD_REMOVE)], 1e-6, 100.0)


def test_a_user_level_release_counts_for_records() -> None:
    ledger = Ledger(None)
    ledger.record([release("0a", ADD_REMOVE_USER)])
    alone = ledger.epsilon(1e-6)
    ledger.record([release("0b", ADD_REMOVE)])
    assert alone < ledger.epsilon(1e-6) < math.inf
