"""Division of epsilon and delta: the number of users, the parties' local centres, and the sketches.

Paper: epsilon_0 = (1 - b) epsilon, epsilon_1 = epsilon_2 = b epsilon / (2 S) and delta_2 = delta / S for each party,
and epsilon' = epsilon_2 / (4 sqrt(M log(1 / delta_2))) for each row.

Tight: the shares are the paper's, but the sketches' is not split over the parties (their rows are one mechanism, see
`sketch/sketch.py`), and all releases together are composed by their privacy loss distributions; then all noise
shrinks by one factor until the total is epsilon. `local = shortened` has Gaussian noise, so its share of local
clusterings and sketches is one of 1 / sigma^2.

Source: Vertical DP, Algorithm 1 and Algorithm 3 line 1; docs/vertical-dp-privacy.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.accountant import SAMPLER_DELTA, spent
from fastlloyd.privacy.calibration import calibrate, gaussian_noise_multiplier
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.vertical_dp.local_plan import SHORTENED
from fastlloyd.protocols.vertical_dp.settings import PAPER, Settings
from fastlloyd.protocols.vertical_dp.sketch.level import MAX_PHANTOMS, phantoms_for
from fastlloyd.protocols.vertical_dp.sketch.sketch import paper_phantoms

# A whole number of phantoms may leave the total this far below epsilon; Laplace noise uses the rest.
_LOOSE = 0.996


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The share of each part.

    Attributes
    ----------
    total_epsilon : float
        Paper: epsilon_0.
    local_epsilon : float
        Paper: epsilon_1, of each party; for 'shortened' one over its noise multiplier.
    row_epsilon : float
        Paper: epsilon', of each joint row; the target for `phantoms`.
    phantoms : int
        Paper: n_p.
    """

    total_epsilon: float
    local_epsilon: float
    row_epsilon: float
    phantoms: int

    def scaled(self, factor: float) -> Split:
        """Return the same with `factor` times the noise."""
        row = self.row_epsilon / factor
        phantoms = min(phantoms_for(row), MAX_PHANTOMS)
        return Split(
            total_epsilon=self.total_epsilon / factor,
            local_epsilon=self.local_epsilon / factor,
            row_epsilon=row,
            phantoms=phantoms,
        )


Build = Callable[[Split, bool], Sequence[Release]]
"""From a split to all releases; true: with its exact epsilon', false: with that of the whole number of phantoms."""


def first_split(settings: Settings, *, parties: int, groups: int, epsilon: float, delta: float) -> Split:
    """Divide like the paper, or with the same shares but without its split of the sketches over the parties.

    Parameters
    ----------
    settings : Settings
    parties : int
        S.
    groups : int
        Number of groups of parties with separate sketches.
    epsilon, delta : float

    Raises
    ------
    ConfigError
        Epsilon is too small for the number of rows.
    """
    rest = (1.0 - settings.total_share) * epsilon
    local_share = 0.5 if settings.local_share is None else settings.local_share
    sketches, local = (1.0 - local_share) * rest, local_share * rest / parties
    if settings.local == SHORTENED:
        mu = 1.0 / gaussian_noise_multiplier(rest, delta - SAMPLER_DELTA)
        row = mu * math.sqrt((1.0 - local_share) / (settings.rows * groups))
        phantoms, local = phantoms_for(row), mu * math.sqrt(local_share / parties)
    elif settings.composition == PAPER:
        phantoms = paper_phantoms(settings.rows * groups, sketches / parties, delta / parties)
        row = math.log1p(1.0 / phantoms)
    else:
        multiplier = gaussian_noise_multiplier(sketches, delta - SAMPLER_DELTA)
        row = 1.0 / (multiplier * math.sqrt(settings.rows * groups))
        phantoms = phantoms_for(row)
    if phantoms > MAX_PHANTOMS:
        raise ConfigError(
            f"epsilon {epsilon:g} for {settings.rows * groups} rows of sketches needs {phantoms} phantoms per cell, at "
            f"most {MAX_PHANTOMS} are possible; choose a larger --epsilon or fewer rows (--set vertical-dp.rows)"
        )
    return Split(
        total_epsilon=settings.total_share * epsilon,
        local_epsilon=local,
        row_epsilon=row,
        phantoms=phantoms,
    )


def tighten(split: Split, build: Build, *, epsilon: float, delta: float) -> Split:
    """Shrink all noise until the composed total is epsilon.

    Returns
    -------
    Split
        A split whose releases spend epsilon, or up to 0.5 % less.
    """
    factor, _ = calibrate(lambda candidate: build(split.scaled(candidate), True), epsilon, delta, 0.9)
    found = split.scaled(factor)
    while (total := spent(build(found, False), delta)) > epsilon:
        found = replace(found, phantoms=found.phantoms + 1)
    if total >= _LOOSE * epsilon:
        return found

    def laplace(candidate: float) -> Split:
        return replace(found.scaled(candidate), row_epsilon=found.row_epsilon, phantoms=found.phantoms)

    factor, _ = calibrate(lambda candidate: build(laplace(candidate), False), epsilon, delta, 0.99)
    return laplace(factor)
