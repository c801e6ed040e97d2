"""Delta: the default, the papers' values, and what is refused or pointed out."""

from __future__ import annotations

import math

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.calibration import (
    SAMPLER_DELTA,
    automatic_delta,
    gaussian_noise_multiplier,
    large_delta,
    paper_delta,
    settle_delta,
    stated_delta,
)

SIZES = (3, 150, 1_000, 10_000, 300_000, 10**9)


@pytest.mark.parametrize("n", SIZES)
def test_the_default_leaves_one_per_cent_and_is_not_pointed_out(n: int) -> None:
    assert n * automatic_delta(n) == pytest.approx(0.01)
    assert large_delta(automatic_delta(n), n) is None
    assert automatic_delta(n) > 2 * SAMPLER_DELTA


def test_a_default_that_no_noise_can_keep_is_refused_with_what_would_do() -> None:
    assert stated_delta(None, 5 * 10**9) == pytest.approx(2e-12)
    assert stated_delta(1e-11, 10**12) == 1e-11
    with pytest.raises(ConfigError, match=r"--n-total: the default delta for N = 1,000,000,000,000 is 1e-14, .* at mo"):
        stated_delta(None, 10**12)


@pytest.mark.parametrize("n", SIZES)
def test_the_papers_delta_is_pointed_out(n: int) -> None:
    assert paper_delta(n) == pytest.approx(1 / (n * math.log(n)))
    said = large_delta(paper_delta(n), n)
    assert said is not None and f"N times delta is {1 / math.log(n):.2g}" in said


# The table of docs/privacy.md, "Delta": noise of the default over that of the paper's delta.
@pytest.mark.parametrize(
    "n,prices",
    [
        (150, (1.56, 1.32, 1.20)),
        (1_000, (1.31, 1.21, 1.14)),
        (10_000, (1.19, 1.14, 1.10)),
        (300_000, (1.11, 1.09, 1.07)),
    ],
)
def test_the_price_of_the_default(n: int, prices: tuple[float, ...]) -> None:
    def noise(epsilon: float, delta: float) -> float:
        return gaussian_noise_multiplier(epsilon, delta - SAMPLER_DELTA)

    for epsilon, price in zip((0.1, 1.0, 5.0), prices, strict=True):
        assert noise(epsilon, automatic_delta(n)) / noise(epsilon, paper_delta(n)) == pytest.approx(price, abs=0.006)


def settle(stated: float | str | None, *, n: int = 1000, accept: bool = False) -> float | None:
    return settle_delta(stated, n_total=n, paper=paper_delta(n), accept_large=accept)


def test_a_stated_delta_is_taken_up_to_one_in_n() -> None:
    assert settle(None) is None
    assert settle("paper") == paper_delta(1000)
    assert settle(1e-6) == 1e-6
    assert settle(1 / 3, n=3) == 1 / 3
    for n in (7, 49, 1000, 12345):
        assert settle(1 / n, n=n) == 1 / n


def test_a_larger_one_is_refused_unless_accepted() -> None:
    with pytest.raises(ConfigError, match=r"at most 1 / N = 0.001 for N = 1,000, got 0.0011.*--accept-large-delta"):
        settle(0.0011)
    assert settle(0.0011, accept=True) == 0.0011
    with pytest.raises(ConfigError, match="--accept-large-delta"):
        settle_delta("paper", n_total=2_000_000, paper=1e-6, accept_large=False)
