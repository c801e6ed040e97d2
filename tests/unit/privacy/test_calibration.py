"""Calibration: the smallest noise, checked against dp-accounting and by the accountant itself."""

from __future__ import annotations

import math

import dp_accounting
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlloyd.errors import ConfigError
from fastlloyd.privacy import calibration
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.calibration import SAMPLER_DELTA, calibrate, gaussian_noise_multiplier, gdp_delta
from fastlloyd.privacy.release import Release

epsilons = st.floats(math.log(0.01), math.log(50)).map(math.exp)
deltas = st.floats(math.log(1e-15), math.log(0.1)).map(math.exp)


@settings(max_examples=150, deadline=None)
@given(epsilons, deltas)
def test_the_multiplier_is_the_smallest_that_is_enough(epsilon, delta):
    sigma = gaussian_noise_multiplier(epsilon, delta)
    assert gdp_delta(1 / sigma, epsilon) <= delta
    assert gdp_delta(1 / (sigma * (1 - 1e-9)), epsilon) > delta


@pytest.mark.skipif(not hasattr(dp_accounting, "get_sigma_gaussian"), reason="this dp-accounting has no such function")
@given(epsilons, deltas)
def test_the_multiplier_is_that_of_dp_accounting(epsilon, delta):
    sigma = gaussian_noise_multiplier(epsilon, delta)
    assert sigma == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (math.nan, 1e-5), (1, 0.0), (1, 1.0)])
def test_a_target_out_of_range_is_refused(epsilon, delta):
    with pytest.raises(ConfigError, match="expected"):
        gaussian_noise_multiplier(epsilon, delta)


def release(mechanism: str, multiplier: float, t: int = 0) -> Release:
    norm = "l1" if mechanism == "laplace" else "l2"
    return Release(round=t, name="sums", mechanism=mechanism, norm=norm, sensitivity=1.0, noise_scale=multiplier)


def gaussian(multiplier: float, t: int = 0) -> Release:
    return release("gaussian", multiplier, t)


def laplace(multiplier: float, t: int = 0) -> Release:
    return release("laplace", multiplier, t)


def rounds_of_gaussian(factor: float) -> list[Release]:
    return [gaussian(factor * math.sqrt(14), t) for t in range(14)]


def mixture(factor: float) -> list[Release]:
    return [gaussian(factor * 3, t) for t in range(3)] + [laplace(factor * 2, 3), laplace(factor * 5, 4)]


def rounds_of_laplace(factor: float) -> list[Release]:
    return [laplace(factor * (2 + t % 2), t) for t in range(14)]


@pytest.mark.parametrize("build", [rounds_of_gaussian, mixture, rounds_of_laplace])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("start", [0.01, 1.0, 1000.0])
def test_the_composition_meets_the_target_from_below(build, epsilon, start):
    factor, releases = calibrate(build, epsilon, 1e-6, start)
    assert releases == tuple(build(factor))
    assert epsilon * 0.9999 <= spent(releases, 1e-6) <= epsilon


def test_pure_epsilon_is_met_at_delta_zero():
    factor, releases = calibrate(rounds_of_laplace, 1.0, 0.0, 14 / 2.4)
    assert 0.9999 <= spent(releases, 0.0) <= 1.0
    assert factor == pytest.approx(7 / 2 + 7 / 3, rel=1e-4)


def test_an_analytic_start_is_raised_by_parts_in_a_million_only():
    sigma = gaussian_noise_multiplier(1.0, 1e-6)
    factor, releases = calibrate(rounds_of_gaussian, 1.0, 1e-6, sigma)
    assert sigma < factor < sigma * (1 + 1e-5)
    assert spent(releases, 1e-6) <= 1.0


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (math.nan, 0.0), (math.inf, 0.0), (1, -1e-9)])
def test_a_composition_has_a_target_in_range_too(epsilon, delta):
    with pytest.raises(ConfigError, match="expected (a positive finite epsilon|delta from 0 to below 1)"):
        calibrate(rounds_of_laplace, epsilon, delta, 1.0)


def test_a_delta_of_more_than_one_half_is_in_range():
    assert gdp_delta(1 / gaussian_noise_multiplier(1.0, 0.7), 1.0) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("build", "delta"),
    [
        (lambda factor: [release("none", 0.0)], 1e-6),
        (lambda factor: [], 1e-6),
        (rounds_of_gaussian, 0.0),
        (rounds_of_gaussian, SAMPLER_DELTA),
        (lambda factor: [gaussian(1.0)], 1e-6),
    ],
    ids=["no noise", "no release", "delta 0", "sampler's delta", "the factor changes nothing"],
)
def test_what_cannot_be_met_is_refused(build, delta):
    with pytest.raises(ConfigError):
        calibrate(build, 1.0, delta, 1.0)


@pytest.mark.parametrize("start", [0.0, -1.0, math.inf, math.nan])
def test_a_useless_start_is_refused(start):
    with pytest.raises(ConfigError, match="first guess"):
        calibrate(rounds_of_gaussian, 1.0, 1e-6, start)


@pytest.mark.parametrize("planned", [(), (release("none", 0.0),), (gaussian(1.0), release("none", 0.0, 1))])
def test_releases_without_noise_cannot_be_calibrated(planned):
    with pytest.raises(ConfigError, match="expected releases with noise"):
        calibrate(lambda factor: planned, 1.0, 1e-6, 1.0)


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_a_search_that_does_not_end_says_so(monkeypatch, steps):
    # Epsilon jumps over the target, so no factor is tight, and the bracket does not close in so few steps.
    monkeypatch.setattr(calibration, "_MAX_STEPS", steps)
    monkeypatch.setattr(calibration, "spent", lambda releases, delta: 2.0 if releases[0].noise_scale < 3.3 else 0.5)
    with pytest.raises(ConfigError, match="no noise was found that gives epsilon 1"):
        calibrate(lambda factor: (gaussian(factor),), 1.0, 1e-6, 1.0)


def test_noise_is_found_where_epsilon_falls_to_nothing_at_once(monkeypatch):
    # No secant through an epsilon of 0: the bracket is halved.
    monkeypatch.setattr(calibration, "spent", lambda releases, delta: 2.0 if releases[0].noise_scale < 3.3 else 0.0)
    factor, _ = calibrate(lambda factor: (gaussian(factor),), 1.0, 1e-6, 1.0)
    assert 3.3 <= factor <= 3.3 * (1.0 + 1e-9)
