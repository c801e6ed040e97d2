"""Calibration: how much noise a stated epsilon and delta need; the default delta, and when a stated one is too large.

The analytic formulas give the noise of Gaussian mechanisms directly; `calibrate` solves for mixtures and
is the last step for all: what the verifying accountant says about the very releases that will be made
must not exceed the target.

(epsilon, delta)-DP allows a mechanism that publishes each of N records, independently, with chance delta: some record
then comes out with chance up to N delta. So N delta says how much of the promise delta may take away, whatever epsilon
is. Gaussian noise does nothing of that kind, but the promise alone does not exclude it.

Source: FastLloyd, Theorem 2.3 and Appendix A.2; docs/privacy.md, "Calibration".
Delta: Dwork and Roth, "The algorithmic foundations of differential privacy" (2014), section 2.3; docs/privacy.md,
"Delta".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.accountant import SAMPLER_DELTA, gdp_delta, gdp_epsilon, spent
from fastlloyd.privacy.limits import LEAST_RECORDS
from fastlloyd.privacy.release import Release

__all__ = ["SAMPLER_DELTA", "calibrate", "gaussian_noise_multiplier", "gdp_delta", "gdp_epsilon", "laplace_ratio"]

EXPECTED_NORM = 0.225
"""Su et al.'s rho: the norm of a centre that their error analysis expects."""

# How far below the target the composed epsilon may stay; the promise to users is 0.5 %.
_SLACK = 1e-4
# What the formula for Gaussian noise is rounded up by, seen as noise.
_LAST_DIGITS = 4e-9
_MAX_STEPS = 100

LARGEST_SHARE = 0.01
"""N delta of the default; above it a run warns."""
_ROUNDING = 1e-9


def automatic_delta(n_total: int) -> float:
    """Return the default, 1 / (100 N), N public.

    Notes
    -----
    1 / (N ln N), which FastLloyd takes, leaves N delta = 1 / ln N: 0.2 at N = 150, and above 0.01 below
    N = e^100. What this one costs in noise: docs/privacy.md, "Delta".
    """
    return LARGEST_SHARE / n_total


def stated_delta(delta: float | None, n_total: int) -> float:
    """Return delta as stated, or the default.

    Raises
    ------
    ConfigError
        The default for this many records is too small for the noise.
    """
    if delta is not None:
        return delta
    default = automatic_delta(n_total)
    if default <= 2.0 * SAMPLER_DELTA:
        most = int(LARGEST_SHARE / (2.0 * SAMPLER_DELTA))
        raise ConfigError(
            f"--n-total: the default delta for N = {n_total:,} is {default:.3g}, too close to the 2^-40 that is set "
            f"aside for the bits behind the noise; expected N of at most {most:,}, or a --delta of 1e-11 or more "
            "(above 1 / N with --accept-large-delta)"
        )
    return default


def paper_delta(n_total: int) -> float:
    """Return FastLloyd's 1 / (N ln N) (§6.1.1), N public.

    Raises
    ------
    ConfigError
        N is below 3, the least of any run with noise: 1 / (N ln N) is no probability there.
    """
    LEAST_RECORDS.check("--n-total", n_total)
    return 1.0 / (n_total * math.log(n_total))


def settle_delta(stated: float | str | None, *, n_total: int, paper: float, accept_large: bool) -> float | None:
    """Return delta as a number, or None for the default.

    Parameters
    ----------
    stated : float, 'paper' or None
        As configured; None is the default.
    n_total : int
        The public N.
    paper : float
        The value of 'paper' in this protocol.
    accept_large : bool
        Take a delta above 1 / N.

    Raises
    ------
    ConfigError
        It is above 1 / N and was not accepted.
    """
    if stated is None:
        return None
    delta = paper if isinstance(stated, str) else stated
    if delta > (1.0 + _ROUNDING) / n_total and not accept_large:
        raise ConfigError(
            f"--delta: expected at most 1 / N = {1.0 / n_total:.3g} for N = {n_total:,}, got {delta:g}: such a promise "
            "is kept even where a whole record comes out in each run; take 'auto', which is "
            f"{automatic_delta(n_total):.3g}, or add --accept-large-delta if that is meant"
        )
    return delta


def large_delta(delta: float, n_total: int) -> str | None:
    """Return a warning if N delta is above 0.01."""
    share = n_total * delta
    if share <= LARGEST_SHARE * (1.0 + _ROUNDING):
        return None
    return (
        f"N times delta is {share:.2g}, above {LARGEST_SHARE:g}: such a promise allows that with chance "
        f"{min(share, 1.0):.2g} some record comes out whole; the default is delta = {automatic_delta(n_total):.3g}"
    )


@functools.lru_cache(maxsize=64)  # each party checks the same plan
def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest sigma for which (1 / sigma)-GDP implies (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        Positive.
    delta : float
        Between 0 and 1, both excluded.

    Returns
    -------
    float
        Sigma for sensitivity 1, rounded up in its last digits.

    Raises
    ------
    ConfigError
        Epsilon or delta is out of range.

    Source
    ------
    FastLloyd, Theorem 2.3; Balle and Wang (2018), Algorithm 1, solved by bisection.

    Examples
    --------
    >>> round(gaussian_noise_multiplier(1.0, 1e-5), 4)
    3.7306
    """
    _check_target(epsilon, delta)
    if delta == 0.0:
        raise ConfigError("expected delta above 0 for Gaussian noise, got 0; give --delta")
    low, high = 1.0, 1.0
    while gdp_delta(1.0 / high, epsilon) > delta:
        high *= 2.0
    while gdp_delta(1.0 / low, epsilon) <= delta:
        low /= 2.0
    while not low >= high * (1.0 - 2.0**-50):
        middle = 0.5 * (low + high)
        if gdp_delta(1.0 / middle, epsilon) <= delta:
            high = middle
        else:
            low = middle
    return high


def calibrate(
    build: Callable[[float], Sequence[Release]], target_epsilon: float, target_delta: float, start: float
) -> tuple[float, tuple[Release, ...]]:
    """Find the smallest noise whose releases stay within the target, and check these releases.

    Parameters
    ----------
    build : callable
        From a factor on the noise to the releases of the whole run; more noise, less epsilon.
    target_epsilon, target_delta : float
        Delta may be 0 if all releases are Laplace noise (or shares of it); otherwise it must exceed `SAMPLER_DELTA`.
    start : float
        A first guess of the factor, such as an analytic solution.

    Returns
    -------
    factor : float
    releases : tuple of Release
        `build(factor)`: the accountant says target_epsilon or up to 0.01 % less.

    Raises
    ------
    ConfigError
        The target is out of range or no noise can meet it.

    Notes
    -----
    A start that misses the target by little (the accountant's rounding) is raised by a few parts in 10^9, then by parts
    in a million; otherwise the logarithm of epsilon is solved as a function of the factor's, by secants
    kept inside a bracket.
    """
    _check_target(target_epsilon, target_delta)
    if not (math.isfinite(start) and start > 0.0):
        raise ConfigError(f"expected a positive first guess, got {start}; check epsilon and delta")
    planned = build(start)
    if not planned or any(release.mechanism == "none" for release in planned):
        raise ConfigError("expected releases with noise, got none: there is nothing to calibrate")
    if any(release.norm == "l2" for release in planned) and target_delta <= SAMPLER_DELTA:
        raise ConfigError(
            f"expected delta above {SAMPLER_DELTA:.1e}, the part set aside for the sampler of Gaussian noise, "
            f"got {target_delta:g}; give a larger --delta"
        )

    @functools.cache
    def epsilon_at(factor: float) -> float:
        return spent(build(factor), target_delta)

    factor = _nudge(epsilon_at, target_epsilon, start)
    if factor is None:
        factor = _solve(epsilon_at, target_epsilon, start)
    return factor, tuple(build(factor))


def laplace_ratio(d: int, rho: float = EXPECTED_NORM) -> float:
    """Return the noise scale of the counts over that of a coordinate of the sums, both Laplace, d features.

    Notes
    -----
    eps_counts = (4 d rho^2)^(1/3) eps_coordinate, so the scales have the inverse ratio.

    Source: Su et al., "Differentially private k-means clustering" (2016), §4.
    """
    return math.pow(4.0 * d * rho**2, -1.0 / 3.0)


def _nudge(epsilon_at: Callable[[float], float], target: float, start: float) -> float | None:
    """Raise a factor that is nearly enough by parts in a million; None if it is too far off."""
    step = _LAST_DIGITS
    factor = start
    while step < _SLACK:
        epsilon = epsilon_at(factor)
        if not target * (1.0 - _SLACK) <= epsilon <= target * (1.0 + _SLACK):
            return None
        if epsilon <= target:
            return factor
        factor = start * (1.0 + step)
        step = max(2.0 * step, 1e-6)
    return None


def _solve(epsilon_at: Callable[[float], float], target: float, start: float) -> float:
    """Find the factor between one that is too small and one that is enough, until the latter is tight."""
    small, enough = _bracket(epsilon_at, target, start)
    for _ in range(_MAX_STEPS):
        if enough[1] >= target * (1.0 - _SLACK):
            return enough[0]
        factor = _between(small, enough, target)
        epsilon = epsilon_at(factor)
        if epsilon <= target:
            enough = (factor, epsilon)
        else:
            small = (factor, epsilon)
        if enough[0] <= small[0] * (1.0 + 1e-12):
            return enough[0]
    raise ConfigError(f"no noise was found that gives epsilon {target:g}; take another epsilon or delta")


def _bracket(
    epsilon_at: Callable[[float], float], target: float, start: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Find a factor that is too small and one that is enough, each with its epsilon."""
    small = enough = None
    factor, epsilon = start, epsilon_at(start)
    for _ in range(_MAX_STEPS):
        if epsilon <= target:
            enough = (factor, epsilon)
        else:
            small = (factor, epsilon)
        if small is not None and enough is not None:
            return small, enough
        # Epsilon falls at least as fast as 1 / noise grows; step a little beyond that guess.
        ratio = min(max(epsilon / target, 2.0**-10), 2.0**10)
        factor *= ratio * 1.01 if epsilon > target else ratio / 1.01
        epsilon = epsilon_at(factor)
    raise ConfigError(f"no noise was found that gives epsilon {target:g}; take another epsilon or delta")


def _between(small: tuple[float, float], enough: tuple[float, float], target: float) -> float:
    """Guess by a secant in logarithms, aimed just below the target; use the middle if that fails."""
    low, high = math.log(small[0]), math.log(enough[0])
    middle = 0.5 * (low + high)
    if enough[1] > 0.0 and math.isfinite(small[1]):
        rise = math.log(small[1] / enough[1])
        share = math.log(small[1] / (target * (1.0 - 0.4 * _SLACK))) / rise
        if 0.0 < share < 1.0:
            return math.exp(low + share * (high - low))
    return math.exp(middle)


def _check_target(epsilon: float, delta: float) -> None:
    """Check epsilon and delta."""
    if not (math.isfinite(epsilon) and epsilon > 0.0):
        raise ConfigError(f"expected a positive finite epsilon, got {epsilon}; give --epsilon, such as 1")
    if not 0.0 <= delta < 1.0:
        raise ConfigError(f"expected delta from 0 to below 1, got {delta}; give --delta, such as 1e-6")
