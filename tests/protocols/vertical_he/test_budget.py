"""How vertical-he spends its budget: the split between counts and sums, and the number of rounds."""

from __future__ import annotations

import math

import pytest

from fastlloyd.privacy.calibration import gaussian_noise_multiplier
from fastlloyd.protocols.vertical_he.budget import automatic_rounds, multipliers, step_multipliers, step_radius
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


@pytest.mark.parametrize(("own", "others"), [(1, 1), (9, 1)])
def test_counts_sums_and_steps_share_the_budget_so_that_a_centre_errs_least(own: int, others: int) -> None:
    public = parameters(5000, 3)
    found = step_multipliers(public, own, others, 10, 0.3)
    sigma = gaussian_noise_multiplier(public.epsilon, public.allowed_delta)
    assert sum(10 / part**2 for part in found) == pytest.approx(1.0 / sigma**2, rel=1e-3)
    costs = (max(others / 3, 0.02 * (own + others)), others**2, own * 0.3**2)

    def error(shares: list[float]) -> float:
        """Of multipliers with these parts of the budget."""
        return sum(cost / share for cost, share in zip(costs, shares, strict=True))

    best = [10 * sigma**2 / part**2 for part in found]
    for place in range(3):
        for factor in (0.97, 1.03):
            other = [share * (factor if at == place else 1.0) for at, share in enumerate(best)]
            assert error(best) < error([share / sum(other) * sum(best) for share in other])


def test_the_radius_is_public_and_grows_with_the_columns_and_the_records() -> None:
    few, many = (step_radius(parameters(n, 3), 4, 5, 10) for n in (300, 300_000))
    assert 0.0 < few < many < 2.0
    assert step_radius(parameters(300, 3), 1, 5, 10) == pytest.approx(few / 2.0)
