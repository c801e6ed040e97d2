"""How epsilon is divided: from proportions to the noise multiplier of each release.

A part eps_i of epsilon is what the release would spend alone: at the run's delta for Gaussian noise, at delta 0 for
Laplace noise, as in the paper. Composition is better than adding up, so the calibrator multiplies all eps_i by one
number until the composed epsilon meets the target; the proportions stay.

Source: FedDP-KMeans, §3 "Algorithm details", §5 "Evaluation procedure", App. H.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal

from fastlloyd.privacy.calibration import SAMPLER_DELTA, gaussian_noise_multiplier
from fastlloyd.protocols.feddp.settings import Settings

Kind = Literal["outer product", "weights", "centres", "lloyd", "start"]
"""Of a step."""
OUTER: Final = "outer product"
WEIGHTS: Final = "weights"
CENTERS: Final = "centres"
LLOYD: Final = "lloyd"
START: Final = "start"


def steps_of(settings: Settings, rounds: int) -> tuple[Kind, ...]:
    """Return the kinds of the steps of a run in order; only `START` asks nothing of the clients."""
    first: tuple[Kind, ...] = (OUTER, WEIGHTS, CENTERS) if settings.has_start else (START,)
    lloyd: Kind = LLOYD
    return (*first, *(lloyd for _ in range(rounds)))


def epsilon_shares(settings: Settings, rounds: int) -> Mapping[str, tuple[float, float]]:
    """Divide 1 among the steps.

    Parameters
    ----------
    settings : Settings
    rounds : int
        T.

    Returns
    -------
    mapping from kind of step to (part for Gaussian noise, part for Laplace noise)
        Of one step; 0 where the step has no such release. Over all steps they add up to 1.
    """
    outer, weights, sums, counts = settings.proportions
    first = settings.has_start
    each = sums + counts
    start = 1.0 if first else 0.0
    if rounds == 0:
        lloyd = 0.0
    elif not first:
        lloyd = 1.0
    elif settings.lloyd_share is not None:
        lloyd = settings.lloyd_share
    else:
        lloyd = rounds * each / (start + rounds * each)
    start *= 1.0 - lloyd
    step = lloyd / max(rounds, 1) / each
    return {
        OUTER: (start * outer, 0.0),
        WEIGHTS: (0.0, start * weights),
        CENTERS: (start * sums, start * counts),
        LLOYD: (step * sums, step * counts),
        START: (0.0, 0.0),
    }


def multipliers(
    shares: Mapping[str, tuple[float, float]], *, epsilon: float, delta: float, factor: float
) -> Mapping[str, tuple[float, float]]:
    """Return noise scale over sensitivity for each kind of step, all epsilons divided by `factor`; 0 without noise."""
    total = epsilon / factor
    return {
        kind: (
            _gaussian(gauss * total, delta - SAMPLER_DELTA) if gauss > 0 else 0.0,
            1.0 / (laplace * total) if laplace > 0 else 0.0,
        )
        for kind, (gauss, laplace) in shares.items()
    }


@lru_cache(maxsize=256)
def _gaussian(epsilon: float, delta: float) -> float:
    return gaussian_noise_multiplier(epsilon, delta)
