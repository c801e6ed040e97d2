"""One party's noise in a round of vertical-he is what the ledger states.

False alarms: below 1e-6 for each test.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("tenseal")

from scipy import stats

from fastlloyd.protocols.vertical_he.math.hints import HINT_SHARE
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.protocols.vertical_he.rounds import draw_noise
from fastlloyd.randomness.secret import SecretRandom
from tests.protocols.vertical_he.support import names, parameters

DRAWS = 2000
# For each comparison, of six at most in a test.
ALARM = 1e-7


@pytest.mark.parametrize("grid", [1.0, 2.0**8])
@pytest.mark.parametrize(
    ("rounds", "released"),
    [(2, ["soft counts", "soft sums"]), (10, ["soft counts", "soft sums", "soft steps"])],
)
def test_a_partys_noise_is_that_of_the_releases(rounds: int, released: list[str], grid: float) -> None:
    plan, secret = make_plan(parameters(300, 2, rounds=rounds), names(2, 1)), SecretRandom()
    releases = plan.releases(0, seen_by="another party")
    assert [release.name for release in releases] == released
    drawn = np.stack([draw_noise(plan, secret, grid) for _ in range(DRAWS)]).reshape(DRAWS, plan.k, plan.d + 1) * grid
    steps = [1 + column for column in plan.stepping]
    sums = [column for column in range(1, plan.d + 1) if column not in steps]
    for release, own in zip(releases, ([0], sums, steps), strict=False):
        # The ledger counts what is left without the share that floods the errors of the encryption.
        deviation = release.noise_scale / math.sqrt(1.0 - HINT_SHARE)
        scaled = drawn[:, :, own].ravel() / deviation
        level = stats.chi2(scaled.size).cdf((scaled**2).sum())
        assert ALARM / 2 < level < 1 - ALARM / 2, release.name
        assert stats.kstest(scaled, "norm").pvalue > ALARM, release.name
