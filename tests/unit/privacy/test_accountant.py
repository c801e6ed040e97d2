"""The verifying accountant against closed formulas and an independent integration."""

from __future__ import annotations

import math
import subprocess
import sys

import mpmath
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import erfcx
from scipy.stats import norm

from fastlloyd.errors import ConfigError
from fastlloyd.privacy import accountant
from fastlloyd.privacy.accountant import SAMPLER_DELTA, change_epsilon, gdp_delta, gdp_epsilon, scaled_erfc, spent
from fastlloyd.privacy.release import Release

DELTA = 1e-6


def gaussian(multiplier: float, t: int = 0, sensitivity: float = 1.0) -> Release:
    return Release(
        round=t,
        name="sums",
        mechanism="gaussian",
        norm="l2",
        sensitivity=sensitivity,
        noise_scale=multiplier * sensitivity,
    )


def laplace(multiplier: float, t: int = 0) -> Release:
    return Release(round=t, name="counts", mechanism="laplace", norm="l1", sensitivity=1.0, noise_scale=multiplier)


def none() -> Release:
    return Release(round=0, name="sums", mechanism="none", norm="l2", sensitivity=1.0, noise_scale=0.0)


def gaussian_tail(mu: float, epsilon: float) -> float:
    """Delta of mu-GDP, straight from the definition; epsilon may be negative."""
    return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)


def mixed_delta(mu: float, pure: float, epsilon: float) -> float:
    """Delta of one Gaussian and one Laplace release, by integration over the Laplace loss."""
    atoms = 0.5 * gaussian_tail(mu, epsilon - pure) + 0.5 * math.exp(-pure) * gaussian_tail(mu, epsilon + pure)
    between, _ = quad(
        lambda x: 0.5 * pure * math.exp(-pure * x) * gaussian_tail(mu, epsilon - pure * (1 - 2 * x)), 0, 1
    )
    return atoms + between


def test_nothing_released_spends_nothing():
    assert spent([], 0.0) == spent([], DELTA) == 0.0


def test_a_release_without_noise_spends_everything():
    assert spent([gaussian(5.0), none()], DELTA) == math.inf


@pytest.mark.parametrize("multiplier", [0.2, 1.0, 4.0, 1000.0])
def test_gaussian_releases_agree_with_the_closed_formula(multiplier):
    releases = [gaussian(multiplier, t, sensitivity=3.0) for t in range(7)]
    exact = gdp_epsilon(math.sqrt(7) / multiplier, DELTA - SAMPLER_DELTA)
    assert exact * (1 - 1e-9) <= spent(releases, DELTA) <= exact * (1 + 1e-5)


def test_unequal_gaussian_releases_agree_with_the_closed_formula():
    multipliers = [3.0, 5.0, 8.0, 5.0]
    exact = gdp_epsilon(math.sqrt(sum(m**-2 for m in multipliers)), DELTA - SAMPLER_DELTA)
    ours = spent([gaussian(m, t) for t, m in enumerate(multipliers)], DELTA)
    assert exact * (1 - 1e-9) <= ours <= exact * (1 + 1e-5)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.5, 500.0), min_size=1, max_size=6), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_gaussian_releases_agree_with_dp_accounting(multipliers, delta):
    ours = spent([gaussian(m, t) for t, m in enumerate(multipliers)], delta)
    loss = pld.identity(value_discretization_interval=max(ours, 0.01) / 4000)
    for m in multipliers:
        loss = loss.compose(pld.from_gaussian_mechanism(m, value_discretization_interval=max(ours, 0.01) / 4000))
    theirs = loss.get_epsilon_for_delta(delta - SAMPLER_DELTA)
    assert ours <= theirs * (1 + 1e-6) + 1e-12
    assert ours >= theirs * (1 - 2e-3) - 1e-4


@given(st.floats(-4.9, 1.5).map(lambda x: 10.0**x), st.sampled_from([1e-12, 1e-9, 1e-6, 1e-3]))
def test_the_formula_is_never_below_its_value_in_fifty_digits(mu, delta):
    import mpmath

    epsilon = spent([gaussian(1 / mu)], delta)
    assume(0.0 < epsilon < math.inf)
    with mpmath.workdps(50):
        low, high = (epsilon / mpmath.mpf(mu) + sign * mpmath.mpf(mu) / 2 for sign in (-1, 1))
        exact = mpmath.ncdf(-low) - mpmath.exp(epsilon) * mpmath.ncdf(-high)
        assert exact <= mpmath.mpf(delta) - mpmath.mpf(SAMPLER_DELTA)
        assert exact >= (mpmath.mpf(delta) - mpmath.mpf(SAMPLER_DELTA)) * (1 - mpmath.mpf("3e-9"))


@pytest.mark.process
def test_gaussian_noise_needs_no_distributions():
    program = """
import sys
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import Release
release = Release(round=0, name="sums", mechanism="gaussian", norm="l2", sensitivity=1.0, noise_scale=5.0)
assert 0 < spent([release], 1e-5) < 1
assert not {"dp_accounting", "scipy.stats"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("mu", "pure"), [(0.5, 0.5), (0.1, 0.8), (2.0, 0.3)])
def test_a_mixture_agrees_with_an_independent_integration(mu, pure):
    epsilon = spent([gaussian(1 / mu), laplace(1 / pure)], DELTA)
    assert mixed_delta(mu, pure, epsilon) <= DELTA * (1 + 1e-7)
    assert mixed_delta(mu, pure, epsilon * 0.9995) > DELTA


def test_pure_releases_are_summed_at_delta_zero():
    assert spent([laplace(2.0), laplace(2.0, 1), laplace(4.0, 2)], 0.0) == pytest.approx(1.25, rel=1e-15)
    assert spent([laplace(2.0), gaussian(100.0)], 0.0) == math.inf


def test_many_pure_releases_cost_less_at_a_positive_delta():
    releases = [laplace(50.0, t) for t in range(200)]
    assert spent(releases, 0.0) == pytest.approx(4.0)
    assert spent(releases, DELTA) < 2.0


def test_the_sampler_keeps_its_part_of_delta():
    assert spent([gaussian(5.0)], SAMPLER_DELTA) == math.inf
    assert spent([laplace(5.0)], SAMPLER_DELTA) == pytest.approx(0.2)
    assert spent([gaussian(5.0)], 2 * SAMPLER_DELTA) > gdp_epsilon(0.2, 2 * SAMPLER_DELTA)


def test_no_promise_is_infinity():
    assert spent([gaussian(1e-6)], DELTA) == math.inf


@pytest.mark.parametrize(
    "releases",
    [[laplace(10.0)] * 5, [gaussian(3.0), gaussian(4.0), laplace(2.0)], [laplace(1.0), *[laplace(60.0)] * 100]],
    ids=["laplace", "mixed", "far below the first guess"],
)
def test_the_interval_is_at_most_a_two_thousandth_of_epsilon(releases, monkeypatch):
    intervals = []
    compose_at = accountant._compose_at

    def recording(*arguments):
        intervals.append(arguments[-1])
        return compose_at(*arguments)

    monkeypatch.setattr(accountant, "_compose_at", recording)
    accountant._compose.cache_clear()
    assert spent(releases, DELTA) / 2000 * (1 + 1e-9) >= intervals[-1] > 0
    # Each composition takes milliseconds, and a calibration needs several.
    assert len(intervals) <= 2


def test_the_same_releases_are_composed_once(monkeypatch):
    accountant._compose.cache_clear()
    first = spent([gaussian(3.0), laplace(2.0), laplace(2.5)], DELTA)
    monkeypatch.setattr(accountant, "_compose_at", None)  # nobody asks it again
    assert spent([laplace(2.5, 1), gaussian(3.0, 2), laplace(2.0)], DELTA) == first
    with pytest.raises(TypeError):
        spent([gaussian(3.0), laplace(2.0)], DELTA)


def test_noise_beyond_need_spends_nothing_in_reasonable_time():
    assert spent([gaussian(1e7)], 1e-5) == 0.0


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan, math.inf])
def test_a_delta_out_of_range_is_refused(delta):
    with pytest.raises(ConfigError, match="expected delta"):
        spent([gaussian(1.0)], delta)


@given(st.floats(0.01, 20), st.floats(0, 30))
def test_gdp_delta_is_the_textbook_formula(mu, epsilon):
    assert gdp_delta(mu, epsilon) == pytest.approx(max(gaussian_tail(mu, epsilon), 0.0), rel=1e-6, abs=1e-13)


def test_gdp_delta_is_stable_far_in_the_tail():
    # 50 digits by arbitrary precision: Phi(-a) - e^epsilon Phi(-b).
    import mpmath

    with mpmath.workdps(50):
        for mu, epsilon in ((1e-3, 0.01), (0.14, 1.0), (0.02, 0.15), (6.0, 50.0), (0.01, 0.0), (9.0, 0.01)):
            low, high = (epsilon / mpmath.mpf(mu) + sign * mpmath.mpf(mu) / 2 for sign in (-1, 1))
            exact = mpmath.ncdf(-low) - mpmath.exp(epsilon) * mpmath.ncdf(-high)
            assert gdp_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-9)


@settings(max_examples=50)
@given(st.floats(1e-3, 10), st.floats(1e-15, 0.1))
def test_gdp_epsilon_is_the_inverse_from_above(mu, delta):
    epsilon = gdp_epsilon(mu, delta)
    assert gdp_delta(mu, epsilon) <= delta
    assert epsilon == 0.0 or gdp_delta(mu, epsilon * (1 - 1e-9)) > delta * (1 - 1e-9)


def test_gdp_epsilon_at_delta_zero_is_infinite():
    assert gdp_epsilon(1.0, 0.0) == math.inf


@given(st.floats(0, 30) | st.floats(1.99, 2.01) | st.floats(30, 1e12))
def test_the_scaled_error_function_is_that_of_scipy(x):
    assert scaled_erfc(x) == pytest.approx(float(erfcx(x)), rel=1e-14)


@pytest.mark.process
def test_a_party_starts_and_accounts_for_gaussian_noise_without_scipy() -> None:
    program = """
import sys
import fastlloyd.run.execute
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.calibration import gaussian_noise_multiplier
from fastlloyd.privacy.release import Release
release = Release(round=0, name="sums", mechanism="gaussian", norm="l2", sensitivity=1.0, noise_scale=5.0)
assert 0 < spent([release], 1e-5) < 1
assert gaussian_noise_multiplier(1.0, 1e-5) > 1
assert not [name for name in sys.modules if name.startswith("scipy")]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("epsilon", "count"), [(0.01, 4096), (1.0, 5000), (3.0, 200)])
def test_what_is_cut_off_of_responses_is_counted_as_without_privacy(epsilon: float, count: int) -> None:
    """The masses that are kept, and the one that is counted as lost, are no less than all of it."""
    kept, beyond = accountant._response_losses(epsilon, count, 1e-3)
    with mpmath.workdps(60):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        # What a response of probability below e^-80 has, exactly.
        cut = mpmath.fsum(
            mass
            for ones in range(count + 1)
            if (mass := mpmath.binomial(count, ones) * p**ones * (1 - p) ** (count - ones)) < mpmath.exp(-80)
        )
        assert 0 < cut <= beyond <= 1.000001 * (count + 1) * mpmath.exp(-80)
    assert math.fsum(kept.values()) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("multiplier", [2.0, 20.0])
def test_a_change_of_a_record_costs_as_much_as_half_of_the_noise(multiplier: float) -> None:
    assert change_epsilon([gaussian(multiplier)], DELTA) == spent([gaussian(multiplier / 2.0)], DELTA)
    assert change_epsilon([laplace(multiplier)], 0.0) == pytest.approx(2.0 / multiplier)


def test_gaussian_releases_beside_laplace_ones_compose_by_their_squares() -> None:
    # 16 / 12^2 + 4 / 6^2 + 1 / 6^2 = 1 / 2^2
    several = [*(gaussian(12.0, t) for t in range(16)), *(gaussian(6.0, t) for t in range(5)), laplace(5.0)]
    assert spent(several, DELTA) == pytest.approx(spent([gaussian(2.0), laplace(5.0)], DELTA), rel=1e-9)


def test_unequal_gaussian_releases_beside_laplace_ones_agree_with_dp_accounting() -> None:
    multipliers, pure = [3.0, 5.0, 8.0, 5.0], 5.0
    ours = spent([*(gaussian(m, t) for t, m in enumerate(multipliers)), laplace(pure)], DELTA)
    loss = pld.from_laplace_mechanism(pure, value_discretization_interval=ours / 8000)
    for m in multipliers:
        loss = loss.compose(pld.from_gaussian_mechanism(m, value_discretization_interval=ours / 8000))
    assert ours == pytest.approx(loss.get_epsilon_for_delta(DELTA - SAMPLER_DELTA), rel=1e-4)
