"""Which epsilon, or how many records, do for bounds of a number of columns: the noise over N decides, and is public.

Source: docs/privacy.md, "Bounds that nobody knows".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.accountant import SAMPLER_DELTA, gdp_epsilon
from fastlloyd.privacy.calibration import gaussian_noise_multiplier, stated_delta
from fastlloyd.privacy.limits import MOST_EPSILON
from fastlloyd.protocol.sums import SumsParameters
from fastlloyd.report.outlook import percent

GOOD, MOST = 0.01, 0.02
"""Standard deviation of the noise on a bin over N: up to which bounds are good, and above which there are none."""
_LEAST_EPSILON, _MOST_RECORDS = 1e-3, 10**9
_CLOSE = 1e-3


def noise_share(public: SumsParameters, m: int) -> float:
    """Return the standard deviation of all noise on a bin over N, for m columns, from public numbers alone."""
    delta = stated_delta(public.delta, public.n_total)
    sigma = gaussian_noise_multiplier(public.epsilon, delta - SAMPLER_DELTA)
    return sigma * public.all_noise * math.sqrt(m) / public.n_total


def split_epsilon(epsilon: float, delta: float, share: float) -> tuple[float, float]:
    """Return the epsilon of the bounds, and that of the run that follows, if both together have one.

    Parameters
    ----------
    epsilon, delta : float
        Of both together.
    share : float
        Of 1 / sigma^2 for the bounds, above 0 and below 1; Gaussian releases add in it.

    Returns
    -------
    float, float
        Rounded down to six digits.
    """
    mu = 1.0 / gaussian_noise_multiplier(epsilon, delta - SAMPLER_DELTA)
    bounds, run = (gdp_epsilon(mu * math.sqrt(part), delta - SAMPLER_DELTA) for part in (share, 1.0 - share))
    return _round(bounds, 6, math.floor), _round(run, 6, math.floor)


def check_share(public: SumsParameters, m: int) -> None:
    """Refuse a run whose noise would hide the columns' values.

    Raises
    ------
    ConfigError
        Names the epsilon, and the number of records, with which the bounds would be good.
    """
    share = noise_share(public, m)
    if share <= MOST:
        return
    epsilon, records = _least_epsilon(public, m), _least_records(public, m)
    ways = [] if epsilon is None else [f"--epsilon {epsilon:g}"]
    ways += [] if records is None else [f"--n-total {records} (if there are as many records)"]
    raise ConfigError(
        f"--epsilon {public.epsilon:g}: expected noise of at most {percent(MOST)} of --n-total {public.n_total} on "
        f"each count, got {percent(share)}, which would hide where the values of {m} columns lie; good bounds need "
        f"{' or '.join(ways) or 'more records, and'}, or fewer --columns"
    )


def _least_epsilon(public: SumsParameters, m: int) -> float | None:
    """Return the epsilon with which the bounds are good, rounded up; None if there is none in the range."""
    low, high = _LEAST_EPSILON, MOST_EPSILON
    if noise_share(replace(public, epsilon=high), m) > GOOD:
        return None
    while high > low * (1.0 + _CLOSE):
        middle = math.sqrt(low * high)
        fits = noise_share(replace(public, epsilon=middle), m) <= GOOD
        low, high = (low, middle) if fits else (middle, high)
    return _round(high)


def _least_records(public: SumsParameters, m: int) -> int | None:
    """Return the number of records with which the bounds are good, rounded up; None if there is none in the range."""
    low, high = public.n_total, _MOST_RECORDS
    if noise_share(replace(public, n_total=high), m) > GOOD:
        return None
    while high > low * (1.0 + _CLOSE):
        middle = math.isqrt(low * high)
        fits = noise_share(replace(public, n_total=middle), m) <= GOOD
        low, high = (low, middle) if fits else (middle + 1, high)
    return int(_round(high))


def _round(value: float, digits: int = 2, way: Callable[[float], int] = math.ceil) -> float:
    """Round to some digits, up unless another way is given."""
    if value <= 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{way(value / unit) * unit:.{digits}g}")
