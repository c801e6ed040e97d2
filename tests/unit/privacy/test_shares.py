"""Noise in shares: what it is accounted as, checked by brute force and against dp-accounting."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.parts import Parts
from fastlloyd.privacy.accountant import SAMPLER_DELTA, gdp_delta, spent
from fastlloyd.privacy.calibration import calibrate, gaussian_noise_multiplier
from fastlloyd.privacy.release import GAUSSIAN_SHARES, LAPLACE_SHARES, Release
from fastlloyd.privacy.shares import (
    SMOOTHING,
    draw_gaussian_parts,
    draw_laplace_parts,
    event_multiplier,
    noise_price,
    spread,
    zcdp_epsilon,
    zcdp_noise_multiplier,
)
from fastlloyd.randomness.secret import SecretRandom


def tau(share: float, shares: int) -> float:
    """The tau at the head of `shares.py`, of Kairouz, Liu and Steinke's Theorem 1."""
    return 10.0 * math.fsum(math.exp(-2.0 * math.pi**2 * share**2 * k / (k + 1)) for k in range(1, shares))


def zcdp_of_shares(share: float, shares: int, sensitivity: float, elements: int) -> float:
    """Return rho of the sum of discrete Gaussian shares by the same theorem: e = D / (sqrt(n) s) + tau sqrt(d)."""
    e = sensitivity / (math.sqrt(shares) * share) + tau(share, shares) * math.sqrt(elements)
    return 0.5 * e * e


def share_correction(share: float, shares: int, elements: int) -> float:
    """Bound zeta: by what factor exp(zeta) probabilities differ from those of the continuous mechanism.

    Parameters
    ----------
    share : float
        Standard deviation s of one share, grid units.
    shares : int
        m - t.
    elements : int
        L, all coordinates released.
    """
    return elements * (tau(share, shares) / 2.0 + 5.0 * math.exp(-2.0 * (math.pi * SMOOTHING) ** 2))


def shares(mechanism: str, norm: str, scale: float, m: int, t: int, sensitivity: float, number: int) -> Release:
    return Release(
        round=number,
        name="sums",
        mechanism=mechanism,
        norm=norm,
        sensitivity=sensitivity,
        noise_scale=scale,
        clients=m,
        known=t,
    )


def gaussian(sigma: float = 1000.0, m: int = 3, t: int = 1, sensitivity: float = 256.0, round: int = 0) -> Release:
    return shares(GAUSSIAN_SHARES, "l2", sigma, m, t, sensitivity, round)


def laplace(scale: float = 1000.0, m: int = 3, t: int = 1, sensitivity: float = 256.0, round: int = 0) -> Release:
    return shares(LAPLACE_SHARES, "l1", scale, m, t, sensitivity, round)


def sum_of_shares(share: float, count: int) -> NDArray[np.float64]:
    """The exact distribution of a sum of discrete Gaussians, centred."""
    reach = int(12 * share)
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2.0 * share**2))
    total = one = one / one.sum()
    for _ in range(count - 1):
        total = np.convolve(total, one)
    return total


def hockey_stick(p: NDArray[np.float64], q: NDArray[np.float64], epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize("share,count", [(5.0, 1), (5.0, 3), (7.5, 2)])
@pytest.mark.parametrize("shift", [1, 9, 30])
def test_one_coordinate_is_no_less_private_than_its_gaussian(share: float, count: int, shift: int) -> None:
    noise = sum_of_shares(share, count)
    p, q = np.pad(noise, (shift, 0)), np.pad(noise, (0, shift))
    sigma = share * math.sqrt(count)
    stand_in = event_multiplier(gaussian(sigma, count + 1, 1, float(shift)))
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0):
        assert hockey_stick(p, q, epsilon) <= gdp_delta(1.0 / stand_in, epsilon) + 1e-12
        # And not by far: the width given away is 9 of sigma^2.
        assert hockey_stick(p, q, epsilon) >= 0.5 * gdp_delta(shift / sigma, epsilon) - 1e-3


@pytest.mark.parametrize("shift", [(1, 1), (3, 4), (7, 11)])
def test_two_coordinates_are_no_less_private_than_one_gaussian(shift: tuple[int, int]) -> None:
    noise = sum_of_shares(5.0, 2)
    joint = np.outer(noise, noise)
    a, b = shift
    p, q = np.pad(joint, ((a, 0), (b, 0))), np.pad(joint, ((0, a), (0, b)))
    stand_in = event_multiplier(gaussian(math.sqrt(50.0), 3, 1, math.hypot(a, b)))
    for epsilon in (0.0, 0.2, 1.0, 2.0):
        assert hockey_stick(p, q, epsilon) <= gdp_delta(1.0 / stand_in, epsilon) + 1e-12


@pytest.mark.parametrize("share,count", [(5.0, 2), (5.0, 6)])
def test_the_sum_of_shares_is_a_discrete_gaussian_to_all_digits(share: float, count: int) -> None:
    total = sum_of_shares(share, count)
    reach = total.size // 2
    x = np.arange(-reach, reach + 1)
    one = np.exp(-(x**2) / (2.0 * share**2 * count))
    near = np.abs(x) <= 6 * share * math.sqrt(count)
    np.testing.assert_allclose(total[near], (one / one.sum())[near], rtol=1e-9)


def test_the_correction_is_what_was_set_aside_for() -> None:
    worst = share_correction(5.0, 100_000, 2**40)
    assert worst < 1e-63
    assert math.exp(100.0) * math.expm1(2.0 * worst) < 2.0**-25 * SAMPLER_DELTA
    assert share_correction(0.5, 2, 1) > 0.01  # it is not small by construction


def parts_correction(variances: list[float], elements: int) -> float:
    """Bound zeta for parts of any variances, added up in this order; equal ones give `share_correction`."""
    total, so_far = 0.0, variances[0]
    for variance in variances[1:]:
        total += 5.0 * math.exp(-2.0 * math.pi**2 * so_far * variance / (so_far + variance))
        so_far += variance
    return elements * (total + 5.0 * math.exp(-2.0 * (math.pi * SMOOTHING) ** 2))


@pytest.mark.parametrize("included", [3, 4, 5])
def test_parts_of_different_sizes_add_up_to_a_discrete_gaussian_to_all_digits(included: int) -> None:
    numbers = Numbers.settle(5, lying=0)
    parts = Parts(numbers, Fraction(25 * 4 * 3))
    assert min(parts.variances) == 25
    total, s2 = np.ones(1), float(parts.variance)
    for _ in range(included - numbers.known):
        for j, variance in enumerate(map(float, parts.variances)):
            if j not in parts.taken_off(included):
                x = np.arange(-130, 131)
                one = np.exp(-(x**2) / (2.0 * variance))
                total = np.convolve(total, one / one.sum())
    x = np.arange(total.size) - total.size // 2
    gaussian_law = np.exp(-(x**2) / (2.0 * s2))
    near = np.abs(x) <= 6 * math.sqrt(s2)
    np.testing.assert_allclose(total[near], (gaussian_law / gaussian_law.sum())[near], rtol=1e-9)


def test_the_correction_of_parts_is_within_what_was_set_aside() -> None:
    assert parts_correction([9.0] * 4, 3) == pytest.approx(share_correction(3.0, 4, 3))
    for clients, lying in ((5, 0), (32, 0), (50, 1), (200, 1)):
        numbers = Numbers.settle(clients, lying=lying)
        shapes = Parts(numbers, Fraction(1), laplace=True).shapes
        parts = Parts(numbers, 25 / min(shapes))
        unknown = [float(v) for v in parts.variances] * (clients - numbers.known)
        zeta, least, n = parts_correction(unknown, 2**40), float(min(parts.variances)), len(unknown)
        bound = 2**40 * (5.0 * n * math.exp(-(math.pi**2) * least) + 5.0 * math.exp(-2.0 * (math.pi * SMOOTHING) ** 2))
        assert zeta <= bound < 1e-63
    assert parts_correction([0.2, 0.3], 1) > 0.01


@pytest.mark.skipif(
    not hasattr(dp_accounting, "ZCDpEvent"), reason="this dp-accounting has no such event to compare with"
)
@pytest.mark.parametrize("rho,delta", [(0.001, 1e-6), (0.02, 1e-9), (1.0, 1e-5), (0.5, 0.05)])
def test_zcdp_converts_as_in_dp_accounting(rho: float, delta: float) -> None:
    accountant = RdpAccountant(orders=[float(a) for a in 1.0 + np.geomspace(1e-2, 1e5, 3000)])
    accountant.compose(dp_accounting.ZCDpEvent(rho, 0.0))
    theirs = accountant.get_epsilon(delta)
    assert zcdp_epsilon(rho, delta) <= theirs * (1 + 1e-9)
    assert zcdp_epsilon(rho, delta) == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("rounds", [1, 7])
@pytest.mark.parametrize("multiplier", [1.0, 5.0, 40.0])
def test_epsilon_lies_between_the_analytic_gaussian_and_zcdp(multiplier: float, rounds: int) -> None:
    delta = 1e-6
    releases = [gaussian(256.0 * multiplier, 4, 1, round=t) for t in range(rounds)]
    alone = [
        Release(round=t, name="x", mechanism="gaussian", norm="l2", sensitivity=256.0, noise_scale=256.0 * multiplier)
        for t in range(rounds)
    ]
    share = 256.0 * multiplier / math.sqrt(3.0)
    upper = zcdp_epsilon(rounds * zcdp_of_shares(share, 3, 256.0, 10), delta - SAMPLER_DELTA)
    ours = spent(releases, delta)
    assert spent(alone, delta) <= ours <= 1.0005 * spent(alone, delta)
    assert ours < upper


def test_calibrated_shares_meet_their_target_from_below() -> None:
    factor, releases = calibrate(lambda f: (gaussian(256.0 * 4 * f),), 1.0, 1e-6, 1.0)
    assert 0.9999 <= spent(releases, 1e-6) <= 1.0
    assert 4.0 * factor == pytest.approx(gaussian_noise_multiplier(1.0, 1e-6), rel=1e-3)
    with pytest.raises(ConfigError, match="delta"):
        calibrate(lambda f: (gaussian(1024.0 * f),), 1.0, 0.0, 1.0)


def test_laplace_shares_are_pure() -> None:
    assert spent([laplace(512.0), laplace(512.0, round=1)], 0.0) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.skipif(
    not hasattr(dp_event, "DiscreteLaplaceDpEvent"), reason="this dp-accounting has no such event to compare with"
)
def test_laplace_shares_are_dominated_in_mixtures() -> None:
    for scale, sensitivity, count in ((20.0, 1, 10), (512.0, 256, 7), (30.0, 4, 40)):
        releases = [laplace(scale, sensitivity=float(sensitivity), round=t) for t in range(count)]
        theirs = PLDAccountant(value_discretization_interval=sensitivity / scale / 4000)
        theirs.compose(dp_event.DiscreteLaplaceDpEvent(1.0 / scale, sensitivity), count)
        exact = theirs.get_epsilon(1e-5 - SAMPLER_DELTA)
        # Both round upwards by 1e-3 at most; the stand-in gives 1 / (4 b) of the sensitivity away.
        given_away = 0.25 / scale / sensitivity
        assert exact * (1 - 1e-3) <= spent(releases, 1e-5) <= exact * (1 + 1e-3 + given_away)


@pytest.mark.parametrize("scale,sensitivity", [(5.0, 1), (5.0, 3), (40.0, 7)])
def test_the_continuous_stand_in_dominates_the_discrete_laplace(scale: float, sensitivity: int) -> None:
    x = np.arange(-int(60 * scale), int(60 * scale) + sensitivity + 1)
    p, q = np.exp(-np.abs(x - sensitivity) / scale), np.exp(-np.abs(x) / scale)
    normal = math.tanh(0.5 / scale)
    multiplier = event_multiplier(laplace(scale, sensitivity=float(sensitivity)))
    for epsilon in np.linspace(-1.0, 1.0, 25) / multiplier:
        # Continuous Laplace: 1 - exp((epsilon - d) / 2) for |epsilon| <= d.
        dominating = 1.0 - math.exp((epsilon - 1.0 / multiplier) / 2.0)
        assert hockey_stick(p * normal, q * normal, float(epsilon)) <= dominating + 1e-12


@pytest.mark.parametrize("shift", [(1, 1), (2, 5)])
def test_a_laplace_vector_is_dominated_by_one_coordinate_with_the_whole_l1_distance(shift: tuple[int, int]) -> None:
    scale = 6.0
    x = np.arange(-200, 210)

    def pmf(at: int) -> NDArray[np.float64]:
        return np.exp(-np.abs(x - at) / scale) * math.tanh(0.5 / scale)

    joint = [np.outer(pmf(shift[0] * i), pmf(shift[1] * i)) for i in (0, 1)]
    for epsilon in (-0.3, 0.0, 0.1, 0.3, 0.7):
        whole = hockey_stick(pmf(sum(shift)), pmf(0), epsilon)
        assert hockey_stick(joint[1], joint[0], epsilon) <= whole + 1e-12


@pytest.mark.parametrize(
    "m,t,expected", [(2, 1, 1.4142), (3, 1, 1.2247), (5, 1, 1.1180), (10, 1, 1.0541), (10, 5, 1.4142)]
)
def test_the_price_is_the_shares_that_do_not_count(m: int, t: int, expected: float) -> None:
    assert spread(m, t) == pytest.approx(expected, abs=1e-4)
    assert noise_price(gaussian(1e5, m, t)) == pytest.approx(expected, abs=1e-4)
    assert noise_price(laplace(1e5, m, t)) == pytest.approx(expected, abs=1e-4)
    assert noise_price(laplace(5.0, m, t)) == pytest.approx(expected, rel=4e-3)


def test_zcdp_would_cost_more() -> None:
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-5), (5.0, 1e-9)):
        assert 1.03 < zcdp_noise_multiplier(epsilon, delta) / gaussian_noise_multiplier(epsilon, delta) < 1.12


# --- the ledger's entries -----------------------------------------------------------------------------------------


def test_releases_in_shares_survive_the_ledger_s_format() -> None:
    for release in (gaussian(), laplace()):
        assert Release.from_json(release.to_json()) == release
        assert release.to_dict()["clients"] == 3 and release.to_dict()["known"] == 1


def test_other_releases_are_written_as_before() -> None:
    plain = Release(round=0, name="x", mechanism="gaussian", norm="l2", sensitivity=1.0, noise_scale=2.0)
    assert not {"clients", "known"} & plain.to_dict().keys()
    assert Release.from_json(plain.to_json()) == plain


@pytest.mark.parametrize(
    "make,text",
    [
        (lambda: gaussian(m=1, t=1), "all but one known"),
        (lambda: gaussian(m=3, t=3), "all but one known"),
        (lambda: gaussian(m=3, t=0), "all but one known"),
        (lambda: gaussian(7.0, m=3), "at least 5 grid units"),
        (lambda: laplace(4.9), "at least 5 grid units"),
        (lambda: laplace(sensitivity=1.5), "whole number"),
        (lambda: dataclasses.replace(gaussian(), norm="l1"), "does not go with"),
        (lambda: dataclasses.replace(gaussian(), mechanism="gaussian"), "no shares"),
        (lambda: dataclasses.replace(gaussian(), mechanism="none", noise_scale=0.0), "no shares"),
        (lambda: dataclasses.replace(gaussian(), mechanism="discrete gaussian"), "one of the mechanisms"),
        (lambda: dataclasses.replace(gaussian(), clients=3.0), "expected clients as int"),
    ],
)
def test_shares_that_cannot_be_accounted_for_are_refused(make, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


def test_the_correction_of_one_share_is_that_of_the_shifted_sums() -> None:
    # zeta = L (tau / 2 + 5 exp(-2 pi^2 r^2)), r = 3; one share alone has no tau.
    assert share_correction(1e3, 1, 7) == pytest.approx(35.0 * math.exp(-18.0 * math.pi**2), rel=1e-12, abs=0.0)
    tau = 10.0 * (math.exp(-(math.pi**2) * 0.25) + math.exp(-(math.pi**2) * 0.25 * 4.0 / 3.0))
    assert share_correction(0.5, 3, 2) == pytest.approx(tau, rel=1e-9)


@pytest.mark.parametrize("count", [1, 2, 7, 40])
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_that_number_of_shares_has_the_variance_of_the_whole_noise(kind: str, count: int) -> None:
    """The variance of 20,000 sums of shares is off by 1 % (2.5 % for Laplace noise); seven of these: below 1e-11."""
    secret, scale, size = SecretRandom(), 400.0, 20_000
    draw = draw_gaussian_parts if kind == "gaussian" else draw_laplace_parts
    one = draw([(scale, size)], [Fraction(1, count)], [secret])[0].astype(float)
    whole = scale**2 if kind == "gaussian" else 0.5 / math.sinh(0.5 / scale) ** 2
    excess = 0.0 if kind == "gaussian" else 3.0 * count  # of a Polya share's kurtosis
    deviation = math.sqrt((2.0 + excess) / size)
    assert count * (one**2).mean() == pytest.approx(whole, rel=7.0 * deviation)
