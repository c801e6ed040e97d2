"""How the budget is spent: noise on counts and on sums, and in how many rounds.

Source: Vertical HE, §3 ("Differential Privacy"); docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import math

from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.privacy.calibration import gaussian_noise_multiplier
from fastlloyd.protocols.vertical_he.parameters import DEFAULT_ROUNDS, PublicParameters

LEAST_ROUNDS = 4
MOST_NOISE = 0.04


def multipliers(public: PublicParameters, d: int, rounds: int) -> tuple[float, float]:
    """Return the noise multipliers of counts and sums of one round, (1 / sigma)-GDP for the whole run.

    Notes
    -----
    A centre's error is about (noise on the sum - c * noise on the count) / count. With |c|^2 about d / 3 and noise on
    each of d coordinates of sqrt(d) times the sums' multiplier it is least at a ratio of (3 d)^(1/4).
    """
    sigma = gaussian_noise_multiplier(public.epsilon, public.allowed_delta - SAMPLER_DELTA)
    ratio = (3.0 * d) ** 0.25
    sums = sigma * math.sqrt(rounds * (1.0 + 1.0 / ratio**2))
    return ratio * sums, sums


def automatic_rounds(public: PublicParameters, d: int, moves: float) -> int:
    """Return the largest number of rounds up to the paper's ten at which a centre's noise stays small, at least four.

    Notes
    -----
    Both sides' noise on one coordinate of an average cluster's centre, sqrt(2 d) times the sums' multiplier over n / k,
    may be 4 % of the half-range [0, 1]: more rounds then move centres by less than the noise does. Where
    centres are weighed, rounds add up rather than replace each other, and ten do better than fewer.
    """
    if public.chosen.noise != "dp" or public.chosen.shrink:
        return DEFAULT_ROUNDS
    for rounds in range(DEFAULT_ROUNDS, LEAST_ROUNDS, -1):
        _, sums = multipliers(public, d, rounds)
        if moves * sums * math.sqrt(2.0 * d) <= MOST_NOISE * public.n / public.k:
            return rounds
    return LEAST_ROUNDS
