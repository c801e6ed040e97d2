"""The server's estimate of the grid weights (the paper's WeightEst), and the noisy number of users it starts from.

Source: Vertical DP, Algorithm 1 line 3, Algorithms 4 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from fastlloyd.errors import ConfigError, DataError
from fastlloyd.privacy.noise.sampler import round_laplace
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.vertical_dp.math.estimate import Table, basic_table, cluster_sizes
from fastlloyd.protocols.vertical_dp.math.fit import MAX_CELLS, GridCells, cells_of, fit_tables, paper_fit
from fastlloyd.protocols.vertical_dp.math.pair import likelihood_tables
from fastlloyd.protocols.vertical_dp.sketch.sketch import ZERO_OUT, Levels, SketchShape
from fastlloyd.randomness.secret import SecretRandom

Group = tuple[int, ...]

ESTIMATORS = ("likelihood", "basic")
METHODS = ("2pest", "basic")
FITS = ("entropy", "paper")

_COUNT_BITS = 8


def groups_of(parties: int, method: str) -> tuple[Group, ...]:
    """Return the groups of parties, each with a separate key and sketches: all pairs, or all parties for 'basic'.

    Parameters
    ----------
    parties : int
        S; parties are numbered from 0 here.
    method : {'2pest', 'basic'}
    """
    if method not in METHODS:
        raise ConfigError(f"vertical-dp.weights: expected one of {METHODS}, got {method!r}")
    if method == "basic":
        return (tuple(range(parties)),)
    return tuple(combinations(range(parties), 2))


def estimate_weights(
    sketches: Mapping[Group, Sequence[Levels]],
    shape: SketchShape,
    total: float,
    *,
    estimator: str = "likelihood",
    fit: str = "entropy",
    max_cells: int = MAX_CELLS,
    steps: int = 500,
    seed: int = 0,
) -> GridCells:
    """Estimate the weights of the grid of all parties.

    Parameters
    ----------
    sketches : mapping from Group to the sketches of its parties, in order
        As `groups_of` gives the groups.
    shape : SketchShape
        Of each group.
    total : float
        Paper: n-hat.
    estimator : {'likelihood', 'basic'}
        For a group: `pair.likelihood_tables` (ours, pairs only) or `estimate.basic_table`.
    fit : {'entropy', 'paper'}
        From pairs to the grid: `fit.fit_tables` (ours) or `fit.paper_fit`; not used for two parties.
    max_cells : int
        For 'entropy'.
    steps : int
        Paper: T; for 'paper'.
    seed : int
        The public seed.

    Returns
    -------
    GridCells

    Raises
    ------
    ConfigError
        An unknown method.
    DataError
        The sketches do not fit, or the estimated number of users is not positive.
    """
    if estimator not in ESTIMATORS or fit not in FITS:
        raise ConfigError(f"expected an estimator of {ESTIMATORS} and a fit of {FITS}, got {estimator!r} and {fit!r}")
    if not total > 0.0:
        raise DataError(f"expected a positive estimated number of users, got {total:g}; choose a larger --epsilon")
    if estimator == "likelihood":
        tables = dict(zip(sketches, likelihood_tables(list(sketches.values()), shape, total), strict=True))
    else:
        tables = {group: basic_table(levels, shape, total) for group, levels in sketches.items()}  # Alg. 5, lines 6-8
    if len(tables) == 1:
        return cells_of(next(iter(tables.values())))
    pairs = {(group[0], group[-1]): found for group, found in tables.items()}
    if fit == "entropy":
        return fit_tables(pairs, total, max_cells=max_cells, seed=seed)
    return paper_fit(pairs, _sizes(sketches, shape), total, steps=steps, seed=seed)


def noisy_count(raw_count: int, scale: float, secret: SecretRandom) -> float:
    """Answer the query for the number of users with Laplace noise (paper: n-hat).

    Parameters
    ----------
    raw_count : int
        Users that count at this party.
    scale : float
        b; the release is `count_release(scale)`.
    secret : SecretRandom

    Returns
    -------
    float
        A multiple of 2^-8; may be negative.

    Notes
    -----
    Privacy: one user counted or not moves the count by 1: pure 1 / b.
    """
    grid = 1 << _COUNT_BITS
    return float(raw_count + int(round_laplace(scale * grid, 1, secret)[0]) / grid)


def count_release(scale: float) -> Release:
    """Return the release of `noisy_count`."""
    return Release(
        round=0, name="number of users", mechanism="laplace", sensitivity=1.0, norm="l1", noise_scale=scale,
        unit="one user", neighbours=ZERO_OUT, seen_by="server",
    )  # fmt: skip


def _sizes(sketches: Mapping[Group, Sequence[Levels]], shape: SketchShape) -> list[Table]:
    """Average each party's estimated cluster sizes over its sketches (Alg. 5, lines 2 to 4)."""
    found: dict[int, list[Table]] = {}
    for group, levels in sketches.items():
        for party, own in zip(group, levels, strict=True):
            found.setdefault(party, []).append(np.maximum(cluster_sizes(own, shape), 0.0))
    return [np.mean(found[party], axis=0) for party in sorted(found)]
