"""Delta: the default, the papers' choices, and when a stated one is too large.

(epsilon, delta)-DP allows a mechanism that publishes each of N records, independently, with chance delta: some record
then comes out with chance up to N delta. So N delta says how much of the promise delta may take away, whatever epsilon
is. Gaussian noise does nothing of that kind, but the promise alone does not exclude it.

Source: Dwork and Roth, "The algorithmic foundations of differential privacy" (2014), section 2.3; docs/privacy.md,
"Delta".
"""

from __future__ import annotations

import math

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.accountant import SAMPLER_DELTA

LARGEST_SHARE = 0.01
"""N delta of the default; above it a run warns."""
_SLACK = 1e-9


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
    """Return FastLloyd's 1 / (N ln N) (§6.1.1), N public."""
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
    if delta > (1.0 + _SLACK) / n_total and not accept_large:
        raise ConfigError(
            f"--delta: expected at most 1 / N = {1.0 / n_total:.3g} for N = {n_total:,}, got {delta:g}: such a promise "
            "is kept even where a whole record comes out in each run; take 'auto', which is "
            f"{automatic_delta(n_total):.3g}, or add --accept-large-delta if that is meant"
        )
    return delta


def large_delta(delta: float, n_total: int) -> str | None:
    """Return a warning if N delta is above 0.01."""
    share = n_total * delta
    if share <= LARGEST_SHARE * (1.0 + _SLACK):
        return None
    return (
        f"N times delta is {share:.2g}, above {LARGEST_SHARE:g}: such a promise allows that with chance "
        f"{min(share, 1.0):.2g} some record comes out whole; the default is delta = {automatic_delta(n_total):.3g}"
    )
