"""The one round: bins that double in width about a public origin, and the rule that finds bounds in noisy counts.

A column lies in a public box, scaled to [-1, 1]; the origin is its middle. Bins begin at 0 and, on both sides, end at
2^-64, 2^-63, .., 1/2, 1.

Source: FastLloyd, §5.3.4, for the masked sum; docs/privacy.md, "Bounds that nobody knows", for what is counted.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

DOUBLINGS = 64
BINS = 2 * (DOUBLINGS + 1)
"""B: of each column."""
EDGES = np.concatenate([-(0.5 ** np.arange(DOUBLINGS + 1)), [0.0], 0.5 ** np.arange(DOUBLINGS, -1, -1)])
"""Of the bins, scaled, shape (B + 1,)."""
ALPHA = 1e-3
"""The probability, at most, that one of the empty bins of all columns begins or ends a core."""
GROW = 2.0
"""A core grows while the next bin holds more than this times the noise."""
BEYOND = 0.01
"""An outer bin is cut where this share of the values would lie beyond, if they thin out as fast as next to it."""
STEPS = 16
"""A cut is at a multiple of a bin's width over this, rounded outwards."""
REACH = 3
"""Bounds of this many bins on one side of the origin, whose far end is 8 times as far as the near one, begin at it."""


def place(raw_points: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bin of each value; a value on an edge belongs to the bin that is nearer to the origin.

    Parameters
    ----------
    raw_points : float64 array, shape (n, m)
        Scaled to [-1, 1]; NaN where missing.

    Returns
    -------
    int64 array, shape (n, m)
        From 0 to `BINS` - 1; `BINS` where missing.
    """
    part, power = np.frexp(np.abs(raw_points))  # |x| = part * 2^power, part in [1/2, 1), exactly
    outward = np.clip(power - (part == 0.5) + DOUBLINGS, 0, DOUBLINGS)
    outward[raw_points == 0.0] = 0
    bins: NDArray[np.int64] = np.where(raw_points < 0.0, DOUBLINGS - outward, DOUBLINGS + 1 + outward)
    bins[np.isnan(raw_points)] = BINS
    return bins


def count(raw_points: NDArray[np.float64]) -> NDArray[np.int64]:
    """Count the values of each column by bin, shape (m, B); parameters as for `place`.

    Notes
    -----
    Privacy: a record is one row, and adds 1 to at most one bin of each of the m columns: to none where its value is
    missing. So one record more or less moves the counts by at most sqrt(m) in the L2 norm, and a record that lacks
    nothing moves them by that.
    """
    # FastLloyd, §5.3.4: a client's sums, before its mask; the noise comes on top.
    counts = [np.bincount(column, minlength=BINS + 1)[:BINS] for column in place(raw_points).T]
    return np.stack(counts).astype(np.int64)


def cores(noisy: NDArray[np.float64], noise: float) -> list[tuple[int, int] | None]:
    """Return the first and the last bin of each column that stand out of the noise; None where none does.

    Parameters
    ----------
    noisy : float64 array, shape (m, B)
    noise : float
        s, the standard deviation of the noise on each count.

    Notes
    -----
    A bin stands out above z s, z = Phi^-1(1 - alpha / (m B)): of all m B bins together, those that are empty do so
    with probability alpha at most.
    """
    most = NormalDist().inv_cdf(1.0 - ALPHA / noisy.size) * noise
    found = (np.flatnonzero(row > most) for row in noisy)
    return [(int(out[0]), int(out[-1])) if len(out) else None for out in found]


def find(noisy: NDArray[np.float64], noise: float) -> list[tuple[int, int] | None]:
    """Return the first and the last bin of each column within its bounds; None where nothing but the origin stands out.

    Parameters
    ----------
    noisy, noise
        As for `cores`.

    Notes
    -----
    Each core, grown outwards while the next bin holds more than `GROW` s. An empty bin next to it is taken with
    probability 0.023; that makes the bounds on its side twice as wide. What lies near the origin is spread over many
    small bins, and may not stand out in any of them: bounds that come near the origin reach to it, which makes them
    wider by a seventh at most. The two bins at the origin alone are no bounds: they hold one value, and a run with them
    would clip all others to it.
    """
    grown: list[tuple[int, int] | None] = []
    for row, core in zip(noisy, cores(noisy, noise), strict=True):
        bounds = None
        if core is not None:
            first, last = core
            while first > 0 and row[first - 1] > GROW * noise:
                first -= 1
            while last < BINS - 1 and row[last + 1] > GROW * noise:
                last += 1
            if last + 1 - first >= REACH:
                first, last = min(first, DOUBLINGS + 1), max(last, DOUBLINGS)
            if first < DOUBLINGS or last > DOUBLINGS + 1:
                bounds = first, last
        grown.append(bounds)
    return grown


def ends(noisy: NDArray[np.float64], noise: float) -> list[tuple[float, float] | None]:
    """Return the bounds of each column, scaled; None where nothing but the origin stands out.

    Parameters
    ----------
    noisy, noise
        As for `cores`.

    Notes
    -----
    The outer edges of the bins of `find`, each moved inwards where the values thin out: a bin that doubles the range
    is mostly empty if it holds the tail of a column, and columns that are twice too wide count less beside others.
    With c the count of the outer bin, w its width, and f the geometric mean of its density c / w and that of the bin
    beside it, an exponential tail of density f at the edge between them holds c in all, and `BEYOND` of the column's
    values from (c / f) ln(c / (`BEYOND` * all)) on. A bin that is denser than its neighbour, or whose neighbour holds
    less than `GROW` s, is no tail and stays whole. Nothing but the noisy counts enters: the promise is that of these.
    """
    found: list[tuple[float, float] | None] = []
    for row, bins in zip(noisy, find(noisy, noise), strict=True):
        bounds = None
        if bins is not None:
            first, last = bins
            everybody = float(row[first : last + 1].clip(0.0).sum())
            low = EDGES[first + 1] - _tail(row, first, first + 1, noise, everybody) if first < last else EDGES[first]
            high = EDGES[last] + _tail(row, last, last - 1, noise, everybody) if first < last else EDGES[last + 1]
            bounds = float(low), float(high)
        found.append(bounds)
    return found


def _tail(row: NDArray[np.float64], outer: int, inner: int, noise: float, everybody: float) -> float:
    """Return how much of an outer bin stays within the bounds, from the edge that it shares with the bin beside it."""
    own, width = float(row[outer]), float(EDGES[outer + 1] - EDGES[outer])
    density, beside = own / width, float(row[inner]) / float(EDGES[inner + 1] - EDGES[inner])
    tail = own > 0.0 and row[inner] > GROW * noise and beside > density
    if not tail or outer in (DOUBLINGS, DOUBLINGS + 1):  # what ends at the origin ends there
        return width
    length = own / math.sqrt(density * beside) * math.log(max(own / (BEYOND * everybody), 1.0))
    return min(math.ceil(length / width * STEPS), STEPS) / STEPS * width
