"""How vertical-he spends its budget: the split between counts and sums, and the number of rounds."""

from __future__ import annotations

import math

import pytest

from fastlloyd.privacy.calibration import gaussian_noise_multiplier
from fastlloyd.protocols.vertical_he.budget import automatic_rounds, multipliers
from tests.protocols.vertical_he.support import parameters


@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("rounds", [1, 6])
def test_counts_and_sums_share_the_budget_at_the_best_ratio(d: int, rounds: int) -> None:
    public = parameters(5000, 3)
    counts, sums = multipliers(public, d, rounds)
    assert counts / sums == pytest.approx((3 * d) ** 0.25, rel=1e-12)
    sigma = gaussian_noise_multiplier(public.epsilon, public.allowed_delta)
    assert rounds / counts**2 + rounds / sums**2 == pytest.approx(1.0 / sigma**2, rel=1e-3)


@pytest.mark.parametrize("d", [1, 3, 8])
def test_as_many_rounds_as_keep_a_centre_s_noise_small(d: int) -> None:
    seen = set()
    for n in range(200, 6000, 200):
        public = parameters(n, 4, rounds=None, shrink=False)
        small = [
            rounds
            for rounds in range(5, 11)
            if multipliers(public, d, rounds)[1] * math.sqrt(2 * d) * public.k / n <= 0.04
        ]
        assert automatic_rounds(public, d, 1.0) == max(small, default=4)
        seen.add(max(small, default=4))
    assert len(seen) > 3
