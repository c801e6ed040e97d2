"""How the budget is spent: noise on counts and on sums, and in how many rounds.

Source: Vertical HE, §3 ("Differential Privacy"); docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import math

from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.privacy.calibration import gaussian_noise_multiplier
from fastlloyd.protocols.vertical_he.parameters import DEFAULT_ROUNDS, LANDMARKS, LINEAR, PublicParameters

LEAST_ROUNDS = 4
MOST_NOISE = 0.04
FEATURE_VARIANCE = 0.15
"""Of the records, scaled domain: the prior."""
REACH, REACH_POWER, REACH_LIMITS = 0.35, 0.1, (0.2, 1.5)
"""Radius over spread and cell, as a function of the noise on a cluster's share: fastlloyd-plus's."""
LEAST_STEP_ROUNDS = 6
"""With fewer rounds whole records are added up: in a round of steps a centre moves by at most a radius."""
LEAST_STEP_COLUMNS = 2
"""Of the computing party: with one column beside a whole one, steps gain nothing."""
LEAST_COUNTS = 0.02
"""The least cost of a count's error, over that of one column's sum, for each column."""


def multipliers(public: PublicParameters, d: int, rounds: int) -> tuple[float, float]:
    """Return the noise multipliers of counts and sums of one round, (1 / sigma)-GDP for the whole run.

    A centre's error is about (noise on the sum - c * noise on the count) / count. With |c|^2 about d / 3 and noise on
    each of d coordinates of sqrt(d) times the sums' multiplier it is least at a ratio of (3 d)^(1/4).
    """
    sigma = gaussian_noise_multiplier(public.epsilon, public.allowed_delta - SAMPLER_DELTA)
    ratio = (3.0 * d) ** 0.25
    sums = sigma * math.sqrt(rounds * (1.0 + 1.0 / ratio**2))
    return ratio * sums, sums


def step_multipliers(
    public: PublicParameters, own: int, others: int, rounds: int, radius: float
) -> tuple[float, float, float]:
    """Return the noise multipliers of counts, of sums of `others` columns and of sums of steps in `own` columns.

    Together they are (1 / sigma)-GDP for the whole run. With multipliers m the squared error of a centre is about a^2
    m^2 added up, a being radius sqrt(own) for steps, `others` for sums, and the root of `others` / 3, but at least of
    0.02 per column, for counts. It is least where m^2 is in proportion to 1 / a.
    """
    sigma = gaussian_noise_multiplier(public.epsilon, public.allowed_delta - SAMPLER_DELTA)
    counts = math.sqrt(max(others / 3.0, LEAST_COUNTS * (own + others)))
    parts = (counts, float(others), radius * math.sqrt(own))
    found = [sigma * math.sqrt(rounds * sum(parts) / part) for part in parts]
    return found[0], found[1], found[2]


def enters_by_steps(public: PublicParameters, scheme: str, own: int, rounds: int) -> bool:
    """Return whether the computing party's columns, `own` of them, enter as steps from the centres."""
    chosen = public.chosen
    private = chosen.noise == "dp" and chosen.shrink
    return private and scheme in (LINEAR, LANDMARKS) and rounds >= LEAST_STEP_ROUNDS and own >= LEAST_STEP_COLUMNS


def step_radius(public: PublicParameters, own: int, d: int, rounds: int) -> float:
    """Return the longest step in `own` of d columns, scaled domain, from public numbers, as in fastlloyd-plus."""
    sigma = gaussian_noise_multiplier(public.epsilon, public.allowed_delta - SAMPLER_DELTA)
    noise = sigma * math.sqrt(2.0 * rounds) * public.k / public.n_total
    low, high = REACH_LIMITS
    reach = min(max(REACH * math.pow(noise, -REACH_POWER), low), high) * math.pow(public.k, -1.0 / d)
    return reach * math.sqrt(FEATURE_VARIANCE * own)


def automatic_rounds(public: PublicParameters, d: int, moves: float) -> int:
    """Return the largest number of rounds up to the paper's ten at which a centre's noise stays small, at least four.

    All noise on one coordinate of an average cluster's centre, sqrt(2 d) times the sums' multiplier over n / k where
    two parties add it, may be 4 % of the half-range [0, 1]: more rounds then move centres by less than the noise does.
    Where centres are weighed, the rounds add up, and ten are better than fewer.
    """
    if public.chosen.noise != "dp" or public.chosen.shrink:
        return DEFAULT_ROUNDS
    for rounds in range(DEFAULT_ROUNDS, LEAST_ROUNDS, -1):
        _, sums = multipliers(public, d, rounds)
        if moves * sums * math.sqrt(public.noises * d) <= MOST_NOISE * public.n_total / public.k:
            return rounds
    return LEAST_ROUNDS
