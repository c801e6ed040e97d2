"""The state of fastlloyd-plus between rounds, and its histogram start: k-means of noisy counts of a grid's cells.

With few features and enough records, a coarse histogram shows the clusters, their sizes, and the spread of the records.
Round 0 releases it; all clients compute the same start, sizes and spread from it, by basic IEEE operations in a fixed
order. In the last rounds it also shows what shortening leaves out of each cluster. Only `grid_update` sees records.

Source: docs/fastlloyd-plus.md; k-means of a noisy histogram: Su et al., "Differentially private k-means clustering"
(2016), EUGkM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.assign import add_up
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.kmeans.update import total
from fastlloyd.kmeans.weighted import cluster, nearest
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.plus_plan import FEATURE_FLOOR, SPREAD_LIMITS
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

Floats = NDArray[np.float64]

# Tuned on synthetic sets, see docs/fastlloyd-plus.md.
# A cell counts if its smoothed count exceeds this many standard deviations of its noise; beside it, how often noise
# alone does. The first limit that leaves few noise cells among those that count is taken; if too few cells count, a
# lower one.
_KEPT = ((1.5, 0.0668), (2.0, 0.0228), (2.5, 6.21e-3), (3.0, 1.35e-3), (3.5, 2.33e-4), (4.0, 3.17e-5), (4.5, 3.4e-6))
_KEPT_OF_FEW = (4.0, 3.5, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0)
_FALSE_CELLS = 0.1  # of those that count, expected of noise alone
# Or each cell's count is multiplied by 1 - f p, p its chance of being noise alone. If too few keep a weight, the next
# f.
_DOUBTS = (2.0, 1.0, 0.5, 0.25, 0.0)
# How much more that start may cost, on the cells that count for the other: so much, or so much over the clusters.
_MOST_MORE, _MOST_MORE_OF_ONE = 0.25, 4.0
# Chance that a standard normal variable is above x: 1 / (2 (1 + x (c_1 + x (c_2 + ...)))^16), error 1.5e-7; Abramowitz
# and Stegun, 26.2.19. Basic operations only, as all clients must agree.
_NORMAL_TAIL = (0.0498673470, 0.0211410061, 0.0032776263, 0.0000380036, 0.0000488906, 0.0000053830)
_LEAST_WEIGHT = 1e-3  # of a cell, over the noise, if too few are left even so
_RESTARTS, _STEPS = 8, 30
_MOST_WORK = 1 << 22  # cells times clusters times restarts
_LEAST_SHARE = 0.1  # for the doubt about a centre, of an equal share of the records
_EDGE_DOUBT = 0.25  # of the variance within a cell
_PARTS = 2  # of a cell along each feature, for the correction of shortening

REST_SHARE = 0.5
"""Share of the histogram's estimate of what shortening leaves out that is added, if its noise allows it."""

_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class State:
    """What the clients know besides the centres; public among them.

    Attributes
    ----------
    middle, deviation : float64 array, shape (d,)
        Of all records: mean, and standard deviation of each feature.
    records : float
        Number of records.
    counts, count_variance : float64 array, shape (clusters,)
        Records of each cluster of the next round, and the variance of their error.
    variance : float64 array, shape (clusters,)
        Variance of the error of each coordinate of a centre.
    given : bool
        The start was given: a survey does not change it.
    cells : float64 array, shape (g^d,)
        Weights of the histogram's significant cells; empty without a histogram.
    """

    middle: Floats
    deviation: Floats
    records: float
    counts: Floats
    count_variance: Floats
    variance: Floats
    given: bool
    cells: Floats

    @property
    def spread(self) -> float:
        """Root mean squared distance of the records from their middle."""
        return math.sqrt(total(self.deviation * self.deviation))


def grid_update(points: GridPoints, plan: Plan) -> NDArray[np.int64]:
    """Return the number of one client's records in each cell, times 2^q, shape (g^d,).

    Cell i of a feature begins at -1 + 2 i / g and the last one holds its upper end; the last feature's cell changes
    fastest.

    Notes
    -----
    Sees: nobody but the caller, until masked.
    Privacy: one record lies in one cell, so it moves one entry by 2^q, whatever the data are.
    """
    cells, bits = _cells(plan), plan.fraction_bits

    def add(start: int, stop: int) -> tuple[NDArray[np.int64], ...]:
        counts = np.zeros(cells**plan.d, dtype=np.int64)
        for at in range(start, stop, _BLOCK):
            raw_block = points.raw_coordinates[:, at : min(at + _BLOCK, stop)].astype(np.int64)
            inside = np.clip(((raw_block + (1 << bits)) * cells) >> (bits + 1), 0, cells - 1)
            flat = np.zeros(inside.shape[1], dtype=np.int64)
            for row in inside:
                flat = flat * cells + row
            counts += np.bincount(flat, minlength=len(counts))
        return (counts,)

    (counts,) = add_up(points.passes.over(points.n, 1, plan.d, add))
    return counts << bits


def read_grid(noisy: Floats, start: Floats, state: State, plan: Plan) -> tuple[Floats, State]:
    """Make start and state from the noisy histogram.

    Parameters
    ----------
    noisy : float64 array, shape (g^d,)
        Records in each cell.
    start : float64 array, shape (k, d)
        Used if it was given; else the centres of the cells are clustered.

    Returns
    -------
    centers : float64 array, shape (k, d)
    state : State

    Notes
    -----
    Sees: the clients. Post-processing.
    A centre is known up to the noise of its cells' counts, times how far they lie from it, and to a part of a cell.
    """
    noise, clusters = plan.noise_deviations(0)[1], plan.rounds[0].clusters
    middles, sure = cell_middles(plan), _sure(noisy, noise, plan)
    centers, weights = _start(noisy, sure, noise, middles, plan) if not state.given else (start, sure)
    labels, squared = nearest(middles, centers)
    sizes = np.bincount(labels, weights, clusters).astype(np.float64)
    used = (weights > 0.0).astype(np.float64)
    held = total(weights)
    records = min(max(held, 0.5 * noise, 1.0), float(plan.n_total))
    lever = np.bincount(labels, used * squared, clusters) / plan.d
    doubt = noise / np.maximum(sizes, _LEAST_SHARE * plan.n_total / clusters)
    edge = 2.0 / _cells(plan)
    # A cluster without such a cell is as uncertain as one with a single one.
    count_variance = np.maximum(np.bincount(labels, used, clusters), 1.0) * (noise * noise)
    return centers, State(
        middle=(middle := _mean(middles, weights)),
        deviation=_deviations(_mean((middles - middle) * (middles - middle), weights)),
        records=records,
        counts=sizes * (records / held),
        count_variance=count_variance,
        variance=lever * doubt * doubt + _EDGE_DOUBT * edge * edge / 12.0,
        given=state.given,
        cells=sure,
    )


def left_out(centers: Floats, divisor: Floats, reach: float, state: State, plan: Plan) -> Floats:
    """Return what to add to each centre's step for what shortening leaves out of it, shape (k, d).

    Parameters
    ----------
    centers : float64 array, shape (k, d)
        What the sums are relative to.
    divisor : float64 array, shape (k,)
        What sums are divided by.
    reach : float
        Radius, scaled domain.

    Notes
    -----
    Sees: the clients. Post-processing of the histogram.
    Each part of a cell enters with its vector from the nearest centre less the shortened one. Only a share is taken:
    how large such rests are, over all clusters, beyond what the noise on the counts would make of them, decides how far
    each is believed.
    """
    found, doubt = rests(centers, divisor, reach, state, plan)
    # Never the builtin `sum`: from Python 3.12 on it rounds otherwise, and clients would differ.
    squares = total(np.array([total(column * column) for column in found.T]))
    expected = max(squares / plan.d - total(doubt), 0.0) / len(centers)
    share = expected / np.maximum(expected + doubt, np.finfo(np.float64).tiny)
    rest: Floats = REST_SHARE * share[:, None] * found
    return rest


def rests(centers: Floats, divisor: Floats, reach: float, state: State, plan: Plan) -> tuple[Floats, Floats]:
    """Return what each cluster's vectors have beyond the radius by the histogram, shape (k, d), and its noise.

    The noise is the variance of a coordinate, shape (k,). Parameters as for `left_out`.
    """
    parts, clusters = _PARTS**plan.d, len(centers)
    weights = state.cells.reshape((_cells(plan),) * plan.d) / parts
    for axis in range(plan.d):
        weights = np.repeat(weights, _PARTS, axis)
    weights, middles = weights.ravel(), _middles(_PARTS * _cells(plan), plan.d)
    labels, squared = nearest(middles, centers)
    outside = np.flatnonzero((squared > reach * reach) & (weights > 0.0))
    labels, far = labels[outside], np.sqrt(squared[outside])
    beyond = (middles[outside] - centers[labels]) * (1.0 - reach / far)[:, None]
    sums = [np.bincount(labels, weights[outside] * column, clusters) for column in beyond.T]
    found = np.stack(sums, axis=1) / divisor[:, None]
    # A count's error moves all parts of its cell together: at most as if each had it in proportion.
    lever = np.bincount(labels, (far - reach) * (far - reach), clusters) / (parts * plan.d)
    noise = plan.noise_deviations(0)[1] / divisor
    return found, lever * noise * noise


def expected_variance(plan: Plan) -> float:
    """Return how far off a start is expected to be: variance of a coordinate, scaled domain, from public numbers.

    As if each cluster had an equal part of the domain and of the records.
    """
    noise, edge = plan.noise_deviations(0)[1], 2.0 / _cells(plan)
    clusters = plan.rounds[0].clusters
    width = 2.0 * math.pow(clusters, -1.0 / plan.d)
    lever = plan.rounds[0].cells / clusters * width * width / 12.0
    doubt = noise * clusters / plan.n_total
    return lever * doubt * doubt + _EDGE_DOUBT * edge * edge / 12.0


def cell_middles(plan: Plan) -> Floats:
    """Return the middle of each cell, shape (g^d, d)."""
    return _middles(_cells(plan), plan.d)


def _middles(cells: int, d: int) -> Floats:
    axis = (2.0 * np.arange(cells) + 1.0) / cells - 1.0
    return np.stack([part.ravel() for part in np.meshgrid(*[axis] * d, indexing="ij")], axis=1)


def _cells(plan: Plan) -> int:
    """Return g, the number of cells along each feature."""
    if plan.plus is None or not plan.plus.cells:
        raise ValueError("this plan has no histogram")
    return plan.plus.cells


def _start(noisy: Floats, sure: Floats, noise: float, middles: Floats, plan: Plan) -> tuple[Floats, Floats]:
    """Cluster the cells; return the centres, and the weights of the cells that they are made of.

    Notes
    -----
    Cells with weak signs of records show small clusters that would be missed without them. Where the domain is mostly
    empty they are mostly noise, and centres go astray; then the sure cells are clustered much worse.
    """
    clusters, stream = plan.rounds[0].clusters, PublicStream(plan.seed, domains.PLUS_GRID)
    restarts = min(_RESTARTS, max(1, _MOST_WORK // (len(noisy) * clusters)))
    likely = _likely(noisy, noise, plan)
    strict, lenient = (
        cluster(middles, clusters, stream, weights=weights, restarts=restarts, max_steps=_STEPS)
        for weights in (sure, likely)
    )
    most = 1.0 + min(_MOST_MORE, _MOST_MORE_OF_ONE / clusters)
    if total(sure * nearest(middles, lenient.centers)[1]) <= most * strict.cost:
        return lenient.centers, likely
    return strict.centers, sure


def _sure(noisy: Floats, noise: float, plan: Plan) -> Floats:
    """Return the counts of the cells that stand out, zero elsewhere; at least as many as clusters have a weight.

    Where records fill a small part of the domain only, a cell has to stand out more, or those of noise would outweigh
    the others.
    """
    smooth = _smoothed(noisy.reshape((_cells(plan),) * plan.d)).ravel()
    deviation = noise * math.sqrt(0.375**plan.d)
    for kept, alone in _KEPT:
        if len(noisy) * alone <= _FALSE_CELLS * np.count_nonzero(smooth > kept * deviation):
            break
    for lower in (kept, *(value for value in _KEPT_OF_FEW if value < kept)):
        weights = np.where(smooth > lower * deviation, np.maximum(noisy, 0.0), 0.0)
        if np.count_nonzero(weights) >= plan.rounds[0].clusters:
            return weights
    return np.maximum(noisy, 0.0) + _LEAST_WEIGHT * noise


def _likely(noisy: Floats, noise: float, plan: Plan) -> Floats:
    """Weigh each count with how likely there are records in its cell; at least as many as clusters have a weight.

    Notes
    -----
    How many cells are expected to be as high by noise alone, over how many are, is the share of noise among them
    (Benjamini and Hochberg, "Controlling the false discovery rate", 1995).
    """
    smooth = _smoothed(noisy.reshape((_cells(plan),) * plan.d)).ravel()
    height = smooth / (noise * math.sqrt(0.375**plan.d))
    as_high = len(noisy) - np.searchsorted(np.sort(height), height, side="left")
    empty = len(noisy) * _chance_above(height) / as_high
    counts = np.maximum(noisy, 0.0)
    for doubt in _DOUBTS:
        weights = counts * np.maximum(1.0 - doubt * empty, 0.0)
        if np.count_nonzero(weights) >= plan.rounds[0].clusters:
            return weights
    return counts + _LEAST_WEIGHT * noise


def _chance_above(height: Floats) -> Floats:
    """Return how often noise alone is that high, in deviations; 1 where that is not above zero: nothing stands out."""
    above, series = np.maximum(height, 0.0), np.zeros_like(height)
    for coefficient in reversed(_NORMAL_TAIL):
        series = (series + coefficient) * above
    power = 1.0 + series
    for _ in range(4):
        power = power * power
    return np.where(height > 0.0, 0.5 / power, 1.0)


def _smoothed(counts: Floats) -> Floats:
    """Weigh each cell along each axis with its two neighbours: 1/4, 1/2, 1/4; nothing lies beyond the grid."""
    for axis in range(counts.ndim):
        wide = np.moveaxis(np.pad(counts, [(int(other == axis),) * 2 for other in range(counts.ndim)]), axis, 0)
        counts = np.moveaxis(0.25 * wide[:-2] + 0.5 * wide[1:-1] + 0.25 * wide[2:], 0, axis)
    return counts


def _deviations(variances: Floats) -> Floats:
    """Return the features' standard deviations, kept in the limits of those of a survey."""
    pooled = min(max(total(variances) / len(variances), SPREAD_LIMITS[0]), SPREAD_LIMITS[1])
    return np.sqrt(np.clip(variances, FEATURE_FLOOR * pooled, 1.0))


def _mean(values: Floats, weights: Floats) -> Floats:
    """Return the weighed mean of rows, added up in order."""
    return np.array([total(weights * column) for column in values.T]) / total(weights)
