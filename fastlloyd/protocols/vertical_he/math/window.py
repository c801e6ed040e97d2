r"""The soft step of the linear scheme: a Chebyshev series that is never negative and never above 1.

For T = cos(tau) the indicator 1[b > T], b = cos(t), has the Fourier series tau / pi + sum of
2 sin(m tau) / (m pi) cos(m t). Cut off at m = D it overshoots. With Jackson's factors rho_m it is the
convolution of the indicator with the kernel

    K(t) = 1 + 2 sum_{m=1}^{D} rho_m cos(m t),

which is not negative and has mean 1. Hence the soft step lies in [0, 1], it is monotone in T, and the difference of the
steps of two thresholds T <= T' is not negative: the soft one-hot of an interval partition is non-negative and
sums to 1, exactly, for every b. So one record's weight is at most 1 in L1 and in L2, as for a hard assignment.

Why K >= 0: rho_m is sum_i a_i a_{i+m} over a_i = sin(pi (i + 1) / M), i = 0..D, divided by its value at m = 0, so
K(t) = |sum_i a_i e^(i i t)|^2 / sum_i a_i^2.

Source: Jackson (1912); Weisse et al., "The kernel polynomial method" (2006), II.C; docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def jackson(degree: int) -> NDArray[np.float64]:
    """Return rho_1..rho_D, float64, shape (D,)."""
    steps = degree + 2
    m = np.arange(1, degree + 1, dtype=np.float64)
    angle = np.pi / steps
    return ((steps - m) * np.cos(m * angle) + np.sin(m * angle) / math.tan(angle)) / steps


def step_weights(angles: NDArray[np.float64], factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights w_0..w_D of the soft steps.

    Parameters
    ----------
    angles : float64 array, shape (n,)
        tau = arccos(T), from 0 to pi.
    factors : float64 array, shape (D,)
        rho.

    Returns
    -------
    float64 array, shape (D + 1, n)
        1[b > T] is about w_0 + sum of w_m T_m(b).

    Notes
    -----
    Elementwise operations only: a record's weights depend on its own angle and on nothing else.
    """
    degree = factors.size
    weights = np.empty((degree + 1, angles.size))
    weights[0] = angles / np.pi
    twice = 2.0 * np.cos(angles)
    before, now = np.zeros_like(angles), np.sin(angles)
    for m in range(1, degree + 1):
        np.multiply(now, 2.0 * factors[m - 1] / (m * np.pi), out=weights[m])
        before, now = now, twice * now - before
    return weights


def times_feature(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn the weights of h(b), shape (D + 1, n), into those of b h(b), shape (D + 2, n).

    Notes
    -----
    b T_0 = T_1 and b T_m = (T_{m+1} + T_{m-1}) / 2.
    """
    count, n = weights.shape
    result = np.zeros((count + 1, n))
    result[1] += weights[0]
    result[2:] += 0.5 * weights[1:]
    result[: count - 1] += 0.5 * weights[1:]
    return result


def features(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return T_0(b)..T_{count-1}(b), shape (count, n), for b in [-1, 1]."""
    angles = np.arccos(np.clip(values, -1.0, 1.0))
    found: NDArray[np.float64] = np.cos(np.arange(count, dtype=np.float64)[:, None] * angles)
    return found


def amplitude(degree: int) -> float:
    """Bound the sum of |weights| of one cluster, the difference of two soft steps: 1 + sum of 4 rho_m / (m pi)."""
    m = np.arange(1, degree + 1, dtype=np.float64)
    return 1.0 + float(np.sum(4.0 * jackson(degree) / (m * np.pi)))


def reach(degree: int) -> float:
    """Bound the sum over m of |w_m| of one soft step, and of its product with a column: 1 + sum of 2 rho_m / (m pi)."""
    return (1.0 + amplitude(degree)) / 2.0


def thresholds(scores: NDArray[np.float64], slopes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where the nearest centre changes along the key holder's one feature b.

    Parameters
    ----------
    scores : float64 array, shape (k, n)
        |c_l|^2 - 2 a.c_l: the part of the squared distance that does not depend on b.
    slopes : float64 array, shape (k,)
        The centres' coordinate c_l,b, ascending.

    Returns
    -------
    float64 array, shape (k - 1, n)
        Ascending along the first axis, from -1 to 1: centre j is nearest for T_{j-1} < b <= T_j.

    Notes
    -----
    With t_il = (g_l - g_i) / (2 (c_l - c_i)) the value at which l overtakes i, T_j = max_{i<=j} min_{l>j} t_il. Two
    centres with the same coordinate never overtake each other: t_il is then +inf or -inf, as g says.
    """
    k, n = scores.shape
    result = np.empty((max(k - 1, 0), n))
    for j in range(k - 1):
        best = np.full(n, -np.inf)
        for i in range(j + 1):
            first = np.full(n, np.inf)
            for other in range(j + 1, k):
                np.minimum(first, _overtakes(scores[other] - scores[i], slopes[other] - slopes[i]), out=first)
            np.maximum(best, first, out=best)
        result[j] = best
    np.clip(result, -1.0, 1.0, out=result)
    return np.maximum.accumulate(result, axis=0)


def _overtakes(ahead: NDArray[np.float64], closing: float) -> NDArray[np.float64]:
    """Return ahead / (2 closing), with the limits where closing is zero."""
    if closing > 0.0:
        with np.errstate(over="ignore"):
            found: NDArray[np.float64] = ahead / (2.0 * closing)
            return found
    return np.where(ahead >= 0.0, np.inf, -np.inf)
