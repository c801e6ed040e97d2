"""The verifying accountant: from a list of releases to the epsilon they spend together.

How releases enter
------------------
* **Gaussian.** A vector of L2 sensitivity D with independent noise of standard deviation s on every
  coordinate is, for the worst pair of neighbours, the one-dimensional problem "0 or D, plus s Z" along
  the line between the two vectors: all other directions carry the same noise under both. So it is one
  Gaussian event of noise multiplier s / D, whatever its length.
  Adaptive Gaussian events of multipliers m_1, .., m_T compose to mu-GDP with mu^2 = sum 1 / m_t^2, and so to
  exactly one epsilon at each delta: a ledger with Gaussian noise alone is accounted for by that formula, and beside
  other noise they enter as one event of multiplier 1 / mu.
* **Laplace.** With independent Laplace noise of scale b on every coordinate the privacy loss is at most
  `sum_h |x_h - x'_h| / b <= D / b` for L1 sensitivity D: the release has pure epsilon D / b, and
  a Laplace event of noise multiplier b / D dominates it.
* **Noise in shares** enters by its guaranteed part, as the continuous mechanism that dominates that
  (`privacy/shares.py`).
* **Rows of sketches** are mechanisms of pure epsilon' each (`protocols/vertical_dp/sketch/sketch.py`). Any adaptive
  composition of M of them is dominated by M randomised responses of that epsilon', whose privacy loss is epsilon'
  (2 X - M), X binomial (M, e^epsilon' / (1 + e^epsilon')): a discrete distribution, entered as it is and rounded up to
  the grid once.
* **All k clusters are one release.** A record adds to one cluster only (its label depends on itself and
  public centroids), so the concatenated vector of all clusters moves by no more than one cluster's would:
  the sensitivity is that of one cluster, and the k clusters count once, not k times.

Neighbours are tables that differ in one record added or removed. Releases may be chosen adaptively.

Source: Dong, Roth, Su, "Gaussian differential privacy", Cor. 2 and Thm. 2.7; Kairouz, Oh, Viswanath, "The composition
theorem for differential privacy" (2015), Theorem 3.3 and its proof; docs/privacy.md, "Accounting".
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.release import Release
from fastlloyd.privacy.shares import event_multiplier

ACCOUNTANT = (
    "the exact formula where all noise is Gaussian (GDP), else by dp-accounting's privacy loss distributions "
    "(add-remove, interval at most epsilon / 2000); at delta 0 by adding up epsilons"
)
SAMPLER_DELTA = 2.0**-40
"""Part of delta set aside, once for everything in a ledger, because the bits behind the noise are ChaCha20's.

This is not a statistical distance: to an adversary who can try all keys, a cipher's stream is far from random. Let A be
the best advantage of a bounded adversary in distinguishing all the bits behind a ledger's noise from ideal ones. If
ideal noise is (epsilon, delta')-DP, any test of such an adversary passes with at most e^epsilon times the other table's
chance, plus delta' + (1 + e^epsilon) A: A once for each table. So the claim holds against adversaries for whom (1 +
e^epsilon) A is at most 2^-40; it is computational.
"""

# Floating point may make `gdp_delta` too small by that part, down to that mu; below, its terms cancel too far.
_FORMULA_SLACK = 1e-9
_LEAST_MU = 1e-5
_INTERVALS = 2000.0
_FLOOR = 0.05
# Above this epsilon nothing is promised, and floats no longer hold the privacy losses.
_NO_PROMISE = 1e4
_SQRT_HALF, _SQRT_PI = math.sqrt(0.5), math.sqrt(math.pi)
_FRACTION_FROM, _FRACTION_TERMS = 2.0, 80
# Outcomes rarer than this are counted as if they revealed everything.
_LEAST_LOG_MASS = -80.0

_Events = tuple[tuple[str, tuple[tuple[float, int], ...]], ...]
"""For each norm: noise multipliers, and how many releases have each."""


def spent(releases: Sequence[Release], delta: float) -> float:
    """Compose releases into one epsilon at delta.

    Parameters
    ----------
    releases : sequence of Release
    delta : float
        From 0 up to but not including 1. At 0 Laplace releases and rows of sketches are summed (basic composition) and
        a Gaussian one gives infinity; above 0, `SAMPLER_DELTA` of it is set aside: the claim is computational.

    Returns
    -------
    float
        0 for no releases, infinity if one of them carries no noise or delta is used up by what is
        set aside.

    Raises
    ------
    ConfigError
        Delta is out of range.

    Privacy
    -------
    An upper bound: the formula for Gaussian noise alone is rounded up; privacy loss distributions are discretised
    upwards, at intervals of at most epsilon / 2000.
    """
    if not 0.0 <= delta < 1.0:
        raise ConfigError(f"expected delta from 0 to below 1, got {delta}; give --delta, such as 1e-6")
    if not releases:
        return 0.0
    if any(release.mechanism == "none" for release in releases):
        return math.inf
    counts: dict[str, Counter[float]] = {"l2": Counter(), "l1": Counter(), "pure": Counter()}
    for release in releases:
        counts[release.norm][event_multiplier(release)] += max(1, release.rows)
    pure = math.fsum(max(1, release.rows) / release.noise_multiplier for release in releases)
    if counts["l2"]:
        pure = math.inf
    if delta <= SAMPLER_DELTA:
        return pure
    events = tuple((norm, tuple(sorted(found.items()))) for norm, found in counts.items())
    return min(pure, _compose(events, delta - SAMPLER_DELTA))


def change_epsilon(releases: Sequence[Release], delta: float) -> float:
    """Compose releases for neighbours that differ in the values of one record, none added or removed.

    Privacy
    -------
    Changing a record is removing one and adding another, so each release moves at most twice as far, in either norm.
    """
    return spent([dataclasses.replace(release, sensitivity=2.0 * release.sensitivity) for release in releases], delta)


def gdp_delta(mu: float, epsilon: float) -> float:
    """Return the smallest delta for which mu-GDP implies (epsilon, delta)-DP.

    Parameters
    ----------
    mu, epsilon : float
        Positive; not negative.

    Notes
    -----
    With a = epsilon / mu - mu / 2 and b = epsilon / mu + mu / 2, delta = Phi(-a) - e^epsilon Phi(-b).
    As b^2 - a^2 = 2 epsilon, both terms share the factor exp(-a^2 / 2); drawing it out leaves
    a difference of scaled complementary error functions, without underflow and with little cancellation.

    Source: FastLloyd, Theorem 2.3; Balle and Wang, "Improving the Gaussian mechanism", Theorem 8.
    """
    low, high = epsilon / mu - mu / 2.0, epsilon / mu + mu / 2.0
    beyond = scaled_erfc(high * _SQRT_HALF)
    if low > 0.0:
        return 0.5 * math.exp(-low * low / 2.0) * (scaled_erfc(low * _SQRT_HALF) - beyond)
    first = math.log1p(-0.5 * math.erfc(-low * _SQRT_HALF))
    second = epsilon - high * high / 2.0 + math.log(0.5 * beyond)
    return math.exp(first) * -math.expm1(second - first)


def scaled_erfc(x: float) -> float:
    """Return exp(x^2) erfc(x), to 10^-14 of its value.

    Parameters
    ----------
    x : float
        From 0.

    Notes
    -----
    `scipy.special.erfcx`, which the tests compare it with, would be a fifth of the time in which a party starts and a
    quarter of its memory. Above 2, 80 terms of the continued fraction exceed the precision of floats.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.14.
    """
    if x < _FRACTION_FROM:
        return math.exp(x * x) * math.erfc(x)
    rest = 0.0
    for term in range(_FRACTION_TERMS, 0, -1):
        rest = 0.5 * term / (x + rest)
    return 1.0 / (_SQRT_PI * (x + rest))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon for which mu-GDP implies (epsilon, delta)-DP.

    Returns
    -------
    float
        Rounded up in its last digits: `gdp_delta(mu, result) <= delta`. Infinity for delta 0.
    """
    if delta <= 0.0:
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, max(mu * mu, mu)
    while gdp_delta(mu, high) > delta:
        low, high = high, 2.0 * high
    while (middle := 0.5 * (low + high)) not in (low, high):
        if gdp_delta(mu, middle) <= delta:
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=1 << 10)
def _compose(events: _Events, delta: float) -> float:
    """Compose Gaussian releases by the formula; others by privacy loss distributions, at an interval that fits.

    Cached, because calibration, the check of the plan, and each party of a process ask for the same releases.
    """
    counts = {norm: dict(found) for norm, found in events}
    squares = {norm: math.fsum(n / scale**2 for scale, n in events.items()) for norm, events in counts.items()}
    all_squares = math.fsum(squares.values())
    if not (counts["l1"] or counts["pure"]) and all_squares >= _LEAST_MU**2:
        exact = gdp_epsilon(math.sqrt(all_squares), delta * (1.0 - _FORMULA_SLACK))
        return exact if exact <= _NO_PROMISE else math.inf
    # First guess: Laplace noise of multiplier b as (1 / b)-GDP, or Gaussian noise and pure epsilon apart.
    mu = math.sqrt(squares["l2"])
    alone = gdp_epsilon(mu, delta) if mu > 0.0 else 0.0
    pure = math.fsum(n / scale for norm in ("l1", "pure") for scale, n in counts[norm].items())
    guess = min(gdp_epsilon(math.sqrt(all_squares), delta), alone + pure)
    # Where epsilon is next to nothing beside the noise, finer steps than this only cost time.
    floor = _FLOOR * math.sqrt(all_squares)
    if guess > _NO_PROMISE:
        return math.inf
    while True:
        # Mostly that little less is below epsilon at once, and the interval fine enough.
        guess = max(0.9 * guess, floor)
        epsilon = _compose_at(mu, counts, delta, guess / _INTERVALS)
        if epsilon >= guess or guess <= floor:
            return epsilon
        guess = epsilon


def _compose_at(mu: float, counts: Mapping[str, Mapping[float, int]], delta: float, interval: float) -> float:
    """Compose Gaussian noise, which is mu-GDP together, and the rest at one discretisation interval."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    loss = pld.identity(value_discretization_interval=interval)
    if mu > 0.0:
        loss = loss.compose(pld.from_gaussian_mechanism(1.0 / mu, value_discretization_interval=interval))
    for scale, count in sorted(counts["l1"].items()):
        one = pld.from_laplace_mechanism(scale, value_discretization_interval=interval)
        loss = loss.compose(one.self_compose(count))
    for scale, count in sorted(counts["pure"].items()):
        masses, beyond = _response_losses(1.0 / scale, count, interval)
        rows = pld.PrivacyLossDistribution.create_from_rounded_probability(masses, beyond, interval)
        loss = loss.compose(rows)
    return float(loss.get_epsilon_for_delta(delta))


def _response_losses(epsilon: float, count: int, interval: float) -> tuple[dict[int, float], float]:
    """Return the privacy losses of many randomised responses, rounded up to the grid, and the mass cut off."""
    import numpy as np
    from scipy.special import gammaln

    ones = np.arange(count + 1, dtype=np.float64)
    ways = gammaln(count + 1.0) - gammaln(ones + 1.0) - gammaln(count - ones + 1.0)
    logs = ways - ones * np.logaddexp(0.0, -epsilon) - (count - ones) * np.logaddexp(0.0, epsilon)
    kept = logs > _LEAST_LOG_MASS
    # Rounded up, and once more for the last digits of the division.
    places = np.ceil(epsilon * (2.0 * ones[kept] - count) / interval + 1e-9).astype(np.int64)
    values, where = np.unique(places, return_inverse=True)
    masses = np.bincount(where, weights=np.exp(logs[kept]))
    return dict(zip(values.tolist(), masses.tolist(), strict=True)), (count + 1) * math.exp(_LEAST_LOG_MASS)
