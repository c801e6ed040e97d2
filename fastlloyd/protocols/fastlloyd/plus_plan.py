"""What the plan of a fastlloyd-plus run holds beyond that of fastlloyd: the survey, radii and which parts are on.

Round 0 is a survey of all records together, which releases their sums, their squares and their number in one vector;
or, with few features, a histogram, which releases one count for each cell of a grid. If both would be mostly noise,
there is neither. All later rounds release relative sums in units of a radius that follows from earlier releases, so
their sensitivity is constant: see `plus.scaled_update`.

Source: docs/fastlloyd-plus.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.merging import MOST
from fastlloyd.protocols.fastlloyd.settings import PLUS, Settings, count_ratio, split_gaussian
from fastlloyd.wire.decode import MOST_INTEGER, Within

SQUARE_WEIGHT = 0.7
"""Largest entry of a record's squares, beside 1 for the record itself."""
SURVEY_COUNT_RATIO = 3.0
"""Noise multiplier of the number of records over that of sums and squares."""
LEAST_ROUNDS = 3
"""With fewer rounds there is neither survey nor histogram: it would leave nothing to refine."""
MIDDLE_VARIANCE = 0.15
"""Prior variance of a coordinate of the records' middle."""
# With several clusters and more than `GRID_FEATURES` features: no survey if the noise on its middle has at least this
# variance, over `MIDDLE_VARIANCE`, unless the noise on an average centre's whole step, over all features, has a
# deviation above the second: tuned, see docs/fastlloyd-plus.md.
_LEAST_DOUBT, _MOST_STEP = 1.5, 5.0

GRID_FEATURES = 3
"""With more features there is no histogram: its cells would be too few along each, or too many."""
MOST_CELLS = 4096
GRID_CLUSTERS = 1024
"""With more clusters there is no histogram: k-means of its cells would take longer than a round may."""
_CELL_NOISE = 2.0  # public N over the noise on a cell, over this, is (cells along a feature)^((2 + d) / 2)
_CELLS_OF_CLUSTER = 1.5  # the least number of cells, over k
_LEAST_RECORDS = 3.0  # public share of a cluster over the noise on a cell, for a histogram to be worth it

SPREAD_PRIOR = 0.15
"""Prior variance of a feature, also used if none is measured."""
SPREAD_LIMITS = (0.01, 0.6)
"""Limits of a measured mean variance of the features."""
FEATURE_FLOOR = 0.3
"""Least variance of a feature over the mean of all features."""

# Of the first rounds, how many there are and their clusters over k: tuned, see docs/fastlloyd-plus.md.
_WIDE_ROUNDS, _WIDE = 4, 2.0
_NARROWING = ((3, 3.0), (1, 2.0), (1, 1.5), (1, 1.2))
_LEAST_LATER = 3  # rounds with k clusters after a narrowing
_MOST_STAGES = len(_NARROWING) + 1
# Largest noise, for that to be worth it, over an equal share of the records: on a count, and of a centre's whole step,
# which is as much on each of d coordinates.
_WIDE_NOISE, _NARROWING_NOISE = (0.2, 0.6), (0.09, 0.27)

# Radius over spread and cell, as a function of the noise on a cluster's share: tuned, see docs/fastlloyd-plus.md.
_REACH, _REACH_POWER, _REACH_LIMITS = 0.35, 0.1, (0.2, 1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Rounds with the same number of clusters.

    Attributes
    ----------
    rounds : int
    clusters : int
        At least k; the last stage has k.
    cell : float
        clusters^(-1/d): edge of a cluster's part of the domain over that of the whole.
    reach : float
        Radius over the root mean squared distance of all records from their middle.
    """

    rounds: Annotated[int, Within(1, MOST_INTEGER)]
    clusters: Annotated[int, Within(1, MOST_INTEGER)]
    cell: float
    reach: float

    def agrees(self, other: Stage) -> bool:
        """Return whether another stage is the same up to rounding."""
        return (
            (self.rounds, self.clusters) == (other.rounds, other.clusters)
            and math.isclose(self.cell, other.cell, rel_tol=1e-9)
            and math.isclose(self.reach, other.reach, rel_tol=1e-9)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlusPlan:
    """Public numbers of fastlloyd-plus.

    Attributes
    ----------
    survey : bool
        Whether round 0 is a survey.
    cells : int
        Cells along each feature of the histogram that is round 0; 0 for none.
    stages : tuple of Stage
        Of the rounds with sums about centres, each with fewer clusters than the one before it, the last with k: after a
        stage clusters are merged.
    shorten, shrink, swap : bool
        The settings of these names; `shorten` is far = 'shorten'.
    """

    survey: bool
    cells: Annotated[int, Within(0, MOST_CELLS)]
    stages: Annotated[tuple[Stage, ...], Within(1, _MOST_STAGES)]
    shorten: bool
    shrink: bool
    swap: bool

    @property
    def first(self) -> int:
        """The first round with sums about centres."""
        return int(self.survey or self.cells > 0)

    def differing(self, other: PlusPlan) -> list[str]:
        """Return the names of the numbers that differ by more than rounding."""
        plain = ("survey", "cells", "shorten", "shrink", "swap")
        names = [name for name in plain if getattr(self, name) != getattr(other, name)]
        same = len(self.stages) == len(other.stages) and all(map(Stage.agrees, self.stages, other.stages))
        return names if same else [*names, "stages"]

    def stage(self, t: int) -> tuple[Stage, int]:
        """Return the stage of round t, and the first of its rounds with sums about centres; round 0 belongs to it."""
        begin = self.first
        for stage in self.stages[:-1]:
            if t < begin + stage.rounds:
                return stage, begin
            begin += stage.rounds
        return self.stages[-1], begin

    def age(self, t: int) -> int:
        """Return the number of rounds with sums about centres before round t, since the first merge if any."""
        merged = self.first + self.stages[0].rounds
        return t - merged if t >= merged else t - self.first

    def nominal_radius(self, t: int, d: int) -> float:
        """Return the largest possible radius of round t, scaled domain: all others are whole fractions of it."""
        return self.stage(t)[0].reach * math.sqrt(d)

    def largest_coordinate(self, k: int, d: int) -> float:
        """Return the most that one record can add to one coordinate of a sum, scaled domain.

        A shortened vector's coordinate is at most that of x - c, 2, and it is sent m times; m times its norm is at most
        the nominal radius. m is the whole number nearest to sqrt(d) / spread, and the spread is at least sqrt(d) times
        the root of the least variance that a feature is taken to have.
        """
        measured = self.cells > 0 or (self.survey and k > 1)
        least = FEATURE_FLOOR * SPREAD_LIMITS[0] if measured else SPREAD_PRIOR
        multiple = math.floor(1.0 / math.sqrt(least) + 0.5)
        return min(max(stage.reach for stage in self.stages) * math.sqrt(d), 2.0 * multiple)


def make_plus(settings: Settings, *, k: int, d: int, n: int, sigma: float, rounds: int, choose_k: bool) -> PlusPlan:
    """Make the part of the plan that only fastlloyd-plus has.

    Parameters
    ----------
    n : int
        The public N.
    sigma : float
        Noise multiplier of the whole run (1/sigma-GDP), of all noise that is added.
    rounds : int
        Survey included.

    Raises
    ------
    ConfigError
        The settings ask for a histogram that is impossible.
    """
    if settings.start == "grid":
        _check_grid(settings, k=k, d=d, rounds=rounds)
    begins = rounds >= LEAST_ROUNDS
    histogram = begins and _has_histogram(settings, k=k, d=d, n=n, sigma=sigma)
    survey = begins and not histogram and _has_survey(settings, k=k, d=d, n=n, sigma=sigma, rounds=rounds)
    share = 1.0 - (settings.grid if histogram else settings.survey if survey else 0.0)
    count = rounds - (histogram or survey)
    noise = sigma * math.sqrt(count / share) / n

    def stage(rounds: int, clusters: int) -> Stage:
        cell = math.pow(clusters, -1.0 / d)
        return Stage(rounds=rounds, clusters=clusters, cell=cell, reach=_reach(settings, noise * clusters) * cell)

    wide: tuple[tuple[int, int], ...] = ()
    if begins and k > 1 and not choose_k:
        wide = _wide_stages(settings, k=k, d=d, noise=noise, count=count, histogram=histogram)
    later = count - sum(rounds for rounds, _ in wide)
    stages = tuple(stage(*sizes) for sizes in (*wide, (later, k)))
    return PlusPlan(
        survey=survey,
        cells=_grid_cells(settings, clusters=stages[0].clusters, d=d, n=n, sigma=sigma) if histogram else 0,
        stages=stages,
        shorten=settings.far == "shorten",
        shrink=settings.shrink,
        swap=settings.swap,
    )


def _check_grid(settings: Settings, *, k: int, d: int, rounds: int) -> None:
    """Refuse settings that ask for an impossible histogram."""
    if d > GRID_FEATURES:
        problem = f"expected at most {GRID_FEATURES} features, got {d}; name fewer with --columns"
    elif k > GRID_CLUSTERS:
        problem = f"expected at most {GRID_CLUSTERS:,} clusters, got {k:,}; take fewer with --k"
    elif settings.grid == 0.0:
        problem = f"expected a share of the budget for it, got {PLUS}.grid = 0; raise it"
    elif rounds < LEAST_ROUNDS:
        problem = f"expected at least {LEAST_ROUNDS} rounds, of which it is the first, got {rounds}; give more --rounds"
    else:
        return
    raise ConfigError(f"--set {PLUS}.start=grid: {problem}, or leave start out: the run then begins as it can")


def _reach(settings: Settings, noise: float) -> float:
    """Return the radius over spread and cell; `noise` is the noise on a count over an equal share of the records."""
    if settings.reach is not None:
        return settings.reach
    low, high = _REACH_LIMITS
    return min(max(_REACH * math.pow(noise, -_REACH_POWER), low), high) if noise > 0.0 else high


def _wide_stages(
    settings: Settings, *, k: int, d: int, noise: float, count: int, histogram: bool
) -> tuple[tuple[int, int], ...]:
    """Return rounds and clusters of the stages with more than k; `noise` is that on a count over all records.

    More centres than clusters find them more reliably, and merging joins the pieces (Dasgupta and Schulman, "A
    probabilistic analysis of EM for mixtures of separated, spherical Gaussians", 2007); but each has fewer records.
    Rounds between merges of a few clusters move the remaining ones into place.
    """

    def allows(most: tuple[float, float]) -> bool:
        return noise * k <= min(most[0], most[1] / math.sqrt(d))

    least = sum(rounds for rounds, _ in _NARROWING) + _LEAST_LATER
    narrows = count >= least and not histogram and round(_NARROWING[0][1] * k) <= MOST
    if settings.wide is not None:
        stages: tuple[tuple[int, float], ...] = ((_WIDE_ROUNDS, settings.wide),)
    elif narrows and allows(_NARROWING_NOISE):
        stages = _NARROWING
    else:
        stages = ((_WIDE_ROUNDS, _WIDE),) if allows(_WIDE_NOISE) else ()
    found: dict[int, int] = {}
    for rounds, factor in stages:
        clusters, fitting = round(factor * k), min(rounds, count - 2)
        if k < clusters <= MOST and fitting > 0:
            found[clusters] = found.get(clusters, 0) + fitting
    return tuple((rounds, clusters) for clusters, rounds in found.items())


def _has_histogram(settings: Settings, *, k: int, d: int, n: int, sigma: float) -> bool:
    """Return whether round 0 is a histogram, by public numbers alone."""
    if d > GRID_FEATURES or k > GRID_CLUSTERS or settings.start == "survey" or settings.grid == 0.0:
        return False
    enough = settings.start == "grid" or n >= _LEAST_RECORDS * k * sigma / math.sqrt(settings.grid)
    return enough and _least_cells(k, d) <= _most_cells(d)


def _has_survey(settings: Settings, *, k: int, d: int, n: int, sigma: float, rounds: int) -> bool:
    """Return whether round 0 is a survey, by public numbers alone: usually not if it would be mostly noise."""
    if settings.survey == 0.0 or settings.start == "survey" or k == 1 or d <= GRID_FEATURES:
        return settings.survey > 0.0
    noise = _survey_multipliers(settings, sigma)[0] * math.sqrt(d * (1.0 + SQUARE_WEIGHT * SQUARE_WEIGHT)) / n
    step = sigma * math.sqrt(rounds * d) * k / n  # with no survey
    return noise * noise < _LEAST_DOUBT * MIDDLE_VARIANCE or step > _MOST_STEP


def _survey_multipliers(settings: Settings, sigma: float) -> tuple[float, float]:
    """Return the noise multipliers of the survey's sums and number of records."""
    return split_gaussian(sigma / math.sqrt(settings.survey), SURVEY_COUNT_RATIO)


def _grid_cells(settings: Settings, *, clusters: int, d: int, n: int, sigma: float) -> int:
    """Return the number of cells along each feature of the histogram, by public numbers alone.

    A finer grid has a smaller error from the width of a cell, but more noise in all cells together: the best width
    follows from the records over the noise on one count, as in Su et al. (2016), §5.
    """
    noise, most = sigma / math.sqrt(settings.grid), _most_cells(d)
    if noise == 0.0:
        return most
    best = round(math.pow(n / (_CELL_NOISE * noise), 2.0 / (2.0 + d)))
    return min(max(best, _least_cells(clusters, d), 2), most)


def _least_cells(clusters: int, d: int) -> int:
    """Return the least number of cells along a feature that is enough for these clusters."""
    return math.ceil(math.pow(_CELLS_OF_CLUSTER * clusters, 1.0 / d) - 1e-9)


def _most_cells(d: int) -> int:
    """Return the largest g with g^d at most `MOST_CELLS`."""
    return max(g for g in range(1, MOST_CELLS + 1) if g**d <= MOST_CELLS)


def plus_multipliers(
    plus: PlusPlan, settings: Settings, *, d: int, sigma: float, rounds: int
) -> list[tuple[float, float]]:
    """Return the noise multipliers of sums and counts in each round.

    Notes
    -----
    Privacy: 1 / sigma^2 is split into `settings.survey` for the survey, or `settings.grid` for the histogram, and equal
    parts of the rest for the other rounds; with neither, into equal parts for all rounds. Each part is split between
    sums and counts, but a histogram has no sums; so 1/sums^2 + 1/counts^2 over all rounds is 1/sigma^2.
    """
    ratio = count_ratio("fastlloyd", d, settings)

    if not plus.first:
        return [split_gaussian(sigma * math.sqrt(rounds), ratio)] * rounds
    share = settings.grid if plus.cells else settings.survey
    first = (0.0, sigma / math.sqrt(share)) if plus.cells else _survey_multipliers(settings, sigma)
    rest = split_gaussian(sigma * math.sqrt((rounds - 1) / (1.0 - share)), ratio)
    return [first] + [rest] * (rounds - 1)


def square_limit(fraction_bits: int) -> int:
    """Return the largest entry of a record's squares in grid units."""
    return math.floor(SQUARE_WEIGHT * (1 << fraction_bits))


def survey_sensitivity(k: int, d: int, fraction_bits: int) -> float:
    """Return the most that one record moves the survey's sums and squares together, L2, grid units.

    Notes
    -----
    Privacy: each of d coordinates is at most 2^q, each of d squares at most `square_limit`; with k = 1 there is no
    row for the squares.
    """
    square = square_limit(fraction_bits) if k > 1 else 0
    return math.sqrt(d * ((1 << 2 * fraction_bits) + square * square))
