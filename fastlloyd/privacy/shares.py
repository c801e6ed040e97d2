r"""Noise in shares: each client adds a part, and only the parts that the observer does not know count.

m clients add one share each. An observer who knows t of them (its own among them) is left with m - t unknown
ones; these alone carry the guarantee, and the ledger records them. The further t only add to the error.

Discrete Gaussian shares: variance s^2 = sigma^2 / (m - t) each, s at least `LEAST_SHARE` grid units
----------------------------------------------------------------------------------------------------
1. *Their sum W is a discrete Gaussian of variance sigma^2, all but exactly.* Completing the square, the
   distribution of a sum of two discrete Gaussians of variances a^2 and b^2 at z is exp(-z^2 / (2 (a^2 + b^2)))
   times a Gaussian sum over shifted integers of width c, c^2 = a^2 b^2 / (a^2 + b^2). By Poisson's formula that
   sum depends on the shift by a factor in [1 - eta, 1 + eta] only, eta = 2.1 exp(-2 pi^2 c^2). So probabilities
   differ by a factor of at most exp(5 exp(-2 pi^2 c^2)); over n shares by exp(tau / 2), tau = 10 sum_{k<n}
   exp(-2 pi^2 s^2 k / (k + 1)). Nothing here needs equal variances: n parts of different ones (`masking/threshold/
   parts.py`), the least v, add up with tau / 2 <= 5 n exp(-pi^2 v), for c^2 >= v / 2 at each step.
2. *A discrete Gaussian of width sigma is a function of a continuous one of width sqrt(sigma^2 - r^2), all but
   exactly.* Take y = v + G, v an integer, G normal of that width, and draw an integer k with probability
   proportional to exp(-(k - y)^2 / (2 r^2)). The normaliser depends on y by a factor in [1 - eta, 1 + eta], eta
   = 2.1 exp(-2 pi^2 r^2), and without it k - v has a probability proportional to exp(-k^2 / (2 sigma^2)). The
   draw does not look at v.
3. Hence the release v + W, each coordinate by itself, is a post-processing of the continuous Gaussian mechanism
   of width sqrt(sigma^2 - r^2), up to a factor exp(+-zeta) on every probability, zeta = L (tau / 2 + 5 exp(-2
   pi^2 r^2)) over all L coordinates ever released. With r = 3 and s >= 5, L <= 2^40 and m <= 10^5: zeta <
   10^-63, and e^epsilon zeta, for epsilon up to 100, is below 10^-19: covered by the 2^-40 of delta set aside.

So shares compose like any Gaussian release, of noise multiplier sqrt(sigma^2 - 9) / D, D the sensitivity,
and lose nothing to the conversion from concentrated differential privacy, which `zcdp_epsilon` gives for comparison.

Polya shares: shape 1 / (m - t) each
------------------------------------
m - t of them are exactly a discrete Laplace variable of scale b: pure epsilon D / b for an integer L1
sensitivity D. In mixtures with Gaussian noise a continuous Laplace event of sensitivity D + 1 / (4 b) dominates
it: see docs/privacy.md.

Source: Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure
aggregation" (2021), Theorem 1 and its tau; Canonne, Kamath, Steinke (2020), Proposition 12; Micciancio and
Regev (2007) and Peikert (2010) use the same sums over shifted lattices; docs/privacy.md, "Noise in shares".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.noise.discrete import GaussianLaw, discrete_gaussians, gaussian_law, polya_difference
from fastlloyd.privacy.release import GAUSSIAN_SHARES, LAPLACE_SHARES, Release
from fastlloyd.randomness.secret import SecretRandom

SMOOTHING = 3.0
"""r above, in grid units."""


def draw_gaussian_parts(
    noise: Sequence[tuple[float, int]], shares: Sequence[Fraction], secrets: Sequence[SecretRandom]
) -> NDArray[np.int64]:
    """Draw parts of one client's share of the Gaussian noise on a vector: one part, or several.

    Parameters
    ----------
    noise : sequence of pairs of float and int
        Of each release in the vector the standard deviation of its noise, in grid units, and its number of elements.
    shares : sequence of Fraction
        Each part's share of the variance: 1 / (m - t) for a client's whole share in one part.
    secrets : sequence of SecretRandom
        Each part's own source.

    Returns
    -------
    int64 array, shape (len(shares), all elements)

    Notes
    -----
    Sees: the client that draws it, and nobody else.
    """
    # Fractions are slow to hash.
    laws = _laws(tuple(sigma for sigma, _ in noise), tuple(share.as_integer_ratio() for share in shares))
    return discrete_gaussians(laws, [count for _, count in noise], secrets)


@lru_cache(maxsize=256)
def _laws(sigmas: tuple[float, ...], shares: tuple[tuple[int, int], ...]) -> tuple[tuple[GaussianLaw, ...], ...]:
    """Return the law of each release's noise in each part."""
    return tuple(tuple(gaussian_law(Fraction(sigma) ** 2 * Fraction(*share)) for sigma in sigmas) for share in shares)


def draw_laplace_parts(
    noise: Sequence[tuple[float, int]], shares: Sequence[Fraction], secrets: Sequence[SecretRandom]
) -> NDArray[np.int64]:
    """Draw parts of one client's share of the Laplace noise on a vector, of these scales b; shapes add up to 1.

    Parameters and notes as for `draw_gaussian_parts`.
    """
    drawn = [
        np.concatenate([polya_difference(scale, share, count, secret) for scale, count in noise])
        for share, secret in zip(shares, secrets, strict=True)
    ]
    return np.stack(drawn)


def event_multiplier(release: Release) -> float:
    """Return the noise multiplier of the continuous mechanism that stands for a release in compositions.

    Notes
    -----
    Privacy: for shares, a Gaussian of sqrt(sigma^2 - 9) or a Laplace event of sensitivity D + 1 / (4 b); for others
    their own.
    """
    scale, sensitivity = release.noise_scale, release.sensitivity
    if release.mechanism == GAUSSIAN_SHARES:
        return math.sqrt(scale * scale - SMOOTHING * SMOOTHING) / sensitivity
    if release.mechanism == LAPLACE_SHARES:
        return scale / (sensitivity + 0.25 / scale)
    return release.noise_multiplier


def spread(clients: int, known: int) -> float:
    """Return the standard deviation of all shares together over that of the guaranteed ones: sqrt(m / (m - t)).

    Raises
    ------
    ConfigError
        No share is left that the observer does not know.
    """
    if not 1 <= known < clients:
        raise ConfigError(
            f"noise in shares by {clients} clients, {known} of which may be known to an observer: expected at least "
            "one unknown share; start with more clients or a lower --known-shares (at least 1: a client knows its own)"
        )
    return math.sqrt(clients / (clients - known))


def noise_price(release: Release) -> float:
    """Return the noise of all shares together over that of a server that adds all noise for the same epsilon.

    Returns
    -------
    float
        Ratio of standard deviations; 1 for mechanisms without shares.
    """
    if release.mechanism == GAUSSIAN_SHARES:
        total = release.noise_scale * spread(release.clients, release.known)
        return total / (event_multiplier(release) * release.sensitivity)
    if release.mechanism == LAPLACE_SHARES:
        # Discrete Laplace: 2 p / (1 - p)^2 with p = exp(-1 / b); continuous and rounded at the same b: 2 b^2 + 1 / 12.
        discrete = 0.5 / math.sinh(0.5 / release.noise_scale) ** 2
        server = 2.0 * release.noise_scale**2 + 1.0 / 12.0
        return spread(release.clients, release.known) * math.sqrt(discrete / server)
    return 1.0


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon that rho-zCDP implies at delta.

    Notes
    -----
    The smallest over the order a > 1 of a rho + (ln(1 / delta) + (a - 1) ln(1 - 1 / a) - ln a) / (a - 1); every order
    is valid, so a search that stops early errs on the safe side.

    Source: Canonne, Kamath, Steinke (2020), Proposition 12.
    """

    def at(log_excess: float) -> float:
        excess = math.exp(log_excess)
        order = 1.0 + excess
        return order * rho + (-math.log(delta) + excess * math.log(excess / order) - math.log(order)) / excess

    low, high = -30.0, 60.0
    for _ in range(200):
        left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
        low, high = (low, right) if at(left) <= at(right) else (left, high)
    return max(0.0, at(0.5 * (low + high)))


def zcdp_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the noise multiplier for which the conversion from zCDP gives this epsilon, for comparison."""
    low, high = 1e-9, 1e9
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if zcdp_epsilon(0.5 / middle**2, delta) <= epsilon else (middle, high)
    return high
