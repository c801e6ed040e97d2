"""What noise of a known distribution leaves of a released value: 95 % ranges, equal centres, centres on a bound.

Privacy: post-processing of released values, with the noise that the plan states.

Source: docs/report.md, "Quality".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import name_some

ERROR_RATE = 0.05
"""How often a range misses the true value, and how often two equal centres of a result are told apart."""
NORMAL_TAIL = NormalDist().inv_cdf(1.0 - ERROR_RATE / 2.0)
"""Half the width of a 95 % range of normal noise over its standard deviation."""
LAPLACE_TAIL = math.log(1.0 / ERROR_RATE) / math.sqrt(2.0)
"""Half the width of a 95 % range of Laplace noise over its standard deviation; wide enough for sums of such noise."""
MOST_CLUSTERS = 1024
"""With more clusters pairs are not compared."""
# Half-widths of a 95 % range: the noise almost surely keeps a centre whose records all lie on a bound within these.
_REACH = 2.0
_LISTED = 12


def ratio_deviations(
    ratio: NDArray[np.float64], noisy_counts: NDArray[np.float64], *, sums: float, counts: float, tail: float
) -> NDArray[np.float64]:
    """Return the deviations of sums over counts, shape (k, d): `tail` times them covers Fieller's range of the ratio.

    A ratio r is in the range if S - r C is within `tail` deviations of 0. With g = (tail * counts / C)^2 below 1 that
    is a range about r / (1 - g); otherwise the count may be 0, and any ratio is possible: infinite.

    Parameters
    ----------
    ratio : float64 array, shape (k, d)
        S / C.
    noisy_counts : float64 array, shape (k,)
        C.
    sums, counts : float
        Standard deviations of the noise on S and on C.

    Notes
    -----
    Source: Fieller, "Some problems in interval estimation" (1954).
    """
    known = noisy_counts > tail * counts
    divisor = np.where(known, noisy_counts, 1.0)[:, None]
    g = np.where(known[:, None], (tail * counts / divisor) ** 2, 0.0)
    about = np.sqrt((1.0 - g) * sums**2 + (ratio * counts) ** 2) / (divisor * (1.0 - g))
    deviations: NDArray[np.float64] = about + np.abs(ratio) * g / (1.0 - g) / tail
    return np.where(known[:, None], deviations, np.inf)


def overlapping(
    centres: NDArray[np.float64], deviations: NDArray[np.float64], *, error_rate: float = ERROR_RATE
) -> tuple[tuple[int, int], ...]:
    """Return the pairs of centres that cannot be told apart.

    The sum over all features of squared differences over their variances is compared with the quantile of chi-squared
    with d degrees of freedom. If the noise is normal, the probability of telling any two equal centres of a result
    apart is at most `error_rate` for all pairs together (Bonferroni).

    Parameters
    ----------
    centres, deviations : float64 array, shape (k, d)
        In the same units.
    """
    k, d = centres.shape
    count = k * (k - 1) // 2
    if not 1 < k <= MOST_CLUSTERS:
        return ()
    limit = chi_squared_quantile(1.0 - error_rate / count, d)
    found = []
    variances = np.maximum(deviations, 1e-12) ** 2
    for one in range(k - 1):
        apart = ((centres[one] - centres[one + 1 :]) ** 2 / (variances[one] + variances[one + 1 :])).sum(axis=1)
        found += [(one, one + 1 + int(other)) for other in np.flatnonzero(apart <= limit)]
    return tuple(found)


def chi_squared_quantile(level: float, degrees: int) -> float:
    """Return the quantile of chi-squared, above two degrees of freedom by Wilson and Hilferty's cube.

    For levels from 0.9 to 1 - 1e-7 it is at most 0.7 % too small and at most 9 % too large: in the tail, with few
    degrees, two centres are called equal rather than different.

    Examples
    --------
    >>> round(chi_squared_quantile(0.95, 10), 1)
    18.3
    """
    if degrees == 1:
        return NormalDist().inv_cdf((1.0 + level) / 2.0) ** 2
    if degrees == 2:
        return -2.0 * math.log1p(-level)
    part = 2.0 / (9.0 * degrees)
    return float(degrees * (1.0 - part + NormalDist().inv_cdf(level) * math.sqrt(part)) ** 3)


def pinned_words(
    scaled: NDArray[np.float64],
    reach: NDArray[np.float64],
    *,
    extreme: NDArray[np.bool_] | None = None,
    names: Sequence[str] | None = None,
) -> list[str]:
    """Return a sentence for each side on features whose centres all lie within the noise of that bound.

    A value outside of the bounds counts as the bound. If all values of a feature lie beyond one bound, all its centres
    lie there up to the noise, and a feature whose centres all lie there separates no clusters: its unit may be wrong.
    Only the owner of the records knows how many values were clipped (`data/bounds.py`); that number does not enter.

    Parameters
    ----------
    scaled : float64 array, shape (k, d)
        Released centres, scaled domain [-1, 1]; of clusters that are not empty.
    reach : float64 array, shape (k, d)
        Half of each coordinate's 95 % range.
    extreme : bool array, shape (d,), optional
        Features whose values lie on the bounds by nature, such as categories.
    names : sequence of str, length d, optional
    """
    said: list[str] = []
    for side, sign in (("upper", 1.0), ("lower", -1.0)):
        on_bound = (1.0 - sign * scaled <= _REACH * reach).all(axis=0) & bool(len(scaled))
        places = np.flatnonzero(on_bound if extreme is None else on_bound & ~extreme).tolist()
        if places:
            listed = name_some([str(place + 1) if names is None else names[place] for place in places], _LISTED)
            each, its = ("features", "their") if len(places) > 1 else ("feature", "its")
            said.append(
                f"all centres lie within the noise of the {side} bound in {each} {listed}: nearly all values lie "
                f"there or beyond, or the other bound is far off; check {its} units and bounds"
            )
    return said
