"""What is spent and its budget are shown at one delta."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fastlloyd.privacy.ledger import Ledger, Release
from fastlloyd.run.budget_terms import Limit, Terms
from fastlloyd.run.files import privacy_entry
from fastlloyd.run.outcome import Claim
from fastlloyd.run.state import own_folder
from fastlloyd.wire.header import PartyId

ME = PartyId(1)
SUMS = Release(
    round=0, name="sums", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=2.8, run="01", seen_by="others"
)


def part(folder: Path, limit: Limit | None, delta: float) -> dict[str, object]:
    own = own_folder(str(folder), ME)
    own.mkdir(parents=True)
    if limit is not None:
        Terms(own).keep_limit(limit)
    ledger = Ledger()
    ledger.record([SUMS])
    claim = Claim(epsilon=2.0, delta=delta, against="others", unit="one record")
    return privacy_entry(claim, [SUMS], ledger, Terms(own).kept)


@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_what_all_runs_have_spent_is_composed_at_the_delta_of_the_budget(tmp_path: Path, delta: float) -> None:
    ledger = Ledger()
    ledger.record([SUMS])
    entry = part(tmp_path / "limited", Limit(2, 2.0, 1e-6), delta)
    assert entry["budget"] == 2.0 and entry["lifetime_delta"] == 1e-6
    assert entry["lifetime_epsilon"] == ledger.epsilon(1e-6) == pytest.approx(1.6, abs=0.2)
    free = part(tmp_path / "free", None, delta)
    assert free["budget"] is None and free["lifetime_delta"] == delta
    assert free["lifetime_epsilon"] == ledger.epsilon(delta)


def test_a_run_without_a_ledger_over_others_says_that_runs_add_up_and_digests_of_data_stay_out() -> None:
    entry = privacy_entry(Claim(epsilon=2.0, delta=1e-6, against="others"), [replace(SUMS, data="ab")])
    assert "add up" in entry["note"] and "lifetime_epsilon" not in entry
    assert "data" not in entry["releases"][0]
